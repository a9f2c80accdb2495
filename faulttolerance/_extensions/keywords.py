"""The policies of a ``Guard`` by keywords, for type checkers."""

from __future__ import annotations

from typing import TypedDict

from .. import _policy as policies
from .adaptive_throttle.policy import AdaptiveThrottle
from .coalesce.policy import Coalesce
from .deadline.policy import Deadline
from .fleet.policy import FleetWide
from .hedge.policy import Hedge
from .partition_by.policy import PartitionBy


class GuardPolicies(TypedDict, total=False):
    """The keywords of a ``Guard``: its policies, by the names of their decorators, outermost first."""

    fallback: policies.Fallback | None
    deadline: Deadline | None
    retry: policies.Retry | None
    exponential_backoff: policies.ExponentialBackoff | None
    fibonacci_backoff: policies.FibonacciBackoff | None
    custom_backoff: policies.CustomBackoff | None
    honor_retry_after: policies.HonorRetryAfter | None
    retry_when: policies.RetryWhen | None
    before_retry: policies.BeforeRetry | None
    retry_budget: policies.RetryBudget | None
    hedge: Hedge | None
    circuit_breaker: policies.CircuitBreaker | None
    circuit_breaker_name: policies.CircuitBreakerName | None
    adaptive_throttle: AdaptiveThrottle | None
    fail_when: policies.FailWhen | None
    rate_limit: policies.RateLimit | None
    fleet_wide: FleetWide | None
    timeout: policies.Timeout | None
    bulkhead: policies.Bulkhead | None
    coalesce: Coalesce | None
    partition_by: PartitionBy | None
