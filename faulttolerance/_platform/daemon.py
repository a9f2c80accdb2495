"""A thread of the library that stays a real thread among greenlets and does not delay the end of the process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from .atomic import once
from .fork import is_torn, stop_at_end_of_subinterpreter
from .unpatched import allows_watching, get_ident, get_native_id, native


class Daemon:
    """A thread that runs a function, at most one at a time.

    A caller that starts it leaves nothing half done, because the handler of a signal may raise between any two of its
    steps. So the thread takes its place itself, and ends if another thread has the place.

    From Python 3.12 on, a fork warns of every thread. So a stop before a fork waits until the thread is really gone.

    Args:
        function: The function; if it fails, the thread ends, and the next caller starts another one.
        is_wanted: Called after each end of the function; returns whether it must run again unless it has failed, for a
            start while it was ending.
    """

    __slots__ = ("_function", "_handle", "_is_wanted", "_native_id", "_place", "ident", "is_running")

    def __init__(self, function: Callable[[], object], is_wanted: Callable[[], bool]) -> None:
        self._function = function
        self._is_wanted = is_wanted
        self._place = native.allocate_lock()
        """Held by the thread that runs the function, as long as it does."""
        self.is_running = False
        """Whether the thread runs; otherwise none is needed yet, or none could be started."""
        self.ident = 0
        """The thread; 0 if it does not run."""
        self._native_id = 0
        self._handle: Any = None

    @property
    def is_here(self) -> bool:
        """Whether the running thread is this thread."""
        return self.ident == get_ident()

    def start(self) -> bool:
        """Start the thread unless it runs, and wait until it does; return false if no thread is possible."""
        if is_torn():
            return False
        if self.is_running:
            return True
        if not allows_watching:
            return False
        begun = native.allocate_lock()
        begun.acquire()
        run = partial(self._run, begun)
        try:
            stop_at_end_of_subinterpreter()
            if sys.version_info >= (3, 13):
                self._handle = native.start_joinable_thread(run, daemon=True)
            else:
                native.start_thread(run, ())
        except RuntimeError:  # the interpreter is ending, or no thread is available
            return False
        if not sys.is_finalizing():
            begun.acquire()
        return True

    def join(self, seconds: float) -> bool:
        """Wait up to *seconds* until the function has ended and its thread is gone; return whether it is."""
        is_over = False
        for is_over in once(self._place.acquire, True, seconds):
            if is_over:
                self._place.release()
                if self._handle is not None:
                    self._handle.join()
                else:
                    wait_until_gone(self._native_id)
        return is_over

    def _run(self, begun: Any) -> None:
        has_place = self._place.acquire(False)
        if has_place:
            self.ident = get_ident()
            self._native_id = get_native_id()
            self.is_running = True
        begun.release()
        if not has_place:
            return  # another thread has it
        try:
            self._function()
        finally:
            self.is_running = False
            self.ident = 0
            self._place.release()
            is_wanted = self._is_wanted()
        if is_wanted:
            self.start()


def wait_until_gone(native_id: int | None) -> None:
    """Wait until a thread that has ended is gone, by its number in the system; up to Python 3.12 a join does not."""
    path = f"/proc/self/task/{native_id}"
    for _ in range(100):
        if native_id == get_native_id() or not os.path.exists(path):  # a greenlet of this thread, or gone
            return
        native.sleep(0.0001)
