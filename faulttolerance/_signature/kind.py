"""The kind of a function, asynchronous or not, which is decided once, at its decoration (rules P4, P6)."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, TypeVar

from ..exceptions import Fault

F = TypeVar("F", bound=Callable[..., Any])

# Nearly all decorated functions are plain, and their code shows the kind; only the rest needs ``inspect``.
_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x200
"""``inspect.CO_GENERATOR`` and its neighbours."""
INSTEAD_OF_GENERATORS = "a function that returns, or a coroutine that awaits; guard the body of the loop over a stream"


def own_attribute(call: Any, name: str, default: Any = None) -> Any:
    """Return an attribute that *call* really has; not an attribute from ``__getattr__``, as of proxies of servers."""
    if type(call) in (FunctionType, type):
        return getattr(call, name, default)  # a plain function or class has no ``__getattr__``
    if type(call) is MethodType:
        return own_attribute(call.__func__, name, default)
    import inspect

    try:
        inspect.getattr_static(call, name)
        return getattr(call, name)
    except Exception:  # noqa: BLE001  # a proxy without its object
        return default


def function_behind(call: Any) -> Any:
    """Return the function that finally runs: behind partials, wrappers with ``__wrapped__``, methods, ``__call__``."""
    seen: set[int] = set()
    while id(call) not in seen:
        seen.add(id(call))
        if isinstance(call, functools.partial):
            call = call.func
        elif isinstance(call, (MethodType, staticmethod, classmethod)):
            call = call.__func__
        elif (wrapped := own_attribute(call, "__wrapped__")) is not None:
            call = wrapped
        elif not _is_routine(call) and not isinstance(call, type) and hasattr(type(call), "__call__"):  # noqa: B004
            call = type(call).__call__
    return call


def _is_routine(call: Any) -> bool:
    if isinstance(call, FunctionType):
        return True
    import inspect

    return inspect.isroutine(call)


def is_coroutine_function(call: Any) -> bool:
    """Return whether a call of *call* returns a coroutine.

    A wrapper that is an ordinary function counts as its wrapped function: a wrapper made with ``functools.wraps`` or
    wrapt around a coroutine function returns its coroutine.
    """
    return _is_coroutine_function(call) or _is_coroutine_function(function_behind(call))


def _is_coroutine_function(call: Any) -> bool:
    if type(call) is FunctionType and not call.__dict__:  # a mark would be in there
        return bool(call.__code__.co_flags & _COROUTINE)
    import inspect

    mark = getattr(sys.modules.get("asyncio.coroutines"), "_is_coroutine", None)  # older than the mark of inspect
    if mark is not None and own_attribute(call, "_is_coroutine") is mark:
        return True
    # A mock of a function has flags that are mocks, too, and shows every kind.
    return inspect.iscoroutinefunction(call) and not inspect.isasyncgenfunction(call)


def is_generator_function(call: Any) -> bool:
    """Return whether a call of *call* returns a generator, asynchronous or not."""
    behind = function_behind(call)
    if type(behind) is FunctionType:
        return bool(behind.__code__.co_flags & (_GENERATOR | _ASYNC_GENERATOR))
    import inspect

    return inspect.isgeneratorfunction(behind) != inspect.isasyncgenfunction(behind)  # both only of a mock


def generator_faults(function: Any) -> list[Fault]:
    """Return the fault of a generator function that a guard gets (rule P4)."""
    if not is_generator_function(function):
        return []
    where = f"{getattr(function, '__qualname__', function)} under a Guard"
    return [Fault(where, "is a generator function", function, INSTEAD_OF_GENERATORS)]


def mark_coroutine_function(function: F) -> F:
    """Mark a plain function that returns coroutines for ``inspect.iscoroutinefunction``; return it.

    Python 3.11 has no mark and reads the flags of the code. The flag alone has no other effect, because the first
    instruction of an ``async def`` creates the coroutine.
    """
    if sys.version_info >= (3, 12):
        import inspect

        return inspect.markcoroutinefunction(function)
    code = function.__code__
    function.__code__ = code.replace(co_flags=code.co_flags | _COROUTINE)
    return function
