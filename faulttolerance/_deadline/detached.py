"""Deadlines of ``deadline`` that end the detached calls made under them, and deadlines of offloaded calls (rule D4)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from weakref import ref

from .._platform.loop_callback import while_alive
from ..typing import Timer
from .clock import clock
from .task import EXPIRED, NO_LOOP, TaskDeadline, current, effective_deadline


class DetachedCallWatch:
    """The watch that ends a detached call at the nearest of the deadlines under which it was made.

    Args:
        deadlines: These deadlines. One that passed while its block or call lasted counts even after that is over.
        call_later: Runs a short callback after a number of seconds.
        end: Ends the call.
    """

    __slots__ = ("__weakref__", "_call_later", "_deadlines", "_end", "_timer", "has_ended")

    def __init__(
        self,
        deadlines: list[TaskDeadline],
        call_later: Callable[[float, Callable[[], object]], Timer],
        end: Callable[[], object],
    ) -> None:
        self._deadlines = deadlines
        self._call_later = call_later
        self._end: Callable[[], object] | None = end
        self._timer: Timer | None = None
        self.has_ended = False
        """Whether it has ended the call."""

    def check(self) -> None:
        """End the call if the nearest binding deadline has passed; otherwise schedule the next check."""
        end, bound = self._end, (one for one in self._deadlines if one.effective is one or one.state >= EXPIRED)
        when = min((one.when for one in bound), default=inf)
        if end is None or when == inf:
            return
        seconds = when - clock.monotonic()
        if seconds <= 0.0:
            self.cancel()
            self.has_ended = True
            end()
        else:
            self._timer = self._call_later(seconds, partial(while_alive, ref(self), DetachedCallWatch.check))

    def cancel(self) -> None:
        """Stop the checks."""
        self._end = None
        if self._timer is not None:
            self._timer.cancel()


def begin_call_deadline(seconds: float, when: float, what: str) -> TaskDeadline:
    """Start and return the deadline of an offloaded call, which passes at *when*, and which no event loop watches."""
    deadline = TaskDeadline()
    deadline.start(when, effective_deadline(current.get()))
    deadline.queue = NO_LOOP
    deadline.is_binding = True
    current.set(deadline)
    return deadline
