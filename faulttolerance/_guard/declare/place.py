"""Where in the application something is made; guards without a name are called after the line that makes them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import count
from types import CodeType, FrameType
from typing import Final, NamedTuple
from weakref import ref

from ..._deadline.threads.application import include_package_of
from ..._log import WARNING, log
from ..._platform.frames import module_of


def user_frames() -> Iterator[FrameType]:
    """Walk the frames of the application that led here, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if module_of(frame).partition(".")[0] != "faulttolerance":
            yield frame
        frame = frame.f_back


def declaring_frame() -> FrameType | None:
    """Return the innermost frame of the application, which declares a guard; its package is part of the application."""
    frame = next(user_frames(), None)
    include_package_of(frame)
    return frame


class Place(NamedTuple):
    """The place at which a guard was made."""

    line: str
    """The module and the line."""
    name: str
    """The same, and a number for all but the first of the living guards that the line has made."""


class _Line:
    """The numbers of the guards that one line has made."""

    __slots__ = ("_codes", "_count", "free")

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], ref[CodeType]] = {}
        self._count = count(1)
        self.free: dict[int, None] = {}
        """The numbers that were given back."""

    def is_made_by(self, code: CodeType) -> bool:
        """Tell whether *code*, which makes a guard here, is the code that did so before, and was not compiled anew."""
        return self._codes.setdefault((code.co_filename, code.co_qualname), ref(code))() is code

    def take(self) -> int:
        """Take the lowest number that no living guard has."""
        while self.free:
            try:
                number = min(self.free)
                del self.free[number]
            except (KeyError, ValueError, RuntimeError):
                continue  # another thread was quicker
            return number
        return next(self._count)


_lines: dict[str, _Line] = {}
_numbers: dict[ref[object], tuple[_Line, int]] = {}


def place_of(guard: object, frame: FrameType | None) -> Place:
    """Return where *guard* is made, by *frame*; its number is free again when the guard is gone.

    A module that is loaded again, or a cell of a notebook that is run once more, counts anew.
    """
    name = "guard" if frame is None else f"{module_of(frame) or 'guard'}:{frame.f_lineno}"
    line = _lines.setdefault(name, _Line())
    if frame is not None and not line.is_made_by(frame.f_code):
        line = _lines[name] = _Line()
        line.is_made_by(frame.f_code)
    number = line.take()
    _numbers[ref(guard, _give_back)] = line, number
    return Place(name, name if number == 1 else f"{name}#{number}")


def _give_back(guard: ref[object]) -> None:
    line, number = _numbers.pop(guard)
    line.free[number] = None


_MOST: Final = 100
"""One line of a function that makes more circuits than this makes one for each call."""

_made: dict[str, count[int]] = {}


def watch_for_one_per_call(line: str) -> None:
    """Count a guard with a circuit breaker that *line* makes; warn, once, where a function makes many (rule C8)."""
    if not _is_in_function():
        return
    if next(_made.setdefault(line, count(1))) == _MOST + 1:
        log(
            WARNING,
            "%s has made more than %d guards with a circuit breaker: one that is made for each call never opens. Make"
            " it once, at the top level of a module; where several are meant, name each, or use @partition_by",
            line,
            _MOST,
        )


def _is_in_function() -> bool:
    """Tell whether a guard is being made by a function; a comprehension is part of what it stands in."""
    for frame in user_frames():
        if frame.f_code.co_name not in _COMPREHENSIONS:
            return bool(frame.f_code.co_flags & CO_OPTIMIZED)
    return False


_COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
CO_OPTIMIZED: Final = 1
"""The flag of the code of functions, as ``inspect`` has it; modules and class bodies are without."""
