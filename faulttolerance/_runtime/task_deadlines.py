"""Deadlines of coroutines: the task is cancelled, and told apart from a cancellation that came from outside.

Every deadline of one length on one loop stands in one ordered dict, oldest first, and the loop has one timer for the
oldest. A call that ends in time costs an insertion and a removal; the timer finds out later that it is gone.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from .._strategy import deadline as lateness
from .attempt_record import AttemptRecord
from .callback import to_its_end
from .clock import clock
from .foreign import refuse_trio
from .native import get_ident
from .task_deadline import CANCELLED, EXPIRED, NO_TASK, OWED, Place, TaskDeadline

__all__ = ["Ring", "conclude", "conclude_at", "current_task", "own_place", "ring_of", "rings_of", "turn_to"]

_RINGS = "__faulttolerance_rings__"

if sys.version_info >= (3, 12):
    current_task = asyncio.current_task
else:
    # What ``current_task`` asks there, without a Python call.
    current_task = asyncio.tasks._current_tasks.get  # type: ignore[attr-defined]


class Ring:
    """The deadlines of one length on one event loop, in the order in which they pass."""

    __slots__ = ("loop", "pending", "timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.pending: dict[TaskDeadline, None] = {}
        self.timer: asyncio.TimerHandle | None = None

    def add(self, deadline: TaskDeadline) -> None:
        """Watch *deadline*, which passes later than every other one of this ring."""
        deadline.pending = self.pending
        self.pending[deadline] = None
        if self.timer is None:
            self.arm(deadline.when)

    def arm(self, when: float) -> None:
        """Look again at *when*, as nothing else is going to."""
        seconds = max(0.0, when - clock.monotonic())
        self.timer = self.loop.call_later(seconds, to_its_end(self._tick), None)

    def _tick(self) -> None:
        if self.timer is not None:
            self.timer.cancel()  # where this is called again, it may be the next one
            self.timer = None
        while self.pending:
            oldest = next(iter(self.pending))
            if oldest.when > clock.monotonic():
                self.arm(oldest.when)
                return
            oldest.expire()
            self.pending.pop(oldest, None)


def rings_of(loop: asyncio.AbstractEventLoop) -> dict[float, Ring]:
    """The rings of *loop* by the length of their deadlines; they live as long as the loop does."""
    rings: dict[float, Ring] | None = getattr(loop, _RINGS, None)
    if rings is None:
        rings = {}
        with suppress(AttributeError):  # a loop that takes no attributes gets a timer per call
            setattr(loop, _RINGS, rings)
    return rings


def ring_of(loop: asyncio.AbstractEventLoop, seconds: float) -> Ring:
    """The ring of *loop* for deadlines of this length."""
    try:
        return getattr(loop, _RINGS)[seconds]  # type: ignore[no-any-return]
    except (AttributeError, KeyError):
        ring = rings_of(loop)[seconds] = Ring(loop)
        return ring


def own_place(seconds: float, what: str) -> Place:
    """A place for the running task, whose first deadline is of this length.

    Raises:
        FaultToleranceException: The running task is none of asyncio's, in which *what* needs one.
    """
    refuse_trio(what)
    loop = asyncio.get_running_loop()
    task = current_task(loop)
    place = Place()
    place.task = task if task is not None else NO_TASK
    place.loop = loop
    place.ident = get_ident() if task is not None else 0
    place.seconds = seconds
    place.ring = ring_of(loop, seconds)
    return place


def turn_to(place: Place, seconds: float) -> None:
    """Let the next deadline of *place* be one of this length."""
    place.ring = ring_of(place.loop, seconds)
    place.seconds = seconds


def conclude(record: AttemptRecord, error: BaseException | None, message: Callable[[], str]) -> BaseException | None:
    """What an attempt comes to whose deadline was taken back: *error*, nothing, or ``TimeoutException``."""
    deadline = record.deadline
    assert deadline is not None
    if deadline.state == CANCELLED and deadline.task.uncancel() > deadline.cancelling and error is not None:
        return error  # cancelled from outside as well: that one must not be lost
    return conclude_at(record, deadline, error, clock.monotonic(), message)


def conclude_at(
    record: AttemptRecord, deadline: TaskDeadline, error: BaseException | None, ended: float, message: Callable[[], str]
) -> BaseException | None:
    """What an attempt comes to that *ended* under *deadline*, in its caller's task or in one of its own."""
    was_interrupted = deadline.state >= EXPIRED
    outcome = lateness.conclude(
        error,
        ended,
        deadline.when,
        message,
        partial(_why_not_interrupted, deadline),
        is_own=was_interrupted and isinstance(error, asyncio.CancelledError),
        was_interrupted=was_interrupted,
    )
    record.timed_out = outcome is not error
    return outcome


def _why_not_interrupted(deadline: TaskDeadline) -> str:
    """Why a coroutine went on beyond *deadline*."""
    return _HELD_BACK if deadline.state == OWED else _BUSY


_BUSY = "the event loop was kept busy"
_HELD_BACK = "it was in an uninterruptible() block"
