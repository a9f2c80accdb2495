"""The reduction of functions, written for every policy, to the policies of a guard.

``attempt.attempt``, ``attempt.fall_back`` and the layer of ``@coalesce`` are ordinary Python, full of ``if GATE:``
and ``if ASYNC:``. Here ``specialized`` evaluates these flags and drops the excluded parts. For a synchronous call,
which has no ``await`` left, it also drops ``async``. It drops annotations and assertions, which only type checkers
need. The rest keeps its file and its line numbers: a traceback or a debugger shows the lines of ``attempt.py`` that
run. Nothing is added, so a reader of ``attempt.attempt`` has read every guard.

One function is compiled per combination of flags, for any number of guards. The function runs uncut if the program's
text is absent, as in a deployment of compiled files only, if the text differs from the code that runs, or if the
reduction fails for any reason. The uncut function is slower, with the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import cache, partial
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import ast

__all__ = ["Flags", "source_of", "specializable", "specialized", "uncut"]

F = TypeVar("F", bound=Callable[..., Any])

Flags = Mapping[str, bool]
"""The flags of the function, and whether each is set."""

_FlagsKey = tuple[tuple[str, bool], ...]

_COROUTINE = 0x80
"""The flag of the code of a coroutine function; ``inspect`` takes long to import."""

_texts: dict[CodeType, str] = {}
"""The text of the file of each function; empty if it is absent."""


def specializable(function: F) -> F:
    """Store the current text of *function*: the file may be replaced while the program runs."""
    try:
        text = function.__globals__["__loader__"].get_data(function.__code__.co_filename).decode()
    except Exception:  # noqa: BLE001  # for any file and any loader, the import of the library must succeed
        text = ""
    _texts[function.__code__] = text
    return function


def specialized(function: Callable[..., Any], flags: Flags) -> Callable[..., Any]:
    """Return *function* without the parts that *flags* excludes, or the whole function if it cannot be cut now.

    The reduction may fail for a temporary reason, such as deep recursion or short memory: the next guard tries again.
    """
    key = tuple(flags.items())  # in their order in the text that makes them
    try:
        return _specialized(function, key)
    except Exception:  # noqa: BLE001  # a problem with the library's text must not fail a call
        return uncut(function, key)


def source_of(function: Callable[..., Any], flags: Flags) -> str:
    """Return the text of the function that ``specialized`` returns, for people."""
    import ast

    return ast.unparse(_cut(function, flags))


@cache
def _specialized(function: Callable[..., Any], flags: _FlagsKey) -> Callable[..., Any]:
    from .._platform.atomic import uncollected

    cut = _cut(function, dict(flags))
    names: dict[str, Any] = {}
    code = uncollected(partial(compile, cut, function.__code__.co_filename, "exec", dont_inherit=True))
    exec(code, function.__globals__, names)  # our own source
    return names[function.__name__]  # type: ignore[no-any-return]


@cache
def uncut(function: Callable[..., Any], flags: _FlagsKey) -> Callable[..., Any]:
    """Return the whole *function* with *flags*; synchronous calls drive a coroutine that never waits."""
    names = {**function.__globals__, **dict(flags)}
    whole = FunctionType(function.__code__, names, function.__name__)
    if names["ASYNC"] or names.get("BLOCK"):
        return whole
    if whole.__code__.co_flags & _COROUTINE:
        return _driven(whole)
    return lambda *parts: _driven(whole(*parts))


def _driven(call: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    def blocking(*args: Any) -> Any:
        try:
            call(*args).send(None)
        except StopIteration as end:
            return end.value
        finally:
            del args  # the traceback of a failure among them refers to this frame
        raise AssertionError("a synchronous call waited")

    return blocking


def _cut(function: Callable[..., Any], flags: Flags) -> ast.Module:
    from .syntax_tree import cut

    return cut(_source(function), flags)


def _source(function: Callable[..., Any]) -> str:
    """Return the text of *function*, at its line: two blank lines end it, and nothing behind them is parsed."""
    code = function.__code__
    above, lines = code.co_firstlineno - 1, _texts.get(code, "").splitlines(keepends=True)
    text = "".join(lines[above:]).partition("\n\n\n")[0]
    if not _is_text_of(code, "".join(lines[:above]) + text):
        raise OSError("the source text is missing, or differs from the running code")
    return "\n" * above + text


@cache
def _is_text_of(code: CodeType, text: str) -> bool:
    """Return whether *code* was compiled from *text*: a compiled file may be older than the text beside it."""
    try:
        compiled = compile(text, code.co_filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return any(one == code for one in compiled.co_consts)
