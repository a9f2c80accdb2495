"""Policies and interceptors on functions, methods and classes; one guard per function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import update_wrapper
from types import FunctionType
from typing import Any

from ..._policy import Policy
from ..._signature.kind import is_generator_function, mark_coroutine_function, own_attribute
from ..._signature.method import as_method, as_real_method, takes_instance_first
from ..._signature.naming import class_name, copy_names
from ...exceptions import Fault, FaultToleranceDefinitionException, definition_error, raise_faults
from ..declare import registry
from ..declare.checks import definition
from ..declare.creation_site import CO_OPTIMIZED, application_frames
from ..declare.declaration import (
    CLASS,
    CLASS_LEVEL,
    FUNCTION,
    INSTANCE,
    NOTHING_DECLARED,
    ClassLevel,
    Declaration,
    accessors,
    binding_by_name,
    class_level_for,
    declaration_of,
    declarations_in,
    declarations_of,
    declared_on,
    descriptors_of,
    exempt,
    first_definition,
    holds,
    is_attribute,
    is_exempt,
    unbound,
)
from ..resolve.resolver import MethodResolver

_HOOK = "__faulttolerance_hook__"


def can_be_guarded(target: Any) -> bool:
    """Return whether a decorator may stand above *target*; raise an error for descriptors, with their name."""
    raise_faults(definition.descriptor_faults(target))
    return callable(target) or isinstance(target, (staticmethod, classmethod))


def apply_to(target: Any, policies: Mapping[type[Policy], Policy], interceptors: tuple[Any, ...]) -> Any:
    """Apply *policies* and *interceptors* to *target*: to a new guard of a function, or to a class itself.

    A function that is a guard keeps its policies.
    """
    if isinstance(target, type):
        return _apply_to_class(target, policies, interceptors)
    target = as_real_method(target)
    is_bound_later = isinstance(target, (staticmethod, classmethod))
    function = target.__func__ if is_bound_later else target
    # A bound method of a guard, or a wrapper of wrapt, is a separate function, which calls the guard.
    known = declaration_of(function) if type(function) is FunctionType else None
    namespace = _class_body(function)
    base = known or Declaration(function, {}, INSTANCE if namespace is not None else binding_by_name(function))
    declaration = Declaration(
        base.function,
        {**base.policies, **policies},
        _binding_of(target) if is_bound_later else base.binding,
        interceptors=(*interceptors, *base.interceptors),
    )
    raise_faults(definition.definition_faults(declaration))
    guard = _make_guard(declaration)
    if namespace is not None:
        namespace.setdefault(_HOOK, _ClassCreationHook())
    return _as_same_kind(target, guard)


def _class_body(function: Any) -> dict[str, Any] | None:
    """Return the namespace of the running class body that defines *function*, or ``None``."""
    scope = own_attribute(unbound(function), "__qualname__", "").rpartition(".")[0]
    for frame in application_frames():
        if frame.f_code.co_flags & CO_OPTIMIZED:
            continue  # reading the variables of a function would keep their objects alive until it returns
        names = frame.f_locals
        if names.get("__qualname__") == scope and "__module__" in names and names is not frame.f_globals:
            return names
    return None


def _binding_of(attribute: object) -> str:
    """Return the binding of the guard in an attribute of a class."""
    if isinstance(attribute, classmethod):
        return CLASS
    return FUNCTION if isinstance(attribute, staticmethod) else INSTANCE


def _as_same_kind(attribute: Any, guard: Callable[..., Any]) -> Any:
    """Return *guard* as a static or class method if *attribute* is one."""
    return type(attribute)(guard) if isinstance(attribute, (staticmethod, classmethod)) else guard


def _make_guard(declaration: Declaration) -> Callable[..., Any]:
    """Return the function in place of the guarded function: with its name, its signature and its place in pickles."""
    resolver = MethodResolver(declaration)
    guard: Callable[..., Any] = copy_names(_entrance(resolver), declaration.template)
    declaration.mark(guard, resolver)
    return guard


def _entrance(resolver: MethodResolver) -> Callable[..., Any]:
    """Return a function that calls the path which *resolver* has for the object or class of a call."""
    declaration = resolver.declaration
    if declaration.binding == FUNCTION:

        def guard(*args: Any, **kwargs: Any) -> Any:
            return resolver.entered_call(args, kwargs)

    elif declaration.binding == INSTANCE:

        def guard(*args: Any, **kwargs: Any) -> Any:
            try:
                # Most objects are of the class that defines the method, and this is the fastest check for it.
                call = resolver.call if type(args[0]) is resolver.entered_home else resolver.calls[id(type(args[0]))]
            except (KeyError, IndexError):
                pass  # after the handler, so that this is not the context of an error in the call
            else:
                return call(args, kwargs)
            return resolver.for_call(args, kwargs)(args, kwargs)

    else:

        def guard(*args: Any, **kwargs: Any) -> Any:
            try:
                call = resolver.call if args[0] is resolver.entered_home else resolver.calls[id(args[0])]
            except (KeyError, IndexError):
                pass  # after the handler, so that this is not the context of an error in the call
            else:
                return call(args, kwargs)
            return resolver.for_call(args, kwargs)(args, kwargs)

    return mark_coroutine_function(guard) if declaration.is_coroutine else guard


class _ClassCreationHook:
    """Tells the guards in a new class their class, checks what is known now, and leaves what receives its copies."""

    def __set_name__(self, owner: type, name: str) -> None:
        type.__delattr__(owner, name)  # its metaclass may refuse changes
        type.__setattr__(owner, CLASS_LEVEL, NOTHING_DECLARED)
        faults: list[Fault] = []
        for attribute, value in descriptors_of(owner):
            faults += assign_owner(owner, attribute, value)
            for accessor in accessors(value):
                for declaration in declarations_of(accessor):
                    if holds(accessor, declaration) or not is_attribute(declaration, owner):
                        exempt(declaration.guard)  # class-level decorators do not apply to properties (rule L2)
                faults += assign_owner(owner, attribute, accessor)
        for declaration in declarations_in(owner) if faults else ():
            if declaration.owner is owner:
                registry.remove(declaration.guard_ref)
        raise_faults(faults)


def assign_owner(owner: type, name: str, value: Any) -> list[Fault]:
    """Set the class *owner* of the guards in its attribute *name*, with the *value*; return the faults of the guards.

    A guard whose binding differs from the assumed binding stays the same function, because a wrapper may hold it.
    """
    binding = FUNCTION if name == "__new__" else _binding_of(value)
    faults: list[Fault] = []
    for declaration in declarations_of(value):
        # Behind a wrapper, a guard may come from elsewhere.
        is_own = declaration.binding == INSTANCE and declaration.where == f"{class_name(owner)}.{declaration.name}"
        if declaration.owner is not None or not (is_own or declaration is declaration_of(value)):
            continue
        if binding != declaration.binding:
            declaration.binding = binding
            resolver = declaration.resolver
            MethodResolver.__init__(resolver, declaration)
            declaration.guard.__code__ = _entrance(resolver).__code__
        declaration.owner = owner
        faults += definition.definition_faults(declaration)
    return faults


# On classes


def _apply_to_class(cls: type, policies: Mapping[type[Policy], Policy], interceptors: tuple[Any, ...]) -> type:
    before = declared_on(cls)
    is_first = not any(before)
    declared = ClassLevel({**before.policies, **policies}, (*interceptors, *before.interceptors))
    try:
        setattr(cls, CLASS_LEVEL, declared)
    except TypeError as error:
        raise definition_error(class_name(cls), "cannot be changed", cls, "a class written in Python") from error
    try:
        guard_methods(cls)
    except FaultToleranceDefinitionException:
        setattr(cls, CLASS_LEVEL, before)
        raise
    if is_first:
        _guard_methods_of_subclasses(cls)
    return cls


def guard_methods(cls: type) -> None:
    """Guard every public method that *cls* defines or inherits by the class-level policies that apply to it."""
    faults: list[Fault] = []
    for name in dict.fromkeys(name for base in cls.__mro__ for name in vars(base) if not name.startswith("_")):
        base, attribute = first_definition(cls, name)  # type: ignore[misc]
        method = as_method(attribute, base, name)
        function = unbound(method)
        if function is None or is_generator_function(function) or is_exempt(attribute):
            continue
        policies, interceptors = class_level_for(cls, name, function, base)
        if not policies and not interceptors:
            continue
        if not takes_instance_first(function, base):
            problem = "is a method of a kind that a decorator of the class cannot guard"
            allowed = "a function; or @unguarded above it, which exempts it"
            faults.append(Fault(f"{class_name(cls)}.{name}", problem, attribute, allowed))
            continue
        declaration = declaration_of(attribute)
        if declaration is None:
            defined_here = function if base is cls else None
            declaration = Declaration(defined_here, {}, _binding_of(method), template=function)
            declaration.owner = cls
            declaration.name = name
            setattr(cls, name, _as_same_kind(method, _make_guard(declaration)))
        else:
            if declaration.where == f"{class_name(base)}.{name}":  # no class statement did it: it may be compiled
                faults += assign_owner(base, name, attribute)
            if base is cls:
                declaration.follow_copy(cls)
        faults += definition.class_level_faults(declaration, cls, policies, interceptors)
    raise_faults(faults)


def _guard_methods_of_subclasses(cls: type) -> None:
    """Cover every subclass of *cls* at its creation, in addition to an existing ``__init_subclass__``."""
    own = vars(cls).get("__init_subclass__")

    def __init_subclass__(subclass: type, /, **kwargs: Any) -> None:  # noqa: N807  # it becomes one
        if own is not None:
            own.__func__(subclass, **kwargs)
        else:
            # Found by identity: a copy of the class, as from dataclass(slots=True), has this function too.
            position: Any = next(
                base for base in subclass.__mro__ if unbound(vars(base).get("__init_subclass__")) is __init_subclass__
            )
            super(position, subclass).__init_subclass__(**kwargs)
        guard_methods(subclass)

    if own is not None:
        update_wrapper(__init_subclass__, own.__func__)
    type.__setattr__(cls, "__init_subclass__", classmethod(__init_subclass__))
