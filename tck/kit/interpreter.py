"""Differences between interpreters, and their pace."""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from typing import Any

import pytest

__all__ = ["drops_classes", "forks_here", "switching_every"]

drops_classes = pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")) and sys.version_info < (3, 14),
    reason="CPython 3.13, built without the GIL, keeps for ever what classes and functions are made beside threads",
)
"""The mark of tests that ask whether a class or a function was freed."""


def forks_here(test: Callable[..., None]) -> Any:
    """Mark a test that forks its own process, which has threads: those of the test, or of the runner."""
    # From Python 3.12 on, the interpreter warns of them; from 3.15 on, the warning is raised where warnings are errors.
    test = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")(test)
    return pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")(test)


@contextlib.contextmanager
def switching_every(seconds: float) -> Iterator[None]:
    """Switch threads that often, instead of every 5 ms, within the block."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
