"""Declarations on functions and classes before any configuration, and the methods that a class covers (L2, L7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, partialmethod, singledispatchmethod
from sys import intern
from types import FunctionType, MethodType
from typing import Any, NamedTuple
from weakref import WeakSet

from ..._call.core import is_detached
from ..._policy import Policy
from ..._signature.kind import is_coroutine_function, own_attribute
from ..._signature.method import binds_itself
from ..._signature.naming import class_name, qualified_name_of
from ...exceptions import definition_error
from . import registry
from .registry import RESOLVER

FUNCTION, INSTANCE, CLASS = "function", "instance", "class"
"""The owner of the state that a call uses: the function itself (static methods too), ``type(self)``, or ``cls``."""


def _no_guard() -> None:
    pass


class Declaration:
    """One guarded function with its declared policies.

    Args:
        function: The function that finally runs. ``None`` for a method that a class-level decorator covers but a base
            class defines: then the next definition in the method resolution order runs.
        policies: The method-level policies.
        binding: ``FUNCTION``, ``INSTANCE`` or ``CLASS``.
        interceptors: The interceptors on the function, the uppermost first.
        template: The function whose signature and name the guard shows, if that is not *function*.
    """

    __slots__ = (
        "__weakref__",
        "_policies",
        "binding",
        "fallback_fits",
        "function",
        "guard_ref",
        "interceptors",
        "is_coroutine",
        "name",
        "owner",
        "template",
    )

    def __init__(
        self,
        function: Callable[..., Any] | None,
        policies: Mapping[type[Policy], Policy],
        binding: str,
        *,
        interceptors: tuple[Any, ...] = (),
        template: Callable[..., Any] | None = None,
    ) -> None:
        self.function = function
        self.template: Callable[..., Any] = function or template  # type: ignore[assignment]
        self._policies = tuple(policies.values())
        self.interceptors = interceptors
        self.binding = binding
        # Weak: a guard that another decorator superseded goes at once, not at the next garbage collection.
        self.guard_ref: Callable[[], Any] = _no_guard
        self.owner: type | None = None
        """The class in whose namespace the guard was found when the class was created."""
        self.name: str = intern(qualified_name_of(self.template).method.rpartition(".")[2])  # shared with the function
        self.is_coroutine = is_coroutine_function(self.template)
        self.fallback_fits: bool | None = None
        """Whether its fallback handler finally fits asynchronous calls, or, if false, others; ``None`` if unknown."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for libraries that pickle functions by value, such as cloudpickle, with the guard itself."""
        kept = {name: getattr(self, name) for name in self.__slots__ if name not in ("__weakref__", "guard_ref")}
        return {**kept, "guard": self.guard}

    def __setstate__(self, state: dict[str, Any]) -> None:
        guard = state.pop("guard")
        for name, value in state.items():
            setattr(self, name, value)
        self.guard_ref = registry.add(guard) if guard is not None else _no_guard

    @property
    def policies(self) -> dict[type[Policy], Policy]:
        """The policies on the function, by kind."""
        return {type(policy): policy for policy in self._policies}

    @property
    def where(self) -> str:
        """The guarded function's qualified name, as in messages."""
        if self.owner is not None:
            return f"{class_name(self.owner)}.{self.name}"
        return str(qualified_name_of(self.template))

    def is_asynchronous(self, policies: Mapping[type[Policy], object]) -> bool:
        """Return whether calls under *policies* return before they end (rules R7, R8)."""
        return self.is_coroutine or is_detached(policies)

    @property
    def guard(self) -> Any:
        """The function in place of the guarded function."""
        return self.guard_ref()

    @property
    def resolver(self) -> Any:
        """The ``MethodResolver``, which the guard holds."""
        return getattr(self.guard, RESOLVER, None)

    def follow_copy(self, cls: type) -> None:
        """Make *cls* the owner if it is a copy in the owner's place; an owner that was called stays (rules L1, L4)."""
        before = self.owner
        if before is None or self.resolver.class_entry_of(before) is not None:
            return
        # ``dataclass(slots=True)`` sets the qualified name later.
        if (cls.__name__, cls.__module__, cls.__bases__) == (before.__name__, before.__module__, before.__bases__):
            self.owner = cls

    def mark(self, guard: Callable[..., Any], resolver: object) -> None:
        """Register *guard*, which holds *resolver*, as the guard of this declaration."""
        setattr(guard, RESOLVER, resolver)
        self.guard_ref = registry.add(guard)  # last: from here on, others see it


