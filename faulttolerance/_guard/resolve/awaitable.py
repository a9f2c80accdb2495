"""Functions that should return an awaitable, but may not: they run on a thread, or at least not twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import CoroutineType, FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

_COROUTINE, _NOT_PLAIN = 0x80, 0x3A0
"""``inspect.CO_COROUTINE``, and the same with the flags of generator functions, also from ``types.coroutine``."""


class NotAwaitableError(BaseException):
    """Ends a call whose function did not return an awaitable.

    It is no ``Exception``, so that no policy handles it (rule R0): the function has run, and a retry or a fallback
    would repeat its effects. The caller that awaits the call receives a ``TypeError``.
    """

    def __init__(self, function: Callable[..., Any], result: object) -> None:
        name = getattr(function, "__qualname__", None) or repr(function)
        super().__init__(
            f"{name} returned an object of the class {type(result).__qualname__}, which cannot be awaited; it was"
            " called once, and no policy was applied"
        )


def is_coroutine_code(function: object) -> bool:
    """Return whether *function* is an ``async def`` itself, and not an object that passes for one."""
    return type(function) is FunctionType and bool(function.__code__.co_flags & _COROUTINE)


def call_awaited(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Return the result of *function*; raise ``NotAwaitableError`` if it is no awaitable."""
    result = function(*args, **kwargs)
    if type(result) is CoroutineType or hasattr(result, "__await__"):
        return result
    import inspect

    if inspect.isawaitable(result):  # a generator that ``types.coroutine`` made awaitable
        return result
    raise NotAwaitableError(function, result)


def with_type_error(name: str, call: Callable[[tuple[Any, ...], Mapping[str, Any]], Any]) -> Callable[..., Any]:
    """Return the guarded *call* with a ``TypeError`` in place of ``NotAwaitableError``."""

    async def call_refusing(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        try:
            return await call(args, kwargs)
        except NotAwaitableError as error:
            raise TypeError(f"{name} counts as a coroutine function: {error}") from None

    return call_refusing


def is_plain_function(function: Any) -> bool:
    """Return whether *function* is a plain ``def``, or a class, and is not known to return an awaitable.

    A lambda returns the result of another function, and so does a wrapper: its kind is unknown.
    """
    if isinstance(function, type):
        return type(function).__call__ is type.__call__ and not hasattr(function, "__await__")
    behind: Any = function
    while type(behind) is partial:
        behind = behind.func
    behind = behind.__func__ if type(behind) is MethodType else behind
    if type(behind) is not FunctionType or behind.__name__ == "<lambda>" or "__wrapped__" in behind.__dict__:
        return False
    return not behind.__code__.co_flags & _NOT_PLAIN and (not _is_annotated(behind) or _is_annotated_as_plain(behind))


_not_awaitable: WeakKeyDictionary[FunctionType, bool] = WeakKeyDictionary()


def _is_annotated_as_plain(function: FunctionType) -> bool:
    """Return whether the return annotation of *function* names no awaitable."""
    if function not in _not_awaitable:
        from ..._signature.return_kind import ReturnKind, return_kind

        _not_awaitable[function] = return_kind(function) in (ReturnKind.PLAIN, ReturnKind.UNKNOWN)
    return _not_awaitable[function]


def _is_annotated(function: FunctionType) -> bool:
    return getattr(function, "__annotate__", None) is not None or "return" in function.__annotations__
