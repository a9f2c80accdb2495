"""What a guarded method remembers between calls; it outlives changes of the configuration."""

from __future__ import annotations

from collections.abc import Mapping

from .._event import Series, Tally, ledger
from .._policy import Bulkhead, CircuitBreaker, Fallback, Policy, RateLimit, Retry, Timeout, seconds
from .._runtime.clock import clock
from .._strategy import bulkhead, circuit_breaker, rate_limit
from .series import Meter, shape_of

__all__ = ["State"]

Policies = Mapping[type[Policy], Policy]


class State:
    """The breaker, the permits, the rate window and the counts of one (class, method), or of one ``Guard``.

    Each is made when a policy first asks for it, and kept when the policy changes or is switched off.
    """

    __slots__ = (
        "_meter",
        "_tallies",
        "alias",
        "bulkhead",
        "circuit_breaker",
        "name",
        "rate_limit",
    )

    _ledger = ledger

    def __init__(self, name: str, alias: str = "") -> None:
        self.name = name
        self.alias = alias
        """A further name of the breaker, that of ``@circuit_breaker_name``."""
        self.circuit_breaker: circuit_breaker.CircuitBreaker | None = None
        self.bulkhead: bulkhead.Bulkhead | None = None
        self.rate_limit: rate_limit.RateLimit | None = None
        # One per set of policies: calls in flight while the configuration changes end under what they began with.
        # What they counted stays in the ledger when the state goes.
        self._tallies: tuple[Tally, ...] = ()
        self._meter: Meter | None = None

    @property
    def breaker_names(self) -> tuple[str, ...]:
        """What the breaker is known as, if there is one."""
        if self.circuit_breaker is None:
            return ()
        return (self.name, self.alias) if self.alias else (self.name,)

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
            lock = self.circuit_breaker.lock if self.circuit_breaker is not None else None
            self.bulkhead = bulkhead.Bulkhead(policy.value, policy.waiting_task_queue, self.name, lock=lock)
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
        shape = shape_of(
            fallback=Fallback in policies,
            retry=Retry in policies,
            circuit_breaker=CircuitBreaker in policies,
            rate_limit=RateLimit in policies,
            timeout=Timeout in policies,
            bulkhead=Bulkhead in policies,
            queue=queue,
        )
        tally = next((one for one in self._tallies if one.account.shape is shape), None)
        if tally is None:
            tally = self._ledger.open(self.name, shape)
            self._tallies = (*self._tallies, tally)
        if CircuitBreaker in policies or Bulkhead in policies:
            # It may not refer to the state, or that would be there for as long as its counts.
            meter = self._meter = self._tallies[0].account.meter = self._meter or Meter()
            meter.breaker = self.circuit_breaker
            meter.bulkhead = self.bulkhead
            meter.queues = meter.queues or (Bulkhead in policies and queue)
        return tally

    def counts(self) -> dict[Series, int]:
        """The value of every series of the method, histograms aside."""
        total: dict[Series, int] = {}
        for tally in self._tallies:
            tally.account.read(total, {})
        if self._meter is not None:
            total.update(self._meter.levels())
        return total

    def keep_only(self, ident: int) -> None:
        """In the child of a fork: give back what threads other than *ident* held, and measure time from 0."""
        if self.circuit_breaker is not None:
            self.circuit_breaker.keep_only(ident)
            self.circuit_breaker.start_counting(clock.monotonic())
        if self.bulkhead is not None:
            self.bulkhead.keep_only(ident)
        if self.rate_limit is not None:
            self.rate_limit.keep_only(ident)
