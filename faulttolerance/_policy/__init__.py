"""Policies: frozen values of the declared parameters, with their ranges and units. One file per annotation."""

from .asynchronous import Asynchronous as Asynchronous, AsynchronousNonBlocking as AsynchronousNonBlocking
from .bulkhead import Bulkhead as Bulkhead
from .circuit_breaker import (
    CircuitBreaker as CircuitBreaker,
    CircuitBreakerName as CircuitBreakerName,
    FailWhen as FailWhen,
)
from .fallback import (
    Fallback as Fallback,
    RecallingHandler as RecallingHandler,
    recalling_handler_in as recalling_handler_in,
)
from .kind import Kind as Kind
from .parameter import (
    DEFAULT_PLACE as DEFAULT_PLACE,
    Parameter as Parameter,
    Policy as Policy,
    Values as Values,
    call_source as call_source,
    check as check,
    in_milliseconds as in_milliseconds,
    parameters as parameters,
    warn_of_bare_numbers as warn_of_bare_numbers,
)
from .rate_limit import RateLimit as RateLimit, RateLimitType as RateLimitType
from .retry import (
    BeforeRetry as BeforeRetry,
    CustomBackoff as CustomBackoff,
    ExponentialBackoff as ExponentialBackoff,
    FibonacciBackoff as FibonacciBackoff,
    HonorRetryAfter as HonorRetryAfter,
    Retry as Retry,
    RetryWhen as RetryWhen,
)
from .retry_budget import RetryBudget as RetryBudget
from .timeout import Timeout as Timeout
from .unit import (
    ChronoUnit as ChronoUnit,
    format_duration as format_duration,
    parse_duration as parse_duration,
    seconds as seconds,
)
