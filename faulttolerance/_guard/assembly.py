"""From effective policies to the function that a call runs through, for methods and for a ``Guard`` alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any
from weakref import ref

from .._call.attempt import attempt, compose, flags_of
from .._call.bound import BoundPolicies
from .._call.order import ORDER, Binding, Layer, Row, is_detached, may_queue
from .._call.specialize import source_of
from .._call.state import State, StateDraft
from .._metrics.counters import Counters, Ledger
from .._policy import AsynchronousNonBlocking, BeforeRetry, Fallback, Policy
from .._runtime.blocking import Aside, GuardedCall
from .._runtime.environment import Environment
from .._runtime.interrupting.roles import CALLER, register
from .._telemetry.connect import telemetry
from .awaited import call_awaited, is_coroutine_code, refusing
from .circuit_breakers import deliver_transitions
from .declaration import CLASS, FUNCTION, Declaration, unbound
from .effective import EffectivePolicies, is_first
from .invocation import around


def unguarded_call(function: Callable[..., Any]) -> GuardedCall:
    """Give the way to *function* where nothing guards it."""

    @register(CALLER)
    def call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return function(*args, **kwargs)

    return call


def unguarded_call_while_hidden(function: Callable[..., Any], declaration: Declaration, cls: type) -> GuardedCall:
    """Give the way to *function* from below something else of its name in *cls*, as long as that is there.

    It may be a patch that is taken back; then the method is not to stay unguarded. What is there is looked up as
    quickly as the interpreter does, unless looking it up could run somebody's code.
    """
    name, guard, is_of_class = declaration.name, ref(declaration.guard), declaration.binding == CLASS
    attributes = [vars(base)[name] for base in cls.__mro__ if name in vars(base)]
    # What hides it is first; in a property, the guard is no attribute itself.
    is_function = any(isinstance(first, (FunctionType, classmethod, staticmethod)) for first in attributes[:1])
    is_simple = is_function and guard() in map(unbound, attributes)

    @register(CALLER)
    def call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        cls = args[0] if is_of_class else type(args[0])
        if is_simple:
            first = getattr(cls, name, None)
            is_hidden = (first.__func__ if is_of_class and type(first) is MethodType else first) is not guard()
        else:
            is_hidden = not is_first(declaration, cls)
        return function(*args, **kwargs) if is_hidden else declaration.resolver.anew(cls)(args, kwargs)

    return call


def method_call(declaration: Declaration, effective: EffectivePolicies, draft: StateDraft) -> GuardedCall:
    """Assemble what a call of a guarded function goes through: interceptors, policies, interceptors, the function."""
    function, interceptors = effective.function, effective.interceptors
    priority = effective.switches.interceptor_priority
    if inner := [interceptor for interceptor in interceptors if interceptor.priority >= priority]:
        intercepted = around(unguarded_call(function), inner, declaration)
        function = lambda *args, **kwargs: intercepted(args, kwargs)  # noqa: E731
    is_guarded = bool(effective.policies)
    call = _by_policies(function, declaration, effective, draft) if is_guarded else unguarded_call(function)
    outer = [interceptor for interceptor in interceptors if interceptor.priority < priority]
    return around(call, outer, declaration) if outer else call


def _by_policies(
    function: Callable[..., Any], declaration: Declaration, effective: EffectivePolicies, draft: StateDraft
) -> GuardedCall:
    policies, declared_by = effective.policies, effective.declared_by
    asynchronous, detached = declaration.is_asynchronous(policies), is_detached(policies)

    def side_call(policy: Fallback | BeforeRetry) -> Aside:
        from . import callback

        return callback.side_call(policy, declaration, asynchronous, declared_by.get(type(policy)), effective.name)

    call = guarded_call(
        function,
        effective,
        draft,
        side_call=side_call,
        asynchronous=asynchronous,
        detached=detached,
        on_threads=detached and not declaration.is_coroutine and AsynchronousNonBlocking not in policies,
        awaits=_awaits(declaration) if asynchronous else None,
        declaration=declaration,
    )
    return _with_arguments_checked(call, effective.function) if detached else call


def guarded_call(
    function: Callable[..., Any],
    effective: EffectivePolicies,
    draft: StateDraft,
    *,
    side_call: Callable[[Any], Aside],
    asynchronous: bool,
    detached: bool,
    on_threads: bool,
    awaits: bool | None,
    declaration: Declaration | None,
    advice: str = "",
) -> GuardedCall:
    """Assemble what a call of *function* under its policies goes through, of a method or of a ``Guard``.

    Args:
        function: What is guarded.
        effective: Its policies.
        draft: What its state is to become.
        side_call: Makes the call of what a policy runs beside the function.
        asynchronous: Whether calls return before they are over.
        detached: Whether attempts run detached from the call.
        on_threads: Whether those do so on threads of the pool.
        awaits: Whether what an attempt returns is awaited; ``None``: the object decides (rule R7).
        declaration: What names the tasks and coroutines of calls, if that is to be the function.
        advice: What goes with the error where a synchronous call gives what is to be awaited; empty: it is no error.
    """
    steps = bound_policies(effective, draft, asynchronous=asynchronous, detached=detached, declaration=declaration)
    innermost = steps[0]
    assert isinstance(innermost, BoundPolicies)
    innermost.advice = advice
    fallback, before_retry = effective.policies.get(Fallback), effective.policies.get(BeforeRetry)
    composed = partial(
        _composed,
        steps,
        [(_called(link), side_call(link)) for link in _links(fallback)] if isinstance(fallback, Fallback) else [],
        side_call(before_retry) if before_retry is not None else None,
    )
    if not asynchronous:
        return composed(function, None, awaits)
    if on_threads:
        from .._runtime import offload

        driver = composed(function, offload.ThreadEnvironment(), awaits)
        return partial(offload.start, _named(driver, declaration))
    from .._runtime.tasks import TaskEnvironment

    is_certain = innermost.detached or function is call_awaited or is_coroutine_code(function)
    target = function if is_certain else partial(call_awaited, function)
    driver = composed(target, TaskEnvironment(), awaits)
    driver = _named(driver if is_certain else refusing(innermost.name, driver), declaration)
    if not innermost.detached:
        return driver  # type: ignore[no-any-return]
    from .._runtime.async_call import AsyncCall

    return lambda args, kwargs: AsyncCall(partial(driver, args, kwargs))


def _links(policy: Fallback) -> tuple[Fallback, ...]:
    return policy.links if isinstance(policy.value, tuple) else (policy,)


def _called(policy: Fallback) -> str:
    """Name the fallback, for people."""
    value = policy.value
    return policy.fallback_method or getattr(value, "__qualname__", None) or type(value).__qualname__


def _composed(
    steps: Sequence[BoundPolicies | Layer],
    fallbacks: Sequence[tuple[str, Aside]],
    before_retry: Aside | None,
    function: Callable[..., Any],
    environment: Environment | None,
    awaits: bool | None,
) -> GuardedCall:
    """Put *steps* around *function*, the innermost first."""
    call: GuardedCall | None = None
    if makes_spans := telemetry.makes_spans:
        function = _with_spans(function, steps[0])
    for step in steps:
        if isinstance(step, BoundPolicies):
            call = compose(
                function if call is None else _spreading(call),
                step,
                fallbacks=fallbacks if step.fallback_on is not None else (),
                before_retry=before_retry if step.retry is not None else None,
                environment=environment,
                awaits=awaits if call is None else environment is not None,
            )
            if makes_spans and step.retry is not None:
                _number_attempts(step)
        else:
            assert call is not None
            call = step(call, environment)
    assert call is not None
    return call


def _with_spans(function: Callable[..., Any], policies: BoundPolicies | Layer) -> Callable[..., Any]:
    from .._call.spans import Spans

    assert isinstance(policies, BoundPolicies)
    spans = Spans(policies.name)
    is_awaited = policies.asynchronous and (not policies.detached or is_coroutine_code(function))
    return spans.around_awaited(function) if is_awaited else spans.around(function)


def _number_attempts(policies: BoundPolicies) -> None:
    """Let the span of each attempt but the first be told its number."""
    from .._call.spans import ATTEMPT

    first = policies.attempt
    policies.attempt = lambda: lambda args, kwargs, record: first()(args, {**kwargs, ATTEMPT: record.attempts}, record)


def _spreading(call: GuardedCall) -> Callable[..., Any]:
    return lambda *args, **kwargs: call(args, kwargs)


def bound_policies(
    effective: EffectivePolicies,
    draft: StateDraft,
    *,
    asynchronous: bool,
    detached: bool,
    declaration: Declaration | None = None,
) -> list[BoundPolicies | Layer]:
    """Bind the policies of one guarded function to what its state is to become, and give what ``guarded_call`` takes.

    What stands between two layers is one step; nearly every function has no layer, and one step. The outermost one
    counts the calls, and the innermost one runs attempts apart.
    """
    policies, name = effective.policies, effective.line or effective.name

    def counters_of(*kinds: type[Policy], counts_calls: bool = False) -> Counters | None:
        if not effective.switches.metrics_enabled:
            return None
        return draft.counters_for(name, may_queue(policies, asynchronous), kinds, counts_calls=counts_calls)

    template = declaration.template if declaration is not None else None
    takes_itself = declaration is not None and declaration.binding != FUNCTION
    binding = Binding(
        effective.name, policies, draft.strategies, asynchronous, detached, deliver_transitions,
        template, takes_itself, counters_of,
    )  # fmt: skip
    parts: list[tuple[Layer | None, list[Row]]] = [(None, [])]
    for row in reversed(ORDER):
        if row.policy in policies:
            layer = row.layer(policies[row.policy], binding) if row.layer is not None else None
            if layer is not None:
                parts.append((layer, []))
            parts[-1][1].append(row)
    # Where `@asynchronous` was switched off, what comes later is meant to.
    is_meant = is_detached({type(declared.policy) for declared in effective.declared})
    steps: list[BoundPolicies | Layer] = []
    for at, (layer, rows) in enumerate(parts):
        if layer is not None:
            steps.append(layer)
        if at and not any(row.is_bound for row in rows):
            continue
        counts_calls = not any(row.is_bound for _, outside in parts[at + 1 :] for row in outside)
        values: dict[str, Any] = {}
        for row in reversed(rows):
            values |= row.bind(policies[row.policy], binding)
        kinds = [row.policy for row in rows]
        bound = BoundPolicies(
            effective.name, **values, asynchronous=asynchronous, detached=detached and not at,
            counters=counters_of(*kinds, counts_calls=counts_calls), counts_calls=counts_calls,
        )  # fmt: skip
        bound.watches_results = not (at or is_meant)
        steps.append(bound)
    return steps


def code_of(effective: EffectivePolicies, asynchronous: bool) -> str:
    """Give the code that a call runs through, for people."""
    policies = effective.policies
    detached = is_detached(policies)
    # The state of a call that nobody makes: what it would count is nobody's business.
    draft = StateDraft(State(effective.name), policies, Ledger())
    bound, *_ = bound_policies(effective, draft, asynchronous=asynchronous, detached=detached)
    assert isinstance(bound, BoundPolicies)
    is_followed = bound.fallback_on is not None or bound.retry is not None
    return source_of(attempt, flags_of(bound, is_followed=is_followed))


def _awaits(declaration: Declaration) -> bool | None:
    if declaration.is_coroutine:
        return True
    from .._signature.outcome import Outcome, outcome

    return {Outcome.FUTURE: False, Outcome.AWAITABLE: True}.get(outcome(declaration.template, declaration.owner))


def _named(driver: Any, declaration: Declaration | None) -> Any:
    """Let a coroutine that was never awaited, and a task, be reported under the function's own name."""
    if declaration is not None:
        driver.__name__ = declaration.name
        driver.__qualname__ = getattr(declaration.template, "__qualname__", declaration.name)
    return driver


def _with_arguments_checked(call: GuardedCall, function: Callable[..., Any]) -> GuardedCall:
    """Let wrong arguments be the only thing that an asynchronous call raises itself (rule R7)."""
    import inspect

    try:
        bind = inspect.signature(function).bind
    except (TypeError, ValueError):
        return call

    def checked(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        bind(*args, **kwargs)
        return call(args, kwargs)

    return checked
