"""The event loop that awaits for callers that have none; it is started when it is first needed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .._platform.fork import at_fork

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_JOIN_SECONDS = 1.0


class LoopThread:
    """A daemon thread that runs an event loop."""

    def __init__(self) -> None:
        self.loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
        """Makes the loop; an ordinary one unless this is set, as virtual time does."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None  # guarded by _lock
        self._thread: threading.Thread | None = None  # guarded by _lock
        self._users = 0  # guarded by _lock
        self._left_behind: list[object] = []
        """Loops of the parent process: closing one in a child would unregister its descriptors in the parent."""

    def acquire(self) -> asyncio.AbstractEventLoop:
        """Give the running loop, and keep it running until ``release``.

        Raises:
            RuntimeError: No thread can be started; the interpreter is ending.
        """
        import asyncio

        with self._lock:
            thread = None
            if self._loop is None:
                self._loop = (self.loop_factory or asyncio.new_event_loop)()
                thread = threading.Thread(target=_run, args=(self._loop,), name="faulttolerance-loop", daemon=True)
                self._thread = thread
            loop = self._loop
            self._users += 1
        if thread is not None:
            # Not under the lock: where a greenlet stands for the thread, others run until it has begun.
            try:
                thread.start()
            except BaseException:
                with self._lock:
                    self._loop = self._thread = None
                    self._users -= 1
                loop.close()
                raise
        return loop

    def release(self) -> None:
        """Note that one user of the loop needs it no more."""
        with self._lock:
            self._users -= 1

    def stop_if_idle(self) -> None:
        """End the thread where nobody uses the loop, and wait until it is gone."""
        with self._lock:
            loop, thread = self._loop, self._thread
            if loop is None or thread is None or self._users:
                return
            self._loop = self._thread = None
            loop.call_soon_threadsafe(loop.stop)
        thread.join(_JOIN_SECONDS)

    def forget(self) -> None:
        """Begin anew in a forked child, where the thread does not exist."""
        self._lock = threading.Lock()
        self._left_behind.append(self._loop)
        self._loop = self._thread = None
        self._users = 0


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


loop_thread = LoopThread()
"""The one that offloaded calls share."""

at_fork(before=loop_thread.stop_if_idle, child=loop_thread.forget)
