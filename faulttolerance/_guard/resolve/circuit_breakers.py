"""The circuit breakers of the application: found by name, closed and opened, listened to."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from ... import _policy as policies
from ..._deadline.clock import clock
from ..._event import StateChanged, sinks
from ..._log import ERROR, log
from ..._strategy.circuit_breaker import CLOSED, HALF_OPEN, OPEN, CircuitBreaker
from ...exceptions import FaultToleranceDefinitionException
from ..declare.registry import every_state, nothing_named, resolvers

if TYPE_CHECKING:
    from ..._call.state import State
    from ..._strategy.circuit_state import CircuitSnapshot

Listener: TypeAlias = Callable[[str, str, str], object]

EVERY: Final = object()
"""Stands for every key."""

_listeners: dict[object, tuple[str, Listener]] = {}
"""Whom to tell, with the name of the breaker; each under a key of its own, for the same callback may come twice."""


def deliver_all() -> None:
    """Tell the listeners what happened to any breaker."""
    for _, breaker in _every_breaker():
        deliver_transitions(breaker)


def deliver_transitions(breaker: CircuitBreaker) -> None:
    """Tell the listeners what happened to *breaker*; called outside every lock, after the breaker was asked."""
    if breaker.transitions:
        breaker.deliver(partial(_tell, breaker))


def _tell(breaker: CircuitBreaker, old: str, new: str, reason: str) -> None:
    sinks.tell(StateChanged(breaker.name, old, new, reason))
    if not _listeners:
        return
    aliases = [state.alias for state, other in _every_breaker() if other is breaker and state.alias]
    for name in (breaker.name, *aliases):
        for wanted, listener in list(_listeners.values()):
            try:
                if wanted == name:
                    listener(name, old, new)
            except Exception as error:  # noqa: BLE001  # it is the application's, and changes nothing
                log(ERROR, "a listener of the circuit breaker %s failed", name, error=error)


class CircuitBreakers:
    """The circuit breakers of the application, by name.

    A breaker is known by what ``@circuit_breaker_name`` gave it, by the name of its ``Guard``, and as
    ``module.Class.method``. Where several have one name, as those of a class that is made more than once, the state
    is that of the one made last; all are closed and opened.
    """

    def names(self) -> list[str]:
        """Give every name, sorted."""
        _resolve_breakers()
        return sorted(_by_name())

    def state(self, name: str, key: Hashable = EVERY) -> str:
        """Give ``closed``, ``open`` or ``half-open``; the last as soon as the delay is over, also when nobody calls.

        Args:
            name: That of the breaker.
            key: The key whose breaker it is, where ``@partition_by`` tells calls apart: as the arguments give it, for
                several names a tuple. A key that nothing is remembered of is ``closed``. By default the breaker of any
                key counts that is open, or else half-open.

        Raises:
            KeyError: No breaker has this name, or a key is given and calls are not told apart.
        """
        now = clock.monotonic()
        states = {breaker.state_name(now) for breaker in _breakers_of(self._states(name)[-1], key)}
        return next((state for state in (OPEN, HALF_OPEN) if state in states), CLOSED)

    def snapshot(self, name: str) -> CircuitSnapshot:
        """Give what the breaker *name* is at this moment: its state, since when, and what its window holds.

        Where ``@partition_by`` tells calls apart, that of the key whose state counts for ``state``.

        Raises:
            KeyError: No breaker has this name.
        """
        now = clock.monotonic()
        found = [breaker.snapshot(now) for breaker in _breakers_of(self._states(name)[-1], EVERY)]
        return next((one for state in (OPEN, HALF_OPEN) for one in found if one.state == state), found[-1])

    def reset(self, name: str, key: Hashable = EVERY) -> None:
        """Close the breaker *name*, or that of one *key*, and forget its results; what was forced is so no longer.

        Raises:
            KeyError: No breaker has this name, or a key is given and calls are not told apart.
        """
        self._steer(self._breakers(name, key), CircuitBreaker.reset)

    def reset_all(self) -> None:
        """Close every breaker."""
        self._steer([breaker for _, breaker in _every_breaker()], CircuitBreaker.reset)

    def force_open(self, name: str) -> None:
        """Open the breaker *name* until it is reset; ``retry_after`` of its refusals is ``None``.

        Raises:
            KeyError: No breaker has this name.
        """
        self._steer(self._breakers(name), CircuitBreaker.force_open)

    def force_closed(self, name: str) -> None:
        """Close the breaker *name* until it is reset, whatever its calls come to.

        Raises:
            KeyError: No breaker has this name.
        """
        self._steer(self._breakers(name), CircuitBreaker.force_closed)

    def on_state_change(self, name: str, callback: Listener) -> Callable[[], object]:
        """Call ``callback(name, old, new)`` at each change of state; the breaker may come into being later.

        ``validate()`` and ``check`` tell of a name that no breaker has by then.

        The callback runs on the thread whose call made the change, outside every lock. One that raises is logged.

        Returns:
            What undoes it: the callback is not called any more.

        Raises:
            FaultToleranceDefinitionException: If *callback* cannot be called, or is a coroutine function.
        """
        from ..declare.checks.definition import never_awaited_faults

        if faults := never_awaited_faults("circuit_breakers.on_state_change(callback)", callback):
            raise FaultToleranceDefinitionException(*faults)
        key = object()
        _listeners[key] = name, callback
        return partial(_listeners.pop, key, None)

    def _steer(self, breakers: Iterable[CircuitBreaker], operation: Callable[[CircuitBreaker, float], None]) -> None:
        for breaker in breakers:
            operation(breaker, clock.monotonic())
            deliver_transitions(breaker)

    def _breakers(self, name: str, key: Hashable = EVERY) -> list[CircuitBreaker]:
        return [breaker for state in self._states(name) for breaker in _breakers_of(state, key)]

    def _states(self, name: str) -> list[State]:
        _resolve_breakers(name)  # also where another has the name: a module may have been loaded again
        if name not in _by_name():
            _resolve_breakers()  # that name may be configured
        states = _by_name()
        if name not in states:
            raise nothing_named("circuit breaker", name, states)
        return states[name]


circuit_breakers = CircuitBreakers()


def _every_breaker() -> Iterator[tuple[State, CircuitBreaker]]:
    """Give every breaker of a method that was called, with the state that it belongs to."""
    for state in every_state():
        yield from ((state, breaker) for breaker in state.every_breaker())


def _by_name() -> dict[str, list[State]]:
    """Sort what has breakers by all their names, what was made last behind the others."""
    states: dict[str, list[State]] = {}
    for state in every_state():
        for name in state.breaker_names:
            states.setdefault(name, []).append(state)
    return states


def _breakers_of(state: State, key: Hashable) -> list[CircuitBreaker]:
    """Give the breakers of *state*, or the one for a *key*; none where nothing is remembered of that."""
    partitions = state.partitions
    if key is EVERY:
        return state.every_breaker()
    if partitions is None:
        raise KeyError(f"the calls of {state.name} are not told apart by a key: it has no @partition_by")
    partitions.look_again()
    if (partition := partitions.find(key)) is not None:
        breaker = partition.strategies.get(policies.CircuitBreaker)
    else:  # it shares one with all others that found no place
        breaker = state.circuit_breaker if len(partitions) >= partitions.limit else None
    return [breaker] if breaker is not None else []


def _resolve_breakers(name: str | None = None) -> None:
    """Let breakers be known whose methods were not called yet; if a name is given, those that have it."""
    for resolver in list(resolvers()):
        resolver.resolve_breaker(name)


def awaited_names() -> list[str]:
    """Give the names of breakers that are listened to, whether or not there are any."""
    return list(dict.fromkeys(name for name, _ in list(_listeners.values())))


def forget_listeners() -> None:
    """Forget whom to tell."""
    _listeners.clear()
