"""The roles of the library's functions in interruptions, registered where they are defined or compiled."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeVar, cast

from ..._platform.frames import module_of
from .instructions import opname

F = TypeVar("F", bound=Callable[..., Any])

CALLER = 1
"""The function calls the guarded function, with spread arguments; an exception in it seems to come from that call."""
ATTEMPT = 2
"""As ``CALLER``; the function also expects interruptions at any of its instructions."""
TIMED_ATTEMPT = 3
"""As ``ATTEMPT``, under a deadline of the running thread."""

_roles: dict[CodeType, int] = {}
_FOLDER = __name__.rpartition(".")[0] + "."
_PACKAGE = _FOLDER.partition("_deadline.")[0]


def register(role: int) -> Callable[[F], F]:
    """Return a decorator that registers *role* for a function and all with the same code; the highest role counts."""

    def mark(function: F) -> F:
        code = cast("FunctionType", function).__code__
        _roles[code] = max(role, _roles.get(code, 0))
        return function

    return mark


def is_ours(frame: FrameType) -> bool:
    """Return whether *frame* runs code of this library."""
    return f"{module_of(frame)}.".startswith(_PACKAGE)


def examines_threads(frame: FrameType) -> bool:
    """Return whether *frame* runs code that examines where a thread stands, or prepares that."""
    return module_of(frame).startswith(_FOLDER)


def is_attempt(frame: FrameType) -> bool:
    """Return whether an interruption may come at any instruction of *frame*."""
    return is_ours(frame) and _roles.get(frame.f_code, 0) >= ATTEMPT


def is_timed_attempt(frame: FrameType) -> bool:
    """Return whether *frame* starts a deadline of the running thread, or removes it."""
    return is_ours(frame) and _roles.get(frame.f_code) == TIMED_ATTEMPT


def has_deadline(frame: FrameType) -> bool:
    """Return whether *frame* has started a deadline, and now calls the guarded function under it."""
    return is_timed_attempt(frame) and calls_guarded_function(frame)


def calls_guarded_function(frame: FrameType) -> bool:
    """Return whether *frame* is in the call of the guarded function."""
    return is_ours(frame) and frame.f_code in _roles and opname(frame.f_code, frame.f_lasti) == "CALL_FUNCTION_EX"
