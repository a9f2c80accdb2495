"""Differences between interpreters, and their pace."""

from __future__ import annotations

import contextlib
import sys
import sysconfig
from collections.abc import Iterator

import pytest

__all__ = ["drops_classes", "switching_every"]

drops_classes = pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")) and sys.version_info < (3, 14),
    reason="CPython 3.13, built without the GIL, keeps for ever what classes and functions are made beside threads",
)
"""The mark of tests that ask whether a class or a function was freed."""


@contextlib.contextmanager
def switching_every(seconds: float) -> Iterator[None]:
    """Switch threads that often, instead of every 5 ms, within the block."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
