"""From what is declared and configured to one call path, once per guard and concrete class."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

from .._config import Declared, Effective, settings
from .._config.snapshot import Snapshot
from .._policy import (
    Asynchronous,
    AsynchronousNonBlocking,
    BeforeRetry,
    Bulkhead,
    CircuitBreaker,
    CircuitBreakerName,
    CustomBackoff,
    ExponentialBackoff,
    Fallback,
    FibonacciBackoff,
    Policy,
    RateLimit,
    Retry,
    RetryWhen,
    Timeout,
    seconds,
)
from .._runtime import blocking
from .._strategy import back_off, retry as retry_strategy
from ..exceptions import Fault, FaultToleranceDefinitionException
from . import annotations as hints, before_retry, fallback, registry
from .annotations import Outcome
from .compose import Course, compose, path, shape_of
from .declaration import (
    CLASS,
    FUNCTION,
    Declaration,
    class_level,
    class_level_interceptors,
    class_name,
    declaration_of,
    first_of_name,
    module_name,
    unbound,
)
from .sibling import home_of
from .state import State
from .weave import source_of

__all__ = ["ORDER", "Plan", "Resolver", "class_level_contradictions", "code_of", "contradictions", "course_for"]

ORDER: Sequence[type[Policy]] = (
    Asynchronous,
    AsynchronousNonBlocking,
    Fallback,
    Retry,
    ExponentialBackoff,
    FibonacciBackoff,
    CustomBackoff,
    RetryWhen,
    BeforeRetry,
    CircuitBreaker,
    CircuitBreakerName,
    RateLimit,
    Timeout,
    Bulkhead,
)
"""How policies are listed, outermost first; ``compose`` is what nests them."""

_BACK_OFFS = (ExponentialBackoff, FibonacciBackoff, CustomBackoff)


@dataclass(frozen=True)
class Plan:
    """What holds for one guard and one concrete class.

    Args:
        name: The method as metrics and messages name it: ``module.Class.method`` with the concrete class.
        function: What runs; where nothing guards it, that is all.
        declared: What the annotations say; empty where the method runs plainly.
        effective: The same with configuration applied, in the same order.
        homes: The class that declares each of them, held weakly; empty for a function.
    """

    name: str
    function: Callable[..., Any]
    declared: tuple[Declared, ...] = ()
    effective: tuple[Effective, ...] = ()
    interceptors: tuple[Any, ...] = ()
    homes: Mapping[type[Policy], ref[type]] = field(default_factory=dict)

    def home(self, kind: type[Policy]) -> type | None:
        """The class that declares the policy of this *kind*."""
        return self.homes[kind]() if kind in self.homes else None

    @property
    def policies(self) -> dict[type[Policy], Policy]:
        """The policies that are in force."""
        return {type(one.policy): one.policy for one in self.effective if one.enabled}


class Resolver:
    """Finds the call path of one guard for each concrete class, and keeps it until the configuration changes."""

    __slots__ = ("__weakref__", "_classes", "_states", "call", "calls", "declaration", "plans")

    def __init__(self, declaration: Declaration) -> None:
        self.declaration = declaration
        self.calls: dict[int, blocking.GuardedCall] = {}
        """Call paths by the id of the concrete class; the entry goes when the class does."""
        self.call: blocking.GuardedCall = _first_call(ref(self))
        """The call path of a guard that is its own key."""
        self.plans: dict[int, Plan] = {}
        self._classes: dict[int, ref[type]] = {}
        self._states: dict[int, State] = {}
        registry.add(self)

    # Calls that come for the first time

    def for_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> blocking.GuardedCall:
        """The call path for these arguments of a method, whose first one is its object or class."""
        if not args:
            return _plainly(self.declaration.template)  # reports that self is missing
        return self.for_class(args[0] if self.declaration.binding == CLASS else type(args[0]))

    def for_class(self, cls: type | None) -> blocking.GuardedCall:
        """The call path for the concrete class *cls*; resolved at the first call for it."""
        with registry.resolving:
            found = self.calls.get(id(cls))
            if found is None:
                plan, faults = self.plan(cls)
                if faults:
                    raise FaultToleranceDefinitionException(*faults)
                found = self._install(cls, plan)
            return found

    # Configuration

    def plan(self, cls: type | None, snapshot: Snapshot | None = None) -> tuple[Plan, list[Fault]]:
        """What holds for *cls* under the configuration *snapshot*, and what is wrong with it."""
        name, function, policies = self._declared(cls)
        interceptors = self._interceptors(cls)
        if not policies:
            return Plan(name, function, interceptors=interceptors), []
        effective, faults = settings.resolve(policies, name, snapshot)
        plan = Plan(name, function, tuple(policies), tuple(effective), interceptors, self._homes(cls))
        if not faults:
            faults = self._faults(plan)
        return plan, faults

    def replan(self, snapshot: Snapshot) -> tuple[list[tuple[type | None, Plan]], list[Fault]]:
        """Resolve anew, for every class that was resolved before; ``install`` makes it so."""
        plans, faults = [], list[Fault]()
        for cls in self.resolved():
            plan, wrong = self.plan(cls, snapshot)
            plans.append((cls, plan))
            faults += wrong
        return plans, faults

    def install(self, plans: Sequence[tuple[type | None, Plan]]) -> None:
        """Let the next call of each class follow its new plan; calls in flight finish under the old one."""
        with registry.resolving:
            for cls, plan in plans:
                self._install(cls, plan)

    def forget(self) -> None:
        """Go back to how it was before the first call."""
        with registry.resolving:
            self.calls.clear()
            self.plans.clear()
            self._states.clear()
            self._classes.clear()
            self.call = _first_call(ref(self))

    def resolved(self) -> list[type | None]:
        """The classes for which a call path was found, ``None`` for the guard's own."""
        found: list[type | None] = []
        for key in list(self.plans):
            reference = self._classes.get(key)
            cls = reference() if reference is not None else None
            if cls is not None or reference is None:
                found.append(cls)
        return found

    def resolve_breaker(self) -> None:
        """Make the breaker of the declaring class known, if there is one and its method was not called yet."""
        declaration = self.declaration
        kinds = {**declaration.policies, **(class_level(declaration.owner) if declaration.owner else {})}
        if CircuitBreaker in kinds and id(declaration.owner) not in self.calls:
            self.for_class(declaration.owner)

    def state(self, cls: type | None) -> State | None:
        """What the method remembers for *cls*, if it was ever called."""
        return self._states.get(id(cls))

    def _install(self, cls: type | None, plan: Plan) -> blocking.GuardedCall:
        key = id(cls)
        if cls is not None and key not in self._classes:
            self._classes[key] = ref(cls, _Departure(self, key))
        base = settings.switches.interceptor_priority if plan.interceptors else 0
        inner = [one for one in plan.interceptors if one.priority >= base]
        function = _intercepted(plan.function, inner, self.declaration)
        if plan.policies:
            state = self._states.get(key)
            if state is None:
                state = self._states[key] = registry.new_state(plan.name, plan.policies)
            call = _guarded(self.declaration, plan, function, state)
        else:
            call = _plainly(function)
        if len(inner) < len(plan.interceptors):
            from .interceptor import around

            call = around(call, [one for one in plan.interceptors if one.priority < base], self.declaration)
        self.plans[key] = plan
        self.calls[key] = call
        if self.declaration.binding == FUNCTION:
            self.call = call
        return call

    def depart(self, key: int) -> None:
        """Let go of a class that no longer exists; its counts stay in the ledger, under its name."""
        with registry.resolving:
            self.calls.pop(key, None)
            self.plans.pop(key, None)
            self._classes.pop(key, None)
            self._states.pop(key, None)

    # What is declared

    def _declared(self, cls: type | None) -> tuple[str, Callable[..., Any], list[Declared]]:
        declaration = self.declaration
        if cls is None:
            module = module_name(getattr(declaration.template, "__module__", "") or "")
            qualname = getattr(declaration.template, "__qualname__", declaration.name)
            method_level = [Declared(policy, "method", module, qualname) for policy in declaration.policies.values()]
            return declaration.where, declaration.template, _in_order(method_level)
        name = f"{class_name(cls)}.{declaration.name}"
        function, policies, owner = self._followed(cls)
        if not self._is_first(cls):
            # Contract L3: reached through super(), or by the name of a base class, a method runs plainly.
            return name, function, []
        owners = tuple(dict.fromkeys(class_name(one) for one in (cls, owner)))
        declared = [
            Declared(policy, "method", class_name(owner), declaration.name, owners) for policy in policies.values()
        ]
        for kind, (policy, base) in class_level(cls).items():
            if kind not in policies:
                at = tuple(dict.fromkeys((*owners, class_name(base))))
                declared.append(Declared(policy, "class", class_name(base), declaration.name, at))
        return name, function, _in_order(declared)

    def _interceptors(self, cls: type | None) -> tuple[Any, ...]:
        if cls is None:
            return self.declaration.interceptors
        if not self._is_first(cls):
            return ()
        return (*class_level_interceptors(cls), *self.declaration.interceptors)

    def _is_first(self, cls: type) -> bool:
        found = first_of_name(cls, self.declaration.name)
        guard = self.declaration.guard
        if found is None or unbound(found[1]) is guard:
            return True
        return all(unbound(vars(base).get(self.declaration.name)) is not guard for base in cls.__mro__)

    def _followed(self, cls: type) -> tuple[Callable[..., Any], Mapping[type[Policy], Policy], type]:
        """What runs for *cls*, the method-level policies on it, and the class that declares it."""
        declaration = self.declaration
        if declaration.function is not None:
            return declaration.function, declaration.policies, declaration.owner or cls
        found = first_of_name(cls, declaration.name, after=declaration.guard)
        if found is None:
            return declaration.template, declaration.policies, declaration.owner or cls
        base, value = found
        function = unbound(value) if isinstance(value, (staticmethod, classmethod)) else value
        inherited = declaration_of(function)
        if inherited is None:
            return function, declaration.policies, base
        return inherited.resolver._followed(cls)  # type: ignore[no-any-return]

    def _faults(self, plan: Plan) -> list[Fault]:
        """What can be checked only once everything is known."""
        faults = []
        for one in plan.effective:
            if not one.enabled:
                continue
            asynchronous, home = is_asynchronous(self.declaration, plan.policies), plan.home(type(one.policy))
            if isinstance(one.policy, Fallback):
                faults += fallback.faults(one.policy, self.declaration, plan.name, asynchronous, home, final=True)
            elif isinstance(one.policy, BeforeRetry):
                faults += before_retry.faults(one.policy, self.declaration, plan.name, asynchronous, home, final=True)
        return faults

    def _homes(self, cls: type | None) -> dict[type[Policy], ref[type]]:
        if cls is None:
            return {}
        _, policies, owner = self._followed(cls)
        if self.declaration.owner is None:
            owner = home_of(self.declaration.template, cls)
        return {kind: ref(base) for kind, (_, base) in class_level(cls).items()} | dict.fromkeys(policies, ref(owner))


