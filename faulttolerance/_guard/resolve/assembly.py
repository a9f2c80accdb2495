"""The assembly of call paths from effective policies, for methods and for a ``Guard``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any, NamedTuple

from ..._call.attempt import attempt, compose, flags_of
from ..._call.block import BlockingEnvironment, run_block
from ..._call.bound_policies import NUMBER, BoundPolicies
from ..._call.core import is_detached, may_queue
from ..._call.error_log import ErrorLog, Hook
from ..._call.order import rows_for
from ..._call.row import AttemptBinding, Binding, Layer, Row
from ..._call.specialize import source_of
from ..._call.state import State, StateDraft
from ..._deadline.threads.roles import CALLER, register
from ..._execution.caller_thread import Callback, GuardedCall
from ..._execution.environment import Environment
from ..._metrics.catalogue import Schema, schema_of
from ..._metrics.counters import Counters, Ledger
from ..._policy import AsynchronousNonBlocking, BeforeRetry, Fallback, Policy
from ..._strategy.gate import OnRefusal
from ..declare.declaration import CLASS, FUNCTION, Declaration, unbound
from .awaitable import call_awaited, is_coroutine_code, with_type_error
from .circuit_breakers import deliver_transitions
from .effective import EffectivePolicies, is_first


def unguarded_call(function: Callable[..., Any]) -> GuardedCall:
    """Return the call path to *function* without a guard."""

    @register(CALLER)
    def call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return function(*args, **kwargs)

    return call


def interpreter_ends() -> bool:
    """Return whether the interpreter ends, so that a first call cannot import what its policies need."""
    return not sys.meta_path


def unguarded_call_while_hidden(function: Callable[..., Any], declaration: Declaration, cls: type) -> GuardedCall:
    """Return the call path to *function* while another attribute of its name in *cls* hides it.

    The attribute may be a patch that is removed later; then the method must be guarded again. The attribute is looked
    up by the interpreter, which is fast, unless the lookup could run code of the application.
    """
    name, guard, is_of_class = declaration.name, declaration.guard_ref, declaration.binding == CLASS
    attributes = [vars(base)[name] for base in cls.__mro__ if name in vars(base)]
    # The hiding attribute comes first; in a property, the guard is no attribute itself.
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
        # A finalizer may call a guard that ends with it: weak references are cleared before.
        if is_hidden or (resolver := declaration.resolver) is None:
            return function(*args, **kwargs)
        resolver.renew_paths(type(resolver))
        return resolver.for_class(cls)(args, kwargs)

    return call


def method_call(declaration: Declaration, effective: EffectivePolicies, draft: StateDraft) -> GuardedCall:
    """Assemble the call path of a guarded function: interceptors, policies, interceptors, the function."""
    function, interceptors = effective.function, effective.interceptors
    priority = effective.switches.interceptor_priority
    if inner := [interceptor for interceptor in interceptors if interceptor.priority >= priority]:
        intercepted = _wrap_in_interceptors(unguarded_call(function), inner, declaration)
        function = _unpacking(intercepted)
    is_guarded = bool(effective.policies or effective.call_wrappers)
    call = _by_policies(function, declaration, effective, draft) if is_guarded else unguarded_call(function)
    outer = [interceptor for interceptor in interceptors if interceptor.priority < priority]
    return _wrap_in_interceptors(call, outer, declaration)


def _wrap_in_interceptors(call: GuardedCall, interceptors: Sequence[Any], declaration: Declaration) -> GuardedCall:
    """Return *call* wrapped by *interceptors*, the lowest priority outermost."""
    for interceptor in sorted(interceptors, key=lambda interceptor: interceptor.priority)[::-1]:
        call = interceptor.around(call, declaration)
    return call


def _by_policies(
    function: Callable[..., Any], declaration: Declaration, effective: EffectivePolicies, draft: StateDraft
) -> GuardedCall:
    policies, declared_by = effective.policies, effective.declared_by
    asynchronous, detached = declaration.is_asynchronous(policies), is_detached(policies)

    def bind_callback(policy: Fallback | BeforeRetry) -> Callback:
        from .callback import bind_callback

        return bind_callback(policy, declaration, declared_by.get(type(policy)))

    call = guarded_call(
        function,
        effective,
        draft,
        bind_callback=bind_callback,
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
    bind_callback: Callable[[Any], Callback],
    asynchronous: bool,
    detached: bool,
    on_threads: bool,
    awaits: bool | None,
    declaration: Declaration | None,
    advice: str = "",
) -> GuardedCall:
    """Assemble the call path of *function* under its policies, for a method or a ``Guard``.

    Args:
        function: The guarded function.
        effective: Its policies.
        draft: The draft of its state.
        bind_callback: Returns the call of a callback that a policy runs beside the function.
        asynchronous: Whether calls return before they end.
        detached: Whether attempts run detached from the call.
        on_threads: Whether detached attempts run on threads of the pool.
        awaits: Whether the result of an attempt is awaited; ``None`` if its class decides (rule R7).
        declaration: The declaration that names the tasks and coroutines of calls, if the function is to name them.
        advice: The advice in the error if a synchronous call returns an awaitable; empty if this is no error.
    """
    binding = _binding(effective, draft, declaration, asynchronous=asynchronous, detached=detached)
    environment: Environment | None = None
    target, is_certain = function, True
    if on_threads:
        from ..._execution.thread import ThreadEnvironment

        environment = ThreadEnvironment()
    elif asynchronous:
        from ..._execution.task import TaskEnvironment

        environment = TaskEnvironment()
        is_certain = detached or function is call_awaited or is_coroutine_code(function)
        target = function if is_certain else partial(call_awaited, function)
    is_awaited = asynchronous and (not detached or is_coroutine_code(target))
    fallback, before_retry = effective.policies.get(Fallback), effective.policies.get(BeforeRetry)
    links = (fallback.links or (fallback,)) if isinstance(fallback, Fallback) else ()
    call = _Assembly(
        target,
        AttemptBinding(binding, None if on_threads else environment, is_awaited),
        environment,
        awaits,
        _parts(effective, binding),
        [(_fallback_name(link), bind_callback(link) if link.recalling is None else None) for link in links],
        Hook(bind_callback(before_retry), ErrorLog(effective.name)) if before_retry is not None else None,
        advice,
    ).path(binding)
    own = int(declaration is None or declaration.binding != FUNCTION)
    for wrapper in effective.call_wrappers:
        call = wrapper.around_call(call, effective.name, environment, own)
    if not asynchronous:
        return _around_calls(call, effective.name, asynchronous=False)
    if on_threads:
        from ..._execution.thread import start

        return partial(start, _set_names(call, declaration))
    driver = _set_names(call if is_certain else with_type_error(effective.name, call), declaration)
    driver = _around_calls(driver, effective.name, asynchronous=True)
    if not detached:
        return driver
    from ..._execution.async_call import AsyncCall

    return lambda args, kwargs: AsyncCall(partial(driver, args, kwargs))


def _fallback_name(policy: Fallback) -> str:
    """Return the name of the fallback, for people."""
    if policy.recalling is not None:
        return policy.recalling.annotation
    return policy.fallback_method or getattr(policy.value, "__qualname__", None) or type(policy.value).__qualname__


entrances: dict[Callable[[GuardedCall, str, bool], GuardedCall], None] = {}
"""The wrappers of every whole call: an extension adds its own when it is first used, and then renews all paths."""


def _around_calls(call: GuardedCall, name: str, *, asynchronous: bool) -> GuardedCall:
    """Return *call* behind all entrances."""
    for around_call in [*entrances]:
        call = around_call(call, name, asynchronous)
    return call


def block_call(
    effective: EffectivePolicies, draft: StateDraft, *, bind_callback: Callable[[Any], Callback], asynchronous: bool
) -> GuardedCall:
    """Assemble the call path of a block of code, which has neither layers nor keys."""
    binding = _binding(effective, draft, asynchronous=asynchronous, detached=False)._replace(is_block=True)
    before_retry = effective.policies.get(BeforeRetry)
    hook = Hook(bind_callback(before_retry), ErrorLog(effective.name)) if before_retry is not None else None
    environment: Any = BlockingEnvironment(effective.name)
    if asynchronous:
        from ..._execution.task import BlockEnvironment

        environment = BlockEnvironment()
    body = AttemptBinding(binding, environment, is_awaited=True)
    call = _Assembly(run_block, body, environment, True, _parts(effective, binding), (), hook).path(binding)
    for wrapper in effective.call_wrappers:
        call = wrapper.around_call(call, effective.name, environment, 2)
    return _around_calls(call, effective.name, asynchronous=True)


class _Assembly(NamedTuple):
    """The common part of all call paths of one guarded function; no closure, which would be a cycle."""

    function: Callable[..., Any]
    """The function that attempts call."""
    body: AttemptBinding
    environment: Environment | None
    """The environment in which calls wait; ``None`` if they block."""
    awaits: bool | None
    parts: Sequence[_Part]
    fallbacks: Sequence[tuple[str, Callback | None]]
    """The fallbacks, each under its name; ``None`` if a layer answers."""
    before_retry: Hook | None
    advice: str = ""

    def path(self, binding: Binding, end: int | None = None) -> GuardedCall:
        """Return the call path through the innermost *end* parts, by default through all parts, bound by *binding*."""
        function, layers, takes_number = self.function, list[Layer](), False
        if any("retry" in part.fixed for part in self.parts[1:]):
            function = _without_number(function)
        call: Any = None  # the innermost part has no layer
        for row in reversed(binding.rows):
            if row.around_attempt is not None and (row.is_wanted is None or row.is_wanted()):
                inner, function = function, row.around_attempt(function, AttemptBinding(binding, *self.body[1:]))
                takes_number |= row.numbers_retries and function is not inner
        for place, part in enumerate(self.parts[:end]):
            if part.layer is not None:
                layers.append(part.layer(binding._replace(build_inner=partial(self._inner_path, binding, place))))
                call = layers[-1](call, self.environment)
            if not part.is_step:
                continue
            policies = _bind(part, binding)
            if policies.retry is not None and (place or takes_number):
                policies.numbers_retries = True
            if call is None and self.advice:
                policies.advice = self.advice
            call = compose(
                function if call is None else _unpacking(call),
                policies,
                fallbacks=_complete_fallbacks(self.fallbacks, layers) if policies.fallback_on is not None else (),
                before_retry=self.before_retry if policies.retry is not None else None,
                environment=self.environment,
                awaits=self.awaits if call is None else self.environment is not None,
            )
        return call  # type: ignore[no-any-return]

    def _inner_path(self, binding: Binding, end: int, **changes: Any) -> GuardedCall:
        """Return the path inside a layer, through the innermost *end* parts, with *changes* of *binding*."""
        return self.path(binding._replace(**changes), end)


def _without_number(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop(NUMBER, None)
        return function(*args, **kwargs)

    return call


def _policy_of(row: Row, binding: Binding) -> Policy | None:
    return binding.policies[row.policy] if row.policy is not None else None


def _complete_fallbacks(
    fallbacks: Sequence[tuple[str, Callback | None]], layers: Sequence[Any]
) -> tuple[tuple[str, Callback], ...]:
    """Return the fallbacks; in place of a fallback without a function, a layer among *layers* recalls a result."""
    recalls = (layer.recall() for layer in layers if hasattr(layer, "recall"))
    return tuple((name, next(recalls) if callback is None else callback) for name, callback in fallbacks)


def _unpacking(call: GuardedCall) -> Callable[..., Any]:
    return lambda *args, **kwargs: call(args, kwargs)


def _binding(
    effective: EffectivePolicies,
    draft: StateDraft,
    declaration: Declaration | None = None,
    *,
    asynchronous: bool,
    detached: bool,
) -> Binding:
    """Return the binding of the policies of one guarded function to the draft of its state."""
    name = effective.line or effective.name
    queue = may_queue(effective.policies, asynchronous)

    def counters_under(schema: Schema | None, queue: bool = False) -> Counters | None:
        if schema is None or not effective.switches.metrics_enabled:
            return None
        return draft.counters_under(name, schema, queue=queue)

    def counters_of(*kinds: type[Policy], counts_calls: bool = False) -> Counters | None:
        return counters_under(schema_of(kinds, queue=queue, counts_calls=counts_calls), queue)

    # Created at once: the counters come into force together with the rest.
    tells: dict[type[Policy], OnRefusal] = {}
    policies, observed = effective.policies, draft.observed
    rows = rows_for(frozenset(policies), is_observed=bool(observed))
    for row in rows:
        if row.observer is not None and row.schema_of_observed is not None:
            for kind in observed:
                tells[kind] = row.observer(effective.name, kind, counters_under(row.schema_of_observed(kind)))
    return Binding(
        effective.name,
        policies,
        draft.strategies,
        asynchronous,
        detached,
        deliver_transitions,
        template=declaration.template if declaration is not None else None,
        takes_self=declaration is not None and declaration.binding != FUNCTION,
        counters_of=counters_of,
        counters_under=counters_under,
        on_refusal_of=tells.get,
        rows=rows,
        state=draft.state,
        metrics_name=name,
        call_wrappers=effective.call_wrappers,
    )


class _Part(NamedTuple):
    """Policies with no layer among them, and the layer inside them."""

    layer: Callable[[Binding], Any] | None
    rows: Sequence[Row]
    """The rows with a strategy factory, which are bound to a state."""
    kinds: frozenset[type[Policy]]
    fixed: Mapping[str, Any]
    """The values of ``BoundPolicies`` that the other rows determine."""
    is_step: bool
    """Whether there is any policy outside the layer."""


def _parts(effective: EffectivePolicies, binding: Binding) -> list[_Part]:
    """Return the policies of one guarded function, divided by the layers among them, the innermost first.

    Nearly every function has no layer, and one part. The outermost part counts the calls. The innermost part runs
    detached attempts.
    """
    divided: list[tuple[Callable[[Binding], Layer | None] | None, list[Row]]] = [(None, [])]
    for row in reversed(binding.rows):
        if row.layer is not None and row.layer(_policy_of(row, binding), binding) is not None:
            divided.append((partial(row.layer, _policy_of(row, binding)), []))
        if row.policy is not None:
            divided[-1][1].append(row)
    # If `@asynchronous` was switched off, a result that comes later is intended.
    is_meant = is_detached({type(declared.policy) for declared in effective.declared})
    parts: list[_Part] = []
    for at, (layer, rows) in enumerate(divided):
        outside = [row for _, outer_rows in divided[at + 1 :] for row in outer_rows]
        counts_calls = not any(row.bind for row in outside)
        is_step = not at or any(row.bind for row in rows)
        fixed: dict[str, Any] = {
            "asynchronous": binding.asynchronous,
            "detached": binding.detached and not at,
            "counts_calls": counts_calls,
            "warns_of_pending_result": not (at or is_meant),
        }
        kinds = [row.policy for row in rows if row.policy is not None]
        if is_step:
            # Those that calls count may all be outside, as @coalesce.
            counted = [*kinds, *(row.policy for row in outside if row.policy is not None)] if counts_calls else kinds
            fixed["counters"] = binding.counters_of(*counted, counts_calls=counts_calls)
        for row in reversed(rows):
            if row.strategy_factory is None and row.bind is not None:
                fixed |= row.bind(_policy_of(row, binding), binding)
        stateful = [row for row in reversed(rows) if row.strategy_factory is not None and row.bind is not None]
        parts.append(_Part(layer, stateful, frozenset(kinds), fixed, is_step))
    return parts


def _bind(part: _Part, binding: Binding) -> BoundPolicies:
    """Return the policies of *part*, bound to the strategies of *binding*."""
    values = dict(part.fixed, is_block=binding.is_block)
    for row in part.rows:
        assert row.bind is not None
        values |= row.bind(_policy_of(row, binding), binding)
    listeners = (
        row.listener(part.kinds, binding)
        for row in binding.rows
        if row.listener is not None and (row.policy is None or row.policy in part.kinds)
    )
    return next(filter(None, listeners), BoundPolicies)(binding.name, **values)


def code_of(effective: EffectivePolicies, asynchronous: bool) -> str:
    """Return the code through which a call runs, for people."""
    policies = effective.policies
    # The state of a call that never happens: its counts are discarded.
    draft = StateDraft(State(effective.name), policies, Ledger(), observed=effective.observed)
    binding = _binding(effective, draft, asynchronous=asynchronous, detached=is_detached(policies))
    return source_of(attempt, flags_of(_bind(_parts(effective, binding)[0], binding)))


def _awaits(declaration: Declaration) -> bool | None:
    if declaration.is_coroutine:
        return True
    from ..._signature.return_kind import ReturnKind, return_kind

    return {ReturnKind.FUTURE: False, ReturnKind.AWAITABLE: True}.get(
        return_kind(declaration.template, declaration.owner)
    )


def _set_names(driver: Any, declaration: Declaration | None) -> Any:
    """Return *driver* with the function's name, for reports on tasks and on coroutines that were never awaited."""
    if declaration is not None:
        driver.__name__ = declaration.name
        driver.__qualname__ = getattr(declaration.guard, "__qualname__", declaration.name)
    return driver


def _with_arguments_checked(call: GuardedCall, function: Callable[..., Any]) -> GuardedCall:
    """Return *call* with a check of the arguments, the only error that an asynchronous call itself raises (rule R7)."""
    if hasattr(function, "__wrapped__"):  # a wrapper may provide arguments, and take others
        return call
    from ..._signature.call_key import key_function  # it needs ``inspect``

    bind = key_function((), function, takes_self=False)  # a key of no arguments: the interpreter binds them all

    def checked(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        bind(*args, **kwargs)
        return call(args, kwargs)

    return checked
