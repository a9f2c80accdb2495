"""The circuit breakers of the application: found by name, closed and opened, listened to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from .._event import StateChanged, sinks
from .._log import ERROR, log
from .._runtime.clock import clock
from .._strategy.circuit_breaker import CircuitBreaker
from ..exceptions import FaultToleranceDefinitionException
from .registry import every_state, nothing_named, resolvers

if TYPE_CHECKING:
    from .._call.state import State
    from .._strategy.circuit_state import CircuitSnapshot

Listener: TypeAlias = Callable[[str, str, str], object]

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

    def state(self, name: str) -> str:
        """Give ``closed``, ``open`` or ``half-open``; the last as soon as the delay is over, also when nobody calls.

        Raises:
            KeyError: No breaker has this name.
        """
        return self._breakers(name)[-1].state_name(clock.monotonic())

    def snapshot(self, name: str) -> CircuitSnapshot:
        """Give what the breaker *name* is at this moment: its state, since when, and what its window holds.

        Raises:
            KeyError: No breaker has this name.
        """
        return self._breakers(name)[-1].snapshot(clock.monotonic())

    def reset(self, name: str) -> None:
        """Close the breaker *name* and forget its results; what was forced is so no longer.

        Raises:
            KeyError: No breaker has this name.
        """
        self._steer(self._breakers(name), CircuitBreaker.reset)

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

        The callback runs on the thread whose call made the change, outside every lock. One that raises is logged.

        Returns:
            What undoes it: the callback is not called any more.

        Raises:
            FaultToleranceDefinitionException: If *callback* is a coroutine function.
        """
        from .checking.definition import never_awaited_faults

        if faults := never_awaited_faults("circuit_breakers.on_state_change(callback)", callback):
            raise FaultToleranceDefinitionException(*faults)
        key = object()
        _listeners[key] = name, callback
        return partial(_listeners.pop, key, None)

    def _steer(self, breakers: Iterable[CircuitBreaker], operation: Callable[[CircuitBreaker, float], None]) -> None:
        for breaker in breakers:
            operation(breaker, clock.monotonic())
            deliver_transitions(breaker)

    def _breakers(self, name: str) -> list[CircuitBreaker]:
        _resolve_breakers(name)  # also where another has the name: a module may have been loaded again
        if name not in _by_name():
            _resolve_breakers()  # that name may be configured
        breakers = _by_name()
        if name not in breakers:
            raise nothing_named("circuit breaker", name, breakers)
        return breakers[name]


circuit_breakers = CircuitBreakers()


def _every_breaker() -> Iterator[tuple[State, CircuitBreaker]]:
    """Give every breaker of a method that was called, with the state that it belongs to."""
    for state in every_state():
        if state.circuit_breaker is not None:
            yield state, state.circuit_breaker


def _by_name() -> dict[str, list[CircuitBreaker]]:
    """Sort the breakers by all their names, the one made last behind the others."""
    breakers: dict[str, list[CircuitBreaker]] = {}
    for state, breaker in _every_breaker():
        for name in state.breaker_names:
            breakers.setdefault(name, []).append(breaker)
    return breakers


def _resolve_breakers(name: str | None = None) -> None:
    """Let breakers be known whose methods were not called yet; if a name is given, those that have it."""
    for resolver in list(resolvers()):
        resolver.resolve_breaker(name)


def forget_listeners() -> None:
    """Forget whom to tell."""
    _listeners.clear()
