"""Cutting one function, written for every policy, down to the policies that a guard has.

``compose.path`` is ordinary Python: a coroutine function full of ``if BREAKER:`` and ``if ASYNC:``. ``woven`` evaluates
these capitals and drops what they rule out; of a synchronous call, whose ``await`` went that way, it drops ``async``
too. What is left keeps its file and its line numbers: a traceback or a debugger shows the lines of ``compose.py`` that
run. Nothing is added, so whoever reads ``compose.path`` has read every guard there is.

One function is compiled per combination of capitals, however many guards have it. Where the text of the program is not
there, as in a deployment of compiled files only, the function runs uncut: slower, to the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import ast

__all__ = ["Shape", "source_of", "uncut", "weavable", "woven"]

F = TypeVar("F", bound=Callable[..., Any])

Shape = Mapping[str, bool]
"""The capitals of the function, and whether each holds."""


_texts: dict[CodeType, str] = {}


def weavable(function: F) -> F:
    """Remember the text of *function* as it is now: the file may be exchanged under a running program."""
    code = function.__code__
    try:
        text = function.__globals__["__loader__"].get_data(code.co_filename).decode()
    except (AttributeError, KeyError, OSError):
        text = ""
    _texts[code] = "".join(text.splitlines(keepends=True)[code.co_firstlineno - 1 :])
    return function


def woven(function: Callable[..., Any], shape: Shape) -> Callable[..., Any]:
    """*function* without what *shape* rules out."""
    return _woven(function, tuple(sorted(shape.items())))


def source_of(function: Callable[..., Any], shape: Shape) -> str:
    """The text of what ``woven`` gives, for people."""
    import ast

    return ast.unparse(_cut(function, shape))


@cache
def _woven(function: Callable[..., Any], shape: tuple[tuple[str, bool], ...]) -> Callable[..., Any]:
    try:
        cut = _cut(function, dict(shape))
    except OSError:
        return uncut(function, dict(shape))
    names: dict[str, Any] = {}
    code = compile(cut, function.__code__.co_filename, "exec", dont_inherit=True)
    exec(code, function.__globals__, names)  # our own source
    return names[function.__name__]  # type: ignore[no-any-return]


def uncut(function: Callable[..., Any], shape: Shape) -> Callable[..., Any]:
    """*function* as it stands, with *shape* for its capitals; synchronous calls drive a coroutine that never waits."""
    whole = FunctionType(function.__code__, {**function.__globals__, **shape}, function.__name__)
    if shape["ASYNC"]:
        return whole

    def driven(*parts: Any) -> Callable[..., Any]:
        call = whole(*parts)

        def blocking(args: Any, kwargs: Any) -> Any:
            try:
                call(args, kwargs).send(None)
            except StopIteration as end:
                return end.value
            raise AssertionError("a synchronous call waited")

        return blocking

    return driven


def _cut(function: Callable[..., Any], shape: Shape) -> ast.Module:
    from .cutter import cut

    return cut(_source(function), function.__code__.co_firstlineno, shape)


def _source(function: Callable[..., Any]) -> str:
    """The text from *function* to the end of its file."""
    text = _texts.get(function.__code__)
    if not text:
        raise OSError("the text of the program is not there")
    return text
