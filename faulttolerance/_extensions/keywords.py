"""The policies of a ``Guard`` by keywords, for type checkers."""

from __future__ import annotations

from typing import TypedDict

from .._policy import (
    BeforeRetry,
    Bulkhead,
    CircuitBreaker,
    CircuitBreakerName,
    CustomBackoff,
    ExponentialBackoff,
    FailWhen,
    Fallback,
    FibonacciBackoff,
    HonorRetryAfter,
    RateLimit,
    Retry,
    RetryBudget,
    RetryWhen,
    Timeout,
)
from .adaptive_throttle.policy import AdaptiveThrottle
from .coalesce.policy import Coalesce
from .deadline.policy import Deadline
from .fleet.policy import FleetWide
from .hedge.policy import Hedge
from .partition_by.policy import PartitionBy


class GuardPolicies(TypedDict, total=False):
    """The keywords of a ``Guard``: its policies, by the names of their decorators, outermost first."""

    fallback: Fallback | None
    deadline: Deadline | None
    retry: Retry | None
    exponential_backoff: ExponentialBackoff | None
    fibonacci_backoff: FibonacciBackoff | None
    custom_backoff: CustomBackoff | None
    honor_retry_after: HonorRetryAfter | None
    retry_when: RetryWhen | None
    before_retry: BeforeRetry | None
    retry_budget: RetryBudget | None
    hedge: Hedge | None
    circuit_breaker: CircuitBreaker | None
    circuit_breaker_name: CircuitBreakerName | None
    adaptive_throttle: AdaptiveThrottle | None
    fail_when: FailWhen | None
    rate_limit: RateLimit | None
    fleet_wide: FleetWide | None
    timeout: Timeout | None
    bulkhead: Bulkhead | None
    coalesce: Coalesce | None
    partition_by: PartitionBy | None
