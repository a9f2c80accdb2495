"""A thread that sleeps in ``Condition.wait``, as most waits for a queue, a semaphore, an event or a future do.

A notification wakes a sleeper and removes it from the condition's queue. A sleeper that must be interrupted is removed
first, so that it does not consume a notification that was meant for another sleeper. A sleeper that is no longer in the
queue was notified, and continues by itself with the object of its wait. No thread notifies while the condition's lock
is held.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from ..._platform.atomic import once, variables_of
from .instructions import callee_at

_CONDITION_WAIT = threading.Condition.wait.__code__
_LOCKS = (_thread.LockType, _thread.RLock)


class Sleeper:
    """A sleeping thread that can be interrupted, in steps of C code between which no other thread runs."""

    def __init__(self, frame: FrameType) -> None:
        variables = variables_of(frame)
        condition = variables.get("self")
        self._waiter: Any = variables.get("waiter")
        lock = getattr(condition, "_lock", None)
        self._lock: Any = getattr(lock, "__wrapped__", lock)  # the profiler of an agent wraps locks
        self._queue: Any = getattr(condition, "_waiters", None)
        self.is_timed = variables.get("timeout") is not None
        """Whether the thread also wakes up by itself."""
        self.is_usual = isinstance(self._lock, _LOCKS) and isinstance(self._waiter, _LOCKS)
        """Whether the locks are the interpreter's own."""

    def steps(self) -> tuple[Iterator[bool], Iterator[object], Iterator[object], Iterator[object]]:
        """Return iterators that take the condition's lock if it is free, remove the sleeper, wake it, release the lock.

        The second iterator raises ``ValueError`` if the sleeper is not in the queue.
        """
        return (
            once(self._lock.acquire, False),
            once(self._queue.remove, self._waiter),
            once(self._waiter.release),
            once(self._lock.release),
        )

    def leave(self) -> bool:
        """Remove the sleeper from the queue, on its own thread; return whether it was still there."""
        if not self.is_usual:
            return True  # an assumption: unusual locks cannot be checked
        for is_free in once(self._lock.acquire, False):  # no signal's handler comes between the call and the ``try``
            if is_free:
                try:
                    self._queue.remove(self._waiter)
                    return True
                except ValueError:
                    return False
                finally:
                    self._lock.release()
        return False


def is_in_condition_wait(frame: FrameType) -> bool:
    """Return whether *frame* is a frame of ``Condition.wait``."""
    return frame.f_code is _CONDITION_WAIT


def sleeper_in(frame: FrameType) -> Sleeper | None:
    """Return the sleeper whose innermost frame is *frame*; ``None`` if there is no sleeper."""
    return Sleeper(frame) if is_in_condition_wait(frame) else None


def is_asleep(frame: FrameType) -> bool:
    """Return whether *frame*, of ``Condition.wait``, sleeps; the ``finally`` around it takes the lock again."""
    sleeps = callee_at(frame.f_code, frame.f_lasti)[0] == "waiter.acquire"
    return sleeps and "gotit" in variables_of(frame)  # its first call of this name comes before the lock's release
