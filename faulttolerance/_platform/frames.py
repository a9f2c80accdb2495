"""Facts about the code that a frame of the interpreter runs."""

from __future__ import annotations

from types import FrameType


def module_of(frame: FrameType) -> str:
    """Return the name of the module whose code *frame* runs; empty if the code has no module, as under ``exec``."""
    name = frame.f_globals.get("__name__")
    return name if isinstance(name, str) else ""
