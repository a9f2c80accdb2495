"""Putting policies on functions, methods and classes; one guard per function, however many decorators it has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import update_wrapper
from types import CodeType, MethodType
from typing import Any

from .._policy import Policy, check, parameters, shared
from .._signature import proxy
from .._signature.kind import is_generator_function, mark_coroutine_function, own
from .._signature.naming import wrapper_named
from ..exceptions import Fault, FaultToleranceDefinitionException
from . import check as definition
from .declaration import (
    CLASS,
    CLASS_INTERCEPTORS,
    CLASS_LEVEL,
    FUNCTION,
    INSTANCE,
    Declaration,
    accessors,
    binding_by_name,
    class_level_interceptors,
    class_name,
    covering,
    declaration_of,
    exempt,
    exempted,
    first_of_name,
    unbound,
    user_frames,
)
from .methods import as_method, takes_its_instance_first
from .resolve import Resolver

__all__ = ["Decorator", "attach", "decorate", "intercept", "refuse_bare"]

_HOOK = "__faulttolerance_hook__"


class Decorator:
    """A policy that waits for what it is to guard."""

    __slots__ = ("_kind", "_values")

    def __init__(self, kind: type[Policy], values: Mapping[str, Any]) -> None:
        self._kind = kind
        self._values = values
        if check(kind, values, ""):
            _announce(self)

    def __call__(self, *targets: Any, **unexpected: Any) -> Any:
        if len(targets) != 1 or unexpected or not _can_be_guarded(targets[0]):
            raise FaultToleranceDefinitionException(self._misplaced("was called as if it were a guarded function"))
        return attach(targets[0], self._kind, self._values)

    def __set_name__(self, owner: type, name: str) -> None:
        raise FaultToleranceDefinitionException(self._misplaced(f"became the attribute {class_name(owner)}.{name}"))

    def faults(self, where: str) -> list[Fault]:
        """What is wrong with the parameters, told of the function they were to guard."""
        return check(self._kind, self._values, f"{where} @{self._kind.annotation}")

    def _misplaced(self, problem: str) -> Fault:
        allowed = f"@{definition.spelled(self._kind)}(...) above a function"
        return Fault(f"@{self._kind.annotation}", f"{problem}: it decorates no function", None, allowed)


def decorate(kind: type[Policy], values: Mapping[str, Any], target: Any = None) -> Any:
    """The decorator for *values*, or, where *target* is given (``@retry`` without parentheses), the guard of it."""
    given = {name: _materialised(values.get(name, one.default)) for name, one in parameters(kind).items()}
    decorator = Decorator(kind, given)
    return decorator if target is None else decorator(target)


def refuse_bare(kind: type[Policy], value: Any) -> None:
    """Refuse a decorator that needs arguments and stands without any: it took the function below it for its argument.

    Such a function is defined by the very statement that calls the decorator: its code belongs to the calling code, and
    the call is on one of its own lines. A lambda written as the argument is told apart by its name.
    """
    code = getattr(value, "__code__", None)
    frame = next(user_frames(), None)
    if not isinstance(code, CodeType) or frame is None or value.__name__ == "<lambda>":
        return
    lines = [line for _, _, line in code.co_lines() if line is not None]
    if any(one is code for one in frame.f_code.co_consts) and code.co_firstlineno <= frame.f_lineno <= max(lines):
        where = f"{Declaration(value, {}, FUNCTION).where} @{kind.annotation}"
        allowed = f"@{definition.spelled(kind)}(...) with what it needs"
        raise FaultToleranceDefinitionException(Fault(where, "stands without arguments", None, allowed))


def attach(target: Any, kind: type[Policy], values: Mapping[str, Any]) -> Any:
    """Guard *target* by one more policy: a new guard for a function, the class itself for a class."""
    if isinstance(target, type):
        return _attach_to_class(target, kind, values)
    target = proxy.of_our_own(target)
    if isinstance(target, (staticmethod, classmethod)):
        binding = FUNCTION if isinstance(target, staticmethod) else CLASS
        return type(target)(_attach_to_function(target.__func__, kind, values, binding))
    return _attach_to_function(target, kind, values, None)


def intercept(target: Any, interceptor: Any) -> Any:
    """Let *interceptor* stand around *target*: a new guard for a function, the class itself for a class."""
    if not _can_be_guarded(target):
        raise FaultToleranceDefinitionException(
            Fault(repr(interceptor), "stands above what cannot be called", target, "a function, a method, a class")
        )
    if isinstance(target, type):
        is_first = CLASS_LEVEL not in vars(target)
        before = vars(target).get(CLASS_INTERCEPTORS, ())
        setattr(target, CLASS_INTERCEPTORS, (interceptor, *before))
        if is_first:
            setattr(target, CLASS_LEVEL, {})
        try:
            cover(target)
        except FaultToleranceDefinitionException:
            setattr(target, CLASS_INTERCEPTORS, before)
            raise
        if is_first:
            _cover_subclasses_of(target)
        return target
    target = proxy.of_our_own(target)
    if isinstance(target, (staticmethod, classmethod)):
        binding = FUNCTION if isinstance(target, staticmethod) else CLASS
        return type(target)(_guarded(target.__func__, {}, (interceptor,), binding))
    return _guarded(target, {}, (interceptor,), None)


# On functions


def _attach_to_function(target: Any, kind: type[Policy], values: Mapping[str, Any], binding: str | None) -> Any:
    known = declaration_of(target)
    where = known.where if known else Declaration(target, {}, FUNCTION).where
    faults = _announced(where, kind, values)
    if is_generator_function(target):
        faults.append(
            Fault(f"{where} @{kind.annotation}", "is on a generator function", target,
                  "a function that returns: guard the body of the loop instead, a stream cannot be run again")
        )  # fmt: skip
    if known is not None and kind in known.policies:
        faults.append(Fault(f"{where} @{kind.annotation}", "is there twice", None, "one of each kind per function"))
    faults += definition.misplaced(kind, known or Declaration(target, {}, FUNCTION))
    if faults:
        raise FaultToleranceDefinitionException(*faults)
    return _guarded(target, {kind: shared(kind(**values))}, (), binding)


def _guarded(
    target: Any, policies: Mapping[type[Policy], Policy], interceptors: tuple[Any, ...], binding: str | None
) -> Any:
    """A new guard of *target* with what is given, and with what it has if it is a guard."""
    # A bound method of a guard is a function by itself: it has an object, and calls the guard.
    known = declaration_of(target) if not isinstance(target, MethodType) else None
    namespace = _class_body(target)
    if binding is None:
        binding = known.binding if known else INSTANCE if namespace is not None else binding_by_name(target)
    declaration = Declaration(
        known.function if known else target,
        {**(known.policies if known else {}), **policies},
        binding,
        interceptors=(*interceptors, *(known.interceptors if known else ())),
    )
    if problems := definition.contradictions(declaration):
        raise FaultToleranceDefinitionException(*problems)
    guard = make_guard(declaration)
    if namespace is not None:
        namespace.setdefault(_HOOK, _ClassCreated())
    return guard


def make_guard(declaration: Declaration) -> Callable[..., Any]:
    """The function that stands where the guarded one stood: same name, same signature, same place when pickled."""
    resolver = Resolver(declaration)
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

    wrapper_named(guard, declaration.template)
    if declaration.is_coroutine:
        mark_coroutine_function(guard)
    declaration.mark(guard, resolver)
    return guard


class _ClassCreated:
    """Learns of the class in whose body a guard was made, and vanishes from it."""

    def __set_name__(self, owner: type, name: str) -> None:
        delattr(owner, name)
        adopt(owner)


def adopt(owner: type) -> None:
    """Tell the guards in a new class where they live, and check what can be checked now."""
    faults: list[Fault] = []
    for name, value in list(vars(owner).items()):
        at_home, wrong = adopted(owner, name, value)
        if at_home is not value:
            setattr(owner, name, at_home)
        faults += wrong
        for accessor in _guards_in_property(value):
            faults += adopted(owner, name, accessor)[1]
    if faults:
        raise FaultToleranceDefinitionException(*faults)


def adopted(owner: type, name: str, value: Any) -> tuple[Any, list[Fault]]:
    """What stands in the class *owner* as *name*, once a guard in it knows where it lives, and what is wrong there."""
    declaration = declaration_of(value)
    if declaration is None or declaration.owner is not None:
        return value, []
    binding = FUNCTION if name == "__new__" else _binding_of(value)
    if binding != declaration.binding:
        declaration.binding = binding
        guard = make_guard(declaration)
        value = type(value)(guard) if isinstance(value, (staticmethod, classmethod)) else guard
    declaration.owner = owner
    return value, definition.contradictions(declaration)


def _binding_of(attribute: object) -> str:
    """How the guard in an attribute of a class is bound."""
    if isinstance(attribute, classmethod):
        return CLASS
    return FUNCTION if isinstance(attribute, staticmethod) else INSTANCE


def _guards_in_property(attribute: object) -> Iterator[Any]:
    """The guards in a property; class-level decorators are not for them (rule L2)."""
    for one in accessors(attribute):
        if declaration_of(one) is not None:
            exempt(one)
            yield one


def _class_body(function: Any) -> dict[str, Any] | None:
    """The namespace of the class whose body is being run and defines *function*."""
    scope = own(unbound(function), "__qualname__", "").rpartition(".")[0]
    for frame in user_frames():
        names = frame.f_locals
        if names.get("__qualname__") == scope and "__module__" in names and names is not frame.f_globals:
            return names
    return None


def _can_be_guarded(target: Any) -> bool:
    if faults := definition.descriptor_faults(target):
        raise FaultToleranceDefinitionException(*faults)
    return callable(target) or isinstance(target, (staticmethod, classmethod))


# On classes


def _attach_to_class(cls: type, kind: type[Policy], values: Mapping[str, Any]) -> type:
    where = class_name(cls)
    faults = _announced(where, kind, values)
    declared = dict(vars(cls).get(CLASS_LEVEL, {}))
    if kind in declared:
        faults.append(Fault(f"{where} @{kind.annotation}", "is there twice", None, "one of each kind per class"))
    if faults:
        raise FaultToleranceDefinitionException(*faults)
    is_first = CLASS_LEVEL not in vars(cls)
    declared[kind] = shared(kind(**values))
    try:
        setattr(cls, CLASS_LEVEL, declared)
    except TypeError as error:
        raise FaultToleranceDefinitionException(
            Fault(
                f"{where} @{kind.annotation}", "is on a class that cannot be changed", cls, "a class written in Python"
            )
        ) from error
    try:
        cover(cls)
    except FaultToleranceDefinitionException:
        del declared[kind]
        raise
    if is_first:
        _cover_subclasses_of(cls)
    return cls


def cover(cls: type) -> None:
    """Guard every public method that *cls* defines or inherits by the class-level policies that hold for it."""
    faults: list[Fault] = []
    for name in dict.fromkeys(name for base in cls.__mro__ for name in vars(base)):
        if name.startswith("_"):
            continue
        base, attribute = first_of_name(cls, name)  # type: ignore[misc]
        value = as_method(attribute, base, name)
        function = unbound(value) if isinstance(value, (staticmethod, classmethod)) else value
        if function is None or is_generator_function(function) or exempted(attribute):
            continue
        kinds = covering(cls, name, function, base)
        interceptors = class_level_interceptors(cls, name, function, base)
        if not kinds and not interceptors:
            continue
        if not takes_its_instance_first(function, base):
            faults.append(
                Fault(f"{class_name(cls)}.{name}", "is a method of a kind that a decorator of the class cannot guard",
                      attribute, "a function; or @unguarded above it, which exempts it")
            )  # fmt: skip
            continue
        declaration = declaration_of(function)
        if declaration is None:
            binding = (
                CLASS if isinstance(value, classmethod) else FUNCTION if isinstance(value, staticmethod) else INSTANCE
            )
            own = function if base is cls else None
            declaration = Declaration(own, {}, binding, template=function)
            declaration.owner = cls
            declaration.name = name
            guard = make_guard(declaration)
            setattr(cls, name, type(value)(guard) if isinstance(value, (staticmethod, classmethod)) else guard)
        faults += definition.class_level_contradictions(declaration, cls, kinds, interceptors)
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


# Faults of decorators that stand above one another are reported together


class _Announced(threading.local):
    def __init__(self) -> None:
        self.decorators: list[tuple[int, CodeType, Decorator]] = []


_pending = _Announced()


def _announce(decorator: Decorator) -> None:
    """Remember a decorator with faults: those below it on the same function are applied first, and report it too."""
    frame = next(user_frames(), None)
    if frame is not None:
        _pending.decorators.append((id(frame), frame.f_code, decorator))


def _announced(where: str, kind: type[Policy], values: Mapping[str, Any]) -> list[Fault]:
    """The faults of this decorator, and of those that wait above it on the same function."""
    faults = check(kind, values, f"{where} @{kind.annotation}")
    waiting, _pending.decorators = _pending.decorators, []
    frame = next(user_frames(), None)
    if frame is not None:
        for ident, code, decorator in waiting:
            if ident == id(frame) and code is frame.f_code:
                faults += [fault for fault in decorator.faults(where) if fault not in faults]
    return faults


def _materialised(value: Any) -> Any:
    """A set of exceptions may be any iterable; one that can be read only once is read here."""
    is_iterator = hasattr(value, "__next__") and hasattr(value, "__iter__")
    return tuple(value) if is_iterator else value
