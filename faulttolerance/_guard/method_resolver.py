"""From what is declared and configured to one call path, once per guarded function and concrete class."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import NoneType
from typing import Any

from .._call.state import alias_in
from .._config import Declared, State as Configuration, settings
from .._policy import CircuitBreaker, Policy
from .._runtime.blocking import GuardedCall
from .._signature.lookup import home_of
from .._signature.method import as_method, bound_when_called
from .._signature.naming import class_name, qualified_name_of
from .._swap import Swap
from ..exceptions import Fault, FaultToleranceDefinitionException
from . import registry
from .assembly import method_call, unguarded_call, unguarded_call_while_hidden
from .checking.definition import callback_faults, companion_faults
from .class_level import accessors, covering, covering_at_home, first_definition
from .declaration import CLASS, FUNCTION, INSTANCE, Declaration, declaration_of, unbound
from .effective import EffectivePolicies, in_order
from .resolver import Draft, Resolver

__all__ = ["MethodResolver"]


class MethodResolver(Resolver):
    """Finds the call path of one guarded function for each class that calls it."""

    __slots__ = ("call", "calls", "home")
    declaration: Declaration

    def __init__(self, declaration: Declaration) -> None:
        self.home: type | None = _Nobody
        """The class that defines the method, once it has a call path; ``None`` for a function."""
        if declaration.binding == FUNCTION:
            self.call: GuardedCall = _first_call(declaration)
            """The call path of ``home``."""
        self.calls: dict[int, GuardedCall] = {}
        """Those of other concrete classes by their id; the entry goes when the class does."""
        super().__init__(declaration)

    def __reduce__(self) -> tuple[Any, ...]:
        """Begin anew where a guard is pickled by value: what was found and counted here stays here."""
        return MethodResolver, (self.declaration,)

    @property
    def guarded(self) -> Callable[..., Any]:
        """What the application calls: the guard."""
        return self.declaration.guard  # type: ignore[no-any-return]

    # Calls that come for the first time

    def for_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> GuardedCall:
        """Find the call path for these arguments of a method, whose first one is its object or class."""
        if not args:
            return unguarded_call(self.declaration.template)  # reports that self is missing
        return self.for_class(args[0] if self.declaration.binding == CLASS else type(args[0]))

    def for_class(self, cls: type | None) -> GuardedCall:
        """Find the call path for the concrete class *cls*."""
        with registry.resolving:
            while (call := self._path_of(cls)) is None:
                basis = settings.basis
                effective, faults = self.effective_policies(cls, basis)
                if faults:
                    raise FaultToleranceDefinitionException(*faults)
                self.draft(cls, effective).put_in_force(basis)
            return call

    def anew(self, cls: type) -> GuardedCall:
        """Find the call path for *cls* once more, where the one that there is does not hold any more."""
        while True:
            seen, stale = settings.version.current, self._path_of(cls)
            swap = Swap()
            self.drop(cls, swap)
            if stale is None or settings.version.swap(seen, swap):
                return self.for_class(cls)

    # Configuration

    def effective_policies(
        self, cls: type | None, basis: Configuration | None = None
    ) -> tuple[EffectivePolicies, list[Fault]]:
        """Find what holds for *cls* under the configuration *basis*, and what is wrong with it."""
        basis = basis or settings.basis
        declaration = self.declaration
        if cls is None:
            name, function = declaration.where, declaration.template
            spelled = qualified_name_of(function)
            declared = [Declared(policy, "method", *spelled) for policy in declaration.policies.values()]
            declared_by: dict[type[Policy], type] = {}
            interceptors = declaration.interceptors
        else:
            name = f"{class_name(cls)}.{declaration.name}"
            function, policies, owner = self._followed(cls)
            declared, declared_by, interceptors = [], {}, ()
            # Rule L3: reached through super(), or by the name of a base class, a method runs unguarded.
            if self.is_first(cls):
                covered, written = covering(cls, declaration.name, function, owner)
                declared = self._declared(cls, owner, policies, covered)
                home = owner if declaration.owner is not None else home_of(declaration.template, cls)
                declared_by = {kind: base for kind, (_, base) in covered.items()} | dict.fromkeys(policies, home)
                interceptors = (*written, *declaration.interceptors)
        if declaration.binding == INSTANCE:
            function = bound_when_called(function)
        if not declared and not interceptors:
            return EffectivePolicies(name, function), []
        declared = in_order(declared)
        values, faults = settings.resolve(declared, name, basis)
        effective = EffectivePolicies(
            name, function, declared, values, interceptors, declared_by, settings.switches_under(basis)
        )
        return effective, faults or self._faults(effective, cls)

    def draft(self, cls: type | None, effective: EffectivePolicies) -> Draft:
        """Assemble the call path of *effective*, and what the state for *cls* is to become."""
        draft, declaration = Draft(self, cls, effective), self.declaration
        if cls is not None and declaration.binding != FUNCTION and not self.is_first(cls):
            draft.calls[cls] = unguarded_call_while_hidden(effective.function, declaration, cls)
        else:
            draft.calls[cls] = method_call(declaration, effective, draft.state)
        return draft

    def put(self, cls: type | None, draft: Draft, swap: Swap) -> None:
        """Let calls for *cls* go as *draft* says, together with the other stores of *swap*."""
        if cls is self.declaration.owner or self.declaration.binding == FUNCTION:
            swap.attribute(self, "call", draft.calls[cls])
            swap.attribute(self, "home", cls)
        else:
            swap.item(self.calls, id(cls), draft.calls[cls])

    def drop(self, cls: type | None, swap: Swap) -> None:
        """Let the next call for *cls* find out anew what holds; what is remembered stays."""
        if cls is not self.home:
            swap.removal(self.calls, id(cls))
            return
        swap.attribute(self, "home", _Nobody)
        if self.declaration.binding == FUNCTION:
            swap.attribute(self, "call", _first_call(self.declaration))

    def resolved(self) -> list[type | None]:
        """The classes for which a call path was found, ``None`` for the guard's own."""
        users = [(use(), use) for use in self.uses]
        living = [None if user is NoneType else user for user, _ in users if user is not None]
        return [user for user in living if self._path_of(user) is not None]

    def resolve_breaker(self, name: str | None = None) -> None:
        """Make the breaker of the declaring class known, if there is one and its method was not called yet.

        If a name is given, only if that is one of its names.
        """
        declaration = self.declaration
        owner = declaration.owner
        if self._path_of(owner) is not None or (owner is None and declaration.binding != FUNCTION):
            return  # put into a class late, it is known by the class that uses it
        covered = {kind: policy for kind, (policy, _) in covering_at_home(declaration).items()}
        policies = {**covered, **declaration.policies}
        if CircuitBreaker in policies and name in (None, declaration.where, alias_in(policies)):
            self.for_class(owner)

    def classes(self) -> Iterator[type | None]:
        """Give the classes that have the method, each with policies and a state of its own."""
        owner = self.declaration.owner
        if owner is None and self.declaration.binding != FUNCTION:
            yield from self.resolved() or [None]  # put into a class late, it is known by the classes that use it
        else:
            yield from dict.fromkeys([owner, *_subclasses(owner), *self.resolved()])

    def _path_of(self, cls: type | None) -> GuardedCall | None:
        return self.call if cls is self.home else self.calls.get(id(cls))

    # What is declared

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
        return declared

    def is_first(self, cls: type) -> bool:
        """Whether nothing of the same name hides the guard from objects of *cls* (rule L3)."""
        found = first_definition(cls, self.declaration.name)
        if found is None or self._is_in(found[1]):
            return True
        return not any(self._is_in(vars(base).get(self.declaration.name)) for base in cls.__mro__)

    def _is_in(self, attribute: object) -> bool:
        """Whether *attribute* of a class is the guard, or a property made of it."""
        guard = self.declaration.guard
        return unbound(attribute) is guard or any(one is guard for one in accessors(attribute))

    def _followed(self, cls: type) -> tuple[Callable[..., Any], Mapping[type[Policy], Policy], type]:
        """What runs for *cls*, the method-level policies on it, and the class that declares it."""
        declaration = self.declaration
        if declaration.function is not None:
            return declaration.function, declaration.policies, declaration.owner or cls
        found = first_definition(cls, declaration.name, after=declaration.guard)
        if found is None:
            return declaration.template, declaration.policies, declaration.owner or cls
        base, attribute = found
        value = as_method(attribute, base, declaration.name)
        function = unbound(value) if isinstance(value, (staticmethod, classmethod)) else value
        inherited = declaration_of(function)
        if inherited is None:
            return function, declaration.policies, base
        return inherited.resolver._followed(cls)  # type: ignore[no-any-return]

    def _faults(self, effective: EffectivePolicies, cls: type | None) -> list[Fault]:
        """Tell what can be checked only once everything is known."""
        declaration, name = self.declaration, effective.name
        faults = companion_faults(effective.declared, name, cls)
        asynchronous = declaration.is_asynchronous(effective.policies)
        for one in effective.values:
            if one.enabled:
                home = effective.declared_by.get(type(one.policy))
                problems = callback_faults(one.policy, declaration, name, asynchronous, home, final=True)
                faults += map(one.traced, problems)
        return faults


class _Nobody:
    """The home of guards that were never called."""


def _first_call(declaration: Declaration) -> GuardedCall:
    # The resolver keeps this function: a strong reference would be a cycle.
    def call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        resolver = declaration.resolver
        if resolver is None:
            # Weak references are cleared before finalizers run: one of these calls a guard that goes with it.
            return declaration.template(*args, **kwargs)
        return resolver.for_class(resolver.declaration.owner)(args, kwargs)

    return call


def _subclasses(cls: Any) -> Iterator[type]:
    """Give the living classes that inherit from *cls*: each has a state of its own."""
    if cls is not None:
        for subclass in type.__subclasses__(cls):
            yield subclass
            yield from _subclasses(subclass)
