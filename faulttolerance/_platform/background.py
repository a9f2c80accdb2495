"""Work beside the calls: at intervals, or on a separate thread."""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Callable

from .fork import at_fork
from .unpatched import native, run_on_thread


def within(seconds: float, function: Callable[[], object]) -> None:
    """Call *function* on a thread of its own, and wait for it no longer than *seconds*."""
    thread = threading.Thread(target=function, name="faulttolerance-telemetry", daemon=True)
    thread.start()
    thread.join(seconds)


class Aside:
    """A caller of functions, one after another, on a thread that exists as long as there is work."""

    def __init__(self) -> None:
        self.begin_anew()

    def __call__(self, function: Callable[[], object]) -> None:
        """Call *function*, which must not raise, after all earlier functions."""
        self._waiting.append(function)
        run_on_thread(self.serve)

    def begin_anew(self) -> None:
        """Reset the state in the child of a fork, where other threads do not exist."""
        self._waiting: deque[Callable[[], object]] = deque()
        self._serving = native.allocate_lock()

    def serve(self) -> None:
        """Call the functions that wait."""
        # A thread that finds another serving leaves the rest to that, which checks again after it released the lock.
        waiting, serving = self._waiting, self._serving
        while waiting and serving.acquire(False):
            try:
                while waiting:
                    waiting.popleft()()
            finally:
                serving.release()


aside = Aside()
"""Runs the application's reactions to events that none of its calls caused."""

at_fork(child=aside.begin_anew)


class Ticker:
    """The calls of a function at intervals and at the end of the process; they pause for a fork and go on in both.

    Args:
        seconds: The interval.
        function: The function; it must not raise.
    """

    def __init__(self, seconds: float, function: Callable[[], object]) -> None:
        self._seconds = seconds
        self.tick = function
        """Calls the function now."""
        self._is_on = False
        at_fork(self._before_fork, self._after_fork, self._after_fork)

    def start(self) -> None:
        """Start the calls."""
        from multiprocessing.util import Finalize, register_after_fork

        def finish_process(_: object) -> None:
            Finalize(None, self._finish, exitpriority=0)

        if not self._is_on:
            self._run()
            self._is_on = True
            atexit.register(self._finish)
            # A process of multiprocessing ends without atexit.
            finish_process(self)
            register_after_fork(self, finish_process)

    def stop(self) -> bool:
        """Stop the calls, and return whether there were any."""
        was_on, self._is_on = self._is_on, False
        if was_on:
            self._halt()
            atexit.unregister(self._finish)
        return was_on

    def _before_fork(self) -> None:
        if self._is_on:
            self._halt()  # from Python 3.12 on, a fork warns of running threads

    def _after_fork(self) -> None:
        if self._is_on:
            self._run()

    def _run(self) -> None:
        self._over = over = threading.Event()

        def run() -> None:
            while not over.wait(self._seconds):
                self.tick()

        self._thread = threading.Thread(target=run, name="faulttolerance-metrics", daemon=True)
        self._thread.start()

    def _halt(self) -> None:
        self._over.set()
        self._thread.join()

    def _finish(self) -> None:
        if self._is_on:
            self.tick()