def _first_call(resolver: ref[Resolver]) -> blocking.GuardedCall:
    # The guard keeps its resolver, so it is there; a strong reference would be a cycle.
    def call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        found = resolver()
        assert found is not None
        return found.for_class(found.declaration.owner)(args, kwargs)

    return call


def is_asynchronous(declaration: Declaration, policies: Mapping[type[Policy], object]) -> bool:
    """Whether calls return before they are over (contract R7, R8)."""
    return declaration.is_coroutine or Asynchronous in policies or AsynchronousNonBlocking in policies


class _Departure:
    """Tells a resolver that a class is gone, without keeping the resolver."""

    __slots__ = ("_key", "_resolver")

    def __init__(self, resolver: Resolver, key: int) -> None:
        self._resolver = ref(resolver)
        self._key = key

    def __call__(self, _: ref[type]) -> None:
        resolver = self._resolver()
        if resolver is not None:
            resolver.depart(self._key)


# Definition errors


def contradictions(declaration: Declaration) -> list[Fault]:
    """What is wrong with the policies of a function as far as is known when the last of them is put on it."""
    policies, where = declaration.policies, declaration.where
    inherited = class_level(declaration.owner) if declaration.owner is not None else {}
    asynchronous = is_asynchronous(declaration, {**inherited, **policies})
    faults: list[Fault] = []
    if Asynchronous in policies or AsynchronousNonBlocking in policies:
        faults += hints.asynchronous_faults(declaration.template, where, declaration.owner)
    if Asynchronous in policies and AsynchronousNonBlocking in policies:
        faults.append(Fault(f"{where} @Asynchronous", "stands beside @AsynchronousNonBlocking", None, "one of them"))
    several = [kind for kind in _BACK_OFFS if kind in policies]
    if len(several) > 1:
        names = " and ".join(f"@{kind.annotation}" for kind in several)
        faults.append(Fault(f"{where} {names}", "are both there", None, "one back-off per function"))
    found = policies.get(Fallback)
    if isinstance(found, Fallback):
        faults += fallback.faults(found, declaration, where, asynchronous)
    before = policies.get(BeforeRetry)
    if isinstance(before, BeforeRetry):
        faults += before_retry.faults(before, declaration, where, asynchronous)
    return faults


