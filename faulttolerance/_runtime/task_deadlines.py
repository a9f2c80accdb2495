"""Deadlines of coroutines: the task is cancelled, and told apart from a cancellation that came from outside.

Every deadline of one length on one loop stands in one ordered dict, oldest first, and the loop has one timer for the
oldest. A call that ends in time costs an insertion and a removal; the timer finds out later that it is gone.
"""

from __future__ import annotations

import asyncio

from ..exceptions import TimeoutException
from .clock import clock
from .task_deadline import TaskDeadline, current
from .ticket import Ticket

__all__ = ["Ring", "begin", "conclude", "ring_of"]

_RINGS = "__faulttolerance_rings__"


class Ring:
    """The deadlines of one length on one event loop, in the order in which they pass."""

    __slots__ = ("_timer", "loop", "pending")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.pending: dict[TaskDeadline, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, deadline: TaskDeadline) -> None:
        """Watch *deadline*, which passes later than every other one of this ring."""
        self.pending[deadline] = None
        if self._timer is None:
            self._arm(deadline.when)

    def _arm(self, when: float) -> None:
        self._timer = self.loop.call_later(max(0.0, when - clock.monotonic()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        while self.pending:
            oldest = next(iter(self.pending))
            if oldest.when > clock.monotonic():
                self._arm(oldest.when)
                return
            del self.pending[oldest]
            oldest.expire()


def ring_of(loop: asyncio.AbstractEventLoop, seconds: float) -> Ring:
    """The ring of *loop* for deadlines of this length; it lives as long as the loop does."""
    rings: dict[float, Ring] | None = getattr(loop, _RINGS, None)
    if rings is None:
        rings = {}
        setattr(loop, _RINGS, rings)
    ring = rings.get(seconds)
    if ring is None:
        ring = rings[seconds] = Ring(loop)
    return ring


def begin(when: float, seconds: float) -> TaskDeadline:
    """Put the running task under a deadline that passes at *when*, *seconds* after the attempt began."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task(loop)
    ring = ring_of(loop, seconds)
    cancelling = task.cancelling() if task is not None else 0
    deadline = TaskDeadline(when, current.get(), task, cancelling, ring.pending)
    ring.add(deadline)
    current.set(deadline)
    return deadline


def conclude(ticket: Ticket, error: BaseException | None, message: str) -> BaseException | None:
    """What an attempt comes to whose deadline was taken back: *error*, nothing, or ``TimeoutException``."""
    deadline = ticket.deadline
    assert deadline is not None
    if deadline.expired:
        if deadline.cancelled and deadline.task.uncancel() > deadline.cancelling and error is not None:
            return error  # cancelled from outside as well: that one must not be lost
    elif clock.monotonic() < deadline.when or (error is not None and not isinstance(error, Exception)):
        return error
    ticket.timed_out = True
    late = TimeoutException(message)
    late.__cause__ = error
    return late
