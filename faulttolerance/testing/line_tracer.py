"""Switches between the lines of chosen modules, and the locks that these lines take."""

from __future__ import annotations

import _thread
import ast
import linecache
import re
import threading
from collections.abc import Callable, Iterable
from dis import opname
from functools import cache
from inspect import CO_OPTIMIZED
from types import CodeType, FrameType, ModuleType
from typing import Any, TypeAlias

Trace: TypeAlias = Callable[[FrameType, str, Any], Any]

_OWN = __name__.rpartition(".")[0]
_FIRST_LOADS = re.compile(r"LOAD_(?!.*CONST)|PUSH_NULL|EXTENDED_ARG").match
"""Instructions with which a ``with`` statement begins; where it is left, other ones come first on the same line."""
_PLAIN = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.expr_context)
_LOCKS = (_thread.LockType, type(threading.RLock()))


def is_own(lock: Any) -> bool:
    """Return whether the calling thread holds *lock*, and may take it again."""
    owned = getattr(lock, "_is_owned", None)
    return owned is not None and owned()


def is_free(lock: Any) -> bool:
    """Return whether another thread than the calling one could take *lock*."""
    if is_own(lock) or not lock.acquire(blocking=False):
        return False
    lock.release()
    return True


class LineTracer:
    """A tracer that calls *at_line* before each line of the modules, with the locks that its ``with`` takes."""

    at_line: Callable[[list[Any]], object]

    def __init__(self, modules: Iterable[ModuleType]) -> None:
        names = tuple(module.__name__ for module in modules)
        self._names = frozenset(names)
        self._packages = tuple(f"{name}." for name in names)
        self._known: dict[int, tuple[Trace | None, CodeType]] = {}
        """By identity of a code, as its hash takes long: the trace function of its lines, if any; and the code."""
        self._importing: dict[int, FrameType] = {}
        """By thread that is in the body of a module, and so holds the lock of an import: the outermost such body."""

    @property
    def trace(self) -> Trace | None:
        """The trace function for ``sys.settrace`` on each thread; ``None`` where no module is chosen."""
        known = self._known

        def on_call(frame: FrameType, event: str, _: Any) -> Trace | None:
            code = frame.f_code
            try:
                return known[id(code)][0]
            except KeyError:
                known[id(code)] = trace, _ = self._look_at(frame), code
                return trace

        return on_call if self._names else None

    def _look_at(self, frame: FrameType) -> Trace | None:
        if frame.f_code.co_name == "<module>":
            return self._on_import
        name = frame.f_globals.get("__name__", "")
        if name.startswith(_OWN) or not (name in self._names or name.startswith(self._packages)):
            return None
        if not frame.f_code.co_flags & CO_OPTIMIZED:
            return None  # the body of a class
        lines, instructions = _with_lines(frame.f_code.co_filename), frame.f_code.co_code
        taken = {
            offset: locks
            for offset, _, line in frame.f_code.co_lines()
            if (locks := lines.get(line)) is not None and _FIRST_LOADS(opname[instructions[offset]])
        }

        def on_line(frame: FrameType, event: str, _: Any) -> Trace:
            if event == "line" and threading.get_ident() not in self._importing:
                known = taken.get(frame.f_lasti)
                if known is not None:
                    self.at_line([lock for one in known if (lock := _lock_of(one, frame)) is not None])
                elif frame.f_lineno not in lines:  # else the block is left: an error here would prevent that
                    self.at_line([])
                _ = frame.f_locals  # read anew: up to Python 3.12 they are written back, over what others have set
            return on_line

        return on_line

    def _on_import(self, frame: FrameType, event: str, _: Any) -> Trace:
        thread = threading.get_ident()
        if self._importing.setdefault(thread, frame) is frame and event == "return":
            del self._importing[thread]
        return self._on_import


def _lock_of(taken: CodeType, frame: FrameType) -> Any:
    """Return the lock that a ``with`` statement takes; ``None`` where it takes no lock that blocks others."""
    try:
        thing = eval(taken, frame.f_globals, frame.f_locals)  # names, attributes and items of the program itself
        while isinstance(thing, threading.Condition):
            thing = thing._lock  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001  # the line itself will raise it
        return None
    return thing if isinstance(thing, _LOCKS) else None


@cache
def _with_lines(file: str) -> dict[int | None, list[CodeType] | None]:
    """Return the lines where ``with`` statements of a file begin, with what may be a lock, or are left (``None``)."""
    found: dict[int | None, list[CodeType] | None] = {}
    nodes = [*ast.walk(ast.parse("".join(linecache.getlines(file))))]
    for node in reversed(nodes):  # inner classes first
        if isinstance(node, ast.ClassDef):
            _mangle(node)
    for node in nodes:
        if isinstance(node, (ast.With, ast.AsyncWith)):
            found.setdefault(node.lineno, None)
            for expression in (item.context_expr for item in node.items):
                found[expression.lineno] = taken = found.get(expression.lineno) or []
                if all(isinstance(part, _PLAIN) for part in ast.walk(expression)):
                    taken.append(compile(ast.Expression(expression), file, "eval", dont_inherit=True))
    return found


def _mangle(owner: ast.ClassDef) -> None:
    """Complete the private names in a class, as the compiler does."""
    for part in ast.walk(owner):
        if isinstance(part, ast.Attribute) and part.attr.startswith("__") and not part.attr.endswith("__"):
            part.attr = f"_{owner.name.lstrip('_')}{part.attr}"
