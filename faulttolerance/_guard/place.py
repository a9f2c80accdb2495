"""What guards without a name are called: the line that makes them, and their number among those that live."""

from __future__ import annotations

from itertools import count
from types import CodeType
from typing import NamedTuple
from weakref import ref

from .._runtime.frames import module_of
from .declaration import user_frames

__all__ = ["Place", "placed"]


class Place(NamedTuple):
    """Where a guard was made."""

    line: str
    """The module and the line."""
    name: str
    """The same, and from the second guard on that the line has made and that lives, its number."""


class _Line:
    """The numbers of the guards that one line has made."""

    __slots__ = ("_codes", "_count", "free")

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], ref[CodeType]] = {}
        self._count = count(1)
        self.free: dict[int, None] = {}
        """What was given back."""

    def is_that_of(self, code: CodeType) -> bool:
        """Whether *code* belongs to what has made the guards, or beside it, and was not compiled anew."""
        return self._codes.setdefault((code.co_filename, code.co_qualname), ref(code))() is code

    def take(self) -> int:
        """The lowest number that no living guard has."""
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


def placed(guard: object) -> Place:
    """Where *guard* is made; its number is given back when it is no longer there.

    A module that is loaded again, or a cell of a notebook that is run once more, counts anew.
    """
    frame = next(user_frames(), None)
    name = "guard" if frame is None else f"{module_of(frame) or 'guard'}:{frame.f_lineno}"
    line = _lines.setdefault(name, _Line())
    if frame is not None and not line.is_that_of(frame.f_code):
        line = _lines[name] = _Line()
        line.is_that_of(frame.f_code)
    number = line.take()
    _numbers[ref(guard, _give_back)] = line, number
    return Place(name, name if number == 1 else f"{name}#{number}")


def _give_back(guard: ref[object]) -> None:
    line, number = _numbers.pop(guard)
    line.free[number] = None
