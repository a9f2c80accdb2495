"""The policies of a ``Guard`` by keywords, for type checkers."""

from __future__ import annotations

from typing import TypedDict

from . import (
    AdaptiveThrottle,
    BeforeRetry,
    Bulkhead,
    CircuitBreaker,
    CircuitBreakerName,
    Coalesce,
    CustomBackoff,
    Deadline,
    ExponentialBackoff,
    FailWhen,
    Fallback,
    FibonacciBackoff,
    FleetWide,
    Hedge,
    HonorRetryAfter,
    PartitionBy,
    RateLimit,
    Retry,
    RetryBudget,
    RetryWhen,
    Timeout,
)


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
