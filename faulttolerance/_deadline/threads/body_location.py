"""The place of a guarded body when its deadline had passed, for the message about a late call (rule S2)."""

from __future__ import annotations

import os
from types import FrameType

from ..._platform.frames import module_of
from .application import is_application
from .chain import Depth
from .instructions import ACQUIRE_RELEASE, callee_at
from .roles import calls_guarded_function, is_ours
from .safe_point import Stack, frames_of_call


def locate_body(stack: Stack, depth: Depth) -> str | None:
    """Return the place of the body whose extent on *stack* is *depth*, and the line of the application that led there.

    Returns:
        The place, for people; ``None`` if the body has not begun, or has ended.
    """
    body = [step for step in frames_of_call(stack, depth) if not is_ours(step)]
    if body:
        what, application = _function_in(body[0]), next((step for step in body if is_application(step)), body[0])
    else:
        caller = next((step for step in stack if is_application(step) and not is_ours(step)), None)
        if caller is None or not calls_guarded_function(stack[0]):
            return None
        what, application = "code that is not Python", caller
    return f"in {what}, from {os.path.basename(application.f_code.co_filename)}:{application.f_lineno}"


def _function_in(frame: FrameType) -> str:
    """Return the name of what *frame* runs; a function written in C has no frame, so the code that calls it has it."""
    name = frame.f_code.co_qualname
    callee, is_global = callee_at(frame.f_code, frame.f_lasti)
    if is_application(frame):
        return callee or name
    if is_global and "." in callee:
        return callee
    last = callee.rpartition(".")[2]
    return f"{module_of(frame)}.{last if last and last not in ACQUIRE_RELEASE else name}"
