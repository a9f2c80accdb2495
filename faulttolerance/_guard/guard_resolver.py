"""How calls go through one ``Guard``: its policies, their state, and a call path for each way to call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import ref

from .._call.state import State, StateDraft
from .._config import Declared, State as Configuration, settings
from .._policy import CircuitBreaker, Fallback, Policy
from .._runtime.blocking import Aside, GuardedCall
from .._runtime.interrupting.roles import CALLER, register
from .._swap import Swap
from ..exceptions import Fault, FaultToleranceDefinitionException
from . import registry
from .assembly import bound_policies, guarded_call
from .awaited import call_awaited
from .declaration import FUNCTION, INSTANCE, Declaration, binding_by_name
from .effective import EffectivePolicies
from .place import Place
from .transaction import Draft

if TYPE_CHECKING:
    from .guard import Guard

__all__ = ["GuardResolver", "call_detached", "call_given", "fallback_faults"]

T = TypeVar("T")
Paths: TypeAlias = dict[Callable[..., Any], GuardedCall]


class GuardResolver:
    """Finds the call paths of one ``Guard``, and keeps them until the configuration changes.

    Nothing of it is public, so that nothing of it is in a ``Guard``.
    """

    __slots__ = ("__weakref__", "_guard", "_line", "_state", "declared", "effective", "name", "paths")

    def __init__(self, guard: Guard, place: Place, declared: Sequence[Declared]) -> None:
        self._guard = ref(guard)
        self.name = place.name
        self._line = place.line
        self.declared = tuple(declared)
        self._state: State | None = None
        self.effective: EffectivePolicies | None = None
        """What holds, once the guard was called."""
        self.paths: Paths = {}
        """The paths of functions that are given at each call, by what calls them: see ``_GIVEN``.

        Another dictionary whenever the policies change."""
        registry.add(self)

    @property
    def guarded(self) -> Guard | None:
        """The ``Guard``, as long as somebody has it."""
        return self._guard()

    # What is asked of every guard; the class is always ``None``

    def effective_policies(
        self, cls: type | None = None, basis: Configuration | None = None
    ) -> tuple[EffectivePolicies, list[Fault]]:
        """Find what holds under the configuration *basis*, and what is wrong with it."""
        basis = basis or settings.basis
        values, faults = settings.resolve(self.declared, self.name, basis)
        switches = settings.switches_under(basis)
        effective = EffectivePolicies(self.name, call_given, self.declared, values, switches=switches, line=self._line)
        return effective, faults or self._faults(effective)

    def _faults(self, effective: EffectivePolicies) -> list[Fault]:
        fallback = effective.policies.get(Fallback)
        faults = fallback_faults(fallback, self.name)
        if not faults and call_given in self.paths:
            faults = fallback_faults(fallback, self.name, call_given, asynchronous=False)
        return [one.traced(fault) for one in effective.values if one.policy is fallback for fault in faults]

    def draft(self, cls: type | None, effective: EffectivePolicies) -> Draft:
        """Assemble the call paths of the kinds that were called, and what the state is to become."""
        draft = _GuardDraft(self, effective, {})
        for given in list(self.paths):
            draft.assemble(given, given is not call_given)
        return draft

    def drop(self, cls: type | None, swap: Swap) -> None:
        """Let the next call find out anew what holds; what is remembered stays."""
        swap.attribute(self, "effective", None)
        swap.attribute(self, "paths", {})

    def forget(self, swap: Swap) -> None:
        """Go back to how it was before the first call."""
        self.drop(None, swap)
        swap.attribute(self, "_state", None)

    def resolved(self) -> list[type | None]:
        """Give the classes for which it was called."""
        return [None] if self.effective is not None else []

    def classes(self) -> list[type | None]:
        """Give the only one."""
        return [None]

    def state(self, cls: type | None = None) -> State | None:
        """Give what the guard remembers, if it was ever called."""
        return self._state

    def states(self) -> list[State]:
        """Give the same as a list."""
        return [self._state] if self._state is not None else []

    def resolve_breaker(self, name: str | None = None) -> None:
        """Make the breaker known, if there is one; if a name is given, only if that is its name."""
        has_breaker = any(isinstance(one.policy, CircuitBreaker) for one in self.declared)
        if has_breaker and self.effective is None and name in (None, self.name):
            self._resolve(None, asynchronous=False)

    # Calls

    def path(self, given: Callable[..., Any]) -> GuardedCall:
        """Find the call path of functions that are given as the first argument to *given*, one of ``_GIVEN``."""
        return self.paths.get(given) or self.resolve(given, given is not call_given)[1]

    def resolve(self, function: Callable[..., Any], asynchronous: bool) -> tuple[Paths, GuardedCall]:
        """Find the call path of *function*, and what ``paths`` is as long as it holds."""
        paths, call = self._resolve(function, asynchronous)
        assert call is not None
        return paths, call

    def _resolve(self, function: Callable[..., Any] | None, asynchronous: bool) -> tuple[Paths, GuardedCall | None]:
        with registry.resolving:
            while True:
                basis, paths, effective = settings.basis, self.paths, self.effective
                if effective is None:
                    effective, faults = self.effective_policies(None, basis)
                    if faults:
                        raise FaultToleranceDefinitionException(*faults)
                draft, call = _GuardDraft(self, effective, paths), None
                if function is not None:
                    fallback = effective.policies.get(Fallback)
                    if faults := fallback_faults(fallback, self.name, function, asynchronous):
                        raise FaultToleranceDefinitionException(*faults)
                    call = draft.assemble(function, asynchronous)
                if draft.put_in_force(basis):
                    return paths, call

    def check(self, function: Callable[..., Any], asynchronous: bool) -> None:
        """Refuse *function*, which is to be guarded, where a policy as it was declared does not fit it."""
        fallback = next((one.policy for one in self.declared if isinstance(one.policy, Fallback)), None)
        if faults := fallback_faults(fallback, self.name, function, asynchronous):
            raise FaultToleranceDefinitionException(*faults)


class _GuardDraft(Draft):
    """What a ``Guard`` is to become, with *paths* for its calls."""

    __slots__ = ("_added", "_paths", "_replaced", "_resolver")
    state: StateDraft

    def __init__(self, resolver: GuardResolver, effective: EffectivePolicies, paths: Paths) -> None:
        super().__init__(effective, StateDraft(resolver.state() or State(effective.name), effective.policies))
        self._resolver = resolver
        self._replaced = resolver.paths
        self._paths = paths
        self._added: Paths = {}

    def assemble(self, function: Callable[..., Any], asynchronous: bool) -> GuardedCall:
        """Assemble the call path of *function*."""
        effective, is_given, detached = self.effective, function in _GIVEN, function is call_detached
        policies = bound_policies(effective, self.state, asynchronous=asynchronous, detached=detached)
        if function is call_given:
            policies.advice = "use call_async"
        fallback = effective.policies.get(Fallback)
        call = guarded_call(
            function,
            policies,
            fallback=_side_call(fallback, function, asynchronous) if isinstance(fallback, Fallback) else None,
            asynchronous=asynchronous,
            detached=detached,
            on_threads=detached,
            is_certain=is_given,
            awaits=None if detached else True,
            declaration=None if is_given else _declaration(function),
        )
        if is_given:
            self._added[function] = call
        return call

    @property
    def is_current(self) -> bool:
        resolver, state = self._resolver, self.state
        return resolver.paths is self._replaced and resolver.state() in (None, state.state) and state.is_current

    def put(self, swap: Swap) -> None:
        self.state.put(self.effective.policies, swap)
        swap.attribute(self._resolver, "_state", self.state.state)
        swap.attribute(self._resolver, "effective", self.effective)
        for given, call in self._added.items():
            swap.item(self._paths, given, call)
        swap.attribute(self._resolver, "paths", self._paths)


@register(CALLER)
def call_given(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Call *function*: what a guard guards to which functions are given."""
    return function(*args, **kwargs)


