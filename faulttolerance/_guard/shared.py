"""What all that one ``Guard`` guards shares: its policies, their state, and how a call goes through them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ref

from .._config import Declared, settings
from .._config.snapshot import Snapshot
from .._policy import CircuitBreaker, Fallback, Policy
from .._runtime import blocking
from ..exceptions import Fault, FaultToleranceDefinitionException
from . import registry
from .call_path import course_for
from .compose import compose
from .declaration import FUNCTION, Declaration, binding_by_name
from .plan import Plan
from .state import State

if TYPE_CHECKING:
    from .guard import Guard

__all__ = ["Shared"]

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
        return Plan(self.name, _invoke, self.declared, tuple(effective)), faults

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
            self.path(False)

    # Calls

    def path(self, asynchronous: bool) -> blocking.GuardedCall:
        """The call path of functions that are given as the first argument."""
        found = self.paths.get(asynchronous)
        if found is None:
            paths, found = self.resolve(_invoke, asynchronous)
            paths[asynchronous] = found
        return found

    def resolve(
        self, function: Callable[..., Any], asynchronous: bool
    ) -> tuple[dict[bool, blocking.GuardedCall], blocking.GuardedCall]:
        """The call path of *function*, and what ``paths`` is as long as it holds."""
        with registry.resolving:
            paths = self.paths  # looked at before the plan: who changes that replaces this afterwards
            if self._plan is None:
                plan, faults = self.plan()
                if faults:
                    raise FaultToleranceDefinitionException(*faults)
                self._plan = plan
            policies = self._plan.policies
            if self._state is None:
                self._state = registry.new_state(self.name, policies)
            course = course_for(self.name, policies, self._state, asynchronous=asynchronous, apart=False)
            return paths, _path(function, course, _aside(policies, function, asynchronous), asynchronous)


def _invoke(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    return function(*args, **kwargs)


def _path(
    function: Callable[..., Any], course: Any, aside: blocking.Aside | None, asynchronous: bool
) -> blocking.GuardedCall:
    if not asynchronous:
        return compose(function, course, fallback=aside)
    from .._runtime.tasks import TaskEnvironment

    return compose(function, course, fallback=aside, environment=TaskEnvironment())


def _aside(
    policies: Mapping[type[Policy], Policy], function: Callable[..., Any], asynchronous: bool
) -> blocking.Aside | None:
    policy = policies.get(Fallback)
    if not isinstance(policy, Fallback):
        return None
    from . import fallback as fallbacks

    if function is not _invoke:
        return fallbacks.aside(policy, Declaration(function, {}, binding_by_name(function)), asynchronous)

    def aside(args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException, attempts: int) -> Any:
        called = Declaration(args[0], {}, FUNCTION)
        return fallbacks.aside(policy, called, asynchronous)(args[1:], kwargs, failure, attempts)

    return aside
