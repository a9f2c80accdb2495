"""What all that one ``Guard`` guards shares: its policies, their state, and how a call goes through them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import ref

from .._call.attempt import compose
from .._call.bound import BoundPolicies
from .._call.state import Prospect, State
from .._config import Declared, State as Configuration, settings
from .._policy import CircuitBreaker, Fallback, Policy
from .._runtime import blocking
from .._runtime.interrupting.roles import CALLER, register
from .._swap import Swap
from ..exceptions import Fault, FaultToleranceDefinitionException
from . import registry
from .awaited import call_awaited, is_coroutine_code, told
from .call_path import course_for
from .declaration import FUNCTION, INSTANCE, Declaration, binding_by_name
from .place import Place
from .plan import Plan

if TYPE_CHECKING:
    from .guard import Guard

__all__ = ["Given", "Shared", "call_apart", "call_given", "substitute_faults"]

T = TypeVar("T")
Given: TypeAlias = Callable[..., Any]
"""One of ``call_given``, ``call_awaited`` and ``call_apart``."""
Paths: TypeAlias = dict[Given, blocking.GuardedCall]


class Shared:
    """Finds the call paths of one ``Guard``, and keeps them until the configuration changes.

    What ``Resolver`` is to a guarded function. Nothing of it is public, so that nothing of it is in a ``Guard``.
    """

    __slots__ = ("__weakref__", "_guard", "_line", "declared", "known", "name", "paths", "remembered")

    def __init__(self, guard: Guard, place: Place, declared: Sequence[Declared]) -> None:
        self._guard = ref(guard)
        self.name = place.name
        self._line = place.line
        self.declared = tuple(declared)
        self.remembered: State | None = None
        """The state, if the guard was ever called."""
        self.known: Plan | None = None
        """What holds, if that was found out."""
        self.paths: Paths = {}
        """The paths of functions that are given to the guard, each time anew, by how they are called: see ``Given``.

        Another dictionary whenever the plan changes."""
        registry.add(self)

    @property
    def guard(self) -> Guard | None:
        """The ``Guard``, as long as somebody has it."""
        return self._guard()

    # What the registry asks of every guard

    def plan(self, cls: type | None = None, basis: Configuration | None = None) -> tuple[Plan, list[Fault]]:
        """What holds under the configuration *basis*, and what is wrong with it."""
        basis = basis or settings.basis
        effective, faults = settings.resolve(self.declared, self.name, basis)
        switches = settings.switches_under(basis)
        plan = Plan(self.name, call_given, self.declared, tuple(effective), switches=switches, counted_as=self._line)
        return plan, faults or self._faults(plan)

    def _faults(self, plan: Plan) -> list[Fault]:
        substitute = plan.policies.get(Fallback)
        faults = substitute_faults(substitute, self.name)
        if not faults and call_given in self.paths:
            faults = substitute_faults(substitute, self.name, call_given, asynchronous=False)
        fallbacks = (one for one in plan.effective if one.policy is substitute)
        return [one.traced(fault) for one in fallbacks for fault in faults]

    def prepare(self, cls: type | None, plan: Plan) -> _Prepared:
        """The call paths of *plan*, of the kinds that were called, and what the state becomes."""
        prepared = _Prepared(self, plan, {})
        for given in list(self.paths):
            prepared.paths[given] = prepared.call_path(given, given is not call_given)
        return prepared

    def drop(self, cls: type | None, swap: Swap) -> None:
        """Let the next call find out anew what holds; what is remembered stays."""
        swap.attribute(self, "known", None)
        swap.attribute(self, "paths", {})

    def forget(self, swap: Swap) -> None:
        """Go back to how it was before the first call."""
        self.drop(None, swap)
        swap.attribute(self, "remembered", None)

    def resolved(self) -> list[type | None]:
        """Whether it was ever called, in the form of ``Resolver.resolved``."""
        return [None] if self.known is not None else []

    def state(self, cls: type | None = None) -> State | None:
        """What it remembers, if it was ever called."""
        return self.remembered

    def states(self) -> list[State]:
        """The same, in the form of ``Resolver.states``."""
        return [self.remembered] if self.remembered is not None else []

    def resolve_breaker(self, name: str | None = None) -> None:
        """Make the breaker known, if there is one; if a name is given, only if that is its name."""
        has_one = any(isinstance(one.policy, CircuitBreaker) for one in self.declared)
        if has_one and self.known is None and name in (None, self.name):
            self._resolve(None)

    # Calls

    def path(self, given: Given) -> blocking.GuardedCall:
        """The call path of functions that are given as the first argument, and called as *given* calls them."""
        found = self.paths.get(given)
        if found is None:
            _, found = self.resolve(given, given is not call_given)
        return found

    def resolve(self, function: Callable[..., Any], asynchronous: bool) -> tuple[Paths, blocking.GuardedCall]:
        """The call path of *function*, and what ``paths`` is as long as it holds."""
        paths, call = self._resolve((function, asynchronous))
        assert call is not None
        return paths, call

    def _resolve(self, called: tuple[Callable[..., Any], bool] | None) -> tuple[Paths, blocking.GuardedCall | None]:
        """Find out what holds, and the call path of the function that is *called*, asynchronous or not."""
        with registry.resolving:
            while True:
                basis, paths, plan = settings.basis, self.paths, self.known
                if plan is None:
                    plan, faults = self.plan(None, basis)
                    if faults:
                        raise FaultToleranceDefinitionException(*faults)
                prepared = _Prepared(self, plan, paths)
                call = self._checked_path(prepared, *called) if called is not None else None
                if self._put(prepared, basis, called, call):
                    return paths, call

    def _checked_path(
        self, prepared: _Prepared, function: Callable[..., Any], asynchronous: bool
    ) -> blocking.GuardedCall:
        if faults := substitute_faults(prepared.substitute, self.name, function, asynchronous):
            raise FaultToleranceDefinitionException(*faults)
        return prepared.call_path(function, asynchronous)

    def check(self, function: Callable[..., Any], asynchronous: bool) -> None:
        """Refuse *function*, which is to be guarded, where a policy as it was declared does not fit it."""
        declared = {type(one.policy): one.policy for one in self.declared}
        if faults := substitute_faults(declared.get(Fallback), self.name, function, asynchronous):
            raise FaultToleranceDefinitionException(*faults)

    def _put(
        self,
        prepared: _Prepared,
        basis: Configuration,
        called: tuple[Callable[..., Any], bool] | None,
        call: blocking.GuardedCall | None,
    ) -> bool:
        """Let *prepared* be so, with *call* for what is *called*; false if something has changed meanwhile."""
        while True:
            seen = settings.version.current
            if settings.state is not basis or self.paths is not prepared.paths or not prepared.is_current:
                return False
            swap = Swap()
            prepared.put(swap)
            if called is not None and called[0] in _GIVEN:
                swap.item(self.paths, called[0], call)
            try:
                if settings.version.swap(seen, swap):
                    return True
            finally:
                prepared.follow()


class _Prepared:
    """What a ``Guard`` becomes, with *paths* for its calls."""

    __slots__ = ("_plan", "_prospect", "_shared", "paths")

    def __init__(self, shared: Shared, plan: Plan, paths: Paths) -> None:
        self._shared = shared
        self._plan = plan
        self._prospect = Prospect(shared.remembered or State(plan.name), plan.policies)
        self.paths = paths

    @property
    def substitute(self) -> Policy | None:
        """The fallback that holds."""
        return self._plan.policies.get(Fallback)

    def call_path(self, function: Callable[..., Any], asynchronous: bool) -> blocking.GuardedCall:
        """The call path of *function*."""
        is_apart = function is call_apart
        course = course_for(self._plan, self._prospect, asynchronous=asynchronous, apart=is_apart)
        if function is call_given:
            course.advice = "use call_async"
        substitute = self.substitute
        aside = _aside(substitute, function, asynchronous) if isinstance(substitute, Fallback) else None
        return _path(function, course, aside, asynchronous, self._plan.name)

    @property
    def is_current(self) -> bool:
        """Whether all that it was made from is still there."""
        return self._shared.remembered in (None, self._prospect.state) and self._prospect.is_current

    def put(self, swap: Swap) -> None:
        """Let it be so, together with the other stores of *swap*."""
        self._prospect.put(self._plan.policies, swap)
        swap.attribute(self._shared, "remembered", self._prospect.state)
        swap.attribute(self._shared, "known", self._plan)
        swap.attribute(self._shared, "paths", self.paths)

    def follow(self) -> None:
        """Let what is remembered have the values that are in force."""
        self._prospect.state.follow()


@register(CALLER)
def call_given(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Call *function*: what a guard guards to which functions are given."""
    return function(*args, **kwargs)


