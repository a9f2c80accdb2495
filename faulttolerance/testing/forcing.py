"""Forced states of guards for a time: an open circuit, a full bulkhead, a spent budget.

Within the block, calls meet strategies that are made for it. Those of the target stay as they are, with the calls in
flight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import Any, Final, Literal, TypeAlias

from .._call.order import STRATEGY_FACTORIES, Strategies
from .._call.state import State
from .._config import Effective
from .._deadline.clock import clock
from .._guard.resolve.circuit_breakers import deliver_transitions
from .._guard.resolve.transaction import overridden
from .._policy import Bulkhead, CircuitBreaker, Policy, RateLimit, RateLimitType, RetryBudget
from .._shown import shown
from .._strategy.circuit_state import CLOSED, HALF_OPEN, OPEN, StateName
from ..exceptions import definition_error
from .reusable_context import ReusableContext
from .target import Target, TargetWrapper, kind_of, target_of

Values: TypeAlias = Mapping[type[Policy], Mapping[str, Any]]
"""The values that some policies have within a block."""

_EXHAUSTED: Final[Values] = {
    Bulkhead: {"value": 0, "waiting_task_queue": 0, "max_wait": 0, "latency": 0},
    RateLimit: {"value": 0, "type": RateLimitType.FIXED, "min_spacing": 0, "max_wait": 0},
    RetryBudget: {"ratio": 0.0, "burst": 0.0, "name": ""},
}


def force(target: Any, state: Literal["open", "half-open", "closed"]) -> ReusableContext[None]:
    """Force circuits into a state within a block, or for a decorated test.

    An open circuit stays open, and a closed circuit closed, whatever the outcomes of its calls are. A half-open circuit
    admits probes, and goes on as they end. Listeners are notified as usual. When the block ends, each circuit is as it
    was before: its state, since when, the results in its window, how often it has opened. Calls that it had admitted
    before count in it.

    Args:
        target: A guarded function or method, a method of an object, for its class, a class with its subclasses, or a
            ``Guard``; it need not have been called. Classes that come into use within the block are included, and after
            a ``reset()`` all of them. Of ``@partition_by`` every key is included, also new keys.
        state: One of ``"open"``, ``"half-open"`` and ``"closed"``.

    Raises:
        FaultToleranceDefinitionException: The target is not guarded, or has no circuit breaker in force.

    >>> from faulttolerance import circuit_breaker, fallback
    >>> @fallback(lambda *_: "from the cache")
    ... @circuit_breaker
    ... def fetch():
    ...     return "fresh"
    >>> with force(fetch, "open"):
    ...     fetch()
    'from the cache'
    """
    where = "testing.force"
    if state not in (OPEN, HALF_OPEN, CLOSED):
        raise definition_error(f"{where}(state)", f"is {shown(state)}", state, "'open', 'half-open' or 'closed'")
    named = target_of(where, target)
    return ReusableContext("force", lambda: _forced(where, named, {CircuitBreaker: {}}, state))


def exhaust(target: Any, *which: str | type[Policy]) -> ReusableContext[None]:
    """Use up the limits of calls within a block, or for a decorated test: every call is refused.

    A bulkhead has no permit and no place in its queue, a rate limit has no room in its window, and a retry budget has
    no token, for as long as the block lasts. When it ends, each is as if the calls within had not been made. Calls in
    flight are unchanged.

    Args:
        target: As for ``force``. A retry budget with a name is used up for the target alone.
        which: One or more of ``"Bulkhead"``, ``"RateLimit"`` and ``"RetryBudget"``; by default all of these that the
            target has.

    Raises:
        FaultToleranceDefinitionException: The target is not guarded, or none of the policies is in force on it.

    >>> from faulttolerance import bulkhead
    >>> @bulkhead(5)
    ... def fetch():
    ...     return "fresh"
    >>> with exhaust(fetch):
    ...     fetch()
    Traceback (most recent call last):
    faulttolerance.exceptions.BulkheadException: ...: bulkhead is full
    """
    where = "testing.exhaust"
    kinds = tuple(kind_of(where, one) for one in which)
    if wrong := [kind for kind in kinds if kind not in _EXHAUSTED]:
        allowed = ", ".join(repr(kind.annotation) for kind in _EXHAUSTED)
        raise definition_error(where, f"got {wrong[0].annotation!r}", wrong[0].annotation, allowed)
    named, values = target_of(where, target), {kind: _EXHAUSTED[kind] for kind in kinds or _EXHAUSTED}
    return ReusableContext("exhaust", lambda: _forced(where, named, values))


@contextmanager
def _forced(where: str, target: Target, values: Values, state: StateName | None = None) -> Iterator[None]:
    """Force the policies with *values* that are in force, for the block; circuits into *state*."""
    present = target.in_force()
    wanted = {kind: named for kind, named in values.items() if kind in present}
    if not wanted:
        names = ", ".join(kind.annotation for kind in values)
        raise definition_error(where, f"got {target.name}", target.name, f"a target with {names} in force")
    forced = _Forced(target, wanted, state)
    target.create_states()
    with overridden(forced):
        try:
            yield
        finally:
            forced.end()


class _ForcedStrategies(Strategies):
    """Strategies of which some are made for a block; ``own`` are those of the target."""

    own = Strategies()  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]


class _Forced(TargetWrapper):
    """The values and the strategies that stand for those of one target; no fleet shares them."""

    def __init__(self, target: Target, values: Values, state: StateName | None) -> None:
        super().__init__(target)
        self._values = values
        self._state = state
        self._made: dict[State, dict[type[Policy], Any]] = {}

    def __call__(self, subject: object, effective: Effective) -> Effective:
        """Return the values within the block."""
        if not self._target.covers(subject):
            return effective
        policy, kind = copy(effective.policy), type(effective.policy)
        vars(policy).update(self._values.get(kind, {}))  # unchecked: no declaration may exhaust a limit
        return effective._replace(policy=policy, enabled=effective.enabled and kind.annotation != "FleetWide")

    def around_strategies(
        self, state: State, strategies: Strategies, in_force: Mapping[type[Policy], Policy]
    ) -> Strategies:
        """Return the *strategies* of *state* with those of the block."""
        made = self._made.setdefault(state, {})
        for kind, factory in STRATEGY_FACTORIES.items():
            if kind in in_force and kind not in made and (kind in self._values or factory.nested is not None):
                made[kind] = factory.make(state.name, in_force[kind], strategies)
                if self._state is not None and kind is CircuitBreaker:
                    made[kind].force(clock.monotonic(), self._state)
        forced = _ForcedStrategies.of({**strategies.by_policy(), **made})
        # A limit that would begin used up is made after the block: its tokens would stay away.
        begun = {kind for kind, values in self._values.items() if values} - state.strategies.own.by_policy().keys()
        own = {kind: strategy for kind, strategy in strategies.own.by_policy().items() if kind not in begun}
        forced.own = Strategies.of(own)  # type: ignore[misc]  # a property for readers
        return forced

    def end(self) -> None:
        """Close the circuits of the block, for those who listen to them; give the states their own strategies back."""
        for state, made in self._made.items():
            for kind, breaker in Strategies.of(made).items():
                if kind is CircuitBreaker:
                    breaker.reset(clock.monotonic())
                    deliver_transitions(breaker)
            state.strategies = state.strategies.own  # also where no call path is renewed
