"""Methods of a class, and calls of methods that bind themselves (rule L2).

Wrappers such as wrapt's imitate the wrapped object: they report that they are a function, a static method or a class
method, and are not. If such a wrapper is unwrapped, its work around the call is lost. If it is called with the instance
in front, it takes the instance for an argument. A wrapper in a class must be bound before it is called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, partialmethod, singledispatchmethod, update_wrapper
from types import FunctionType, MethodType
from typing import Any

from .._parameters import signature_of
from .kind import is_coroutine_function, mark_coroutine_function

BOUND_BY_NOTHING = (type, MethodType, *(() if sys.version_info >= (3, 14) else (partial,)))
"""Callables that stay the same as an attribute of any class or object."""


def as_method(attribute: Any, owner: type, name: str) -> Any:
    """Return the attribute *name* of *owner* as a function, static method or class method; ``None`` if it is no method.

    Another callable that binds itself is returned unchanged.
    """
    if not binds_itself(attribute):
        return None
    if isinstance(attribute, (staticmethod, classmethod)):
        return as_real_method(attribute)
    if isinstance(attribute, (partialmethod, singledispatchmethod)):
        return _method_of_descriptor(attribute, owner, name)
    return attribute if callable(attribute) and not isinstance(attribute, BOUND_BY_NOTHING) else None


def binds_itself(attribute: object) -> bool:
    """Return whether *attribute* of a class may be a method or property; only its type is asked, by no code of its own.

    Others are left alone: already the question for the class of a lazy object, by ``isinstance``, would evaluate it.
    """
    return any("__get__" in vars(base) for base in type(attribute).__mro__)


def takes_instance_first(function: Any, owner: type) -> bool:
    """Return whether *function* can be called with the instance in front, as a function in a class can."""
    if isinstance(function, FunctionType):
        return True
    try:
        return function.__get__(None, owner) is function
    except Exception:  # noqa: BLE001  # a descriptor of the application
        return False


def as_real_method(attribute: Any) -> Any:
    """Return *attribute*, or, if it imitates a static or class method, a real method that calls it."""
    for kind in (staticmethod, classmethod):
        if isinstance(attribute, kind) and not issubclass(type(attribute), kind):
            return kind(update_wrapper(_binding(attribute, kind), attribute.__func__))
    return attribute


def bind_at_each_call(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method for calls with its instance in front: a wrapper that imitates a function is bound each time."""
    if not isinstance(function, FunctionType) or issubclass(type(function), FunctionType):
        return function
    return update_wrapper(_binding(function, None), function)


def _binding(descriptor: Any, kind: type | None, owner: type = object) -> Callable[..., Any]:
    """Return a function that binds *descriptor* at each call; *kind*: ``staticmethod``, ``classmethod`` or ``None``."""

    def call_static(*args: Any, **kwargs: Any) -> Any:
        return descriptor.__get__(None, owner)(*args, **kwargs)

    def call_class(cls: type, /, *args: Any, **kwargs: Any) -> Any:
        return descriptor.__get__(None, cls)(*args, **kwargs)

    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return descriptor.__get__(self, type(self))(*args, **kwargs)

    return call_static if kind is staticmethod else call_class if kind is classmethod else call


def _method_of_descriptor(descriptor: Any, owner: type, name: str) -> Any:
    """Return a method that looks like the method of *descriptor*, and binds *descriptor* at each call."""
    behind: Any = descriptor.func
    kind = next((kind for kind in (staticmethod, classmethod) if isinstance(behind, kind)), None)
    function: Any = descriptor.func if kind is None else behind.__func__
    call: Any = update_wrapper(_binding(descriptor, kind, owner), function)
    call.__name__, call.__module__ = name, owner.__module__
    call.__qualname__ = f"{owner.__qualname__}.{name}"
    if isinstance(descriptor, partialmethod):
        from inspect import Parameter

        if (signature := signature_of(descriptor.__get__(None, owner))) is not None:
            itself = [Parameter("cls", Parameter.POSITIONAL_ONLY)] if kind is classmethod else []
            call.__signature__ = signature.replace(parameters=[*itself, *signature.parameters.values()])
    else:
        call.register = descriptor.register
        _, *implementations = descriptor.dispatcher.registry.values()
        if implementations and all(map(is_coroutine_function, implementations)) and not is_coroutine_function(function):
            mark_coroutine_function(call)  # the first function only reports a missing implementation
    return call if kind is None else kind(call)
