"""The guards that live, and what each of them remembers."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol, Self
from weakref import ref

from ..._call.state import alias_in
from ..._config import settings
from ..._log import tell_of_trouble
from ..._metrics.counters import ledger
from ..._platform.fork import Section, at_fork
from ..._platform.swap import Swap
from ..._platform.unpatched import get_ident
from ..._policy import RetryBudget
from ..._telemetry.connect import telemetry
from ...exceptions import Fault

if TYPE_CHECKING:
    from ..._call.state import State
    from ..._config import State as Configuration
    from ..._policy import Policy

    class InForce(Protocol):
        """The policies that hold for one guard and one class: ``EffectivePolicies``."""

        @property
        def name(self) -> str: ...
        @property
        def policies(self) -> dict[type[Policy], Policy]: ...

    class AnyResolver(Protocol):
        """The resolver of a guard. What it makes is typed by those who make it: they stand above the registry."""

        declaration: Any
        uses: tuple[Any, ...]

        def use_of(self, cls: type | None) -> Any: ...
        def state(self, cls: type | None) -> State | None: ...
        def states(self) -> list[State]: ...
        def classes(self) -> Iterable[type | None]: ...
        def resolved(self) -> list[type | None]: ...
        def come_into_use(self, cls: type | None) -> None: ...
        def resolve_breaker(self, name: str | None = None) -> None: ...
        def effective_policies(
            self, cls: type | None, basis: Configuration | None = None
        ) -> tuple[Any, list[Fault]]: ...
        def in_force(self, cls: type | None, basis: Configuration | None = None) -> Any: ...
        def name_for(self, cls: type | None) -> str: ...
        def draft(self, cls: type | None, effective: Any) -> Any: ...
        def put(self, cls: type | None, draft: Any, swap: Swap) -> None: ...
        def drop(self, cls: type | None, swap: Swap) -> None: ...


class _Resolving(Section):
    def _left(self) -> None:
        telemetry.connect_if_due()


resolving = _Resolving()
"""Where call paths are found or replaced: at first calls, and when the configuration changes. Keeps out forks only.

