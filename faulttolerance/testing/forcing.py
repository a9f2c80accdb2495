"""Forced states of guards for a time: an open circuit, a full bulkhead, a spent budget."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal, TypeAlias

from .._call.order import STRATEGY_FACTORIES, Strategies
from .._call.state import State
from .._guard.resolve.resolver import state_listeners
from .._policy import CircuitBreaker, Policy
from .._shown import shown
from .._strategy.circuit_state import CLOSED, HALF_OPEN, OPEN
from ..exceptions import definition_error
from .forced_strategies import EXHAUSTED, change_class, exhaust_strategy, force_breaker
from .reusable_context import ReusableContext
from .target import Target, kind_of, target_of

ForceState: TypeAlias = Callable[[Any], Callable[[], object]]
"""A function that changes a strategy's state, and returns a function that ends the change."""


def force(target: Any, state: Literal["open", "half-open", "closed"]) -> ReusableContext[None]:
    """Force circuits into a state within a block, or for a decorated test.

    An open circuit stays open, and a closed circuit closed, whatever the outcomes of its calls are. A half-open circuit
    admits probes, and goes on as they end. Listeners are notified as usual. When the block ends, each circuit is as it
    was before: its state, since when, the results in its window, how often it has opened. Calls that it had admitted
    before count in it if they end after the block.

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
    force_state = partial(force_breaker, state=state)
    return ReusableContext("force", lambda: _forced(where, named, (CircuitBreaker,), force_state))


def exhaust(target: Any, *which: str | type[Policy]) -> ReusableContext[None]:
    """Use up the limits of calls within a block, or for a decorated test: every call is refused.

    A bulkhead has no permit and no place in its queue, a rate limit has no room in its window, a retry budget has no
    token, and an adaptive throttle refuses every call, for as long as the block lasts. When it ends, each is as if the
    calls within had not been made. Calls in flight go on, and the permits and tokens that they release count.

    Args:
        target: As for ``force``. A retry budget with a name is used up for all guards that share it.
        which: One or more of ``"Bulkhead"``, ``"RateLimit"``, ``"RetryBudget"`` and ``"AdaptiveThrottle"``; by default
            all of these that the target has.

    Raises:
        FaultToleranceDefinitionException: The target is not guarded, or a named policy is not in force on it.

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
    if wrong := [kind for kind in kinds if kind not in EXHAUSTED]:
        allowed = ", ".join(repr(kind.annotation) for kind in EXHAUSTED)
        raise definition_error(where, f"got {wrong[0].annotation!r}", wrong[0].annotation, allowed)
    named = target_of(where, target)
    return ReusableContext("exhaust", lambda: _forced(where, named, kinds, exhaust_strategy))


@contextmanager
def _forced(where: str, target: Target, kinds: Collection[type[Policy]], force_state: ForceState) -> Iterator[None]:
    """Impose on every strategy of *kinds* that *target* has, and on those of classes and keys that come meanwhile."""
    present = target.in_force()
    wanted = kinds or [kind for kind in EXHAUSTED if kind in present]
    missing = [kind.annotation for kind in kinds if kind not in present]
    if missing or not wanted:
        names = ", ".join(missing or [kind.annotation for kind in EXHAUSTED])
        raise definition_error(where, f"got {target.name}", target.name, f"a target with {names} in force")
    forced_states = _ForcedStates(target, wanted, force_state)
    try:
        state_listeners[forced_states] = forced_states.force_use
        for state in list(target.states()):
            forced_states.force_all(state)
        yield
    finally:
        state_listeners.pop(forced_states, None)
        forced_states.end()


class _ForcedStates:
    """The changes that one block imposes, and their end."""

    def __init__(self, target: Target, kinds: Collection[type[Policy]], force_state: ForceState) -> None:
        self._target = target
        self._kinds = kinds
        self._force_state = force_state
        self._taken: set[int] = set()
        self._ends = ExitStack()
        # Reentrant: listeners are notified of the changes, and may call guards that come into use.
        self._lock = threading.RLock()
        self._is_over = False

    def end(self) -> None:
        """Restore everything as it was found, and impose on nothing more."""
        with self._lock:
            self._is_over = True
        self._ends.close()

    def force_strategy(self, strategy: Any) -> None:
        """Impose on one strategy, once: strategies may be shared."""
        if id(strategy) not in self._taken:
            self._taken.add(id(strategy))
            self._ends.callback(self._force_state(strategy))

    def force_use(self, subject: Any, state: State) -> None:
        """Impose on the *state* of *subject*, a guard and the class that uses it, if the target covers it."""
        if self._target.covers(subject):
            self.force_all(state)

    def force_all(self, state: State) -> None:
        """Impose on the strategies of *state*, its keys included."""
        with self._lock:
            if self._is_over:
                return
            if (partitions := state.partitions) is not None and id(partitions) not in self._taken:
                self._watch(partitions, state)
            for kind, strategy in state.strategies.items():
                if kind in self._kinds:
                    self.force_strategy(strategy)

    def _watch(self, partitions: Any, state: State) -> None:
        """Impose on strategies of new keys, before a call gets them."""
        complete = partial(self._complete, state)

        class Watched(type(partitions)):  # type: ignore[misc]
            __slots__ = ()

            def place(self, key: Any, make: Callable[[], Any], now: float) -> Any:
                # A block around this one comes first, as it ends last.
                placed, gone = super().place(key, make, now)
                if placed is not None:
                    complete(placed[0])
                return placed, gone

        with partitions.lock:
            self._taken.add(id(partitions))
            self._ends.callback(change_class(partitions, Watched))

    def _complete(self, state: State, partition: Any) -> None:
        if self._is_over:
            return
        in_force = {type(policy): policy for policy in state.policies}
        made = partition.strategies.by_policy()
        for kind, memory in STRATEGY_FACTORIES.items():
            if kind in self._kinds and kind in in_force and memory.is_per_key:
                made[kind] = made.get(kind) or memory.make(state.name, in_force[kind], Strategies.of(made))
                self.force_strategy(made[kind])
        partition.strategies = Strategies.of(made)
