"""What of a class is a method, and how one is called that binds itself (rule L2).

Wrappers such as wrapt's pass for what they wrap: they say that they are a function, a static method or a class method,
and are none. Taken apart as one, what they do around the call is lost; called with the instance in front, they take
that for an argument. In a class they must be bound before they are called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, partialmethod, singledispatchmethod, update_wrapper
from types import FunctionType, MethodType
from typing import Any

from .kind import is_coroutine_function, mark_coroutine_function

_BOUND_BY_NOTHING = (type, MethodType, *(() if sys.version_info >= (3, 14) else (partial,)))
"""Callables that are the same as an attribute of whatever class or object."""


def as_method(attribute: Any, owner: type, name: str) -> Any:
    """Give the attribute *name* of *owner* as a function, a static or a class method; ``None`` where it is no method.

    Another callable that binds itself stays as it is.
    """
    if type(attribute) is FunctionType:
        return attribute
    if isinstance(attribute, (staticmethod, classmethod)):
        return unproxied(attribute)
    if isinstance(attribute, (partialmethod, singledispatchmethod)):
        return _made_anew(attribute, owner, name)
    if isinstance(attribute, _BOUND_BY_NOTHING) or not callable(attribute):
        return None
    return attribute if hasattr(type(attribute), "__get__") else None


def takes_instance_first(function: Any, owner: type) -> bool:
    """Tell whether *function* can be called with the instance in front, as a function in a class can."""
    if isinstance(function, FunctionType):
        return True
    try:
        return function.__get__(None, owner) is function
    except Exception:  # noqa: BLE001  # a descriptor of the application
        return False


def unproxied(attribute: Any) -> Any:
    """Give *attribute*, or where it passes for a static or class method, a real one that calls through it."""
    for kind in (staticmethod, classmethod):
        if isinstance(attribute, kind) and not issubclass(type(attribute), kind):
            return kind(update_wrapper(_binding(attribute, kind), attribute.__func__))
    return attribute


def bound_when_called(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a method as it is called with its instance in front: one that passes for a function is bound to it."""
    if not isinstance(function, FunctionType) or issubclass(type(function), FunctionType):
        return function
    return update_wrapper(_binding(function, None), function)


def _binding(descriptor: Any, kind: type | None, owner: type = object) -> Callable[..., Any]:
    """Make a function, for a static or class method if *kind* says so, that binds *descriptor* at each call."""

    def call_static(*args: Any, **kwargs: Any) -> Any:
        return descriptor.__get__(None, owner)(*args, **kwargs)

    def call_class(cls: type, /, *args: Any, **kwargs: Any) -> Any:
        return descriptor.__get__(None, cls)(*args, **kwargs)

    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return descriptor.__get__(self, type(self))(*args, **kwargs)

    return call_static if kind is staticmethod else call_class if kind is classmethod else call


def _made_anew(descriptor: Any, owner: type, name: str) -> Any:
    """Make a method that looks like the one which *descriptor* makes, and has that make one at each call."""
    behind: Any = descriptor.func
    kind = next((kind for kind in (staticmethod, classmethod) if isinstance(behind, kind)), None)
    function: Any = descriptor.func if kind is None else behind.__func__
    call = update_wrapper(_binding(descriptor, kind, owner), function)
    call.__name__, call.__module__ = name, owner.__module__
    call.__qualname__ = f"{owner.__qualname__}.{name}"
    if isinstance(descriptor, partialmethod):
        _sign(call, descriptor, owner, {staticmethod: None, classmethod: "cls", None: "self"}[kind])
    else:
        call.register = descriptor.register  # type: ignore[attr-defined]
        _, *implementations = descriptor.dispatcher.registry.values()
        if implementations and all(map(is_coroutine_function, implementations)) and not is_coroutine_function(function):
            mark_coroutine_function(call)  # the first one only says that there is none
    return call if kind is None else kind(call)


def _sign(call: Any, descriptor: Any, owner: type, first: str | None) -> None:
    """Let *call* show the parameters that *descriptor* leaves, behind the one that is called *first*."""
    import inspect

    try:
        signature = inspect.signature(descriptor.__get__(object(), owner))
    except (TypeError, ValueError):
        return
    itself = [inspect.Parameter(first, inspect.Parameter.POSITIONAL_ONLY)] if first else []
    call.__signature__ = signature.replace(parameters=[*itself, *signature.parameters.values()])