@register(CALLER)
def call_detached(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Call *function* on a thread of the pool, while its caller awaits that."""
    return function(*args, **kwargs)


_GIVEN = (call_given, call_awaited, call_detached)
"""What is guarded where a guard is given the function at each call; all but the first are asynchronous."""


def fallback_faults(
    policy: Policy | None, name: str, function: Callable[..., Any] = call_awaited, asynchronous: bool = True
) -> list[Fault]:
    """Tell how the fallback of the guard *name* does not fit *function*, by default whatever the guard is given."""
    if not isinstance(policy, Fallback):
        return []
    if policy.fallback_method:
        return [
            Fault(f"Guard {name} @Fallback(fallback_method)", f"is {policy.fallback_method!r}",
                  policy.fallback_method, "a handler: a guard belongs to no class")
        ]  # fmt: skip
    from .checking import callback

    declaration = _declaration(function)
    where = f"Guard {name}{'' if asynchronous else '.call'}"
    if function not in _GIVEN:
        where = f"{declaration.where} under Guard {name}"
    return callback.faults(policy, declaration, where, asynchronous, final=True)


def _declaration(function: Callable[..., Any]) -> Declaration:
    return Declaration(function, {}, FUNCTION if function in _GIVEN else binding_by_name(function))


def _side_call(policy: Fallback, function: Callable[..., Any], asynchronous: bool) -> Aside:
    from .callback import side_call

    def fallback(args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException, attempts: int) -> Any:
        called, args = (args[0], args[1:]) if function in _GIVEN else (function, args)
        declaration = _declaration(called)
        # A static method has the name of a method, and no instance in front.
        if declaration.binding == INSTANCE and not _is_called_on(called, declaration.name, *args[:1]):
            declaration.binding = FUNCTION
        return side_call(policy, declaration, asynchronous)(args, kwargs, failure, attempts)

    return fallback


def _is_called_on(function: Any, name: str, first: object = None) -> bool:
    """Tell whether *first* is an object, or a class, in whose class body *function* stands, and as no static method."""
    scope, bases = function.__qualname__.rpartition(".")[0], type(first).__mro__
    for base in (*first.__mro__, *bases) if isinstance(first, type) else bases:
        if (base.__qualname__, base.__module__) == (scope, function.__module__):
            return not isinstance(vars(base).get(name), staticmethod)
    return False
