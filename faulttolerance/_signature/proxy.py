"""Wrappers that pass for what they wrap, as wrapt's do: in a class they must be bound before they are called.

Such a wrapper says that it is a function, a static method or a class method, and is none: taken apart as one, what it
does around the call is lost; called with the instance in front, it takes that for an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from types import FunctionType
from typing import Any

__all__ = ["bound_first", "of_our_own"]


def of_our_own(attribute: Any) -> Any:
    """*attribute*, or where it passes for a static or class method, a real one that calls through it."""
    if isinstance(attribute, staticmethod) and not issubclass(type(attribute), staticmethod):

        def call_static(*args: Any, **kwargs: Any) -> Any:
            return attribute.__get__(None, object)(*args, **kwargs)

        return staticmethod(update_wrapper(call_static, attribute.__func__))
    if isinstance(attribute, classmethod) and not issubclass(type(attribute), classmethod):

        def call_class(cls: type, /, *args: Any, **kwargs: Any) -> Any:
            return attribute.__get__(None, cls)(*args, **kwargs)

        return classmethod(update_wrapper(call_class, attribute.__func__))
    return attribute


def bound_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """A method as it is called with its instance in front: one that passes for a function is bound to it."""
    if not isinstance(function, FunctionType) or issubclass(type(function), FunctionType):
        return function

    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return function.__get__(self, type(self))(*args, **kwargs)

    return update_wrapper(call, function)
