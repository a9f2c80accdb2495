"""The sites in the application that create guards; a guard without a name is named after its line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from types import CodeType, FrameType
from typing import Final, NamedTuple
from weakref import finalize, ref

from ..._deadline.threads.application import include_package_of
from ..._log import WARNING, log
from ..._platform.frames import module_of
from ..._signature.naming import import_name


def application_frames(*, skipped: tuple[str, ...] = ("faulttolerance", "importlib")) -> Iterator[FrameType]:
    """Yield the frames of the application on the stack, innermost first; a compiled module has none of its own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if module_of(frame).partition(".")[0] not in skipped:
            yield frame
        frame = frame.f_back


def declaring_frame() -> FrameType | None:
    """Return the innermost frame of the application, which declares a guard; its package is part of the application."""
    # The package that imports a compiled module, such as a server, is none of the application.
    include_package_of(next(application_frames(skipped=("faulttolerance",)), None))
    return next(application_frames(), None)


class CreationSite(NamedTuple):
    """The site at which a guard was created."""

    line: str
    """The module and the line."""
    name: str
    """The module and the line, with a number for all but the first of the living guards of the line."""


class _GuardNumbers:
    """The numbers of the guards that one line has created."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], ref[CodeType]] = {}
        self._count = count(1)
        self.free: list[int] = []
        """The numbers that are free again, as a heap; each step on it is one step of the interpreter."""

    def is_created_by(self, code: CodeType) -> bool:
        """Return whether *code*, which creates a guard here, is the same code as before, and was not compiled again."""
        return self._codes.setdefault((code.co_filename, code.co_qualname), ref(code))() is code

    def allocate(self, guard: object) -> int:
        """Return the lowest number that no living guard has; *guard* has it until it ends."""
        try:
            number = heappop(self.free)
        except IndexError:
            number = next(self._count)
        finalize(guard, heappush, self.free, number).atexit = False
        return number


_lines: dict[str, _GuardNumbers] = {}


def creation_site_of(guard: object, frame: FrameType | None) -> CreationSite:
    """Return the site at which *frame* creates *guard*; its number is free again after the end of the guard.

    A module that is reloaded, or a cell of a notebook that runs again, starts at 1 again.
    """
    module = "" if frame is None else import_name(module_of(frame), frame.f_globals)
    name = "guard" if frame is None else f"{module or 'guard'}:{frame.f_lineno}"
    line = _lines.setdefault(name, _GuardNumbers())
    if frame is not None and not line.is_created_by(frame.f_code):
        line = _lines[name] = _GuardNumbers()
        line.is_created_by(frame.f_code)
    number = line.allocate(guard)
    return CreationSite(name, name if number == 1 else f"{name}#{number}")


_MAX_GUARDS: Final = 100
"""The number of circuits above which a line of a function probably creates one for each call."""

_creation_counts: dict[str, count[int]] = {}


def warn_of_one_per_call(line: str) -> None:
    """Count a guard with a circuit breaker of *line*, and warn once if a function creates many (rule C8)."""
    if _is_in_function() and next(_creation_counts.setdefault(line, count(1))) == _MAX_GUARDS + 1:
        log(
            WARNING,
            "%s has created more than %d guards with a circuit breaker: a breaker that is created for each call never"
            " opens. Create it once, at the top level of a module; for several, name each, or use @partition_by",
            line,
            _MAX_GUARDS,
        )


def _is_in_function() -> bool:
    """Return whether a function is creating a guard; a comprehension counts as part of the code around it."""
    for frame in application_frames():
        if frame.f_code.co_name not in _COMPREHENSIONS:
            return bool(frame.f_code.co_flags & CO_OPTIMIZED)
    return False


_COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
CO_OPTIMIZED: Final = 1
"""The flag of the code of functions, as in ``inspect``; modules and class bodies do not have it."""
