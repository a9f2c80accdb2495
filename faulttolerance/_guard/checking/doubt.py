"""Definitions that are right by the specification and seldom meant: ``check`` tells of them, nothing refuses them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..._policy import Bulkhead, CircuitBreaker, Policy, RateLimit, Timeout, seconds
from ..._shown import escaped
from ...exceptions import BulkheadException, RateLimitException, TimeoutException

if TYPE_CHECKING:
    from ..control import GuardedMethod

_INSIDE = (
    (Bulkhead, BulkheadException, "a call that the bulkhead refuses"),
    (RateLimit, RateLimitException, "a call that the rate limit refuses"),
    (Timeout, TimeoutException, "a call that takes too long"),
)
"""The policies between a circuit breaker and the method, with the exception that each raises, and when."""


def doubts(guards: Iterable[GuardedMethod]) -> Iterator[str]:
    """Tell of circuit breakers that take trouble of the guard itself for a success, and how to settle it.

    Specification, circuitbreaker: any exception that ``failOn`` does not name is a success. Whoever means it says so by
    ``skip_on``.
    """
    for guard in guards:
        policies = {type(policy): policy for policy in guard.policies}
        breaker = policies.get(CircuitBreaker)
        if not isinstance(breaker, CircuitBreaker):
            continue
        named = (*_classes(breaker.fail_on), *_classes(breaker.skip_on))
        for kind, error, case in _INSIDE:
            if _is_at_work(policies.get(kind)) and not issubclass(error, named):
                yield escaped(
                    f"{guard.name} @CircuitBreaker(fail_on) does not name {error.__name__}: {case} is a success of the"
                    f" circuit; name {error.__name__} in fail_on, or in skip_on if that is meant"
                )


def _classes(exceptions: object) -> tuple[type[BaseException], ...]:
    return exceptions if isinstance(exceptions, tuple) else ()


def _is_at_work(policy: Policy | None) -> bool:
    return policy is not None and not (isinstance(policy, Timeout) and seconds(policy.value, policy.unit) == 0)
