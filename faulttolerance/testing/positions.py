"""The position of a thread, for people."""

from __future__ import annotations

import os
from types import FrameType

_BESIDE = (
    "faulttolerance.testing",
    "faulttolerance._deadline.clock",
    "threading",
    "asyncio",
    "concurrent",
    "contextvars",
)
_OURS = "faulttolerance."


def describe_position(innermost: FrameType | None) -> str:
    """Return where *innermost* stands: the line at which it stopped, and the application's line that led there."""
    frame = innermost
    while frame is not None and _module(frame).startswith(_BESIDE):
        frame = frame.f_back
    if frame is None:
        frame = innermost  # the standard library itself was started
        while frame is not None and _module(frame).startswith(_BESIDE[0]):
            frame = frame.f_back
        return "" if frame is None or _module(frame) == "contextvars" else f"at {_line(frame)}"
    caller: FrameType | None = frame
    while caller is not None and _module(caller).startswith((_OURS, *_BESIDE)):
        caller = caller.f_back
    words = f"at {_line(frame)}"
    return words if caller is None or caller is frame else f"{words}, called from {_line(caller)}"


def _module(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name


def _line(frame: FrameType) -> str:
    code = frame.f_code
    return f"{os.path.basename(code.co_filename)}:{frame.f_lineno} in {code.co_qualname}"
