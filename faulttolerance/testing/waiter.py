"""Threads that wait for the virtual clock, and the steps in which its time passes."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from .._deadline.threads.chain import ThreadDeadlines, due

T = TypeVar("T")

_TICKS = 2**30
"""Virtual time moves in steps of about a nanosecond, so that no sum of durations depends on when the test began."""


def in_ticks(seconds: float) -> float:
    """Return *seconds*, or 0 if negative, rounded up to the next step of virtual time."""
    return math.ceil(seconds * _TICKS) / _TICKS if 0.0 < seconds < _TICKS else max(0.0, seconds)


def settle(future: Future[T], function: Callable[[], T]) -> None:
    """Call *function* and set the outcome of *future*."""
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001  # it is the future's to raise
        future.set_exception(error)
    else:
        future.set_result(result)


class VirtualTimeStalled(BaseException):
    """The error when time cannot pass: a thread inside a guard waits for something outside the clock's control.

    It is raised where the library sleeps; the message names the threads that hold time, and where. It is raised as well
    where a guarded coroutine begins on an event loop that does not follow the clock. It is no ``Exception``, so that no
    retry, fallback or handler of the code under test treats it as a failure of the call.
    """


class Waiter:
    """A thread that waits for the clock. The fields are guarded by the clock's lock.

    Args:
        deadlines: The deadlines that may end its sleep; ``None``: only the clock ends it.
    """

    def __init__(self, deadlines: ThreadDeadlines | None = None) -> None:
        self.ident = threading.get_ident()
        self.when = 0.0
        """The moment at which it is due; infinite where only another thread can wake it."""
        self.order = 0.0
        """Its place among what is due at the same moment: the order of the requests; infinite: behind all others."""
        self.failure: str | None = None
        """The reason why the moment does not come, if it does not."""
        self._deadlines = deadlines
        self._gate = threading.Lock()
        self._gate.acquire()

    def sleep(self) -> None:
        """Block until woken."""
        self._gate.acquire()

    def is_awake(self) -> bool:
        """Return whether a requested interruption, as of a cancelled call, is on its way to the thread."""
        return self._deadlines is not None and due(self._deadlines, -math.inf) is not None

    def wake(self) -> None:
        """Wake the thread, or prevent its next block where it is about to block; called under the clock's lock, too."""
        try:
            self._gate.release()
        except RuntimeError:
            pass  # two wake it at once

    def conclude(self) -> None:
        """Raise ``VirtualTimeStalled`` if the wait ended that way."""
        if self.failure is not None:
            raise VirtualTimeStalled(self.failure)
