"""Where an exception may be raised in code that does not expect one (contract R2a)."""

from __future__ import annotations

import os
from types import FrameType

__all__ = ["add_modules", "is_safe", "place"]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MODULES = ("threading", "queue", "logging", "concurrent", "asyncio", "multiprocessing", "contextlib", "weakref", "importlib")
_RITES = frozenset({"__enter__", "__exit__", "acquire", "release"})
_PATIENCE = 1.0

_added: tuple[str, ...] = ()


def add_modules(*names: str) -> None:
    """Never interrupt the code of these modules, and of what they contain."""
    global _added
    _added = tuple(dict.fromkeys((*_added, *names)))


def forget_added_modules() -> None:
    """Interrupt the code of the added modules again."""
    global _added
    _added = ()


def place(frame: FrameType) -> tuple[int, int]:
    """What tells whether a thread has moved."""
    return id(frame), frame.f_lasti


def is_safe(frame: FrameType | None, late_by: float, blocked: bool = False) -> bool:
    """Whether an exception may be raised in a thread whose innermost frame is *frame*."""
    if frame is None:
        return False
    code = frame.f_code
    if code.co_filename.startswith(_PACKAGE):
        return False
    if not blocked:
        module = frame.f_globals.get("__name__") or ""
        if module.split(".", 1)[0] in _MODULES or module == "_frozen_importlib":
            return False
        if late_by < _PATIENCE and code.co_name in _RITES:
            return False
    step: FrameType | None = frame
    while step is not None:
        if step.f_code.co_name == "__del__":
            return False
        step = step.f_back
    return True

