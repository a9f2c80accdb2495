"""The sites in the application that create guards; a guard without a name is named after its line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import count
from types import CodeType, FrameType
from typing import Final, NamedTuple
from weakref import finalize

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


_lines: dict[str, tuple[dict[tuple[str, str], CodeType], dict[int, object]]] = {}
"""The codes that create guards at each line, by file and name, and the numbers that living guards have there."""


def creation_site_of(guard: object, frame: FrameType | None) -> CreationSite:
    """Return the site at which *frame* creates *guard*, with the lowest number that no living guard of the line has.

    A module that is reloaded, or a cell of a notebook that runs again, is new code, and starts at 1 again; the same
    line of another cell is another file.
    """
    module = "" if frame is None else import_name(module_of(frame), frame.f_globals)
    name = "guard" if frame is None else f"{module or 'guard'}:{frame.f_lineno}"
    codes, taken = _lines.setdefault(name, ({}, {}))
    if frame is not None:
        code, place = frame.f_code, (frame.f_code.co_filename, frame.f_code.co_qualname)
        if codes.setdefault(place, code) is not code:
            _, taken = _lines[name] = {place: code}, {}
    own = object()
    number = next(number for number in count(1) if taken.setdefault(number, own) is own)
    finalize(guard, taken.pop, number).atexit = False
    return CreationSite(name, name if number == 1 else f"{name}#{number}")


_MAX_GUARDS: Final = 100
"""The number of circuits above which a line of a function probably creates one for each call."""

_creation_counts: dict[str, count[int]] = {}


def warn_of_one_per_call(line: str) -> None:
    """Count a guard with a circuit breaker of *line*, and warn once if a function creates many (rule C8)."""
    frame = next(application_frames(), None)
    code = None if frame is None else frame.f_code  # one whose name begins with < is a comprehension or a lambda
    is_in_function = code is not None and code.co_flags & CO_OPTIMIZED and not code.co_name.startswith("<")
    if is_in_function and next(_creation_counts.setdefault(line, count(1))) == _MAX_GUARDS + 1:
        log(
            WARNING,
            "%s has created more than %d guards with a circuit breaker: a breaker that is created for each call never"
            " opens. Create it once, at the top level of a module; for several, name each, or use @partition_by",
            line,
            _MAX_GUARDS,
        )


CO_OPTIMIZED: Final = 1
"""The flag of the code of functions, as in ``inspect``; modules and class bodies do not have it."""
