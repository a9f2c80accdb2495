"""A thread of the library that stays a real thread among greenlets and does not delay the end of the process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from .fork import stop_at_end_of_subinterpreter
from .unpatched import allows_watching, get_ident, get_native_id, native, start_and_await


class Daemon:
    """A thread that runs a function, at most one at a time.

    From Python 3.12 on, a fork warns of every thread. So a stop before a fork waits until the thread is really gone.

    Args:
        function: The function; it must not raise.
        is_wanted: Returns whether the function must run again after its end, for a start while it was ending.
    """

    __slots__ = ("_ended", "_function", "_handle", "_ident", "_is_wanted", "_native_id")

    def __init__(self, function: Callable[[], object], is_wanted: Callable[[], bool]) -> None:
        self._function = function
        self._is_wanted = is_wanted
        self._ended = native.allocate_lock()
        self._ident = 0
        self._native_id = 0
        self._handle: Any = None

    @property
    def is_here(self) -> bool:
        """Whether the running thread is this thread."""
        return self._ident == get_ident()

    def start(self) -> bool:
        """Run the function, unless it runs already; return false if no thread is possible or the interpreter ends."""
        if not allows_watching:
            return False
        if not self._ended.acquire(False):
            return True
        stop_at_end_of_subinterpreter()
        try:
            if sys.version_info >= (3, 13):
                self._handle = native.start_joinable_thread(self._run, daemon=True)
            else:
                start_and_await(self._run)
        except RuntimeError:
            self._ended.release()
            return False
        return True

    def join(self, seconds: float) -> bool:
        """Wait up to *seconds* until the function has ended and its thread is gone; return whether it is."""
        if not self._ended.acquire(timeout=seconds):
            return False
        self._ended.release()
        wait_until_gone(self._handle, self._native_id)
        return True

    def _run(self) -> None:
        self._ident = get_ident()
        self._native_id = get_native_id()
        try:
            self._function()
        finally:
            self._ident = 0
            self._ended.release()
            if self._is_wanted():
                self.start()


def wait_until_gone(handle: Any, native_id: int) -> None:
    """Wait until a thread whose work is over is gone, by its *handle* or else by its number in the system."""
    if handle is not None:
        handle.join()
        return
    path = f"/proc/self/task/{native_id}"
    for _ in range(100):
        if not native_id or not os.path.exists(path):
            return
        native.sleep(0.0001)