def class_level_contradictions(
    declaration: Declaration, cls: type, kinds: Mapping[type[Policy], tuple[Policy, type]]
) -> list[Fault]:
    """What is wrong with the class-level policies of *cls* for one of its methods."""
    where = f"{class_name(cls)}.{declaration.name}"
    faults: list[Fault] = []
    if (Asynchronous in kinds or AsynchronousNonBlocking in kinds) and not declaration.is_coroutine:
        faults += hints.asynchronous_faults(declaration.template, where, cls, class_level=True)
    asynchronous = is_asynchronous(declaration, {**kinds, **declaration.policies})
    for kind, (policy, home) in kinds.items():
        if kind in declaration.policies:
            continue
        if isinstance(policy, Fallback):
            faults += fallback.faults(policy, declaration, where, asynchronous, home)
        elif isinstance(policy, BeforeRetry):
            faults += before_retry.faults(policy, declaration, where, asynchronous, home)
    return faults


# Call paths


def _plainly(function: Callable[..., Any]) -> blocking.GuardedCall:
    def call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return function(*args, **kwargs)

    return call


def _intercepted(
    function: Callable[..., Any], interceptors: Sequence[Any], declaration: Declaration
) -> Callable[..., Any]:
    if not interceptors:
        return function
    from .interceptor import around

    call = around(_plainly(function), interceptors, declaration)
    return lambda *args, **kwargs: call(args, kwargs)


