"""What a guarded method remembers between calls; it outlives changes of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import WeakSet

from .._event import Series, Tally
from .._policy import Bulkhead, CircuitBreaker, Fallback, Policy, RateLimit, Retry, Timeout, seconds
from .._runtime.clock import clock
from .._runtime.fork import at_fork
from .._strategy import bulkhead, circuit_breaker, rate_limit
from .series import series_of

__all__ = ["State", "states"]

Policies = Mapping[type[Policy], Policy]


class State:
    """The breaker, the permits, the rate window and the counts of one (class, method), or of one ``Guard``.

    Each is made when a policy first asks for it, and kept when the policy changes or is switched off.
    """

    __slots__ = ("__weakref__", "bulkhead", "circuit_breaker", "name", "rate_limit", "tallies")

    def __init__(self, name: str) -> None:
        self.name = name
        self.circuit_breaker: circuit_breaker.CircuitBreaker | None = None
        self.bulkhead: bulkhead.Bulkhead | None = None
        self.rate_limit: rate_limit.RateLimit | None = None
        self.tallies: dict[tuple[bool, ...], Tally] = {}
        """One per set of policies: calls in flight while the configuration changes finish under what they began with."""
        states.add(self)

    def breaker_for(self, policy: CircuitBreaker) -> circuit_breaker.CircuitBreaker:
        """The breaker, with the values of *policy*."""
        values = (
            seconds(policy.delay, policy.delay_unit),
            policy.request_volume_threshold,
            policy.failure_ratio,
            policy.success_threshold,
        )
        if self.circuit_breaker is None:
            self.circuit_breaker = circuit_breaker.CircuitBreaker(self.name, *values, now=clock.monotonic())
        else:
            self.circuit_breaker.reconfigure(*values, clock.monotonic())
        return self.circuit_breaker

    def bulkhead_for(self, policy: Bulkhead) -> bulkhead.Bulkhead:
        """The bulkhead, with the values of *policy*."""
        if self.bulkhead is None:
            self.bulkhead = bulkhead.Bulkhead(policy.value, policy.waiting_task_queue, self.name)
        else:
            self.bulkhead.resize(policy.value, policy.waiting_task_queue)
        return self.bulkhead

    def rate_limit_for(self, policy: RateLimit) -> rate_limit.RateLimit:
        """The rate window, with the values of *policy*."""
        window = seconds(policy.window, policy.window_unit)
        spacing = seconds(policy.min_spacing, policy.min_spacing_unit)
        kind: rate_limit.WindowKind = policy.type.value
        if self.rate_limit is None:
            self.rate_limit = rate_limit.RateLimit(self.name, policy.value, window, spacing, kind)
        else:
            self.rate_limit.reconfigure(policy.value, window, spacing, kind, clock.monotonic())
        return self.rate_limit

    def tally_for(self, policies: Policies, queue: bool) -> Tally | None:
        """The counts of a method with *policies*; ``None`` where nothing of them is counted."""
        counted = (Fallback, Retry, CircuitBreaker, RateLimit, Timeout, Bulkhead)
        if not any(kind in policies for kind in counted):
            return None
        shape = {
            "fallback": Fallback in policies,
            "retry": Retry in policies,
            "circuit_breaker": CircuitBreaker in policies,
            "rate_limit": RateLimit in policies,
            "timeout": Timeout in policies,
            "bulkhead": Bulkhead in policies,
            "queue": queue,
        }
        key = tuple(shape.values())
        if key not in self.tallies:
            self.tallies[key] = Tally(*series_of(**shape))
        return self.tallies[key]

    def counts(self) -> dict[Series, int]:
        """The value of every series of the method."""
        total: dict[Series, int] = {}
        for tally in self.tallies.values():
            for series, count in tally.counts().items():
                total[series] = total.get(series, 0) + count
        return total

    def keep_only(self, ident: int) -> None:
        """In the child of a fork: give back what threads other than *ident* held, and count from 0."""
        if self.circuit_breaker is not None:
            self.circuit_breaker.keep_only(ident)
            self.circuit_breaker.start_counting(clock.monotonic())
        if self.bulkhead is not None:
            self.bulkhead.keep_only(ident)
        if self.rate_limit is not None:
            self.rate_limit.keep_only(ident)
        for tally in self.tallies.values():
            tally.renew_lock()
            tally.clear()


states: WeakSet[State] = WeakSet()


def _in_child() -> None:
    from threading import get_ident

    for state in list(states):
        state.keep_only(get_ident())


at_fork(child=_in_child)
