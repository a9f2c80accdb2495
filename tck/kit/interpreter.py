"""Differences between interpreters, and their pace."""

from __future__ import annotations

import contextlib
import sys
import sysconfig
from collections.abc import Iterator

import pytest

__all__ = ["HAS_GIL", "drops_classes", "needs_gil", "switching_every"]

HAS_GIL: bool = getattr(sys, "_is_gil_enabled", lambda: True)()

needs_gil = pytest.mark.skipif(
    not HAS_GIL, reason="without the GIL only the main thread is interrupted, where it can take a signal"
)
"""For what asks for an interruption of another thread, or of a call that the signal alone does not end."""

drops_classes = pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")) and sys.version_info < (3, 14),
    reason="CPython 3.13, built without the GIL, keeps for ever what classes and functions are made beside threads",
)
"""For what asks whether a class or a function is gone."""


@contextlib.contextmanager
def switching_every(seconds: float) -> Iterator[None]:
    """Let threads take turns that often, instead of every 5 ms."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
