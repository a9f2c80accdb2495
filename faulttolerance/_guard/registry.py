"""Everything that is guarded, by name: what lives, what is left of what lived, and who listens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias
from weakref import ref

from .._call.state import State, alias_in
from .._event import StateChanged, sinks
from .._log import ERROR, log
from .._metrics.ledger import ledger
from .._runtime.clock import clock
from .._runtime.fork import Section, at_fork
from .._runtime.native import get_ident
from .._swap import Swap
from .._telemetry.connect import telemetry
from ..exceptions import Fault, FaultToleranceDefinitionException

if TYPE_CHECKING:
    from .._config import State as Configuration
    from .._strategy.circuit_breaker import CircuitBreaker as Breaker
    from .plan import Plan

__all__ = [
    "CircuitBreakers",
    "Guarded",
    "Prepared",
    "add",
    "circuit_breakers",
    "deliver_all",
    "deliver_transitions",
    "every_state",
    "follow_all",
    "name_clashes",
    "resolvers",
    "resolving",
]


class Guarded(Protocol):
    """What is asked of every guard, of methods and ``Guard`` alike."""

    def plan(self, cls: type | None, basis: Configuration | None = None) -> tuple[Plan, list[Fault]]:
        """What holds for *cls* under the configuration *basis*, and what is wrong with it."""
        ...

    def prepare(self, cls: type | None, plan: Plan) -> Prepared:
        """All that calls for *cls* need to follow *plan*."""
        ...

    def drop(self, cls: type | None, swap: Swap) -> None:
        """Let the next call for *cls* find out anew what holds; what is remembered stays."""
        ...

    def forget(self, swap: Swap) -> None:
        """Go back to how it was before the first call."""
        ...

    def resolved(self) -> list[type | None]:
        """The classes for which a call path was found."""
        ...

    def state(self, cls: type | None) -> State | None:
        """What is remembered for *cls*, if it was ever called."""
        ...

    def states(self) -> list[State]:
        """All that is remembered."""
        ...

    def resolve_breaker(self, name: str | None = None) -> None:
        """Make the breaker known, if there is one; if a name is given, only if that is one of its names."""
        ...


class Prepared(Protocol):
    """What a guard becomes for one class: nothing of it is there before ``put``."""

    @property
    def is_current(self) -> bool:
        """Whether all that it was made from is still there."""
        ...

    def put(self, swap: Swap) -> None:
        """Let it be so, together with the other stores of *swap*."""
        ...


Listener: TypeAlias = Callable[[str, str, str], object]


class _Resolving(Section):
    """When a thread has left, exporters are connected if that is due."""

    def _left(self) -> None:
        telemetry.connect_if_due()


resolving = _Resolving()
"""Where call paths are found or exchanged: at first calls, and when the configuration changes. Keeps out forks only."""

_resolvers: dict[ref[Guarded], None] = {}
_forget: Callable[[ref[Guarded]], None] = _resolvers.pop
_listeners: dict[str, list[Listener]] = {}


def add(resolver: Guarded) -> None:
    """Remember a guard as long as it lives."""
    _resolvers[ref(resolver, _forget)] = None


def resolvers() -> Iterator[Guarded]:
    """All guards that live, in the order in which they were made."""
    for reference in list(_resolvers):
        resolver = reference()
        if resolver is not None:
            yield resolver


def every_state() -> Iterator[State]:
    """What every guarded method that was called remembers."""
    for resolver in resolvers():
        yield from resolver.states()


def name_clashes(plans: Iterable[Plan]) -> list[Fault]:
    """What is wrong with the names that ``@circuit_breaker_name`` gives the breakers of *plans*."""
    wanted = [(alias, plan.name) for plan in plans if (alias := alias_in(plan.policies))]
    if not wanted:
        return []
    owners: dict[str, str] = {}
    for state in every_state():
        owners |= dict.fromkeys(state.breaker_names, state.name)
    faults = []
    for alias, name in wanted:
        owner = owners.setdefault(alias, name)
        if owner != name:
            where, problem = f"{name} @CircuitBreakerName(value)", f"is {alias!r}, the name of the breaker of {owner}"
            faults.append(Fault(where, problem, alias, "a name that no other breaker has"))
    return faults


def follow_all() -> None:
    """Let every breaker, bulkhead and rate window have the values that are in force."""
    for state in every_state():
        state.follow()


def forget() -> None:
    """Forget every listener and count."""
    ledger.clear()
    telemetry.reset()
    _listeners.clear()


def deliver_all() -> None:
    """Tell the listeners what happened to any breaker."""
    for state in every_state():
        if state.circuit_breaker is not None:
            deliver_transitions(state.circuit_breaker)


def deliver_transitions(breaker: Breaker) -> None:
    """Tell the listeners what happened to *breaker*, outside every lock; drivers call it after they asked one."""
    if breaker.transitions:
        breaker.deliver(partial(_tell, breaker))


def _tell(breaker: Breaker, old: str, new: str, reason: str) -> None:
    sinks.tell(StateChanged(breaker.name, old, new, reason))
    if not _listeners:
        return
    aliases = [state.alias for state in every_state() if state.circuit_breaker is breaker and state.alias]
    for name in (breaker.name, *aliases):
        for listener in list(_listeners.get(name, ())):
            try:
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
        """Every name, sorted."""
        _resolve_breakers()
        return sorted(_breakers())

    def state(self, name: str) -> str:
        """``closed``, ``open`` or ``half-open``; the last one as soon as the delay is over, also when nobody calls.

        Raises:
            KeyError: No breaker has this name.
        """
        return self._breakers(name)[-1].state_name(clock.monotonic())

    def reset(self, name: str) -> None:
        """Close the breaker *name* and forget its results.

        Raises:
            KeyError: No breaker has this name.
        """
        for breaker in self._breakers(name):
            breaker.reset(clock.monotonic())
            deliver_transitions(breaker)

    def reset_all(self) -> None:
        """Close every breaker."""
        for state in every_state():
            if state.circuit_breaker is not None:
                state.circuit_breaker.reset(clock.monotonic())
                deliver_transitions(state.circuit_breaker)

    def force_open(self, name: str) -> None:
        """Open the breaker *name* until it is reset.

        Raises:
            KeyError: No breaker has this name.
        """
        for breaker in self._breakers(name):
            breaker.force_open(clock.monotonic())
            deliver_transitions(breaker)

    def on_state_change(self, name: str, callback: Listener) -> None:
        """Call ``callback(name, old, new)`` at each change of state; the breaker may come into being later.

        The callback runs on the thread whose call made the change, outside every lock. One that raises is logged.

        Raises:
            FaultToleranceDefinitionException: If *callback* is a coroutine function.
        """
        from .checking.definition import never_awaited_faults

        if faults := never_awaited_faults("circuit_breakers.on_state_change(callback)", callback):
            raise FaultToleranceDefinitionException(*faults)
        _listeners.setdefault(name, []).append(callback)

    def _breakers(self, name: str) -> list[Breaker]:
        _resolve_breakers(name)  # also where another has the name: a module may have been loaded again
        found = _breakers().get(name)
        if found is None:
            _resolve_breakers()  # that name may be configured
            found = _breakers().get(name)
        if found is None:
            from difflib import get_close_matches

            near = get_close_matches(name, _breakers(), 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise KeyError(f"no circuit breaker is named {name!r}{hint}")
        return found


circuit_breakers = CircuitBreakers()


def _breakers() -> dict[str, list[Breaker]]:
    """The breakers of methods that were called, by all their names, the one made last behind the others."""
    found: dict[str, list[Breaker]] = {}
    for state in every_state():
        if state.circuit_breaker is not None:
            for name in state.breaker_names:
                found.setdefault(name, []).append(state.circuit_breaker)
    return found


def _resolve_breakers(name: str | None = None) -> None:
    """Let breakers be known whose methods were not called yet; if a name is given, those that have it."""
    for resolver in list(resolvers()):
        resolver.resolve_breaker(name)


def _in_child() -> None:
    for state in every_state():
        state.keep_only(get_ident())
    ledger.begin_anew()


at_fork(child=_in_child)
