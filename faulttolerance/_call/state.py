"""What a guarded method remembers between calls; it outlives changes of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_
from typing import Literal

from .._metrics.catalogue import Series
from .._metrics.counters import Counters
from .._metrics.ledger import Ledger, ledger
from .._metrics.series import Meter, schema_of
from .._policy import Bulkhead, CircuitBreaker, CircuitBreakerName, Fallback, Policy, RateLimit, Retry, Timeout, seconds
from .._runtime.clock import clock
from .._strategy import bulkhead, circuit_breaker, rate_limit
from .._swap import Swap

__all__ = ["Prospect", "State", "alias_in"]

Policies = Mapping[type[Policy], Policy]

_COUNTED = (Fallback, Retry, CircuitBreaker, RateLimit, Timeout, Bulkhead)
_REMEMBERING = (CircuitBreaker, RateLimit, Bulkhead)


class State:
    """The breaker, the permits, the rate window and the counts of one (class, method), or of one ``Guard``.

    Each is made when a policy first asks for it, and kept when the policy changes or is switched off.
    """

    __slots__ = (
        "_counters",
        "_followed",
        "_meter",
        "alias",
        "bulkhead",
        "circuit_breaker",
        "name",
        "policies",
        "rate_limit",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.alias = ""
        """A further name of the breaker, that of ``@circuit_breaker_name``."""
        self.circuit_breaker: circuit_breaker.CircuitBreaker | None = None
        self.bulkhead: bulkhead.Bulkhead | None = None
        self.rate_limit: rate_limit.RateLimit | None = None
        self.policies: tuple[Policy, ...] = ()
        """Those in force whose values the breaker, the bulkhead and the rate window have, or are about to take."""
        self._followed: tuple[Policy, ...] | None = ()
        # One per set of policies: calls in flight while the configuration changes end under what they began with.
        # What they counted stays in the ledger when the state goes.
        self._counters: tuple[Counters, ...] = ()
        self._meter: Meter | None = None

    @property
    def breaker_names(self) -> tuple[str, ...]:
        """What the breaker is known as, if there is one."""
        if self.circuit_breaker is None:
            return ()
        return (self.name, self.alias) if self.alias else (self.name,)

    def follow(self) -> None:
        """Let the breaker, the bulkhead and the rate window take the values of ``policies``.

        A signal handler or another thread may change these meanwhile, and follow them itself. Each looks again after it
        has followed, so the last one does so after the last change.
        """
        while (policies := self.policies) is not self._followed:
            self._followed = None
            for policy in policies:
                self._take(policy)
            self._followed = policies

    def _take(self, policy: Policy) -> None:
        if isinstance(policy, CircuitBreaker) and self.circuit_breaker is not None:
            self.circuit_breaker.reconfigure(*_breaker_values(policy), clock.monotonic())
        elif isinstance(policy, RateLimit) and self.rate_limit is not None:
            self.rate_limit.reconfigure(*_limit_values(policy), clock.monotonic())
        elif isinstance(policy, Bulkhead) and self.bulkhead is not None:
            self.bulkhead.resize(policy.value, policy.waiting_task_queue)

    def counts(self) -> dict[Series, int]:
        """The value of every series of the method, histograms aside."""
        total: dict[Series, int] = {}
        for counters in self._counters:
            counters.account.read(total, {})
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
        self.follow()  # a thread that is not here may have been about to


class Prospect:
    """What a state becomes under *policies*: nothing of it is there before ``put``.

    Args:
        state: The state, which may be a new one.
        policies: Those in force.
        entered: Where the counts are to be read.
    """

    __slots__ = ("_before", "_counters", "_ledger", "_meter", "bulkhead", "circuit_breaker", "rate_limit", "state")

    def __init__(self, state: State, policies: Policies, entered: Ledger = ledger) -> None:
        self.state = state
        self._before = _parts(state)
        self._ledger = entered
        self.circuit_breaker = state.circuit_breaker
        self.bulkhead = state.bulkhead
        self.rate_limit = state.rate_limit
        self._counters = state._counters
        self._meter = state._meter
        breaker, limit, permits = map(policies.get, _REMEMBERING)
        if self.circuit_breaker is None and isinstance(breaker, CircuitBreaker):
            self.circuit_breaker = circuit_breaker.CircuitBreaker(
                state.name, *_breaker_values(breaker), now=clock.monotonic()
            )
        if self.rate_limit is None and isinstance(limit, RateLimit):
            self.rate_limit = rate_limit.RateLimit(state.name, *_limit_values(limit))
        if self.bulkhead is None and isinstance(permits, Bulkhead):
            lock = self.circuit_breaker.lock if self.circuit_breaker is not None else None
            self.bulkhead = bulkhead.Bulkhead(permits.value, permits.waiting_task_queue, state.name, lock=lock)

    def counters_for(self, name: str, policies: Policies, queue: bool) -> Counters | None:
        """The counts, as *name*, of a method with *policies*; ``None`` where nothing of them is counted."""
        if not any(kind in policies for kind in _COUNTED):
            return None
        schema = schema_of(
            fallback=Fallback in policies,
            retry=Retry in policies,
            circuit_breaker=CircuitBreaker in policies,
            rate_limit=RateLimit in policies,
            timeout=Timeout in policies,
            bulkhead=Bulkhead in policies,
            queue=queue,
        )
        counters = next((one for one in self._counters if one.account.schema is schema), None)
        if counters is None:
            counters = self._ledger.new(name, schema)
            self._counters = (*self._counters, counters)
        if CircuitBreaker in policies or Bulkhead in policies:
            self._measure(queues=Bulkhead in policies and queue)
        return counters

    def _measure(self, queues: bool) -> None:
        # It may not refer to the state, or that would be there for as long as its counts.
        known = self._meter
        wanted = self.circuit_breaker, self.bulkhead, queues or (known is not None and known.queues)
        if known is None or wanted != (known.breaker, known.bulkhead, known.queues):
            self._meter = Meter(*wanted)

    @property
    def is_current(self) -> bool:
        """Whether the state is still what it was when this was made."""
        return all(map(is_, self._before, _parts(self.state)))

    def put(self, policies: Policies, swap: Swap) -> None:
        """Let the state become this and have *policies*, together with the other stores of *swap*."""
        state = self.state
        swap.attribute(state, "alias", alias_in(policies) or state.alias)
        remembering = tuple(policies[kind] for kind in _REMEMBERING if kind in policies)
        swap.attribute(state, "policies", remembering)
        if not any(_parts(state)[:3]):  # what is new has its values already
            swap.attribute(state, "_followed", remembering)
        for name in ("circuit_breaker", "rate_limit", "bulkhead", "_counters", "_meter"):
            swap.attribute(state, name, getattr(self, name))
        for counters in self._counters:
            if counters not in state._counters:
                self._ledger.enter(counters, swap)
        if self._meter is not None:
            swap.attribute(self._counters[0].account, "meter", self._meter)


def alias_in(policies: Policies) -> str:
    """The further name of a breaker with *policies*."""
    given = policies.get(CircuitBreakerName)
    return given.value if isinstance(given, CircuitBreakerName) and CircuitBreaker in policies else ""


def _parts(state: State) -> tuple[object, ...]:
    return state.circuit_breaker, state.rate_limit, state.bulkhead, state._counters, state._meter


def _breaker_values(policy: CircuitBreaker) -> tuple[float, int, float, int]:
    delay = seconds(policy.delay, policy.delay_unit)
    return delay, policy.request_volume_threshold, policy.failure_ratio, policy.success_threshold


def _limit_values(policy: RateLimit) -> tuple[int, float, float, Literal["fixed", "rolling", "smooth"]]:
    window = seconds(policy.window, policy.window_unit)
    return policy.value, window, seconds(policy.min_spacing, policy.min_spacing_unit), policy.type.value  # type: ignore[union-attr]  # a member once it is checked
