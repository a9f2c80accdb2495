"""From a plan to the function that a call runs through."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any
from weakref import ref

from .._call.attempt import compose, path, shape_of
from .._call.bound import BoundPolicies
from .._call.order import ORDER, Binding, is_detached
from .._call.specialize import source_of
from .._call.state import Prospect, State
from .._metrics.ledger import Ledger
from .._policy import AsynchronousNonBlocking, BeforeRetry, Fallback
from .._runtime import blocking
from .._runtime.interrupting.roles import CALLER, register
from . import registry
from .awaited import call_awaited, is_coroutine_code, told
from .declaration import CLASS, Declaration, unbound
from .invocation import around
from .plan import Plan

__all__ = ["call_path", "code_of", "course_for", "plainly", "plainly_while_hidden"]


def plainly(function: Callable[..., Any]) -> blocking.GuardedCall:
    """The way to *function* where nothing guards it."""

    @register(CALLER)
    def call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return function(*args, **kwargs)

    return call


def plainly_while_hidden(function: Callable[..., Any], declaration: Declaration, cls: type) -> blocking.GuardedCall:
    """The way to *function* from below something else of its name in *cls*, as long as that is there.

    It may be a patch that is taken back; then the method is not to stay unguarded. What is there is looked up as
    quickly as the interpreter does, unless looking it up could run somebody's code.
    """
    name, guard, is_of_class = declaration.name, ref(declaration.guard), declaration.binding == CLASS
    places = [vars(base)[name] for base in cls.__mro__ if name in vars(base)]
    # What hides it is first; in a property, the guard is no attribute itself.
    is_function = any(isinstance(one, (FunctionType, classmethod, staticmethod)) for one in places[:1])
    is_simple = is_function and guard() in map(unbound, places)

    @register(CALLER)
    def call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        cls = args[0] if is_of_class else type(args[0])
        if is_simple:
            found = getattr(cls, name, None)
            is_hidden = (found.__func__ if is_of_class and type(found) is MethodType else found) is not guard()
        else:
            is_hidden = not declaration.resolver.is_first(cls)
        return function(*args, **kwargs) if is_hidden else declaration.resolver.anew(cls)(args, kwargs)

    return call


def call_path(declaration: Declaration, plan: Plan, prospect: Prospect | None) -> blocking.GuardedCall:
    """What a call goes through: interceptors, policies, interceptors, the method."""
    base = plan.switches.interceptor_priority
    outer = [one for one in plan.interceptors if one.priority < base]
    inner = [one for one in plan.interceptors if one.priority >= base]
    function = _intercepted(plan.function, inner, declaration)
    call = plainly(function) if prospect is None else _guarded(declaration, plan, function, prospect)
    return around(call, outer, declaration)


def _intercepted(
    function: Callable[..., Any], interceptors: Sequence[Any], declaration: Declaration
) -> Callable[..., Any]:
    if not interceptors:
        return function
    call = around(plainly(function), interceptors, declaration)
    return lambda *args, **kwargs: call(args, kwargs)


def _guarded(
    declaration: Declaration, plan: Plan, function: Callable[..., Any], prospect: Prospect
) -> blocking.GuardedCall:
    policies = plan.policies
    asynchronous = declaration.is_asynchronous(policies)
    is_apart = is_detached(policies)
    course = course_for(plan, prospect, asynchronous=asynchronous, apart=is_apart)
    substitute = policies.get(Fallback)
    before = policies.get(BeforeRetry)
    aside = before_aside = None
    if isinstance(substitute, Fallback):
        from . import callback

        aside = callback.side_call(substitute, declaration, asynchronous, plan.homes.get(Fallback))
    if isinstance(before, BeforeRetry):
        from . import callback

        before_aside = callback.side_call(before, declaration, asynchronous, plan.homes.get(BeforeRetry))
    if not asynchronous:
        # Where that was switched off, what comes later is meant to.
        course.watches_results = not is_detached({type(one.policy) for one in plan.declared})
        return compose(function, course, fallback=aside, before_retry=before_aside)

    awaits = _awaits(declaration)
    if is_apart and not declaration.is_coroutine and AsynchronousNonBlocking not in policies:
        from .._runtime import offload

        environment = offload.ThreadEnvironment()
        offloaded = _named(
            compose(
                function,
                course,
                fallback=aside,
                before_retry=before_aside,
                environment=environment,
                apart=True,
                awaits=awaits,
            ),
            declaration,
        )
        bind_offloaded = _binder(plan.function)

        def offload_call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
            bind_offloaded(*args, **kwargs)
            return offload.start(offloaded, args, kwargs)

        return offload_call

    from .._runtime.tasks import AsyncCall, TaskEnvironment

    is_certain = is_apart or is_coroutine_code(function)
    driver = compose(
        function if is_certain else partial(call_awaited, function),
        course,
        fallback=aside,
        before_retry=before_aside,
        environment=TaskEnvironment(),
        apart=is_apart,
        awaits=awaits,
    )
    driver = _named(driver if is_certain else told(plan.name, driver), declaration)
    if not is_apart:
        return driver  # type: ignore[no-any-return]
    bind = _binder(plan.function)

    def start(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        bind(*args, **kwargs)
        return AsyncCall(lambda: driver(args, kwargs))

    return start


def code_of(plan: Plan, asynchronous: bool) -> str:
    """The code that a call of *plan* runs through, for people."""
    policies = plan.policies
    apart = is_detached(policies)
    # The state of a call that nobody makes: what it would count is nobody's business.
    sketch = Prospect(State(plan.name), policies, Ledger())
    course = course_for(plan, sketch, asynchronous=asynchronous, apart=apart)
    shape = shape_of(
        course,
        fallback=Fallback in policies,
        before_retry=BeforeRetry in policies,
        asynchronous=asynchronous,
        apart=apart,
    )
    return source_of(path, shape)


def _awaits(declaration: Declaration) -> bool | None:
    """Whether what a method returns is awaited; ``None``: the object decides (rule R7)."""
    if declaration.is_coroutine:
        return True
    from .._signature.outcome import Outcome, outcome

    return {Outcome.FUTURE: False, Outcome.AWAITABLE: True}.get(outcome(declaration.template, declaration.owner))


def _named(driver: Any, declaration: Declaration) -> Any:
    """Let a coroutine that was never awaited, and a task, be reported under the function's own name."""
    driver.__name__ = declaration.name
    driver.__qualname__ = getattr(declaration.template, "__qualname__", declaration.name)
    return driver


def _binder(function: Callable[..., Any]) -> Callable[..., object]:
    """Checks arguments: wrong ones are the only thing that an asynchronous call raises itself (rule R7)."""
    import inspect

    try:
        return inspect.signature(function).bind
    except (TypeError, ValueError):
        return lambda *args, **kwargs: None


def course_for(plan: Plan, prospect: Prospect, *, asynchronous: bool, apart: bool) -> BoundPolicies:
    """The policies of one guarded function, bound to what its state is to become."""
    policies = plan.policies
    binding = Binding(
        plan.name, policies, prospect.strategies, asynchronous, apart, on_transition=registry.deliver_transitions
    )
    values: dict[str, Any] = {}
    for row in ORDER:
        if row.policy in policies:
            values |= row.bind(policies[row.policy], binding)
    counters = None
    if plan.switches.metrics_enabled:
        counters = prospect.counters_for(plan.counted_as, policies, queue=asynchronous)
    return BoundPolicies(plan.name, **values, queues=asynchronous, counters=counters)
