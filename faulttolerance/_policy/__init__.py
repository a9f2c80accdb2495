"""Policies: frozen values of what was asked for, their ranges and units. One file per annotation."""

from .adaptive_throttle import AdaptiveThrottle as AdaptiveThrottle
from .asynchronous import Asynchronous as Asynchronous, AsynchronousNonBlocking as AsynchronousNonBlocking
from .bulkhead import Bulkhead as Bulkhead
from .chaos import Chaos as Chaos
from .circuit_breaker import (
    CircuitBreaker as CircuitBreaker,
    CircuitBreakerName as CircuitBreakerName,
    FailWhen as FailWhen,
)
from .coalesce import Coalesce as Coalesce
from .deadline import Deadline as Deadline
from .fallback import Fallback as Fallback, LastGood as LastGood, last_good as last_good, last_good_in as last_good_in
from .fleet_wide import FleetWide as FleetWide
from .hedge import Hedge as Hedge
from .kind import Kind as Kind
from .parameter import (
    DEFAULT_PLACE as DEFAULT_PLACE,
    Parameter as Parameter,
    Policy as Policy,
    check as check,
    in_milliseconds as in_milliseconds,
    parameters as parameters,
    shared as shared,
    typed_call as typed_call,
    warn_of_bare_numbers as warn_of_bare_numbers,
)
from .partition_by import PartitionBy as PartitionBy
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
from .unit import ChronoUnit as ChronoUnit, duration_of as duration_of, seconds as seconds, spelled as spelled
