"""From what is declared and configured to one call path, once per guard and concrete class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any, Self
from weakref import ref

from .._config import Declared, Snapshot, settings
from .._policy import CircuitBreaker, Policy
from .._runtime import blocking
from ..exceptions import Fault, FaultToleranceDefinitionException
from . import proxy, registry
from .call_path import call_path, plainly
from .check import is_asynchronous, misfits
from .declaration import (
    CLASS,
    FUNCTION,
    INSTANCE,
    Declaration,
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
    """Finds the call path of one guard for each concrete class, and keeps it until the configuration changes.

    What led to a path is not kept: who wants to know finds it again.
    """

    __slots__ = ("__weakref__", "_uses", "call", "calls", "declaration", "home")

    def __init__(self, declaration: Declaration) -> None:
        self.declaration = declaration
        self.home: type | None = _Nobody
        """The class that defines the method, once it has a call path; ``None`` for a function."""
        if declaration.binding == FUNCTION:
            self.call: blocking.GuardedCall = _first_call(declaration)
            """The call path of ``home``."""
        self.calls: dict[int, blocking.GuardedCall] = {}
        """Those of other concrete classes by their id; the entry goes when the class does."""
        self._uses: tuple[_Use, ...] = ()
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
            found = self._path_of(cls)
            if found is None:
                plan, faults = self.plan(cls)
                if faults:
                    raise FaultToleranceDefinitionException(*faults)
                found = self._install(cls, plan)
            return found

    # Configuration

    def plan(self, cls: type | None, snapshot: Snapshot | None = None) -> tuple[Plan, list[Fault]]:
        """What holds for *cls* under the configuration *snapshot*, and what is wrong with it."""
        declaration = self.declaration
        if cls is None:
            name, function = declaration.where, declaration.template
            declared, homes = self._declared_on_function(), dict[type[Policy], type]()
            interceptors = declaration.interceptors
        else:
            name = f"{class_name(cls)}.{declaration.name}"
            function, policies, owner = self._followed(cls)
            declared, homes, interceptors = [], {}, ()
            # Contract L3: reached through super(), or by the name of a base class, a method runs plainly.
            if self._is_first(cls):
                covered = covering(cls, declaration.name, function, owner)
                declared = self._declared(cls, owner, policies, covered)
                home = owner if declaration.owner is not None else home_of(declaration.template, cls)
                homes = {kind: base for kind, (_, base) in covered.items()} | dict.fromkeys(policies, home)
                written = class_level_interceptors(cls, declaration.name, function, owner)
                interceptors = (*written, *declaration.interceptors)
        if declaration.binding == INSTANCE:
            function = proxy.bound_first(function)
        if not declared:
            return Plan(name, function, interceptors=interceptors), []
        effective, faults = settings.resolve(declared, name, snapshot)
        plan = Plan(name, function, tuple(declared), tuple(effective), interceptors, homes)
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
            self.home = _Nobody
            self.calls.clear()
            self._uses = ()
            if self.declaration.binding == FUNCTION:
                self.call = _first_call(self.declaration)

    def resolved(self) -> list[type | None]:
        """The classes for which a call path was found, ``None`` for the guard's own."""
        users = [use() for use in self._uses]
        return [None if user is NoneType else user for user in users if user is not None]

    def resolve_breaker(self) -> None:
        """Make the breaker of the declaring class known, if there is one and its method was not called yet."""
        declaration = self.declaration
        owner = declaration.owner
        if owner is None and declaration.binding != FUNCTION:
            return  # put into a class late, it is known by the class that uses it
        inherited = covering(owner, declaration.name, declaration.template, owner) if owner is not None else {}
        if CircuitBreaker in {**declaration.policies, **inherited} and self._path_of(owner) is None:
            self.for_class(owner)

    def state(self, cls: type | None) -> State | None:
        """What the method remembers for *cls*, if it was ever called."""
        return next((use.state for use in self._uses if use.key == id(cls)), None)

    def states(self) -> list[State]:
        """What the method remembers, class by class."""
        return [use.state for use in self._uses if use.state is not None]

    def _install(self, cls: type | None, plan: Plan) -> blocking.GuardedCall:
        known = next((use for use in self._uses if use.key == id(cls)), None)
        use = known or _Use(cls, self)
        if use.state is None and plan.policies:
            use.state = registry.new_state(plan.name, plan.policies)
        call = call_path(self.declaration, plan, use.state)
        if known is None:
            self._uses = (*self._uses, use)
        if cls is self.declaration.owner or self.declaration.binding == FUNCTION:
            self.call = call
            self.home = cls
        else:
            self.calls[use.key] = call
        return call

    def _path_of(self, cls: type | None) -> blocking.GuardedCall | None:
        return self.call if cls is self.home else self.calls.get(id(cls))

    def depart(self, use: _Use) -> None:
        """Let go of a class that no longer exists; its counts stay in the ledger, under its name."""
        with registry.resolving:
            self._uses = tuple(one for one in self._uses if one is not use)
            self.calls.pop(use.key, None)

    # What is declared

    def _declared_on_function(self) -> list[Declared]:
        declaration = self.declaration
        module = module_name(getattr(declaration.template, "__module__", "") or "")
        qualname = getattr(declaration.template, "__qualname__", declaration.name)
        return in_order([Declared(policy, "method", module, qualname) for policy in declaration.policies.values()])

    def _declared(
        self,
        cls: type,
        owner: type,
        policies: Mapping[type[Policy], Policy],
        covered: Mapping[type[Policy], tuple[Policy, type]],
    ) -> list[Declared]:
        method, where = self.declaration.name, class_name(owner)
        owners = (where,) if cls is owner else tuple(dict.fromkeys((class_name(cls), where)))
        declared = [Declared(policy, "method", where, method, owners) for policy in policies.values()]
        for kind, (policy, base) in covered.items():
            if kind not in policies:
                at = tuple(dict.fromkeys((*owners, class_name(base))))
                declared.append(Declared(policy, "class", class_name(base), method, at))
        return in_order(declared)

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
        base, value = found[0], proxy.of_our_own(found[1])
        function = unbound(value) if isinstance(value, (staticmethod, classmethod)) else value
        inherited = declaration_of(function)
        if inherited is None:
            return function, declaration.policies, base
        return inherited.resolver._followed(cls)  # type: ignore[no-any-return]

    def _faults(self, plan: Plan) -> list[Fault]:
        """What can be checked only once everything is known."""
        faults: list[Fault] = []
        asynchronous = is_asynchronous(self.declaration, plan.policies)
        for one in plan.effective:
            if one.enabled:
                home = plan.homes.get(type(one.policy))
                wrong = misfits(one.policy, self.declaration, plan.name, asynchronous, home, final=True)
                faults += map(one.traced, wrong)
        return faults


class _Nobody:
    """The home of guards that were never called."""


def _first_call(declaration: Declaration) -> blocking.GuardedCall:
    # The resolver keeps this function: a strong reference would be a cycle.
    def call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        found = declaration.resolver
        if found is None:
            # Weak references are cleared before finalizers run: one of these calls a guard that goes with it.
            return declaration.template(*args, **kwargs)
        return found.for_class(found.declaration.owner)(args, kwargs)

    return call


class _Use(ref[type]):
    """Refers to a class that uses a guard, and has what the guarded method remembers for it.

    A function that belongs to no class is used by that of ``None``. Neither the class nor the resolver is kept.
    """

    __slots__ = ("declaration", "key", "state")

    def __new__(cls, user: type | None, resolver: Resolver) -> Self:
        return super().__new__(cls, NoneType if user is None else user, _departed)

    def __init__(self, user: type | None, resolver: Resolver) -> None:
        self.key = id(user)
        self.declaration = resolver.declaration
        self.state: State | None = None


def _departed(use: ref[type]) -> None:
    assert isinstance(use, _Use)
    resolver = use.declaration.resolver
    if resolver is not None:
        resolver.depart(use)
