"""An exception, as a signal handler raises it, at any place of the library's own frames."""

from __future__ import annotations

import dis
import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

import pytest

import faulttolerance

from .tiers import few_and_many

__all__ = ["Strike", "Struck", "sampled", "strikes"]

_LIBRARY = str(Path(faulttolerance.__file__).parent)
_TESTING = str(Path(_LIBRARY) / "testing")
_WATCHING = ("RESUME", "CALL", "JUMP_BACKWARD")
"""The beginnings of the names of the instructions behind which the interpreter looks for a signal."""

_NOWHERE = -2
"""The index of no instruction; -1 is that of a frame that begins."""
_AFTER_YIELD_FROM = 2
"""The argument of ``RESUME``, in its lower two bits, from which on the interpreter does not look there."""


class Struck(BaseException):
    """The exception of the handler: Ctrl-C, or a worker's soft time limit."""


class Strike:
    """Raises ``Struck`` on this thread, once, at the *number*-th place of the library where a handler may be run.

    with Strike(17) as strike:
        call()

    Such places are behind the call of a function of other code, at the beginning of a function, and where a loop goes
    round or a generator goes on; not where an ``await`` or a ``yield from`` does.
    Frames that began before the block do not count; those of a coroutine that goes on in it do.

    Args:
        number: The place, counted from 1.
        files: The names of the files in whose code places count; all of the library's if none is given.
        handle: The action of the handler, instead of raising.
    """

    def __init__(self, number: int, *files: str, handle: Callable[[], object] | None = None) -> None:
        if sys.version_info[:2] == (3, 12):
            pytest.skip("CPython 3.12 traces no instruction at the beginning of a handler of exceptions")
        self.number = number
        self.handle = handle
        self.where = ""
        """The place, once it has struck; empty where the call had fewer of them."""
        self._seen = 0
        self._files = files
        self._last: dict[FrameType | None, list[int]] = {}

    def __enter__(self) -> Self:
        gc.disable()  # exceptions of finalizers come out nowhere
        self._before = sys.gettrace()
        sys.settrace(self.begin)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)
        gc.enable()
        self._last.clear()

    def begin(self, frame: FrameType, event: str, argument: object) -> Any:
        """Trace a frame that begins or goes on; for ``sys.settrace``."""
        code = frame.f_code
        name = code.co_filename
        if self.where or not name.startswith(_LIBRARY) or name.startswith(_TESTING) or code.co_name == "__del__":
            return None
        if self._files and not name.endswith(self._files):
            return None
        if id(code) not in _WATCHING_AT:
            _note_where_it_watches(code)
        # A hole in Python: a block ends only by beginning to.
        is_hole = code.co_name in ("__exit__", "__aexit__")
        last = self._last[frame] = [_NOWHERE if is_hole else frame.f_lasti]  # a RESUME, which no event of its own shows
        frame.f_trace = self._inside(last, _WATCHING_AT[id(code)][1])
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True  # from Python 3.13 on, of no effect in a frame that has no trace function yet
        return frame.f_trace

    def _inside(self, last: list[int], watching: frozenset[int]) -> Any:
        """Return the trace function of a frame whose *last* instruction is kept, and where its code watches."""

        def inside(frame: FrameType, event: str, argument: object) -> Any:
            if event == "opcode":  # nearly always
                before, last[0] = last[0], frame.f_lasti
                if before in watching:
                    self._seen += 1
                    if self._seen == self.number:
                        self._strike(frame)
            elif event == "exception":
                last[0] = _NOWHERE  # a call that raises is not looked behind
            elif event == "return" and frame.f_back in self._last:
                self._last[frame.f_back][0] = _NOWHERE  # nor one of a function written in Python
            return inside

        return inside

    def _strike(self, frame: FrameType) -> None:
        code = frame.f_code
        self.where = f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_qualname}"
        sys.settrace(self._before)  # nothing more is looked at
        if self.handle is None:
            raise Struck(self.where)
        self.handle()


_WATCHING_AT: dict[int, tuple[CodeType, frozenset[int]]] = {}
"""Code, and where it has such instructions, by the identity of the code: its hash goes through all its constants."""


def _note_where_it_watches(code: CodeType) -> None:
    _WATCHING_AT[id(code)] = code, frozenset(step.offset for step in dis.get_instructions(code) if _watches(step))


def _watches(step: dis.Instruction) -> bool:
    if step.opname == "RESUME":
        return (step.arg or 0) & 3 < _AFTER_YIELD_FROM
    return step.opname.startswith(_WATCHING) and not any(word in step.opname for word in ("NO_INTERRUPT", "INTRINSIC"))


def strikes(*files: str, handle: Callable[[], object] | None = None, step: int = 1) -> Iterator[Strike]:
    """Yield a strike for each such place of a call, or for each *step*-th, until the call has no more of them."""
    number = 1
    while True:
        strike = Strike(number, *files, handle=handle)
        yield strike
        if not strike.where:
            return
        number += step


def sampled(step: int, every: int = 1) -> pytest.MarkDecorator:
    """Parametrize a test by *step*: each *step*-th place in the tier default, each *every*-th in the tier *stress*."""
    return few_and_many("step", step, every, "places")
