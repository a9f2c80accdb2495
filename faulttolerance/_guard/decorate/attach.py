"""Put policies and interceptors on functions, methods and classes; one guard per function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import update_wrapper
from types import MethodType
from typing import Any

from ..._policy import Policy
from ..._signature.kind import is_generator_function, mark_coroutine_function, own_attribute
from ..._signature.method import as_method, takes_instance_first, unproxied
from ..._signature.naming import class_name, copy_names
from ...exceptions import Fault, FaultToleranceDefinitionException
from ..declare.checks import definition
from ..declare.declaration import (
    CLASS,
    CLASS_LEVEL,
    FUNCTION,
    INSTANCE,
    ClassLevel,
    Declaration,
    accessors,
    binding_by_name,
    covering,
    declaration_of,
    declared_on,
    exempt,
    first_definition,
    is_exempt,
    unbound,
)
from ..declare.place import user_frames
from ..resolve.resolver import MethodResolver

_HOOK = "__faulttolerance_hook__"


def can_be_guarded(target: Any) -> bool:
    """Tell whether a decorator may stand above *target*; refuse descriptors by name."""
    if faults := definition.descriptor_faults(target):
        raise FaultToleranceDefinitionException(*faults)
    return callable(target) or isinstance(target, (staticmethod, classmethod))


def attach(target: Any, policies: Mapping[type[Policy], Policy], interceptors: tuple[Any, ...], decorator: str) -> Any:
    """Put *policies* and *interceptors* on *target*: a new guard for a function, the class itself for a class.

    A function that is a guard keeps what it has. *decorator* is named where the class cannot be changed.
    """
    if isinstance(target, type):
        return _attach_to_class(target, policies, interceptors, decorator)
    target = unproxied(target)
    is_bound_later = isinstance(target, (staticmethod, classmethod))
    function = target.__func__ if is_bound_later else target
    # A bound method of a guard is a function by itself: it has an object, and calls the guard.
    known = declaration_of(function) if not isinstance(function, MethodType) else None
    namespace = _class_body(function)
    base = known or Declaration(function, {}, INSTANCE if namespace is not None else binding_by_name(function))
    declaration = Declaration(
        base.function,
        {**base.policies, **policies},
        _binding_of(target) if is_bound_later else base.binding,
        interceptors=(*interceptors, *base.interceptors),
    )
    if faults := definition.definition_faults(declaration):
        raise FaultToleranceDefinitionException(*faults)
    guard = _make_guard(declaration)
    if namespace is not None:
        namespace.setdefault(_HOOK, _ClassCreated())
    return _in_kind_of(target, guard)


def _class_body(function: Any) -> dict[str, Any] | None:
    """Find the namespace of the class whose body is being run and defines *function*."""
    scope = own_attribute(unbound(function), "__qualname__", "").rpartition(".")[0]
    for frame in user_frames():
        names = frame.f_locals
        if names.get("__qualname__") == scope and "__module__" in names and names is not frame.f_globals:
            return names
    return None


def _binding_of(attribute: object) -> str:
    """Tell how the guard in an attribute of a class is bound."""
    if isinstance(attribute, classmethod):
        return CLASS
    return FUNCTION if isinstance(attribute, staticmethod) else INSTANCE


def _in_kind_of(attribute: Any, guard: Callable[..., Any]) -> Any:
    """Make a static or class method of *guard* where *attribute* is one."""
    return type(attribute)(guard) if isinstance(attribute, (staticmethod, classmethod)) else guard


def _make_guard(declaration: Declaration) -> Callable[..., Any]:
    """Make the function that takes the place of the guarded one: same name, same signature, same place when pickled."""
    resolver = MethodResolver(declaration)
    if declaration.binding == FUNCTION:

        def guard(*args: Any, **kwargs: Any) -> Any:
            return resolver.call(args, kwargs)

    elif declaration.binding == INSTANCE:

        def guard(*args: Any, **kwargs: Any) -> Any:
            try:
                # By far most objects are of the class that defines the method, and this is the quickest way to know.
                call = resolver.call if type(args[0]) is resolver.home else resolver.calls[id(type(args[0]))]
            except (KeyError, IndexError):
                pass  # behind the handler, or this would be the context of whatever is wrong
            else:
                return call(args, kwargs)
            return resolver.for_call(args, kwargs)(args, kwargs)

    else:

        def guard(*args: Any, **kwargs: Any) -> Any:
            try:
                call = resolver.call if args[0] is resolver.home else resolver.calls[id(args[0])]
            except (KeyError, IndexError):
                pass  # behind the handler, or this would be the context of whatever is wrong
            else:
                return call(args, kwargs)
            return resolver.for_call(args, kwargs)(args, kwargs)

    copy_names(guard, declaration.template)
    if declaration.is_coroutine:
        mark_coroutine_function(guard)
    declaration.mark(guard, resolver)
    return guard


class _ClassCreated:
    """Learns of the class in whose body a guard was made, and vanishes from it."""

    def __set_name__(self, owner: type, name: str) -> None:
        delattr(owner, name)
        _adopt(owner)


def _adopt(owner: type) -> None:
    """Tell the guards in a new class which class it is, and check what can be checked now."""
    faults: list[Fault] = []
    for name, value in list(vars(owner).items()):
        adopted, faults_of_method = adopt_attribute(owner, name, value)
        if adopted is not value:
            setattr(owner, name, adopted)
        faults += faults_of_method
        for accessor in accessors(value):
            if declaration_of(accessor) is not None:
                exempt(accessor)  # class-level decorators are not for properties (rule L2)
                faults += adopt_attribute(owner, name, accessor)[1]
    if faults:
        raise FaultToleranceDefinitionException(*faults)


def adopt_attribute(owner: type, name: str, value: Any) -> tuple[Any, list[Fault]]:
    """Tell the guard in *value* that it is the attribute *name* of *owner*; give the attribute's new value, and faults.

    A guard that is bound in another way than it seemed to be is made anew.
    """
    declaration = declaration_of(value)
    if declaration is None or declaration.owner is not None:
        return value, []
    binding = FUNCTION if name == "__new__" else _binding_of(value)
    if binding != declaration.binding:
        declaration.binding = binding
        value = _in_kind_of(value, _make_guard(declaration))
    declaration.owner = owner
    return value, definition.definition_faults(declaration)


# On classes


def _attach_to_class(
    cls: type, policies: Mapping[type[Policy], Policy], interceptors: tuple[Any, ...], decorator: str
) -> type:
    before = declared_on(cls)
    is_first = CLASS_LEVEL not in vars(cls)
    declared = ClassLevel({**before.policies, **policies}, (*interceptors, *before.interceptors))
    try:
        setattr(cls, CLASS_LEVEL, declared)
    except TypeError as error:
        where, allowed = f"{class_name(cls)} {decorator}", "a class written in Python"
        fault = Fault(where, "is on a class that cannot be changed", cls, allowed)
        raise FaultToleranceDefinitionException(fault) from error
    try:
        cover(cls)
    except FaultToleranceDefinitionException:
        setattr(cls, CLASS_LEVEL, before)
        raise
    if is_first:
        _cover_subclasses_of(cls)
    return cls


def cover(cls: type) -> None:
    """Guard every public method that *cls* defines or inherits by the class-level policies that hold for it."""
    faults: list[Fault] = []
    for name in dict.fromkeys(name for base in cls.__mro__ for name in vars(base) if not name.startswith("_")):
        base, attribute = first_definition(cls, name)  # type: ignore[misc]
        method = as_method(attribute, base, name)
        function = unbound(method)
        if function is None or is_generator_function(function) or is_exempt(attribute):
            continue
        policies, interceptors = covering(cls, name, function, base)
        if not policies and not interceptors:
            continue
        if not takes_instance_first(function, base):
            faults.append(
                Fault(f"{class_name(cls)}.{name}", "is a method of a kind that a decorator of the class cannot guard",
                      attribute, "a function; or @unguarded above it, which exempts it")
            )  # fmt: skip
            continue
        declaration = declaration_of(function)
        if declaration is None:
            defined_here = function if base is cls else None
            declaration = Declaration(defined_here, {}, _binding_of(method), template=function)
            declaration.owner = cls
            declaration.name = name
            setattr(cls, name, _in_kind_of(method, _make_guard(declaration)))
        faults += definition.class_level_faults(declaration, cls, policies, interceptors)
    if faults:
        raise FaultToleranceDefinitionException(*faults)


def _cover_subclasses_of(cls: type) -> None:
    """Let every subclass of *cls* be covered when it is created, whatever ``__init_subclass__`` there is already."""
    own = vars(cls).get("__init_subclass__")

    def __init_subclass__(subclass: type, /, **kwargs: Any) -> None:  # noqa: N807  # it becomes one
        if own is not None:
            own.__func__(subclass, **kwargs)
        else:
            # Found by identity: a copy of the class, as dataclass(slots=True) makes, brings this function along.
            position: Any = next(
                base for base in subclass.__mro__ if unbound(vars(base).get("__init_subclass__")) is __init_subclass__
            )
            super(position, subclass).__init_subclass__(**kwargs)
        cover(subclass)

    if own is not None:
        update_wrapper(__init_subclass__, own.__func__)
    type.__setattr__(cls, "__init_subclass__", classmethod(__init_subclass__))