def declaration_of(candidate: object) -> Declaration | None:
    """Return the declaration behind a guard, or behind the static or class method that contains one, or ``None``.

    ``functools.wraps`` copies attributes onto wrappers that are no guards. A wrapper of wrapt counts as the guard that
    it wraps, and equals. In a finalizer, before which weak references are cleared, the attribute has to do.
    """
    candidate = unbound(candidate)
    resolver = getattr(candidate, RESOLVER, None) if isinstance(candidate, FunctionType) else None
    declaration = getattr(resolver, "declaration", None)
    return declaration if isinstance(declaration, Declaration) and declaration.guard in (candidate, None) else None


def declarations_of(function: Any) -> Iterator[Declaration]:
    """Yield the declarations of the guards in *function*, the outermost first: also of guards below its wrappers."""
    seen: set[int] = set()
    while isinstance(function := unbound(function), FunctionType) and id(function) not in seen:
        seen.add(id(function))
        if (declaration := declaration_of(function)) is not None:
            yield declaration
        function = own_attribute(function, "__wrapped__")


def binding_by_name(function: Any) -> str:
    """Return the binding of a *function* that is decorated outside a class body, from its qualified name.

    A wrapper of a bound method has the name of the method, too, and is called without the instance.
    """
    scope, _, name = own_attribute(function, "__qualname__", "").rpartition(".")
    # No class is named <locals>, nor <genexpr> or <listcomp>, in which lambdas are created.
    is_class = bool(scope) and not scope.rpartition(".")[2].startswith("<")
    if not is_class or not isinstance(function, FunctionType):
        return FUNCTION
    wrapped = own_attribute(function, "__wrapped__")
    while isinstance(wrapped, FunctionType):
        wrapped = own_attribute(wrapped, "__wrapped__")
    outermost, *inner = scope.split(".")
    owner = function.__globals__.get(outermost)
    for each in inner:
        owner = vars(owner).get(each) if isinstance(owner, type) else None
    is_static = isinstance(owner, type) and isinstance(vars(owner).get(name), staticmethod)
    return FUNCTION if is_static or isinstance(wrapped, MethodType) else INSTANCE


def unbound(candidate: object) -> Any:
    """Return the function in a static method, a class method or a bound method; otherwise *candidate*."""
    return candidate.__func__ if isinstance(candidate, (staticmethod, classmethod, MethodType)) else candidate


CLASS_LEVEL = "_abc_faulttolerance"
"""The attribute of a class with guards that holds its declarations; ``dataclass(slots=True)`` copies it with the rest.

``typing`` ignores attributes with this prefix as members of a protocol; Python 3.11 does not ignore other names.
"""

_METHODS = (staticmethod, classmethod, property, partialmethod, singledispatchmethod)
_exempt: WeakSet[Any] = WeakSet()


class ClassLevel(NamedTuple):
    """The declarations on one class: policies by kind, and interceptors, the uppermost first; copied with the class."""

    policies: Mapping[type[Policy], Policy]
    interceptors: tuple[Any, ...]

    def __set_name__(self, copy: type, name: str) -> None:
        for declaration in declarations_in(copy):
            declaration.follow_copy(copy)


NOTHING_DECLARED = ClassLevel({}, ())


def declared_on(cls: type) -> ClassLevel:
    """Return the declarations on *cls* itself."""
    return vars(cls).get(CLASS_LEVEL, NOTHING_DECLARED)  # type: ignore[no-any-return]


def class_level_for(
    cls: type, name: str, function: object, owner: type
) -> tuple[dict[type[Policy], tuple[Policy, type]], tuple[Any, ...]]:
    """Return the class-level policies and interceptors that apply to a method of *cls*, which *owner* defines.

    They apply to public methods that are not exempt, and that the decorated class, a subclass of it, or another class
    of its package defines. The nearest policy of each kind applies; it comes with the class that declares it. A policy
    of a guard below a wrapper is nearer than that of the class.
    """
    if name.startswith("_") or is_exempt(function):
        return {}, ()
    nearest: dict[type[Policy], tuple[Policy, type]] = {}
    for home in cls.__mro__:
        for kind, policy in declared_on(home).policies.items():
            nearest.setdefault(kind, (policy, home))
    for declaration in declarations_of(own_attribute(function, "__wrapped__")) if nearest else ():
        if not is_attribute(declaration, owner):  # else it is another method, or hidden by this one (rule L3)
            nearest = {kind: each for kind, each in nearest.items() if kind not in declaration.policies}
    policies = {kind: (policy, home) for kind, (policy, home) in nearest.items() if _applies_to(home, owner)}
    applying = [base for base in cls.__mro__ if _applies_to(base, owner)]
    return policies, tuple(dict.fromkeys(each for base in applying for each in declared_on(base).interceptors))


