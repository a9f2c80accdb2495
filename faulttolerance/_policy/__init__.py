"""What was asked for: frozen values, their ranges and units. One file per annotation."""

from .asynchronous import Asynchronous, AsynchronousNonBlocking
from .bulkhead import Bulkhead
from .circuit_breaker import CircuitBreaker, CircuitBreakerName
from .fallback import Fallback
from .kind import Kind
from .parameter import DEFAULT_PLACE, Parameter, Policy, check, parameters, shared
from .rate_limit import RateLimit, RateLimitType
from .retry import BeforeRetry, CustomBackoff, ExponentialBackoff, FibonacciBackoff, Retry, RetryWhen
from .timeout import Timeout
from .unit import ChronoUnit, seconds

__all__ = [
    "DEFAULT_PLACE",
    "Asynchronous",
    "AsynchronousNonBlocking",
    "BeforeRetry",
    "Bulkhead",
    "ChronoUnit",
    "CircuitBreaker",
    "CircuitBreakerName",
    "CustomBackoff",
    "ExponentialBackoff",
    "Fallback",
    "FibonacciBackoff",
    "Kind",
    "Parameter",
    "Policy",
    "RateLimit",
    "RateLimitType",
    "Retry",
    "RetryWhen",
    "Timeout",
    "check",
    "parameters",
    "seconds",
    "shared",
]
