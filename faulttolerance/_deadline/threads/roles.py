"""What code of this library has to do with interruptions: it says so itself, where it is defined or compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeVar, cast

from ..._platform.frames import module_of
from .instructions import calls_of

F = TypeVar("F", bound=Callable[..., Any])

CALLER = 1
"""It calls what is guarded, with arguments that it spreads; what is raised there seems to come out of that."""
ATTEMPT = 2
"""It does so, too, and expects interruptions wherever one may land in it."""
TIMED_ATTEMPT = 3
"""It does all that, under a deadline of the running thread."""

_roles: dict[CodeType, int] = {}
_ROOM = __name__.rpartition(".")[0] + "."
_PACKAGE = _ROOM.partition("._deadline.")[0]
_INSIDE = f"{_PACKAGE}."


def register(role: int) -> Callable[[F], F]:
    """Let a function, or all that share its code, have *role*; where they differ, the one that says most."""

    def note(function: F) -> F:
        code = cast("FunctionType", function).__code__
        _roles[code] = max(role, _roles.get(code, 0))
        return function

    return note


def is_ours(frame: FrameType) -> bool:
    """Tell whether *frame* runs code of this library."""
    name = module_of(frame)
    return name.startswith(_INSIDE) or name == _PACKAGE


def looks_at_threads(frame: FrameType) -> bool:
    """Tell whether *frame* runs code that finds out where a thread stands, or prepares that."""
    return module_of(frame).startswith(_ROOM)


def is_attempt(frame: FrameType) -> bool:
    """Tell whether an interruption may land anywhere in *frame*."""
    return is_ours(frame) and _roles.get(frame.f_code, 0) >= ATTEMPT


def is_timed_attempt(frame: FrameType) -> bool:
    """Tell whether *frame* begins a deadline of the running thread, or takes it back."""
    return is_ours(frame) and _roles.get(frame.f_code) == TIMED_ATTEMPT


def has_deadline(frame: FrameType) -> bool:
    """Tell whether *frame* has begun a deadline, and now calls what that is for."""
    return is_timed_attempt(frame) and calls_what_is_guarded(frame)


def calls_what_is_guarded(frame: FrameType) -> bool:
    """Tell whether *frame* calls what is guarded at this moment."""
    return is_ours(frame) and frame.f_code in _roles and frame.f_lasti in _spreading_calls(frame.f_code)


@cache
def _spreading_calls(code: CodeType) -> frozenset[int]:
    return frozenset(offset for offset, opname, _ in calls_of(code) if opname == "CALL_FUNCTION_EX")
