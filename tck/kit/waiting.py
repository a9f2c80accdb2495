"""Waiting for other threads and processes, in real time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["wait_until"]


def wait_until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait, while others run, until *condition* holds; fail where that takes too long."""
    pause = threading.Event()  # nothing that a test replaces
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        pause.wait(0.001)
