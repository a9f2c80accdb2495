"""Everything that is guarded, by name: what lives, what is left of what lived, and who listens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import count
from typing import TYPE_CHECKING, Protocol, TypeAlias
from weakref import WeakSet, WeakValueDictionary

from .._event import Series, StateChanged, ledger, sinks
from .._policy import CircuitBreaker, CircuitBreakerName, Policy
from .._runtime.clock import clock
from .._runtime.fork import at_fork
from ..exceptions import Fault, FaultToleranceDefinitionException
from .state import State
from .telemetry import telemetry

if TYPE_CHECKING:
    from .._config import Snapshot
    from .._strategy.circuit_breaker import CircuitBreaker as Breaker
    from .plan import Plan

__all__ = [
    "CircuitBreakers",
    "Guarded",
    "add",
    "circuit_breakers",
    "deliver_transitions_of",
    "new_state",
    "resolvers",
    "resolving",
]


class Guarded(Protocol):
    """What is asked of every guard, of methods and ``Guard`` alike."""

    plans: dict[int, Plan]
    """What holds now, by the id of the concrete class; empty before the first call."""

    def plan(self, cls: type | None, snapshot: Snapshot | None = None) -> tuple[Plan, list[Fault]]:
        """What holds for *cls*, and what is wrong with it."""
        ...

    def replan(self, snapshot: Snapshot) -> tuple[list[tuple[type | None, Plan]], list[Fault]]:
        """What would hold for each class that was resolved, and what is wrong with it."""
        ...

    def install(self, plans: Sequence[tuple[type | None, Plan]]) -> None:
        """Let the next call of each class follow its new plan."""
        ...

    def forget(self) -> None:
        """Go back to how it was before the first call."""
        ...

    def resolved(self) -> list[type | None]:
        """The classes for which a call path was found."""
        ...

    def state(self, cls: type | None) -> State | None:
        """What is remembered for *cls*, if it was ever called."""
        ...

    def resolve_breaker(self) -> None:
        """Make the breaker known, if there is one."""
        ...


Listener: TypeAlias = Callable[[str, str, str], object]


class _Resolving:
    """A reentrant lock. When the last of its holders on a thread lets it go, exporters are connected if that is due."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Be free, in the child of a fork: a thread that held it does not exist there."""
        self._lock = threading.RLock()
        self._depth = 0  # guarded by _lock

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        if self._depth == 0:
            return  # it was forked away meanwhile
        self._depth -= 1
        is_free = self._depth == 0
        self._lock.release()
        if is_free:
            telemetry.connect_if_due()


resolving = _Resolving()
"""Held while call paths are found or exchanged: at first calls, and when the configuration changes."""

at_fork(child=resolving.begin_anew)

_serial = count()
_resolvers: WeakValueDictionary[int, Guarded] = WeakValueDictionary()
_names: WeakValueDictionary[str, State] = WeakValueDictionary()
_listeners: dict[str, list[Listener]] = {}
_states: WeakSet[State] = WeakSet()


def add(resolver: Guarded) -> None:
    """Remember a guard as long as it lives."""
    _resolvers[next(_serial)] = resolver


def resolvers() -> Iterator[Guarded]:
    """All guards that live, in the order in which they were made."""
    for key in sorted(_resolvers.keys()):
        resolver = _resolvers.get(key)
        if resolver is not None:
            yield resolver


def new_state(name: str, policies: Mapping[type[Policy], Policy]) -> State:
    """What the method *name* remembers, known to ``circuit_breakers`` under its names."""
    state = State(name)
    given = policies.get(CircuitBreakerName)
    if isinstance(given, CircuitBreakerName):
        other = _names.get(given.value)
        if other is not None and other.name != name:
            raise FaultToleranceDefinitionException(
                Fault(
                    f"{name} @CircuitBreakerName(value)",
                    f"is {given.value!r}, the name of the breaker of {other.name}",
                    given.value,
                    "a name that no other breaker has",
                )
            )
        _names[given.value] = state
    if CircuitBreaker in policies:
        _names[name] = state
    _states.add(state)
    return state


def counts() -> dict[str, dict[Series, int]]:
    """The value of every series by the name of its method; equal names add up."""
    return ledger.read().counts


def forget() -> None:
    """Forget every state, name, listener and count."""
    with resolving:
        for resolver in resolvers():
            resolver.forget()
        _states.clear()
        _names.clear()
        ledger.clear()
        telemetry.reset()
        _listeners.clear()


def deliver_transitions_of(state: State) -> Callable[[Breaker], None]:
    """What a driver calls after it asked a breaker: tells the listeners, outside every lock."""

    def deliver(breaker: Breaker) -> None:
        if breaker.transitions:
            breaker.deliver(tell)

    def tell(old: str, new: str) -> None:
        sinks.tell(StateChanged(state.name, old, new))
        for name in _names_of(state):
            for listener in list(_listeners.get(name, ())):
                try:
                    listener(name, old, new)
                except Exception:
                    import logging

                    logging.getLogger("faulttolerance").exception("a listener of the circuit breaker %s failed", name)

    return deliver


def _names_of(state: State) -> list[str]:
    return [name for name, named in list(_names.items()) if named is state]


class CircuitBreakers:
    """The circuit breakers of the application, by name.

    A breaker is known by what ``@circuit_breaker_name`` gave it, by the name of its ``Guard``, and as
    ``module.Class.method``.
    """

    def names(self) -> list[str]:
        """Every name, sorted."""
        _resolve_breakers()
        return sorted(_names.keys())

    def state(self, name: str) -> str:
        """``closed``, ``open`` or ``half-open``; the last one as soon as the delay is over, also when nobody calls.

        Raises:
            KeyError: No breaker has this name.
        """
        return self._breaker(name)[1].state_name(clock.monotonic())

    def reset(self, name: str) -> None:
        """Close the breaker *name* and forget its results.

        Raises:
            KeyError: No breaker has this name.
        """
        state, breaker = self._breaker(name)
        breaker.reset(clock.monotonic())
        deliver_transitions_of(state)(breaker)

    def reset_all(self) -> None:
        """Close every breaker."""
        for state in list(_states):
            if state.circuit_breaker is not None:
                state.circuit_breaker.reset(clock.monotonic())
                deliver_transitions_of(state)(state.circuit_breaker)

    def force_open(self, name: str) -> None:
        """Open the breaker *name* until it is reset.

        Raises:
            KeyError: No breaker has this name.
        """
        state, breaker = self._breaker(name)
        breaker.force_open(clock.monotonic())
        deliver_transitions_of(state)(breaker)

    def on_state_change(self, name: str, callback: Listener) -> None:
        """Call ``callback(name, old, new)`` at each change of state; the breaker may come into being later.

        The callback runs on the thread whose call made the change, outside every lock. One that raises is logged.
        """
        _listeners.setdefault(name, []).append(callback)

    def _breaker(self, name: str) -> tuple[State, Breaker]:
        if name not in _names:
            _resolve_breakers()
        state = _names.get(name)
        if state is None or state.circuit_breaker is None:
            near = get_close_matches(name, list(_names.keys()), 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise KeyError(f"no circuit breaker is named {name!r}{hint}")
        return state, state.circuit_breaker


circuit_breakers = CircuitBreakers()


def _resolve_breakers() -> None:
    """Let breakers be known whose methods were not called yet."""
    for resolver in list(resolvers()):
        resolver.resolve_breaker()


def every_state() -> Iterable[State]:
    """What every guarded method that was called remembers."""
    return list(_states)
