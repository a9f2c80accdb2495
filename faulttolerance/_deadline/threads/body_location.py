"""The place of a guarded body when its deadline had passed, for the message about a late call (rule S2)."""

# No ``from __future__ import annotations``: every import would compile the annotations of a named tuple.

import os
from types import CodeType
from typing import NamedTuple

from ..._platform.frames import module_of
from .application import is_application
from .chain import Depth
from .instructions import ACQUIRE_RELEASE, callee_at
from .roles import calls_guarded_function, is_ours
from .safe_point import Stack, frames_of_call


class BodyLocation(NamedTuple):
    """A place in a body, and the line of the application that led there; it keeps no frame alive."""

    code: CodeType | None
    """The code of the innermost frame; ``None`` if the body has no frame, because it is not written in Python."""
    offset: int
    module: str
    is_of_library: bool
    """Whether the place is in code that the application has only installed."""
    file: str
    line: int

    def __str__(self) -> str:
        return f"in {self._what}, from {os.path.basename(self.file)}:{self.line}"

    @property
    def _what(self) -> str:
        """The function; one written in C has no frame, so the name comes from the code that calls it."""
        if self.code is None:
            return "code that is not Python"
        callee, is_global = callee_at(self.code, self.offset)
        if not self.is_of_library:
            return callee or self.code.co_qualname
        if is_global and "." in callee:
            return callee
        last = callee.rpartition(".")[2]
        return f"{self.module}.{last if last and last not in ACQUIRE_RELEASE else self.code.co_qualname}"


def locate_body(stack: Stack, depth: Depth) -> BodyLocation | None:
    """Return the place of the body whose extent on *stack* is *depth*; ``None`` if it has not begun, or has ended."""
    body = [step for step in frames_of_call(stack, depth) if not is_ours(step)]
    if not body:
        caller = next((step for step in stack if is_application(step) and not is_ours(step)), None)
        if caller is None or not calls_guarded_function(stack[0]):
            return None
        return BodyLocation(None, 0, "", True, caller.f_code.co_filename, caller.f_lineno)
    innermost = body[0]
    application = next((step for step in body if is_application(step)), innermost)
    return BodyLocation(
        innermost.f_code,
        innermost.f_lasti,
        module_of(innermost),
        not is_application(innermost),
        application.f_code.co_filename,
        application.f_lineno,
    )
