"""Guards as values: policies with one state, for code that is no method."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import WRAPPER_ASSIGNMENTS, update_wrapper
from types import CodeType
from typing import Any, ParamSpec, TypeVar

from .._config import Declared, settings
from .._config.snapshot import Snapshot
from .._policy import Bulkhead, CircuitBreaker, Fallback, Policy, RateLimit, Retry, Timeout
from .._runtime import blocking
from .._runtime.kinds import is_coroutine_function, is_generator_function, mark_coroutine_function, own
from ..exceptions import Fault, FaultToleranceDefinitionException
from . import proxy, registry
from .call_path import course_for
from .compose import compose
from .declaration import FUNCTION, INSTANCE, Declaration, binding_by_name, user_frames
from .plan import Plan
from .state import State

__all__ = ["Guard", "apply_guard"]

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_named: dict[str, Guard] = {}


class Guard:
    """A set of policies with one state, for calls of any function.

    Synchronous and asynchronous calls share the breaker, the permits and the rate window.

    Args:
        retry: See ``Retry``.
        timeout: See ``Timeout``.
        circuit_breaker: See ``CircuitBreaker``.
        bulkhead: See ``Bulkhead``.
        rate_limit: See ``RateLimit``.
        fallback: See ``Fallback``; with a handler, not with a method's name.
        name: What ``apply_guard``, ``circuit_breakers`` and keys such as ``payments/Retry/maxRetries`` call it; held
            until ``close``. Without one, the module and line where it is made: those that one line makes count as one.

    Raises:
        FaultToleranceDefinitionException: If another guard has the name, or the fallback names a method.

    >>> guard = Guard(retry=Retry(max_retries=2, jitter=0))
    >>> guard.call(int, "7")
    7
    """

    def __init__(
        self,
        *,
        retry: Retry | None = None,
        timeout: Timeout | None = None,
        circuit_breaker: CircuitBreaker | None = None,
        bulkhead: Bulkhead | None = None,
        rate_limit: RateLimit | None = None,
        fallback: Fallback | None = None,
        name: str = "",
    ) -> None:
        given = (fallback, retry, circuit_breaker, rate_limit, timeout, bulkhead)
        self._declared = [Declared(policy, "class", name, "") for policy in given if policy is not None]
        self.name = name or _place()
        if fallback is not None and fallback.fallback_method:
            raise FaultToleranceDefinitionException(
                Fault(f"Guard {self.name} @Fallback(fallback_method)", f"is {fallback.fallback_method!r}",
                      fallback.fallback_method, "a handler: a guard belongs to no class")
            )  # fmt: skip
        self._home = _running_module()
        other = _named.setdefault(name, self) if name else self
        if other is not self and self._home is not None and _is_run_again(self._home, other._home):
            _named[name] = self
        elif other is not self:
            raise FaultToleranceDefinitionException(
                Fault(f"Guard(name={name!r})", "has the name of another guard", name, "a name that no other guard has")
            )
        self._state: State | None = None
        self._plan: Plan | None = None
        self._paths: dict[bool, blocking.GuardedCall] = {}  # another dictionary whenever the plan changes
        registry.add(self)

    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call *function* on this thread under the policies."""
        return self._path(False)((function, *args), kwargs)  # type: ignore[no-any-return]

    async def call_async(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call *function* and await what it returns, under the policies."""
        return await self._path(True)((function, *args), kwargs)  # type: ignore[no-any-return]

    def __call__(self, function: F) -> F:
        """Decorate *function*; all that one guard decorates shares its state."""
        return _decorated(function, lambda: self)

    def close(self) -> None:
        """Give the name back."""
        if _named.get(self.name) is self:
            del _named[self.name]

    def __repr__(self) -> str:
        return f"Guard({', '.join(repr(one.policy) for one in self._declared)}, name={self.name!r})"

    # What the registry asks of every guard

    def plan(self, cls: type | None = None, snapshot: Snapshot | None = None) -> tuple[Plan, list[Fault]]:
        """What holds under the configuration *snapshot*, and what is wrong with it."""
        effective, faults = settings.resolve(self._declared, self.name, snapshot)
        return Plan(self.name, _invoke, tuple(self._declared), tuple(effective)), faults

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
            self._paths = {}

    def forget(self) -> None:
        """Go back to how it was before the first call."""
        self._state = None
        self._plan = None
        self._paths = {}

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
        if any(isinstance(one.policy, CircuitBreaker) for one in self._declared):
            self._path(False)

    def _path(self, asynchronous: bool) -> blocking.GuardedCall:
        found = self._paths.get(asynchronous)
        if found is None:
            paths, found = self._resolve(_invoke, asynchronous)
            paths[asynchronous] = found
        return found

    def _resolve(
        self, function: Callable[..., Any], asynchronous: bool
    ) -> tuple[dict[bool, blocking.GuardedCall], blocking.GuardedCall]:
        """The call path of *function*, and what ``_paths`` is as long as it holds."""
        with registry.resolving:
            paths = self._paths  # looked at before the plan: who changes that replaces this afterwards
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


def _place() -> str:
    """Where a guard without a name is made: those that one line makes, one per request say, count as one."""
    frame = next(user_frames(), None)
    return "guard" if frame is None else f"{frame.f_globals.get('__name__', 'guard')}:{frame.f_lineno}"


def apply_guard(name: str) -> Callable[[F], F]:
    """Guard a function by the ``Guard`` called *name*, which may be made later; looked up at each call.

    Raises:
        KeyError: At a call, if no guard has the name.
    """

    def find() -> Guard:
        try:
            return _named[name]
        except KeyError:
            from difflib import get_close_matches

            near = get_close_matches(name, _named, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise KeyError(f"no guard is named {name!r}{hint}") from None

    return lambda function: _decorated(function, find)


def _decorated(function: F, find: Callable[[], Guard]) -> F:
    function = proxy.of_our_own(function)
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(_decorated(function.__func__, find))  # pyright: ignore[reportReturnType]
    if not callable(function) or isinstance(function, type):
        raise FaultToleranceDefinitionException(
            Fault("what stands below a Guard", "cannot be guarded", function, "a function or a method")
        )
    if is_generator_function(function):
        raise FaultToleranceDefinitionException(
            Fault(f"{getattr(function, '__qualname__', function)} under a Guard", "is a generator function", function,
                  "a function that returns: guard the body of the loop instead, a stream cannot be run again")
        )  # fmt: skip
    asynchronous = is_coroutine_function(function)
    if binding_by_name(function) == INSTANCE:
        function = proxy.bound_first(function)  # type: ignore[assignment]

    # Kept here and not by the guard, which may outlive many functions that it decorated.
    known: tuple[object, Any] = (None, None)

    def guarded(*args: Any, **kwargs: Any) -> Any:
        nonlocal known
        guard, found = find(), known
        if found[0] is not guard._paths:
            found = known = guard._resolve(function, asynchronous)
        return found[1](args, kwargs)

    update_wrapper(guarded, function, [name for name in WRAPPER_ASSIGNMENTS if own(function, name, own) is not own])
    return mark_coroutine_function(guarded) if asynchronous else guarded  # type: ignore[return-value]


def _running_module() -> tuple[str, CodeType] | None:
    """The module at whose top level a guard is made, and its code."""
    frame = next(user_frames(), None)
    if frame is None or frame.f_locals is not frame.f_globals:
        return None
    return frame.f_globals.get("__name__", ""), frame.f_code


def _is_run_again(now: tuple[str, CodeType], before: tuple[str, CodeType] | None) -> bool:
    """Whether a module is reloaded, or a cell of a notebook run once more: the same place, but compiled anew."""
    return before is not None and now[0] == before[0] and now[1] is not before[1]


def _invoke(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
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
