"""Put policies on functions, methods and classes; one guard per function, however many decorators it has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import update_wrapper
from types import CodeType, MethodType
from typing import Any

from .._policy import Policy, check, parameters, shared
from .._signature.kind import is_generator_function, mark_coroutine_function, own_attribute
from .._signature.method import as_method, takes_instance_first, unproxied
from .._signature.naming import class_name, copy_names
from ..exceptions import Fault, FaultToleranceDefinitionException
from . import class_level
from .checking import definition
from .class_level import CLASS_INTERCEPTORS, CLASS_LEVEL, accessors, exempt, first_definition, is_exempt
from .declaration import CLASS, FUNCTION, INSTANCE, Declaration, binding_by_name, declaration_of, unbound
from .place import user_frames
from .resolve import MethodResolver

_HOOK = "__faulttolerance_hook__"


class Decorator:
    """A policy that waits for what it is to guard."""

    __slots__ = ("_kind", "_values")

    def __init__(self, kind: type[Policy], values: Mapping[str, Any]) -> None:
        self._kind = kind
        self._values = values
        if check(kind, values, ""):
            _faulty.decorators += ((_caller(), self),)

    def __call__(self, *targets: Any, **unexpected: Any) -> Any:
        if len(targets) != 1 or unexpected or not _can_be_guarded(targets[0]):
            raise FaultToleranceDefinitionException(self._misplaced("was called as if it were a guarded function"))
        [target] = targets
        if isinstance(target, type):
            return self._attach_to_class(target)
        return _on_function(target, self._attach_to_function)

    def __set_name__(self, owner: type, name: str) -> None:
        raise FaultToleranceDefinitionException(self._misplaced(f"became the attribute {class_name(owner)}.{name}"))

    def _misplaced(self, problem: str) -> Fault:
        allowed = f"@{definition.decorator_name(self._kind)}(...) above a function"
        return Fault(f"@{self._kind.annotation}", f"{problem}: it decorates no function", None, allowed)

    def _attach_to_function(self, target: Any, binding: str | None) -> Any:
        kind = self._kind
        known = declaration_of(target)
        declaration = known or Declaration(target, {}, FUNCTION)
        where = f"{declaration.where} @{kind.annotation}"
        faults = self._faults(declaration.where)
        if is_generator_function(target):
            faults.append(
                Fault(where, "is on a generator function", target,
                      "a function that returns: guard the body of the loop instead, a stream cannot be run again")
            )  # fmt: skip
        if known is not None and kind in known.policies:
            faults.append(Fault(where, "is there twice", None, "one of each kind per function"))
        faults += _faults_above_guard(kind, declaration)
        if faults:
            raise FaultToleranceDefinitionException(*faults)
        return _guard_with(target, {kind: shared(kind(**self._values))}, (), binding)

    def _attach_to_class(self, cls: type) -> type:
        kind = self._kind
        where = f"{class_name(cls)} @{kind.annotation}"
        faults = self._faults(class_name(cls))
        declared = vars(cls).get(CLASS_LEVEL, {})
        if kind in declared:
            faults.append(Fault(where, "is there twice", None, "one of each kind per class"))
        if faults:
            raise FaultToleranceDefinitionException(*faults)
        is_first = CLASS_LEVEL not in vars(cls)
        policy = shared(kind(**self._values))
        try:
            setattr(cls, CLASS_LEVEL, {**declared, kind: policy})
        except TypeError as error:
            fault = Fault(where, "is on a class that cannot be changed", cls, "a class written in Python")
            raise FaultToleranceDefinitionException(fault) from error
        _cover_now(cls, CLASS_LEVEL, declared, is_first)
        return cls

    def _faults(self, where: str) -> list[Fault]:
        """List the faults of this decorator, and of those above it on the same function or class.

        Decorators are made from the uppermost down and applied from the lowest up. Who stands above was made by the
        same frame and was not applied yet; what is wrong there would else be told only when this one is right.
        """
        here, waiting, _faulty.decorators = _caller(), _faulty.decorators, ()
        faults = self._own_faults(where)
        for maker, decorator in waiting:
            if maker == here:
                faults += [fault for fault in decorator._own_faults(where) if fault not in faults]
        return faults

    def _own_faults(self, where: str) -> list[Fault]:
        return check(self._kind, self._values, f"{where} @{self._kind.annotation}")


class _Faulty(threading.local):
    """The decorators with faults that this thread has made and not applied yet, each with the frame that made it."""

    decorators: tuple[tuple[object, Decorator], ...] = ()


_faulty = _Faulty()


def _caller() -> tuple[int, CodeType] | None:
    frame = next(user_frames(), None)
    return (id(frame), frame.f_code) if frame is not None else None


def decorate(kind: type[Policy], values: Mapping[str, Any], target: Any = None) -> Any:
    """Make the decorator for *values*, or, where *target* is given (``@retry`` without parentheses), guard that."""
    complete = {name: values.get(name, parameter.default) for name, parameter in parameters(kind).items()}
    for name, value in complete.items():
        if hasattr(value, "__next__") and hasattr(value, "__iter__"):
            complete[name] = tuple(value)  # a set of exceptions may be any iterable; this one can be read only once
    decorator = Decorator(kind, complete)
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
    is_made_here = any(constant is code for constant in frame.f_code.co_consts)
    if is_made_here and code.co_firstlineno <= frame.f_lineno <= max(lines):
        where = f"{Declaration(value, {}, FUNCTION).where} @{kind.annotation}"
        allowed = f"@{definition.decorator_name(kind)}(...) with what it needs"
        raise FaultToleranceDefinitionException(Fault(where, "stands without arguments", None, allowed))


def intercept(target: Any, interceptor: Any) -> Any:
    """Let *interceptor* stand around *target*: a new guard for a function, the class itself for a class."""
    if not _can_be_guarded(target):
        raise FaultToleranceDefinitionException(
            Fault(repr(interceptor), "stands above what cannot be called", target, "a function, a method, a class")
        )
    if not isinstance(target, type):
        return _on_function(target, lambda function, binding: _guard_with(function, {}, (interceptor,), binding))
    is_first = CLASS_LEVEL not in vars(target)
    before = vars(target).get(CLASS_INTERCEPTORS, ())
    setattr(target, CLASS_INTERCEPTORS, (interceptor, *before))
    if is_first:
        setattr(target, CLASS_LEVEL, {})
    _cover_now(target, CLASS_INTERCEPTORS, before, is_first)
    return target


def _can_be_guarded(target: Any) -> bool:
    if faults := definition.descriptor_faults(target):
        raise FaultToleranceDefinitionException(*faults)
    return callable(target) or isinstance(target, (staticmethod, classmethod))


# On functions


def _on_function(target: Any, guard: Callable[[Any, str | None], Any]) -> Any:
    """Put the *guard* of a function in its place, or in that of the function in a static or class method."""
    target = unproxied(target)
    binding = _binding_of(target) if isinstance(target, (staticmethod, classmethod)) else None
    return _in_kind_of(target, guard(target.__func__ if binding else target, binding))


def _binding_of(attribute: object) -> str:
    """Tell how the guard in an attribute of a class is bound."""
    if isinstance(attribute, classmethod):
        return CLASS
    return FUNCTION if isinstance(attribute, staticmethod) else INSTANCE


def _in_kind_of(attribute: Any, guard: Callable[..., Any]) -> Any:
    """Make a static or class method of *guard* where *attribute* is one."""
    return type(attribute)(guard) if isinstance(attribute, (staticmethod, classmethod)) else guard


def _guard_with(
    target: Any, policies: Mapping[type[Policy], Policy], interceptors: tuple[Any, ...], binding: str | None
) -> Any:
    """Make a new guard of *target* by *policies* and *interceptors*, and by those that it has if it is a guard."""
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
    if faults := definition.definition_faults(declaration):
        raise FaultToleranceDefinitionException(*faults)
    guard = _make_guard(declaration)
    if namespace is not None:
        namespace.setdefault(_HOOK, _ClassCreated())
    return guard


def _faults_above_guard(kind: type[Policy], declaration: Declaration) -> list[Fault]:
    faults = definition.companion_above_guard_faults(kind, declaration)
    if faults:
        from .guard import finder_of

        return faults if finder_of(declaration.template) is not None else []
    return faults


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


def _class_body(function: Any) -> dict[str, Any] | None:
    """Find the namespace of the class whose body is being run and defines *function*."""
    scope = own_attribute(unbound(function), "__qualname__", "").rpartition(".")[0]
    for frame in user_frames():
        names = frame.f_locals
        if names.get("__qualname__") == scope and "__module__" in names and names is not frame.f_globals:
            return names
    return None


# On classes


def _cover_now(cls: type, attribute: str, before: object, is_first: bool) -> None:
    """Cover *cls*, and every later subclass if this is its first declaration; else put *before* back in *attribute*."""
    try:
        cover(cls)
    except FaultToleranceDefinitionException:
        setattr(cls, attribute, before)
        raise
    if is_first:
        _cover_subclasses_of(cls)


def cover(cls: type) -> None:
    """Guard every public method that *cls* defines or inherits by the class-level policies that hold for it."""
    faults: list[Fault] = []
    for name in dict.fromkeys(name for base in cls.__mro__ for name in vars(base) if not name.startswith("_")):
        base, attribute = first_definition(cls, name)  # type: ignore[misc]
        method = as_method(attribute, base, name)
        function = unbound(method)
        if function is None or is_generator_function(function) or is_exempt(attribute):
            continue
        policies = class_level.policies_covering(cls, name, function, base)
        interceptors = class_level.interceptors_covering(cls, name, function, base)
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
