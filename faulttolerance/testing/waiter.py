"""Threads that wait for the virtual clock."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod

from .._deadline.threads.chain import ThreadDeadlines, due


class VirtualTimeStalled(BaseException):
    """Time cannot pass: a thread inside a guard waits for something that is no business of the clock.

    Raised where the library sleeps; the message names who holds time, and where. Raised as well where a guarded
    coroutine begins on an event loop that does not follow the clock. It is no ``Exception``, so that no retry, fallback
    or handler of the code under test takes it for a failure of the call.
    """


class Waiter(ABC):
    """A thread that waits for the clock. The fields are guarded by the clock's lock."""

    def __init__(self) -> None:
        self.ident = threading.get_ident()
        self.when = 0.0
        """The moment at which it is due; infinite where only another thread can wake it."""
        self.order = 0
        """Its place among what is due at the same moment: the order in which it was asked for."""
        self.failure: str | None = None
        """The reason why the moment does not come, if it does not."""

    @abstractmethod
    def wake(self) -> None:
        """Let the thread go on; called under the clock's lock."""

    def is_awake(self) -> bool:
        """Whether the thread is about to go on without having been woken by the clock."""
        return False

    def conclude(self) -> None:
        """Raise ``VirtualTimeStalled`` if that is how the waiting ended."""
        if self.failure is not None:
            raise VirtualTimeStalled(self.failure)


class Sleeper(Waiter):
    """A thread that sleeps in the library.

    Args:
        deadlines: Those that may end its sleep; ``None``: only the clock does.
    """

    def __init__(self, deadlines: ThreadDeadlines | None = None) -> None:
        super().__init__()
        self._deadlines = deadlines
        self._gate = threading.Lock()
        self._gate.acquire()

    def sleep(self) -> None:
        """Block until woken."""
        self._gate.acquire()

    def is_awake(self) -> bool:
        """Whether an interruption that was asked for, as of a call that is cancelled, is on its way to the thread."""
        return self._deadlines is not None and due(self._deadlines, -math.inf) is not None

    def wake(self) -> None:
        """Let the thread go on, or not block at all where it is about to."""
        try:
            self._gate.release()
        except RuntimeError:
            pass  # two wake it at once