When a thread has left, exporters are connected if that is due."""

RESOLVER = "__faulttolerance_resolver__"
"""The attribute by which a function that is a guard keeps its resolver."""

_guards: dict[ref[Any], Any] = {}
"""Each guard that lives with its memo: what ``fingerprint`` found of it, which goes with it."""
_forget: Callable[[ref[Any]], None] = _guards.pop  # one for all: each look at it makes another


def add(guard: Callable[..., Any] | AnyResolver) -> ref[Any]:
    """Remember *guard*, a function or what a ``Guard`` keeps, as long as it lives; give the reference to it.

    It serves whoever else refers to the guard weakly: one reference per guard, and not two.
    """
    reference = ref(guard, _forget)
    _guards[reference] = None
    return reference


def resolvers() -> Iterator[AnyResolver]:
    """Return the resolvers of all guards that live, in the order in which these were made."""
    for reference in list(_guards):
        if (resolver := _resolver_of(reference())) is not None:
            yield resolver


def _resolver_of(guard: Any) -> AnyResolver | None:
    # One that is being unpickled has none yet.
    return getattr(guard, RESOLVER, None) if isinstance(guard, FunctionType) else guard


def renew_memos(renew: Callable[[AnyResolver, Any], Any]) -> list[Any]:
    """Replace the memo of every guard that lives by what *renew* makes of its resolver and the memo; return them."""
    memos = []
    for reference in list(_guards):
        guard = reference()  # lives until its memo is stored, or that would stay for ever
        if (resolver := _resolver_of(guard)) is not None:
            before = _guards.get(reference)
            memo = renew(resolver, before)
            if memo is not before:
                _guards[reference] = memo
            memos.append(memo)
    return memos


def meet_strangers() -> None:
    """Resolve the circuits that other processes have opened, and whose methods were not called here yet."""
    from ..._call.order import ORDER

    for row in ORDER:
        for key in row.open_elsewhere() if row.open_elsewhere is not None else ():
            for resolver in resolvers():
                try:
                    resolver.resolve_breaker(key)
                except Exception:  # noqa: BLE001  # its first call says so
                    pass


def every_state() -> Iterator[State]:
    """Give what every guard that was called remembers."""
    for resolver in resolvers():
        yield from resolver.states()


def _every_state_in_force() -> Iterator[State]:
    """Give what every guard remembers that has a call path: what others say held before a reload dropped theirs."""
    for resolver in resolvers():
        for cls in resolver.resolved():
            if (state := resolver.state(cls)) is not None:
                yield state


def name_of(resolver: AnyResolver) -> str:
    """Name a guard that cannot be asked what holds for it."""
    declaration: Any = getattr(resolver, "declaration", None) or resolver
    return str(getattr(getattr(declaration, "function", None), "__qualname__", declaration.name))


def follow_all() -> None:
    """Let every breaker, bulkhead and rate window take the values that are in force."""
    for state in every_state():
        try:
            state.follow()
        except Exception as error:  # noqa: BLE001  # others are to follow
            tell_of_trouble(state.name, "it keeps values that held before, for taking new ones failed", error)


def clashes_of(several: Iterable[InForce], own: State | None = None) -> list[Fault]:
    """Tell what is wrong with the names under which *several* guards, and those that were called, have something.

    With *own*, the state of the only one of them, others of its name are looked at, too.
    """
    faults = [*_breaker_clashes(several), *budget_clashes(several, own)]
    if faults and own is not None and any(one.name == own.name and one is not own for one in every_state()):
        gc.collect()  # what was defined anew, as in a notebook, may only look as if it lived
        faults = [*_breaker_clashes(several), *budget_clashes(several, own)]
    return faults


def _breaker_clashes(several: Iterable[InForce]) -> list[Fault]:
    """Tell what is wrong with the names that ``@circuit_breaker_name`` gives breakers of several guards."""
    wanted = [(alias, effective.name) for effective in several if (alias := alias_in(effective.policies))]
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


def budget_clashes(several: Iterable[InForce], own: State | None = None) -> list[Fault]:
    """Tell where guards say different things of a retry budget by the name of which they share it (rule B1).

    With *own*, the state of the only one of *several*, others of its name are looked at, too: a factory makes such.
    """
    wanted = {
        effective.name: budget
        for effective in several
        if isinstance(budget := effective.policies.get(RetryBudget), RetryBudget) and budget.name
    }
    if not wanted:
        return []
    # What the others say, and then, one by one, these.
    said: dict[str, tuple[RetryBudget, str]] = {}
    for state in _every_state_in_force():
        for policy in state.policies:
            is_other = state.name not in wanted if own is None else state is not own
            if isinstance(policy, RetryBudget) and is_other:
                said.setdefault(policy.name, (policy, state.name))
    faults = []
    for name, budget in wanted.items():
        other, owner = said.setdefault(budget.name, (budget, name))
        for parameter in ("ratio", "burst"):
            value, theirs = getattr(budget, parameter), getattr(other, parameter)
            if value != theirs:
                where = f"{name} @RetryBudget({parameter})"
                others = owner if owner != name else f"another {name}"
                problem = f"is {value!r}, and {theirs!r} for {others}, which shares the budget {budget.name!r}"
                faults.append(Fault(where, problem, value, "the same wherever the name is given"))
    return faults


def nothing_named(kind: str, name: str, names: Iterable[str]) -> KeyError:
    """Say that nothing of *kind* has the *name*, and which of *names* may be meant."""
    from ..._config.report import nearest  # for a mistake only

    near = nearest(name, names)
    hint = f"; did you mean {near!r}?" if near else ""
    return KeyError(f"no {kind} is named {name!r}{hint}")


_open: dict[ref[Any], None] = {}
"""The changes of everything that are under way."""


def join(resolver: AnyResolver, cls: type | None, swap: Swap) -> None:
    """Let each change under way find out that *swap* changes the guard for *cls*, together with the stores of *swap*.

    Where the change cannot follow any more, it drops the call path: the next call finds what holds then.
    """
    for reference in list(_open):
        roll: Roll | None = reference()
        if roll is not None:
            entry = Entry(resolver, cls, origin=swap)
            resolver.drop(cls, entry.swap)
            swap.item(roll.entries, entry.key, entry)
            swap.item(roll.stores, entry.key, entry.stores)


class Entry:
    """What a change does to the guard of one resolver for one class. A later entry replaces it as a whole."""

    __slots__ = ("cls", "is_drafted", "origin", "resolver", "stores", "swap")

    def __init__(self, resolver: AnyResolver, cls: type | None, *, origin: Swap | None = None) -> None:
        self.resolver = resolver
        self.cls = cls
        self.swap = Swap()
        self.stores = iter(self.swap.steps)
        self.is_drafted = False
        # What a first call stored goes with the entry, not amidst the change that drops it.
        self.origin = origin

    @property
    def key(self) -> tuple[AnyResolver, int]:
        """By which it is found; comparing classes could run code of the application."""
        return self.resolver, id(self.cls)


class Roll:
    """The guards in use, from ``with`` on with those that come into use meanwhile."""

    __slots__ = ("__weakref__", "_reference", "entries", "stores")

    def __init__(self) -> None:
        self.entries: dict[tuple[AnyResolver, int], Entry] = {}
        self.stores: dict[tuple[AnyResolver, int] | None, Iterator[tuple[Any, ...]]] = {None: iter(())}
        """The stores of each entry, as ``Version.force`` makes them, behind those of the change itself."""
        self._reference = ref(self, _close)

    def __enter__(self) -> Self:
        swap = Swap()
        swap.item(_open, self._reference, None)
        settings.version.force(swap)  # a first call that did not see it begins again
        for resolver in resolvers():
            for cls in resolver.resolved():
                entry = Entry(resolver, cls)
                self.entries.setdefault(entry.key, entry)
        return self

    def __exit__(self, *_: object) -> None:
        _close(self._reference)

    def due(self) -> list[Entry]:
        """Give the entries whose guards are yet to be drafted, or anew."""
        return [entry for entry in list(self.entries.values()) if not entry.is_drafted]

    def renewed(self, former: Entry) -> Entry:
        """Replace an entry by one to which a draft is put that is made after this."""
        entry = Entry(former.resolver, former.cls)
        entry.is_drafted = True
        self.entries[entry.key] = entry
        self.stores[entry.key] = entry.stores
        return entry


def _close(reference: ref[Any]) -> None:
    _open.pop(reference, None)


def _in_child() -> None:
    for state in every_state():
        try:
            state.reset_after_fork(get_ident())
        except Exception as error:  # noqa: BLE001  # others are to be put in order
            tell_of_trouble(state.name, "it holds what threads of the parent held, for dropping that failed", error)
    ledger.begin_anew()


at_fork(child=_in_child)
