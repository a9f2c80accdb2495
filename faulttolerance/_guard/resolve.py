"""From what is declared and configured to one call path, once per guard and concrete class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import ref

from .._config import Declared, Snapshot, settings
from .._policy import CircuitBreaker, Policy
from .._runtime import blocking
from ..exceptions import Fault, FaultToleranceDefinitionException
from . import registry
from .call_path import call_path, plainly
from .check import is_asynchronous, misfits
from .declaration import (
    CLASS,
    FUNCTION,
    Declaration,
    class_level,
    class_level_interceptors,
    class_name,
    covering,
    declaration_of,
    first_of_name,
    module_name,
    unbound,
)
from .plan import Plan, in_order
from .sibling import home_of
from .state import State

__all__ = ["Resolver"]


class Resolver:
    """Finds the call path of one guard for each concrete class, and keeps it until the configuration changes."""

    __slots__ = ("__weakref__", "_classes", "_states", "call", "calls", "declaration", "plans")

    def __init__(self, declaration: Declaration) -> None:
        self.declaration = declaration
        self.calls: dict[int, blocking.GuardedCall] = {}
        """Call paths by the id of the concrete class; the entry goes when the class does."""
        self.call: blocking.GuardedCall = _first_call(ref(self), declaration)
        """The call path of a guard that is its own key."""
        self.plans: dict[int, Plan] = {}
        self._classes: dict[int, ref[type]] = {}
        self._states: dict[int, State] = {}
        registry.add(self)

    # Calls that come for the first time

    def for_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> blocking.GuardedCall:
        """The call path for these arguments of a method, whose first one is its object or class."""
        if not args:
            return plainly(self.declaration.template)  # reports that self is missing
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
            self.call = _first_call(ref(self), self.declaration)

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
        owner = declaration.owner
        inherited = covering(owner, declaration.name, declaration.template, owner) if owner is not None else {}
        if CircuitBreaker in {**declaration.policies, **inherited} and id(owner) not in self.calls:
            self.for_class(owner)

    def state(self, cls: type | None) -> State | None:
        """What the method remembers for *cls*, if it was ever called."""
        return self._states.get(id(cls))

    def _install(self, cls: type | None, plan: Plan) -> blocking.GuardedCall:
        key = id(cls)
        if cls is not None and key not in self._classes:
            self._classes[key] = ref(cls, _Departure(self, key))
        state = self._states.get(key)
        if state is None and plan.policies:
            state = self._states[key] = registry.new_state(plan.name, plan.policies)
        call = call_path(self.declaration, plan, state)
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
            return declaration.where, declaration.template, in_order(method_level)
        name = f"{class_name(cls)}.{declaration.name}"
        function, policies, owner = self._followed(cls)
        if not self._is_first(cls):
            # Contract L3: reached through super(), or by the name of a base class, a method runs plainly.
            return name, function, []
        owners = tuple(dict.fromkeys(class_name(one) for one in (cls, owner)))
        declared = [
            Declared(policy, "method", class_name(owner), declaration.name, owners) for policy in policies.values()
        ]
        for kind, (policy, base) in covering(cls, declaration.name, function, owner).items():
            if kind not in policies:
                at = tuple(dict.fromkeys((*owners, class_name(base))))
                declared.append(Declared(policy, "class", class_name(base), declaration.name, at))
        return name, function, in_order(declared)

    def _interceptors(self, cls: type | None) -> tuple[Any, ...]:
        if cls is None:
            return self.declaration.interceptors
        if not self._is_first(cls):
            return ()
        function, _, owner = self._followed(cls)
        written = class_level_interceptors(cls, self.declaration.name, function, owner)
        return (*written, *self.declaration.interceptors)

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
        asynchronous = is_asynchronous(self.declaration, plan.policies)
        for kind, policy in plan.policies.items():
            faults += misfits(policy, self.declaration, plan.name, asynchronous, plan.home(kind), final=True)
        return faults

    def _homes(self, cls: type | None) -> dict[type[Policy], ref[type]]:
        if cls is None:
            return {}
        _, policies, owner = self._followed(cls)
        if self.declaration.owner is None:
            owner = home_of(self.declaration.template, cls)
        return {kind: ref(base) for kind, (_, base) in class_level(cls).items()} | dict.fromkeys(policies, ref(owner))


def _first_call(resolver: ref[Resolver], declaration: Declaration) -> blocking.GuardedCall:
    # The guard keeps its resolver, so it is there; a strong reference would be a cycle.
    def call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        found = resolver()
        if found is None:
            # Weak references are cleared before finalizers run: one of these calls a guard that goes with it.
            return declaration.template(*args, **kwargs)
        return found.for_class(found.declaration.owner)(args, kwargs)

    return call


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
