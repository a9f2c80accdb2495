"""A thread that sleeps in ``Condition.wait``, as most that wait for a queue, a semaphore, an event or a future do.

Who notifies wakes a sleeper and takes it off the condition's queue. A sleeper that is to be interrupted is taken off
first: then no notification is spent on it that was meant for another one. One that is not there any more has been
notified, and goes on by itself with what it was woken for. Nobody notifies as long as the condition's lock is held.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Iterator
from functools import cache
from itertools import dropwhile
from types import FrameType
from typing import Any

from ..._platform.atomic import once, variables_of
from .instructions import calls_of

_CONDITION_WAIT = threading.Condition.wait.__code__
_LOCKS = (_thread.LockType, type(threading.RLock()))


class Sleeper:
    """A sleeping thread that can be interrupted, by steps of C code between which no other thread runs."""

    def __init__(self, frame: FrameType) -> None:
        variables = variables_of(frame)
        condition = variables.get("self")
        self._waiter: Any = variables.get("waiter")
        self._lock: Any = getattr(condition, "_lock", None)
        self._queue: Any = getattr(condition, "_waiters", None)
        self.is_timed = variables.get("timeout") is not None
        """Whether the thread also wakes up by itself."""
        self.is_usual = isinstance(self._lock, _LOCKS) and isinstance(self._waiter, _LOCKS)
        """Whether the locks are the interpreter's own."""

    def steps(self) -> tuple[Iterator[bool], Iterator[object], Iterator[object], Iterator[object]]:
        """Give what takes the condition's lock if that is free, takes the sleeper off, wakes it, gives the lock back.

        The second one raises ``ValueError`` where the sleeper is not on the queue.
        """
        return (
            once(self._lock.acquire, False),
            once(self._queue.remove, self._waiter),
            once(self._waiter.release),
            once(self._lock.release),
        )

    def leave(self) -> bool:
        """Take the sleeper off the queue, on its own thread; return whether it was still there."""
        if not self.is_usual:
            return True  # as well as can be told
        takes, leaves, _, gives = self.steps()
        has_left = False
        for is_free in takes:
            if is_free:
                try:
                    for _ in leaves:
                        has_left = True
                except ValueError:
                    break
                finally:
                    for _ in gives:
                        break
        return has_left


def is_in_condition_wait(frame: FrameType) -> bool:
    """Tell whether *frame* is that of ``Condition.wait``."""
    return frame.f_code is _CONDITION_WAIT


def sleeper_in(frame: FrameType) -> Sleeper | None:
    """Return the sleeper whose innermost frame this is, if it is one."""
    return Sleeper(frame) if is_in_condition_wait(frame) else None


def sleeps_in_condition_wait(frame: FrameType) -> bool:
    """Tell whether *frame* is in a call in which ``Condition.wait`` sleeps."""
    return frame.f_lasti in _sleeping_calls()


@cache
def _sleeping_calls() -> frozenset[int]:
    """Return the calls that come once the condition's lock is released; the ``finally`` around them takes it again."""
    calls = dropwhile(lambda call: "_release_save" not in call[2], calls_of(_CONDITION_WAIT))
    return frozenset(offset for offset, _, loaded in calls if "acquire" in loaded)