@register(CALLER)
def call_apart(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Call *function* on a thread of the pool, while its caller awaits that."""
    return function(*args, **kwargs)


_GIVEN = (call_given, call_awaited, call_apart)
"""What is guarded where a guard is given the function at each call; all but the first are asynchronous."""


def substitute_faults(
    policy: Policy | None, name: str, function: Callable[..., Any] = call_awaited, asynchronous: bool = True
) -> list[Fault]:
    """What is wrong with the fallback of the guard *name*: for *function*, and by default for whatever it is given."""
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


def _called(function: Callable[..., Any], args: tuple[Any, ...]) -> Declaration:
    """*function* as it was called with *args*: a static method has the name of a method, and no instance in front."""
    declaration = _declaration(function)
    if declaration.binding == INSTANCE and not _is_called_on(function, declaration.name, *args[:1]):
        declaration.binding = FUNCTION
    return declaration


def _is_called_on(function: Any, name: str, first: object = None) -> bool:
    """Whether *first* is an object, or a class, in whose class body *function* stands, and as no static method."""
    scope, bases = function.__qualname__.rpartition(".")[0], type(first).__mro__
    for base in (*first.__mro__, *bases) if isinstance(first, type) else bases:
        if (base.__qualname__, base.__module__) == (scope, function.__module__):
            return not isinstance(vars(base).get(name), staticmethod)
    return False


def _path(
    function: Callable[..., Any], course: BoundPolicies, aside: blocking.Aside | None, asynchronous: bool, name: str
) -> blocking.GuardedCall:
    if not asynchronous:
        return compose(function, course, fallback=aside)
    if function is call_apart:
        from .._runtime import offload

        environment = offload.ThreadEnvironment()
        driver: Any = compose(function, course, fallback=aside, environment=environment, apart=True, awaits=None)
        return partial(offload.start, driver)
    from .._runtime.tasks import TaskEnvironment

    if function in _GIVEN or is_coroutine_code(function):
        return compose(function, course, fallback=aside, environment=TaskEnvironment())
    call = compose(partial(call_awaited, function), course, fallback=aside, environment=TaskEnvironment())
    return told(name, call)


def _aside(policy: Fallback, function: Callable[..., Any], asynchronous: bool) -> blocking.Aside:
    from . import callback

    def aside(args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException, attempts: int) -> Any:
        called, args = (args[0], args[1:]) if function in _GIVEN else (function, args)
        return callback.side_call(policy, _called(called, args), asynchronous)(args, kwargs, failure, attempts)

    return aside
