"""The living guards, and the state of each of them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from sys import modules
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self, TypeAlias
from weakref import ref

from ..._call.state import alias_in
from ..._config import settings
from ..._log import log_guard_error
from ..._metrics.counters import ledger
from ..._platform.fork import Section, at_fork
from ..._platform.greenlets import refuse_eventlet
from ..._platform.swap import Swap
from ..._platform.unpatched import get_ident
from ..._policy import CircuitBreaker, CircuitBreakerName, RetryBudget
from ..._shown import did_you_mean
from ..._telemetry.connect import telemetry
from ...exceptions import Fault

if TYPE_CHECKING:
    from ..._call.state import State
    from ..._policy import Policy

    InForce: TypeAlias = Any
    """The policies in force for one guard and one class: ``EffectivePolicies``, from a module above."""
    AnyResolver: TypeAlias = Any
    """A ``MethodResolver`` or ``GuardResolver``, from a module above."""


class _Resolving(Section):
    def __enter__(self) -> None:
        if "eventlet.patcher" in modules:
            refuse_eventlet()
        super().__enter__()

    def _left(self) -> None:
        telemetry.connect_if_due()


resolving = _Resolving()
"""The section in which call paths are found or replaced: at first calls, and at changes of the configuration.

It excludes only forks. After a thread has left it, exporters are connected if that is due.
"""

RESOLVER = "__faulttolerance_resolver__"
"""The attribute in which a guard function holds its resolver."""

_guards: dict[ref[Any], Any] = {}
"""Each living guard with its memo: the results of ``fingerprint`` for it, which go with it."""
_forget: Callable[[ref[Any]], None] = _guards.pop  # one bound method for all guards: each access creates another


def add(guard: Callable[..., Any] | AnyResolver) -> ref[Any]:
    """Register *guard*, a function or the resolver of a ``Guard``, for its lifetime, and return the reference to it.

    Other modules that refer to the guard weakly use the same reference: one reference per guard, and not two.
    """
    reference = ref(guard, _forget)
    _guards[reference] = None
    return reference


def remove(reference: Any) -> None:
    """Remove a guard that was refused: it may live on in the traceback of its error."""
    _guards.pop(reference, None)


def resolvers() -> Iterator[AnyResolver]:
    """Yield the resolvers of all living guards, in the order of their creation."""
    for reference in list(_guards):
        if (resolver := _resolver_of(reference())) is not None:
            yield resolver


def _resolver_of(guard: Any) -> AnyResolver | None:
    # A function that is being unpickled has none yet.
    return getattr(guard, RESOLVER, None) if isinstance(guard, FunctionType) else guard


def renew_memos(renew: Callable[[AnyResolver, Any], Any]) -> list[Any]:
    """Replace the memo of every living guard by the result of *renew* for its resolver and memo, and return them."""
    memos = []
    for reference in list(_guards):
        guard = reference()  # it must live until its memo is stored, or the memo would stay for ever
        if (resolver := _resolver_of(guard)) is not None:
            memos.append(memo := renew(resolver, _guards.get(reference)))
            _guards[reference] = memo
    return memos


def resolve_remote_circuits() -> None:
    """Resolve the circuits that other processes have opened, and whose methods have not been called here yet."""
    from ..._call.order import ORDER

    names = {name for row in ORDER if row.open_elsewhere is not None for name in row.open_elsewhere()}
    for resolver in resolvers() if names else ():
        try:
            resolver.resolve_breaker(names)
        except Exception:  # noqa: BLE001  # its first call raises the error
            pass


def every_state() -> Iterator[State]:
    """Yield the state of every guard that was called."""
    for resolver in resolvers():
        yield from resolver.states()


def _every_state_in_force() -> Iterator[State]:
    """Yield the state of every guard with a call path: a guard without one has the values from before a reload."""
    for resolver in resolvers():
        for cls in resolver.classes_with_path():
            if (state := resolver.state(cls)) is not None:
                yield state


def name_of(resolver: AnyResolver) -> str:
    """Return the name of a guard whose policies cannot be determined."""
    declaration: Any = getattr(resolver, "declaration", None) or resolver
    return str(getattr(getattr(declaration, "function", None), "__qualname__", declaration.name))


def update_all_strategies() -> None:
    """Pass the values in force to every circuit breaker, bulkhead and rate window."""
    for state in every_state():
        try:
            state.update_strategies()
        except Exception as error:  # noqa: BLE001  # the others must still follow
            log_guard_error(state.name, "it keeps its old values, because applying the new values failed", error)


def name_conflicts(several: Iterable[InForce], own: State | None = None) -> list[Fault]:
    """Return the faults of names that *several* guards, and guards that were called, share.

    With *own*, the state of the only one of them, others with its name are checked, too.
    """
    faults = [*_breaker_conflicts(several, every_state()), *_budget_conflicts(several, own)]
    if faults and own is not None and any(one.name == own.name and one is not own for one in every_state()):
        gc.collect()  # a guard that was defined again, as in a notebook, may only seem alive
        faults = [*_breaker_conflicts(several, every_state()), *_budget_conflicts(several, own)]
    return faults


def declared_conflicts(several: Iterable[InForce]) -> list[Fault]:
    """Return the faults of names that declarations share: *several* are all guards, for all classes.

    Classes that inherit one circuit breaker have its name without a fault: maybe only one of them is ever called.
    """
    declared: dict[object, InForce] = {}
    for one in several:
        if alias_in(one.policies):
            home = one.declared_by.get(CircuitBreaker)
            declared.setdefault(one.name if home is None else (home, one.name.rpartition(".")[2]), one)
    return [*_breaker_conflicts(declared.values()), *_budget_conflicts(several)]


def _breaker_conflicts(several: Iterable[InForce], states: Iterable[State] = ()) -> Iterator[Fault]:
    """Yield the faults of the names of circuit breakers of several guards, among each other and with *states*."""
    wanted = [(alias, one.name, one.policies) for one in several if (alias := alias_in(one.policies))]
    if not wanted:
        return
    owners: dict[str, str] = {}
    sought = {alias for alias, *_ in wanted}
    for state in states:
        if state.name in sought or state.alias in sought:
            owners |= dict.fromkeys(state.breaker_names, state.name)
    for alias, name, policies in wanted:
        owner = owners.setdefault(alias, name)
        if owner != name:
            parameter = "CircuitBreakerName(value)" if CircuitBreakerName in policies else "CircuitBreaker(name)"
            problem = f"is {alias!r}, the name of the breaker of {owner}"
            yield Fault(f"{name} @{parameter}", problem, alias, "a name that no other breaker has")


def _budget_conflicts(several: Iterable[InForce], own: State | None = None) -> Iterator[Fault]:
    """Yield the faults of guards that share a retry budget by name and declare different values for it (rule B1).

    With *own*, the state of the only one of *several*, others with its name are checked, too: a factory creates such
    guards.
    """
    wanted = [(budget, one.name) for one in several if (budget := _shared_budget_in(one.policies.values()))]
    if not wanted:
        return
    names, sought = {name for _, name in wanted}, {budget.name for budget, _ in wanted}
    declared: dict[str, tuple[RetryBudget, str]] = {}
    for state in _every_state_in_force():
        budget = _shared_budget_in(state.policies)
        if budget and (state.name not in names if own is None else state is not own):
            declared[budget.name] = budget, state.name
        if sought <= declared.keys():
            break
    for budget, name in wanted:
        other, owner = declared.setdefault(budget.name, (budget, name))
        if other != budget:
            others = owner if owner != name else f"another {name}"
            problem = f"is {budget!r}, and {other!r} for {others}"
            yield Fault(f"{name} @RetryBudget", problem, budget, "the same values in every budget of this name")


def _shared_budget_in(policies: Iterable[Policy]) -> RetryBudget | None:
    return next((policy for policy in policies if isinstance(policy, RetryBudget) and policy.name), None)


def unknown_name_error(kind: str, name: str, names: Iterable[str]) -> KeyError:
    """Return the error for a *name* that nothing of *kind* has, with a suggestion from *names*."""
    return KeyError(f"no {kind} is named {name!r}{did_you_mean(name, names)}")


_in_progress: dict[ref[Any], None] = {}
"""The changes of all guards that are in progress."""


def notify_changes(resolver: AnyResolver, cls: type | None, swap: Swap) -> None:
    """Require each change in progress to drop the call path of the guard for *cls*, together with the stores of *swap*.

    The change was prepared without these stores. The next call finds the policies in force.
    """
    for reference in list(_in_progress):
        in_use: GuardsInUse | None = reference()
        if in_use is not None:
            dropping = Swap()
            resolver.drop(cls, dropping)
            swap.item(in_use.stores, (resolver, id(cls)), iter(dropping.steps))
            # The stores of a first call go with the change, not in the middle of the change that drops it.
            swap.steps.append((in_use.kept.extend, (dropping, swap)))


class GuardsInUse:
    """The stores of a change for each guard in use; from ``with`` on, a first call of a guard replaces its stores."""

    def __init__(self) -> None:
        self.stores: dict[tuple[AnyResolver, int] | None, Iterator[tuple[Any, ...]]] = {None: iter(())}
        """The stores of each guard, as ``Version.force`` performs them, behind those of the change itself.

        The keys contain the ids of classes: a comparison of classes could run code of the application.
        """
        self.kept: list[object] = []
        """The objects that live until the end of the change: swaps, and classes, whose ids must not pass to others."""
        self._reference = ref(self, _close)

    def __enter__(self) -> Self:
        _in_progress[self._reference] = None
        settings.version.force(Swap())  # a first call that did not see it starts again
        return self

    def __exit__(self, *_: object) -> None:
        _close(self._reference)

    def swaps(self) -> Iterator[tuple[AnyResolver, type | None, Swap]]:
        """Yield each guard in use, and an empty swap for its stores, which replaces those from before."""
        for resolver in resolvers():
            for cls in resolver.classes_with_path():
                swap = Swap()
                self.kept += (swap, cls)
                self.stores[resolver, id(cls)] = iter(swap.steps)
                yield resolver, cls, swap


def _close(reference: ref[Any]) -> None:
    _in_progress.pop(reference, None)


def _after_fork() -> None:
    for state in every_state():
        try:
            state.reset_after_fork(get_ident())
        except Exception as error:  # noqa: BLE001  # the others must still be put in order
            log_guard_error(
                state.name, "it still holds resources of the parent's threads, because releasing them failed", error
            )
    ledger.reset_after_fork()


at_fork(child=_after_fork)
