"""The event loop that awaits for callers without a loop; it is started at its first use."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .._platform.daemon import wait_until_gone
from .._platform.fork import at_fork

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_JOIN_SECONDS = 1.0


class LoopThread:
    """A daemon thread that runs an event loop."""

    def __init__(self) -> None:
        self.loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
        """Creates the loop; ``None`` creates an ordinary loop. Virtual time sets it."""
        # Reentrant: where a greenlet replaces the thread, other greenlets of this thread run until it has started.
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None  # guarded by _lock
        self._thread: threading.Thread | None = None  # guarded by _lock
        self._users = 0  # guarded by _lock
        self._left_behind: list[object] = []
        """The loops of the parent process: closing a loop in a child would unregister its descriptors in the parent."""

    def acquire(self) -> asyncio.AbstractEventLoop:
        """Return the running loop, and keep it running until ``release``.

        Raises:
            RuntimeError: No thread can be started, because the interpreter is ending.
        """
        import asyncio

        with self._lock:
            if self._loop is None:
                self._loop = loop = (self.loop_factory or asyncio.new_event_loop)()
                self._thread = threading.Thread(target=_run, args=(loop,), name="faulttolerance-loop", daemon=True)
                try:
                    self._thread.start()
                except BaseException:
                    self._loop = self._thread = None
                    loop.close()
                    raise
            self._users += 1
            return self._loop

    def release(self) -> None:
        """Release one use of the loop."""
        with self._lock:
            self._users -= 1

    def stop_if_idle(self) -> None:
        """Stop the thread if the loop has no users, and wait until it is gone."""
        with self._lock:
            loop, thread = self._loop, self._thread
            if loop is None or thread is None or self._users:
                return
            self._loop = self._thread = None
            loop.call_soon_threadsafe(loop.stop)
        thread.join(_JOIN_SECONDS)
        wait_until_gone(thread.native_id)

    def forget(self) -> None:
        """Reset the state in a forked child, where the thread does not exist."""
        self._lock = threading.RLock()
        self._left_behind.append(self._loop)
        self._loop = self._thread = None
        self._users = 0


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


loop_thread = LoopThread()
"""The loop thread that offloaded calls share."""

at_fork(child=loop_thread.forget)
