"""The circuit breakers of the application: found by name, closed and opened, listened to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from functools import partial
from typing import Final, TypeAlias

from ... import _policy as policies
from ..._call.state import State
from ..._deadline.clock import clock
from ..._event import StateChanged, sinks
from ..._log import ERROR, WARNING, log
from ..._strategy.circuit_breaker import CLOSED, HALF_OPEN, OPEN, CircuitBreaker
from ..._strategy.circuit_state import CircuitSnapshot
from ...exceptions import raise_faults
from ..declare.registry import every_state, resolve_remote_circuits, resolvers, unknown_name_error

Listener: TypeAlias = Callable[[str, str, str], object]

EVERY: Final = object()
"""A placeholder for every key."""

_listeners: dict[object, tuple[str, Listener]] = {}
"""The callbacks, with the name of the circuit breaker; each under its own key, because one callback may come twice."""


def deliver_all() -> None:
    """Notify the listeners of the transitions of all circuit breakers."""
    for state in every_state():
        for breaker in state.every_breaker():
            deliver_transitions(breaker)


def deliver_transitions(breaker: CircuitBreaker, is_observed: bool = False) -> None:
    """Notify the listeners of the transitions of *breaker*; called outside every lock, after its decision."""
    if breaker.transitions:
        breaker.deliver(partial(_notify, breaker, is_observed))


def _notify(breaker: CircuitBreaker, is_observed: bool, old: str, new: str, reason: str) -> None:
    if is_observed and reason:
        reason = f"{reason}; it is only observed"
    sinks.send(StateChanged(breaker.name, old, new, reason))
    if not _listeners:
        return
    aliases = [state.alias for state in every_state() if state.alias and breaker in state.every_breaker()]
    for name in (breaker.name, *aliases):
        for wanted, listener in list(_listeners.values()):
            try:
                if wanted == name:
                    listener(name, old, new)
            except Exception as error:  # noqa: BLE001  # it belongs to the application, and changes no outcome
                log(ERROR, "a listener of the circuit breaker %s failed", name, error=error)


def _notify_once(
    told: set[tuple[str, str]], breaker: CircuitBreaker, is_observed: bool, old: str, new: str, reason: str
) -> None:
    if (old, new) not in told:
        told.add((old, new))
        _notify(breaker, is_observed, old, new, reason)


class CircuitBreakers:
    """The circuit breakers of the application, by name.

    A circuit breaker has the name from ``@circuit_breaker_name``, the name of its ``Guard``, or
    ``module.Class.method``. If several have one name, as those of a class that is created more than once, the state is
    that of the latest; all of them are closed and opened.
    """

    def names(self) -> list[str]:
        """Return every name, sorted."""
        return sorted(_by_name())

    def state(self, name: str, key: Hashable = EVERY) -> str:
        """Return ``closed``, ``open`` or ``half-open``; the last as soon as the delay has passed, even without calls.

        Args:
            name: The name of the circuit breaker.
            key: The key of the circuit breaker, if ``@partition_by`` divides the calls: as the arguments provide it, a
                tuple for several names. A key without a state is ``closed``. By default, an open circuit breaker of any
                key counts, or else a half-open one.

        Raises:
            KeyError: If no circuit breaker has this name, or a key is passed and the calls are not divided by keys.
        """
        now, owner = clock.monotonic(), self._states(name)[-1]
        breakers = owner.breakers_in_use() if key is EVERY else _breakers_of(owner, key)
        states = {breaker.state_name(now) for breaker in breakers}
        return next((state for state in (OPEN, HALF_OPEN) if state in states), CLOSED)

    def snapshot(self, name: str) -> CircuitSnapshot:
        """Return the current state of the circuit breaker *name*, with its start and the content of its window.

        If ``@partition_by`` divides the calls, it is that of the key whose state counts for ``state``.

        Raises:
            KeyError: If no circuit breaker has this name.
        """
        now = clock.monotonic()
        found = [breaker.snapshot(now) for breaker in self._states(name)[-1].breakers_in_use()]
        return next((one for state in (OPEN, HALF_OPEN) for one in found if one.state == state), found[-1])

    def reset(self, name: str, key: Hashable = EVERY) -> None:
        """Close the circuit breaker *name*, or that of one *key*, and clear its results; a forced state ends.

        Raises:
            KeyError: If no circuit breaker has this name, or a key is passed and the calls are not divided by keys.
        """
        self._apply(self._states_in_use(name), CircuitBreaker.reset, key)

    def reset_all(self) -> None:
        """Close every circuit breaker."""
        self._apply(every_state(), CircuitBreaker.reset)

    def force_open(self, name: str) -> None:
        """Open the circuit breaker *name* until it is reset; ``retry_after`` of its refusals is ``None``.

        A circuit breaker that is only observed or switched off refuses nothing, which is logged.

        Raises:
            KeyError: If no circuit breaker has this name.
        """
        states = self._states_in_use(name)
        self._apply(states, partial(CircuitBreaker.force, name=OPEN))
        for state in states:
            is_observed = policies.CircuitBreaker in state.observed
            if is_observed or all(type(policy) is not policies.CircuitBreaker for policy in state.policies):
                mode = "only observed" if is_observed else "switched off"
                log(WARNING, "force_open(%r) refuses no call of %s: its circuit breaker is %s", name, state.name, mode)

    def force_closed(self, name: str) -> None:
        """Close the circuit breaker *name* until it is reset, for all outcomes of its calls.

        Raises:
            KeyError: If no circuit breaker has this name.
        """
        self._apply(self._states_in_use(name), partial(CircuitBreaker.force, name=CLOSED))

    def on_state_change(self, name: str, callback: Listener) -> Callable[[], object]:
        """Call ``callback(name, old, new)`` at each change of state; the circuit breaker may be created later.

        ``validate()`` and ``check`` report a name that no circuit breaker has by then.

        The callback runs on the thread whose call made the change, outside every lock. If it raises, the error is
        logged.

        Returns:
            A function that removes the callback.

        Raises:
            FaultToleranceDefinitionException: If *name* is no text, or *callback* cannot be called or is a coroutine
                function.
        """
        from ..declare.checks.definition import check_name, never_awaited_faults

        check_name("circuit_breakers.on_state_change(name)", name, "the name of a circuit breaker")
        raise_faults(never_awaited_faults("circuit_breakers.on_state_change(callback)", callback, "name, old, new"))
        key = object()
        _listeners[key] = name, callback
        return partial(_listeners.pop, key, None)

    def _apply(
        self, states: Iterable[State], operation: Callable[[CircuitBreaker, float], None], key: Hashable = EVERY
    ) -> None:
        for state, breakers in [(state, _breakers_of(state, key)) for state in states]:
            is_observed = policies.CircuitBreaker in state.observed
            told: set[tuple[str, str]] = set()  # hundreds of keys make the same transition
            for breaker in breakers:
                operation(breaker, clock.monotonic())
                if breaker.transitions:
                    breaker.deliver(partial(_notify_once, told, breaker, is_observed))

    def _states_in_use(self, name: str) -> list[State]:
        for resolver in list(resolvers()):  # also if another guard has the name: a module may have been reloaded
            resolver.resolve_breaker({name})
        return self._states(name)

    def _states(self, name: str) -> list[State]:
        states = _by_name({name})
        if name not in states:
            raise unknown_name_error("circuit breaker", name, _by_name())
        return states[name]


circuit_breakers = CircuitBreakers()


def _by_name(names: Collection[str] | None = None) -> dict[str, list[State]]:
    """Return the states with circuit breakers by all their names, the latest behind the others.

    One whose method was not called yet has a state that nothing keeps; if names are passed, only one with such a name.
    """
    resolve_remote_circuits()
    states: dict[str, list[State]] = {}
    for resolver in resolvers():
        for state in (*resolver.states(), *resolver.uncalled_breaker(names)):
            for name in state.breaker_names:
                states.setdefault(name, []).append(state)
    return states


def _breakers_of(state: State, key: Hashable) -> list[CircuitBreaker]:
    """Return the circuit breakers of *state*, or that for a *key*; none if the key has no state."""
    partitions = state.partitions
    if key is EVERY:
        return state.every_breaker()
    if partitions is None:
        raise KeyError(f"the calls of {state.name} have no keys: it has no @partition_by")
    if (partition := partitions.find(key)) is not None:
        breaker = partition.strategies.get(policies.CircuitBreaker)
    else:  # it shares a circuit breaker with all other keys that found no place
        breaker = state.circuit_breaker if len(partitions) >= partitions.limit else None
    return [breaker] if breaker is not None else []


def listened_names() -> list[str]:
    """Return the names of circuit breakers with listeners, whether or not the circuit breakers exist."""
    return list(dict.fromkeys(name for name, _ in list(_listeners.values())))


def forget_listeners() -> None:
    """Remove all listeners."""
    _listeners.clear()
