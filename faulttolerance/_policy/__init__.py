"""Policies: frozen values of the declared parameters, with their ranges and units."""

from .core import (
    Asynchronous as Asynchronous,
    AsynchronousNonBlocking as AsynchronousNonBlocking,
    BeforeRetry as BeforeRetry,
    Bulkhead as Bulkhead,
    CircuitBreaker as CircuitBreaker,
    CircuitBreakerName as CircuitBreakerName,
    CustomBackoff as CustomBackoff,
    ExponentialBackoff as ExponentialBackoff,
    FailWhen as FailWhen,
    FibonacciBackoff as FibonacciBackoff,
    HonorRetryAfter as HonorRetryAfter,
    RateLimit as RateLimit,
    RateLimitType as RateLimitType,
    Retry as Retry,
    RetryBudget as RetryBudget,
    RetryWhen as RetryWhen,
    Timeout as Timeout,
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
from .unit import ChronoUnit as ChronoUnit, format_duration as format_duration, seconds as seconds
