"""What of a class is a method: functions, and all that becomes one when it is looked up (rule L2)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, partialmethod, singledispatchmethod, update_wrapper
from types import FunctionType, MethodType
from typing import Any, TypeVar

from .._signature import proxy
from .._signature.kind import is_coroutine_function, mark_coroutine_function

__all__ = ["as_method", "takes_its_instance_first"]

F = TypeVar("F", bound=Callable[..., Any])

_BOUND_BY_NOTHING = (type, MethodType, *(() if sys.version_info >= (3, 14) else (partial,)))
"""What can be called, and is the same whoever's attribute it is."""


def as_method(attribute: Any, owner: type, name: str) -> Any:
    """The attribute *name* of *owner* as a function, a static or a class method; ``None`` where it is no method.

    Another thing that can be called and binds itself is given as it is.
    """
    if type(attribute) is FunctionType:
        return attribute
    if isinstance(attribute, (staticmethod, classmethod)):
        return proxy.of_our_own(attribute)
    if isinstance(attribute, (partialmethod, singledispatchmethod)):
        return _looked_up(attribute, owner, name)
    if isinstance(attribute, _BOUND_BY_NOTHING) or not callable(attribute):
        return None
    return attribute if hasattr(type(attribute), "__get__") else None


def takes_its_instance_first(function: Any, owner: type) -> bool:
    """Whether *function* can be called with the instance in front, as a function in a class can."""
    if isinstance(function, FunctionType):
        return True
    try:
        return function.__get__(None, owner) is function
    except Exception:  # noqa: BLE001  # a descriptor of the application
        return False


def _looked_up(descriptor: Any, owner: type, name: str) -> Any:
    """A method of the kind of that which *descriptor* makes, and which has that make one at each call."""
    behind = descriptor.func
    if isinstance(behind, staticmethod):

        def call_static(*args: Any, **kwargs: Any) -> Any:
            return descriptor.__get__(None, owner)(*args, **kwargs)

        return staticmethod(_like(call_static, descriptor, behind.__func__, owner, name))
    if isinstance(behind, classmethod):

        def call_class(cls: type, /, *args: Any, **kwargs: Any) -> Any:
            return descriptor.__get__(None, cls)(*args, **kwargs)

        return classmethod(_like(call_class, descriptor, behind.__func__, owner, name, "cls"))

    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return descriptor.__get__(self, type(self))(*args, **kwargs)

    return _like(call, descriptor, behind, owner, name, "self")


def _like(call: Any, descriptor: Any, behind: Any, owner: type, name: str, *first: str) -> Any:
    """*call*, which looks like what *descriptor* makes of the function *behind*."""
    update_wrapper(call, behind)
    call.__name__, call.__module__ = name, owner.__module__
    call.__qualname__ = f"{owner.__qualname__}.{name}"
    if isinstance(descriptor, partialmethod):
        _sign(call, descriptor, owner, first)
        return call
    call.register = descriptor.register
    _, *implementations = descriptor.dispatcher.registry.values()
    if implementations and all(map(is_coroutine_function, implementations)) and not is_coroutine_function(behind):
        mark_coroutine_function(call)  # the first one only says that there is none
    return call


def _sign(call: Any, descriptor: Any, owner: type, first: tuple[str, ...]) -> None:
    """Let *call* show the parameters that *descriptor* leaves."""
    import inspect

    try:
        found = inspect.signature(descriptor.__get__(object(), owner))
    except (TypeError, ValueError):
        return
    own = [inspect.Parameter(one, inspect.Parameter.POSITIONAL_ONLY) for one in first]
    call.__signature__ = found.replace(parameters=[*own, *found.parameters.values()])
