"""Functions that are to return something to await, and may not: they are not called, or at least not twice."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import CoroutineType, FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["NothingToAwait", "call_awaited", "gives_nothing_to_await", "is_coroutine_code", "told"]

_COROUTINE = 0x80
"""``inspect.CO_COROUTINE``."""


class NothingToAwait(BaseException):
    """Ends a call whose function returned what cannot be awaited.

    No ``Exception``, so that no policy has to do with it (contract R0): the function has run, and to run it again, or
    something in its place, would do twice what was done. Whoever awaits the call is told by a ``TypeError``.
    """

    def __init__(self, function: Callable[..., Any], result: object) -> None:
        name = getattr(function, "__qualname__", None) or repr(function)
        super().__init__(
            f"{name} returned an object of the class {type(result).__qualname__}, which cannot be awaited; it was"
            " called once, and no policy had to do with it"
        )


def is_coroutine_code(function: object) -> bool:
    """Whether *function* is an ``async def`` itself, and not something that passes for one."""
    return type(function) is FunctionType and bool(function.__code__.co_flags & _COROUTINE)


def call_awaited(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call *function*; raise ``NothingToAwait`` where it returns nothing to await."""
    result = function(*args, **kwargs)
    if type(result) is CoroutineType or hasattr(result, "__await__"):
        return result
    import inspect

    if inspect.isawaitable(result):  # a generator that ``types.coroutine`` made awaitable
        return result
    raise NothingToAwait(function, result)


def told(name: str, call: Callable[[tuple[Any, ...], Mapping[str, Any]], Any]) -> Callable[..., Any]:
    """*call*, a guarded one, which tells of a function that returned nothing to await."""

    async def telling(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        try:
            return await call(args, kwargs)
        except NothingToAwait as found:
            raise TypeError(f"{name} counts as a coroutine function: {found}") from None

    return telling


def gives_nothing_to_await(function: Any) -> bool:
    """Whether *function* is known to return what cannot be awaited; one that wraps another is not known."""
    if isinstance(function, type):
        return type(function) is type and not hasattr(function, "__await__")
    behind: Any = function
    while type(behind) is partial:
        behind = behind.func
    behind = behind.__func__ if type(behind) is MethodType else behind
    if type(behind) is not FunctionType or behind.__code__.co_flags & _COROUTINE or "__wrapped__" in behind.__dict__:
        return False
    return _says_so(behind) if _is_annotated(behind) else False


_said: WeakKeyDictionary[FunctionType, bool] = WeakKeyDictionary()


def _says_so(function: FunctionType) -> bool:
    """Whether the return annotation of *function* names what cannot be awaited."""
    found = _said.get(function)
    if found is None:
        from .annotations import Outcome, outcome

        found = _said[function] = outcome(function) is Outcome.FOREIGN
    return found


def _is_annotated(function: FunctionType) -> bool:
    if sys.version_info >= (3, 14):
        return function.__annotate__ is not None
    return "return" in function.__annotations__