_AWAITS = {Outcome.FUTURE: False, Outcome.AWAITABLE: True, Outcome.OBJECT: None, Outcome.FOREIGN: None}
"""Whether what a method returns is awaited; ``None``: the object decides (contract R7)."""


def _guarded(declaration: Declaration, plan: Plan, function: Callable[..., Any], state: State) -> blocking.GuardedCall:
    policies = plan.policies
    asynchronous = is_asynchronous(declaration, policies)
    is_apart = Asynchronous in policies or AsynchronousNonBlocking in policies
    course = course_for(plan.name, policies, state, asynchronous=asynchronous, apart=is_apart)
    substitute = policies.get(Fallback)
    before = policies.get(BeforeRetry)
    aside = before_aside = None
    if isinstance(substitute, Fallback):
        aside = fallback.aside(substitute, declaration, asynchronous, plan.home(Fallback))
    if isinstance(before, BeforeRetry):
        before_aside = before_retry.aside(before, declaration, asynchronous, plan.home(BeforeRetry))
    if not asynchronous:
        return compose(function, course, fallback=aside, before_retry=before_aside)

    awaits = declaration.is_coroutine or _AWAITS[hints.outcome(declaration.template, declaration.owner)]
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

    driver = _named(
        compose(
            function,
            course,
            fallback=aside,
            before_retry=before_aside,
            environment=TaskEnvironment(),
            apart=is_apart,
            awaits=awaits,
        ),
        declaration,
    )
    if not is_apart:
        return driver  # type: ignore[no-any-return]
    bind = _binder(plan.function)

    def start(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        bind(*args, **kwargs)
        return AsyncCall(lambda: driver(args, kwargs))

    return start


def code_of(declaration: Declaration, plan: Plan) -> str:
    """The code that a call of *plan* runs through, for people."""
    policies = plan.policies
    asynchronous = is_asynchronous(declaration, policies)
    apart = Asynchronous in policies or AsynchronousNonBlocking in policies
    course = course_for(plan.name, policies, State(plan.name), asynchronous=asynchronous, apart=apart)
    shape = shape_of(
        course,
        fallback=Fallback in policies,
        before_retry=BeforeRetry in policies,
        asynchronous=asynchronous,
        apart=apart,
    )
    return source_of(path, shape)


def _named(driver: Any, declaration: Declaration) -> Any:
    """Let a coroutine that was never awaited, and a task, be reported under the function's own name."""
    driver.__name__ = declaration.name
    driver.__qualname__ = getattr(declaration.template, "__qualname__", declaration.name)
    return driver


def _binder(function: Callable[..., Any]) -> Callable[..., object]:
    """Checks arguments: wrong ones are the only thing that an asynchronous call raises itself (contract R7)."""
    try:
        return inspect.signature(function).bind
    except (TypeError, ValueError):
        return lambda *args, **kwargs: None


def course_for(
    name: str, policies: Mapping[type[Policy], Policy], state: State, *, asynchronous: bool, apart: bool
) -> Course:
    """The policies of one guarded function, bound to its state."""
    values: dict[str, Any] = {}
    substitute = policies.get(Fallback)
    if isinstance(substitute, Fallback):
        values["fallback_on"] = (substitute.apply_on, substitute.skip_on)
    retry = policies.get(Retry)
    if isinstance(retry, Retry):
        values["retry"] = _retry(retry, policies)
    breaker = policies.get(CircuitBreaker)
    if isinstance(breaker, CircuitBreaker):
        values["circuit_breaker"] = state.breaker_for(breaker)
        values["fail_on"], values["skip_on"] = breaker.fail_on, breaker.skip_on
        values["on_transition"] = registry.deliver_transitions_of(state)
    limit = policies.get(RateLimit)
    if isinstance(limit, RateLimit):
        values["rate_limit"] = state.rate_limit_for(limit)
    timeout = policies.get(Timeout)
    if isinstance(timeout, Timeout):
        values["seconds"], values["interrupt"] = seconds(timeout.value, timeout.unit), timeout.interrupt
    bulkhead = policies.get(Bulkhead)
    if isinstance(bulkhead, Bulkhead):
        values["bulkhead"] = state.bulkhead_for(bulkhead)
    if not apart and values.get("seconds"):
        values["conclude"] = _conclude(asynchronous)
    tally = state.tally_for(policies, queue=asynchronous) if settings.switches.metrics_enabled else None
    return Course(name, **values, queues=asynchronous, tally=tally)


def _conclude(asynchronous: bool) -> Any:
    """What a deadline makes of an attempt that it was too short for."""
    if asynchronous:
        from .._runtime import task_deadlines

        return task_deadlines.conclude
    from .._runtime import interruption

    return interruption.conclude


def _retry(policy: Retry, policies: Mapping[type[Policy], Policy]) -> retry_strategy.Retry:
    when = policies.get(RetryWhen)
    return retry_strategy.Retry(
        policy.max_retries,
        seconds(policy.max_duration, policy.duration_unit),
        _back_off(seconds(policy.delay, policy.delay_unit), policies),
        seconds(policy.jitter, policy.jitter_delay_unit),
        policy.retry_on,  # type: ignore[arg-type]  # a tuple once it is checked
        policy.abort_on,  # type: ignore[arg-type]
        when.exception if isinstance(when, RetryWhen) else None,
        when.result if isinstance(when, RetryWhen) else None,
    )


def _back_off(delay: float, policies: Mapping[type[Policy], Policy]) -> back_off.BackOff | back_off.CustomBackOff:
    for policy in policies.values():
        if isinstance(policy, ExponentialBackoff):
            return back_off.exponential(delay, policy.factor, seconds(policy.max_delay, policy.max_delay_unit))
        if isinstance(policy, FibonacciBackoff):
            return back_off.fibonacci(delay, seconds(policy.max_delay, policy.max_delay_unit))
        if isinstance(policy, CustomBackoff):
            return back_off.CustomBackOff(policy.value)
    return back_off.fixed(delay)


def _in_order(declared: list[Declared]) -> list[Declared]:
    return sorted(declared, key=lambda one: ORDER.index(type(one.policy)))
