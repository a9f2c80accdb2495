"""What all that one ``Guard`` guards shares: its policies, their state, and how a call goes through them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ref

from .._config import Declared, settings
from .._config.snapshot import Snapshot
from .._policy import CircuitBreaker, Fallback, Policy
from .._runtime import blocking
from ..exceptions import Fault, FaultToleranceDefinitionException
from . import registry
from .awaited import call_awaited, is_coroutine_code, told
from .call_path import course_for
from .compose import compose
from .course import Course
from .declaration import FUNCTION, Declaration, binding_by_name
from .plan import Plan
from .state import State

if TYPE_CHECKING:
    from .guard import Guard

__all__ = ["Shared", "substitute_faults"]

T = TypeVar("T")


class Shared:
    """Finds the call paths of one ``Guard``, and keeps them until the configuration changes.

    What ``Resolver`` is to a guarded function. Nothing of it is public, so that nothing of it is in a ``Guard``.
    """

    __slots__ = ("__weakref__", "_guard", "_plan", "_state", "declared", "name", "paths")

    def __init__(self, guard: Guard, name: str, declared: Sequence[Declared]) -> None:
        self._guard = ref(guard)
        self.name = name
        self.declared = tuple(declared)
        self._state: State | None = None
        self._plan: Plan | None = None
        self.paths: dict[bool, blocking.GuardedCall] = {}
        """The paths of functions that are given to the guard, each time anew; whether they are asynchronous.

        Another dictionary whenever the plan changes."""
        registry.add(self)

    @property
    def guard(self) -> Guard | None:
        """The ``Guard``, as long as somebody has it."""
        return self._guard()

    # What the registry asks of every guard

    def plan(self, cls: type | None = None, snapshot: Snapshot | None = None) -> tuple[Plan, list[Fault]]:
        """What holds under the configuration *snapshot*, and what is wrong with it."""
        effective, faults = settings.resolve(list(self.declared), self.name, snapshot)
        plan = Plan(self.name, call_given, self.declared, tuple(effective))
        return plan, faults or substitute_faults(plan.policies.get(Fallback), self.name)

    def replan(self, snapshot: Snapshot) -> tuple[list[tuple[type | None, Plan]], list[Fault]]:
        """Resolve anew if it was resolved before."""
        if self._plan is None:
            return [], []
        plan, faults = self.plan(None, snapshot)
        return [(None, plan)], faults

    def install(self, plans: Sequence[tuple[type | None, Plan]]) -> None:
        """Let the next call follow its new plan."""
        for _, plan in plans:
            self._plan = plan
            self.paths = {}

    def forget(self) -> None:
        """Go back to how it was before the first call."""
        self._state = None
        self._plan = None
        self.paths = {}

    def resolved(self) -> list[type | None]:
        """Whether it was ever called, in the form of ``Resolver.resolved``."""
        return [None] if self._plan is not None else []

    def state(self, cls: type | None = None) -> State | None:
        """What it remembers, if it was ever called."""
        return self._state

    def states(self) -> list[State]:
        """The same, in the form of ``Resolver.states``."""
        return [self._state] if self._state is not None else []

    def resolve_breaker(self) -> None:
        """Make the breaker known, if there is one."""
        if any(isinstance(one.policy, CircuitBreaker) for one in self.declared):
            self._course(False)

    # Calls

    def path(self, asynchronous: bool) -> blocking.GuardedCall:
        """The call path of functions that are given as the first argument."""
        found = self.paths.get(asynchronous)
        if found is None:
            paths, found = self.resolve(call_awaited if asynchronous else call_given, asynchronous)
            paths[asynchronous] = found
        return found

    def resolve(
        self, function: Callable[..., Any], asynchronous: bool
    ) -> tuple[dict[bool, blocking.GuardedCall], blocking.GuardedCall]:
        """The call path of *function*, and what ``paths`` is as long as it holds."""
        with registry.resolving:
            paths = self.paths  # looked at before the plan: who changes that replaces this afterwards
            policies, course = self._course(asynchronous)
            substitute = policies.get(Fallback)
            if faults := substitute_faults(substitute, self.name, function, asynchronous):
                raise FaultToleranceDefinitionException(*faults)
            aside = _aside(substitute, function, asynchronous) if isinstance(substitute, Fallback) else None
            return paths, _path(function, course, aside, asynchronous, self.name)

    def check(self, function: Callable[..., Any], asynchronous: bool) -> None:
        """Refuse *function*, which is to be guarded, where a policy as it was declared does not fit it."""
        declared = {type(one.policy): one.policy for one in self.declared}
        if faults := substitute_faults(declared.get(Fallback), self.name, function, asynchronous):
            raise FaultToleranceDefinitionException(*faults)

    def _course(self, asynchronous: bool) -> tuple[Mapping[type[Policy], Policy], Course]:
        """The policies that hold, bound to what is remembered."""
        with registry.resolving:
            if self._plan is None:
                plan, faults = self.plan()
                if faults:
                    raise FaultToleranceDefinitionException(*faults)
                self._plan = plan
            policies = self._plan.policies
            if self._state is None:
                self._state = registry.new_state(self.name, policies)
            return policies, course_for(self.name, policies, self._state, asynchronous=asynchronous, apart=False)


def call_given(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Call *function*: what a guard guards to which functions are given."""
    return function(*args, **kwargs)


_GIVEN = (call_given, call_awaited)


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
    from . import fallback

    declaration = _declaration(function)
    where = f"Guard {name}{'' if asynchronous else '.call'}"
    if function not in _GIVEN:
        where = f"{declaration.where} under Guard {name}"
    return fallback.faults(policy, declaration, where, asynchronous, final=True)


def _declaration(function: Callable[..., Any]) -> Declaration:
    return Declaration(function, {}, FUNCTION if function in _GIVEN else binding_by_name(function))


def _path(
    function: Callable[..., Any], course: Course, aside: blocking.Aside | None, asynchronous: bool, name: str
) -> blocking.GuardedCall:
    if not asynchronous:
        return compose(function, course, fallback=aside)
    from .._runtime.tasks import TaskEnvironment

    if function in _GIVEN or is_coroutine_code(function):
        return compose(function, course, fallback=aside, environment=TaskEnvironment())
    call = compose(partial(call_awaited, function), course, fallback=aside, environment=TaskEnvironment())
    return told(name, call)


def _aside(policy: Fallback, function: Callable[..., Any], asynchronous: bool) -> blocking.Aside:
    from . import fallback

    if function not in _GIVEN:
        return fallback.aside(policy, _declaration(function), asynchronous)

    def aside(args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException, attempts: int) -> Any:
        return fallback.aside(policy, _declaration(args[0]), asynchronous)(args[1:], kwargs, failure, attempts)

    return aside
