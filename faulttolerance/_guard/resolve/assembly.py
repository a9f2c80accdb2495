"""From effective policies to the function that a call runs through, for methods and for a ``Guard`` alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from ..._call.attempt import attempt, compose, flags_of
from ..._call.block import BlockingEnvironment, run_block, stop_between_attempts
from ..._call.mistakes import Mistakes
from ..._call.order import ORDER, ROWS, Strategies, is_detached, may_queue, memory_in
from ..._call.row import Binding, Layer, Row, key_of
from ..._call.settle import BoundPolicies
from ..._call.specialize import source_of
from ..._call.state import State, StateDraft
from ..._deadline.threads.roles import CALLER, register
from ..._execution.caller_thread import Aside, GuardedCall
from ..._execution.environment import Environment
from ..._extensions.deadline.layer import Asking, WholeCallPolicies, asking_the_time
from ..._extensions.hedge.layer import Hedging
from ..._extensions.last_good.layer import Remembering
from ..._extensions.observe.layer import Observer
from ..._metrics.catalogue import observed_schema
from ..._metrics.counters import Counters, Ledger
from ..._policy import AsynchronousNonBlocking, BeforeRetry, Chaos, Fallback, PartitionBy, Policy, Timeout
from ..._telemetry.connect import telemetry
from ..declare.declaration import CLASS, FUNCTION, Declaration, unbound
from .awaitable import call_awaited, is_coroutine_code, refusing
from .circuit_breakers import deliver_transitions
from .effective import EffectivePolicies, is_first

if TYPE_CHECKING:
    from ..._extensions.chaos.layer import Disturbance


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
        intercepted = _around(unguarded_call(function), inner, declaration)
        function = lambda *args, **kwargs: intercepted(args, kwargs)  # noqa: E731
    is_guarded = bool(effective.policies or effective.companions)
    call = _by_policies(function, declaration, effective, draft) if is_guarded else unguarded_call(function)
    outer = [interceptor for interceptor in interceptors if interceptor.priority < priority]
    return _around(call, outer, declaration)


def _around(call: GuardedCall, interceptors: Sequence[Any], declaration: Declaration) -> GuardedCall:
    """Put *interceptors* around *call*, the lowest priority outermost."""
    for interceptor in sorted(interceptors, key=lambda interceptor: interceptor.priority)[::-1]:
        call = interceptor.around(call, declaration)
    return call


def _by_policies(
    function: Callable[..., Any], declaration: Declaration, effective: EffectivePolicies, draft: StateDraft
) -> GuardedCall:
    policies, declared_by = effective.policies, effective.declared_by
    asynchronous, detached = declaration.is_asynchronous(policies), is_detached(policies)

    def side_call(policy: Fallback | BeforeRetry) -> Aside:
        from . import callback

        mistakes = Mistakes(effective.name) if isinstance(policy, BeforeRetry) else None
        return callback.side_call(policy, declaration, asynchronous, declared_by.get(type(policy)), mistakes)

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
    binding = _binding(effective, draft, declaration, asynchronous=asynchronous, detached=detached)
    parts = _parts(effective, binding)
    fallback, before_retry = effective.policies.get(Fallback), effective.policies.get(BeforeRetry)
    links = _links(fallback) if isinstance(fallback, Fallback) else ()
    fallbacks = [(_called(link), side_call(link) if memory_in(link) is None else None) for link in links]
    reconnect = side_call(before_retry) if before_retry is not None else None
    chaos = _chaos(effective, draft)
    own = int(declaration is None or declaration.binding != FUNCTION)

    def composed(function: Callable[..., Any], environment: Environment | None, awaits: bool | None) -> GuardedCall:
        is_awaited = asynchronous and (not detached or is_coroutine_code(function))
        waits_in = None if on_threads else environment
        if chaos is not None:
            function = chaos.around(function, waits_in, is_awaited)
        for companion in effective.companions:
            function = companion.around_attempt(function, effective.name, waits_in, is_awaited)

        def make(strategies: Strategies) -> GuardedCall:
            bound_to = binding._replace(strategies=strategies)
            steps = _bound(parts, bound_to)
            if isinstance(innermost := steps[0], BoundPolicies):
                innermost.advice = advice
            for place, step in enumerate(steps):
                if isinstance(step, Hedging):
                    ways = _bound(parts, bound_to._replace(is_hedge=True))[:place]
                    step.other = _composed(ways, (), None, function, environment, awaits, step.announced)
            return _composed(steps, fallbacks, reconnect, function, environment, awaits)

        partition_by = effective.policies.get(PartitionBy)
        call = _by_key(partition_by, binding, draft, make) if partition_by is not None else make(draft.strategies)
        for companion in effective.companions:
            call = companion.around_call(call, effective.name, environment, own)
        return call

    if not asynchronous:
        call = composed(function, None, awaits)
        return asking_the_time(call, effective.name, asynchronous=False) if Asking.is_on else call
    if on_threads:
        from ..._execution import thread as offload

        driver = composed(function, offload.ThreadEnvironment(), awaits)
        return partial(offload.start, _named(driver, declaration))
    from ..._execution.task import TaskEnvironment

    is_certain = detached or function is call_awaited or is_coroutine_code(function)
    target = function if is_certain else partial(call_awaited, function)
    driver = composed(target, TaskEnvironment(), awaits)
    driver = _named(driver if is_certain else refusing(effective.name, driver), declaration)
    if Asking.is_on:
        driver = asking_the_time(driver, effective.name, asynchronous=True)
    if not detached:
        return driver
    from ..._execution.async_call import AsyncCall

    return lambda args, kwargs: AsyncCall(partial(driver, args, kwargs))


def _links(policy: Fallback) -> tuple[Fallback, ...]:
    return policy.links if isinstance(policy.value, tuple) else (policy,)


def _called(policy: Fallback) -> str:
    """Name the fallback, for people."""
    value = policy.value
    if memory_in(policy) is not None:
        return "last_good"
    return policy.fallback_method or getattr(value, "__qualname__", None) or type(value).__qualname__


def _asked(fallbacks: Sequence[tuple[str, Aside | None]], steps: Sequence[object]) -> tuple[tuple[str, Aside], ...]:
    """Give the fallbacks, with what the layer among *steps* remembers for the one that is none of itself."""
    asked = []
    for name, aside in fallbacks:
        if aside is None:
            aside = next(step.recall() for step in steps if isinstance(step, Remembering))
        asked.append((name, aside))
    return tuple(asked)


def _by_key(policy: Any, binding: Binding, draft: StateDraft, make: Callable[[Strategies], GuardedCall]) -> GuardedCall:
    """Let calls go the way of their key; *make* makes one from the strategies for it."""
    from ..._extensions.partition_by.layer import Partitioning

    shared = make(draft.strategies)
    partitions = draft.strategies.get(PartitionBy)
    return Partitioning(draft.state, partitions, key_of(policy.key, binding), shared, make).call(binding.asynchronous)


def block_call(
    effective: EffectivePolicies, draft: StateDraft, *, side_call: Callable[[Any], Aside], asynchronous: bool
) -> GuardedCall:
    """Assemble what a call goes through whose body is a block of code: one without a layer, or a key."""
    binding = _binding(effective, draft, asynchronous=asynchronous, detached=False)._replace(is_block=True)
    (policies,) = _bound(_parts(effective, binding), binding)
    assert isinstance(policies, BoundPolicies)
    policies.is_block = True
    before_retry = effective.policies.get(BeforeRetry)
    hook = side_call(before_retry) if before_retry is not None else None
    environment: Any = BlockingEnvironment(policies.name)
    if asynchronous:
        from ..._execution.task import BlockEnvironment

        environment = BlockEnvironment()
    body: Callable[..., Any] = run_block
    timeout, as_method = effective.policies.get(Timeout), binding._replace(is_block=False)
    if timeout is not None and (layer := ROWS[Timeout].layer) and (observed := layer(timeout, as_method)) is not None:
        body = _spreading(observed(unguarded_call(run_block), environment))
    if (chaos := _chaos(effective, draft)) is not None:
        body = chaos.around(body, environment, True, is_block=True)
    for companion in effective.companions:
        body = companion.around_attempt(body, effective.name, environment, True)
    call = _composed([policies], (), hook, body, environment, True)
    stop_between_attempts(policies)
    for companion in effective.companions:
        call = companion.around_call(call, effective.name, environment, 2)
    return asking_the_time(call, effective.name, asynchronous=True) if Asking.is_on else call


def _composed(
    steps: Sequence[BoundPolicies | Layer],
    fallbacks: Sequence[tuple[str, Aside | None]],
    before_retry: Aside | None,
    function: Callable[..., Any],
    environment: Environment | None,
    awaits: bool | None,
    announced: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda function: function,
) -> GuardedCall:
    """Put *steps* around *function*, the innermost first, and what is *announced* inside them."""
    call: GuardedCall | None = None
    function = announced(function)
    if makes_spans := telemetry.makes_spans:
        function = _with_spans(function, steps[0])
    for step in steps:
        if isinstance(step, BoundPolicies):
            call = compose(
                function if call is None else _spreading(call),
                step,
                fallbacks=_asked(fallbacks, steps) if step.fallback_on is not None else (),
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
    from ..._extensions.spans.layer import Spans

    assert isinstance(policies, BoundPolicies)
    spans = Spans(policies.name)
    is_awaited = policies.is_block or (policies.asynchronous and (not policies.detached or is_coroutine_code(function)))
    return spans.around_awaited(function) if is_awaited else spans.around(function)


def _number_attempts(policies: BoundPolicies) -> None:
    """Let the span of each attempt but the first be told its number."""
    from ..._extensions.spans.layer import ATTEMPT

    first = policies.attempt
    policies.attempt = lambda: lambda args, kwargs, record: first()(args, {**kwargs, ATTEMPT: record.attempts}, record)


def _spreading(call: GuardedCall) -> Callable[..., Any]:
    return lambda *args, **kwargs: call(args, kwargs)


def _binding(
    effective: EffectivePolicies,
    draft: StateDraft,
    declaration: Declaration | None = None,
    *,
    asynchronous: bool,
    detached: bool,
) -> Binding:
    """Say to what the policies of one guarded function are bound: what its state is to become."""
    name = effective.line or effective.name

    def counters_of(*kinds: type[Policy], counts_calls: bool = False) -> Counters | None:
        if not effective.switches.metrics_enabled:
            return None
        return draft.counters_for(name, may_queue(effective.policies, asynchronous), kinds, counts_calls=counts_calls)

    # Made at once: what counts is put in force together with the rest.
    queue = may_queue(effective.policies, asynchronous)
    tells = {kind: _observer(kind, effective, draft, queue=queue) for kind in effective.observed}
    template = declaration.template if declaration is not None else None
    takes_itself = declaration is not None and declaration.binding != FUNCTION
    return Binding(
        effective.name, effective.policies, draft.strategies, asynchronous, detached, deliver_transitions,
        template, takes_itself, counters_of, tell_of=tells.get,
    )  # fmt: skip


def _observer(kind: type[Policy], effective: EffectivePolicies, draft: StateDraft, *, queue: bool) -> Observer:
    schema, counters = observed_schema(kind.annotation), None
    if effective.switches.metrics_enabled:
        counters = draft.counters_under(effective.line or effective.name, schema, queue=queue)
    return Observer(effective.name, kind.annotation, counters)


def _chaos(effective: EffectivePolicies, draft: StateDraft) -> Disturbance | None:
    policy = effective.policies.get(Chaos)
    if not isinstance(policy, Chaos) or not policy.rate:
        return None
    from ..._extensions.chaos.layer import chaos_of
    from ..._metrics.catalogue import chaos_schema

    name, counters = effective.line or effective.name, None
    if effective.switches.metrics_enabled:
        counters = draft.counters_under(name, chaos_schema(), queue=False)
    return chaos_of(name, policy, counters)


class _Part(NamedTuple):
    """Policies with no layer among them, and the layer inside them."""

    layer: Row | None
    rows: Sequence[Row]
    """Those that remember something, and so are bound to a state."""
    fixed: Mapping[str, Any]
    """What ``BoundPolicies`` holds of the others, and of none in particular."""
    watches_results: bool
    is_step: bool
    """Whether there is anything outside the layer."""


def _parts(effective: EffectivePolicies, binding: Binding) -> list[_Part]:
    """Divide the policies of one guarded function by the layers among them, the innermost first.

    Nearly every function has no layer, and one part. The outermost one counts the calls, and the innermost one runs
    attempts apart.
    """
    policies = binding.policies
    divided: list[tuple[Row | None, list[Row]]] = [(None, [])]
    for row in reversed(ORDER):
        if row.policy in policies:
            if row.layer is not None and row.layer(policies[row.policy], binding) is not None:
                divided.append((row, []))
            divided[-1][1].append(row)
    # Where `@asynchronous` was switched off, what comes later is meant to.
    is_meant = is_detached({type(declared.policy) for declared in effective.declared})
    parts: list[_Part] = []
    for at, (layer, rows) in enumerate(divided):
        counts_calls = not any(row.bind for _, outside in divided[at + 1 :] for row in outside)
        is_step = not at or any(row.bind for row in rows)
        fixed: dict[str, Any] = {
            "asynchronous": binding.asynchronous,
            "detached": binding.detached and not at,
            "counts_calls": counts_calls,
        }
        if is_step:
            fixed["counters"] = binding.counters_of(*(row.policy for row in rows), counts_calls=counts_calls)
        for row in reversed(rows):
            if row.memory is None and row.bind is not None:
                fixed |= row.bind(policies[row.policy], binding)
        remembering = [row for row in reversed(rows) if row.memory is not None and row.bind is not None]
        parts.append(_Part(layer, remembering, fixed, not (at or is_meant), is_step))
    return parts


def _bound(parts: Sequence[_Part], binding: Binding) -> list[BoundPolicies | Layer]:
    """Bind *parts* to the strategies of *binding*; give the steps of a call, the innermost first."""
    steps: list[BoundPolicies | Layer] = []
    for part in parts:
        if part.layer is not None and part.layer.layer is not None:
            layer = part.layer.layer(binding.policies[part.layer.policy], binding)
            assert layer is not None
            steps.append(layer)
        if part.is_step:
            values = dict(part.fixed)
            for row in part.rows:
                assert row.bind is not None
                values |= row.bind(binding.policies[row.policy], binding)
            bound = (_special if values.keys() & _SPECIAL else BoundPolicies)(binding.name, **values)
            bound.watches_results = part.watches_results
            steps.append(bound)
    return steps


_SPECIAL = {"limiter", "time_limit", "is_whole"}
"""What is given for policies that listen to latencies, or bound whole calls."""


def _special(name: str, **values: Any) -> BoundPolicies:
    """Bind such policies; the others do without what that needs."""
    if values.pop("is_whole", False):
        return WholeCallPolicies(name, **values)
    from ..._extensions.adaptive.listener import AdaptivelyTimed, ListenedPolicies

    return (AdaptivelyTimed if "time_limit" in values else ListenedPolicies)(name, **values)


def code_of(effective: EffectivePolicies, asynchronous: bool) -> str:
    """Give the code that a call runs through, for people."""
    policies = effective.policies
    detached = is_detached(policies)
    # The state of a call that nobody makes: what it would count is nobody's business.
    draft = StateDraft(State(effective.name), policies, Ledger())
    binding = _binding(effective, draft, asynchronous=asynchronous, detached=detached)
    bound, *_ = _bound(_parts(effective, binding), binding)
    assert isinstance(bound, BoundPolicies)
    return source_of(attempt, flags_of(bound))


def _awaits(declaration: Declaration) -> bool | None:
    if declaration.is_coroutine:
        return True
    from ..._signature.outcome import Outcome, outcome

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
