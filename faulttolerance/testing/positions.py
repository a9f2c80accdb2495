"""The position of a thread, for people."""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import FrameType

from .._platform.atomic import stack_of
from .._platform.frames import module_of

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
    frames = () if innermost is None else stack_of(innermost)
    frame = _first_outside(frames, _BESIDE)
    if frame is None:  # the standard library itself was started
        frame = _first_outside(frames, (_BESIDE[0],))
        return "" if frame is None or module_of(frame) == "contextvars" else f"at {_line(frame)}"
    caller = _first_outside(frames, (_OURS, *_BESIDE))
    words = f"at {_line(frame)}"
    return words if caller is None or caller is frame else f"{words}, called from {_line(caller)}"


def _first_outside(frames: Iterable[FrameType], modules: tuple[str, ...]) -> FrameType | None:
    return next((frame for frame in frames if not module_of(frame).startswith(modules)), None)


def _line(frame: FrameType) -> str:
    code = frame.f_code
    return f"{os.path.basename(code.co_filename)}:{frame.f_lineno} in {code.co_qualname}"