def class_level_of(
    declaration: Declaration, cls: type, function: object, owner: type
) -> tuple[dict[type[Policy], tuple[Policy, type]], tuple[Any, ...]]:
    """Return what ``class_level_for`` returns; nothing for a guard below a wrapper that is exempt or below a guard."""
    if all(declared_on(base) is NOTHING_DECLARED for base in cls.__mro__):
        return {}, ()
    _, attribute = first_definition(cls, declaration.name) or (cls, None)
    guards = [*declarations_of(attribute)]
    if declaration in guards and (is_exempt(attribute) or declaration is not guards[0]):
        return {}, ()
    return class_level_for(cls, declaration.name, function, owner)


def class_level_at_home(declaration: Declaration) -> dict[type[Policy], tuple[Policy, type]]:
    """Return the class-level policies that apply to a method in the class that defines it."""
    owner = declaration.owner
    return class_level_of(declaration, owner, declaration.template, owner)[0] if owner is not None else {}


def _applies_to(home: type, owner: type) -> bool:
    return home in owner.__mro__ or _package(home) == _package(owner)


def _package(cls: type) -> str:
    return class_name(cls).partition(".")[0]


def first_definition(cls: type, name: str, *, after: Declaration | None = None) -> tuple[type, Any] | None:
    """Return the first class in the method resolution order of *cls* that defines *name*, and its definition.

    With *after*, the search starts behind the class that has the guard of that declaration.
    """
    is_behind = after is None
    for base in cls.__mro__:
        if name in vars(base):
            value = vars(base)[name]
            if is_behind:
                return base, value
            is_behind = declaration_of(value) is after
    return None


def subclasses_of(cls: type) -> dict[type, None]:
    """Return the living classes that inherit from *cls*, each once."""
    subclasses: dict[type, None] = {}
    subclass: type
    for subclass in type.__subclasses__(cls):
        subclasses |= {subclass: None, **subclasses_of(subclass)}
    return subclasses


def accessors(attribute: object) -> tuple[Any, ...]:
    """Return the functions of a property."""
    if isinstance(attribute, property):
        return (attribute.fget, attribute.fset, attribute.fdel)
    return (attribute.func,) if isinstance(attribute, cached_property) else ()


def holds(attribute: object, declaration: Declaration) -> bool:
    """Return whether *attribute* of a class is the guard of *declaration*, or a property with it."""
    return any(declaration_of(function) is declaration for function in (attribute, *accessors(attribute)))


def is_attribute(declaration: Declaration, cls: type) -> bool:
    """Return whether *cls* or one of its bases has the guard itself, under its name."""
    return any(holds(vars(base).get(declaration.name), declaration) for base in cls.__mro__)


def class_of_call(declaration: Declaration, args: tuple[Any, ...]) -> type | None:
    """Return the class that uses the guard of a method for *args*, whose first is its object or class.

    Libraries for GraphQL call a resolver with any object, or ``None``, in place of ``self``: its owner uses it then.
    A guard without an owner, which no class body knows, is a static method then: ``None``.
    """
    owner = declaration.owner
    if owner is None and declaration.binding == CLASS and args:
        return args[0]  # type: ignore[no-any-return]
    for cls in (type(args[0]), args[0]) if args else ():
        if issubclass(type(cls), type) and (  # a lazy object is not evaluated
            owner in cls.__mro__ or is_attribute(declaration, cls) or (owner is None and _wrote(cls, declaration))
        ):
            return cls
    return owner


def _wrote(cls: type, declaration: Declaration) -> bool:
    """Return whether the body of *cls* or one of its bases defines the function, by its name."""
    scope = own_attribute(declaration.template, "__qualname__", "").rpartition(".")[0]
    return any(base.__qualname__ == scope for base in cls.__mro__)


def descriptors_of(cls: type) -> list[tuple[str, Any]]:
    """Return the names and values of the attributes of *cls* itself that may be methods or properties."""
    return [(name, value) for name, value in list(vars(cls).items()) if binds_itself(value)]


def declarations_in(cls: type) -> Iterator[Declaration]:
    """Yield the declarations of the guards that the attributes of *cls* itself contain."""
    for _, attribute in descriptors_of(cls):
        for function in (attribute, *accessors(attribute)):
            yield from declarations_of(function)


def exempt(function: Any) -> None:
    """Exempt *function*, or the function behind a guard, from class-level decorators."""
    if not callable(function) and not isinstance(function, _METHODS):
        raise definition_error("@unguarded", "is not on a method", function, "a method of a class")
    with suppress(TypeError):  # an object without weak references is no function, and is never covered
        _exempt.add(_exemptible(function))


def is_exempt(function: Any) -> bool:
    """Return whether *function* is exempt from class-level decorators."""
    with suppress(TypeError):  # an object without a hash
        return _exemptible(function) in _exempt
    return False


def _exemptible(function: Any) -> Any:
    declaration = declaration_of(function)
    return unbound(function) if declaration is None else declaration.template
