"""Deadlines of coroutines, which cancel the task, and the distinction from a cancellation from outside.

All deadlines of one length on one loop stand in one ordered dict, the oldest first, and the loop has one timer for the
oldest. A call that ends in time costs an insertion and a removal; the timer notices later that the deadline is gone.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextvars import Context
from functools import partial
from itertools import islice

from .._platform.event_loop import kept_on, running_loop
from .._platform.loop_callback import to_its_end
from .._platform.unpatched import get_ident
from .._strategy.verdict import deadline_outcome
from .attempt_record import AttemptRecord
from .clock import clock
from .task import CANCELLED, DEFERRED, EXPIRED, NO_TASK, RUNNING, TaskDeadline, current

_QUEUES = "__faulttolerance_deadlines__"  # ``begin_deadline`` reads the attribute without this constant

if sys.version_info >= (3, 12):
    current_task = asyncio.current_task
else:
    # The look-up of ``current_task`` in these versions, without a Python call.
    current_task = asyncio.tasks._current_tasks.get  # type: ignore[attr-defined]


_modules = sys.modules
_get_loop = asyncio._get_running_loop
_get_current, _set_current = current.get, current.set  # bound once: the look-up in each call costs 40 ns


class Expiry:
    """A short callback that is due after a duration which many callbacks on the loop share."""

    __slots__ = ("expire", "queue", "when")

    queue: DeadlineQueue

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, callback: Callable[[], object]) -> None:
        self.expire = callback
        self.when = clock.monotonic() + seconds
        queue_of(loop, seconds).add(self)

    def cancel(self) -> None:
        """Remove the callback."""
        self.queue.pending.pop(self, None)


class DeadlineQueue:
    """The deadlines of one length on one event loop, in the order in which they pass."""

    __slots__ = ("ident", "loop", "pending", "seconds", "timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self.loop = loop
        self.seconds = seconds
        self.ident = 0
        """The thread that ran the loop when a deadline was last about to be added; 0: none was since the last look."""
        self.pending: dict[TaskDeadline | Expiry, None] = {}
        self.timer: asyncio.TimerHandle | None = None

    def add(self, deadline: TaskDeadline | Expiry) -> None:
        """Watch *deadline*, which passes later than all others in this queue."""
        deadline.queue = self
        self.pending[deadline] = None
        if self.timer is None:
            self.arm(deadline.when)

    def arm(self, when: float) -> None:
        """Schedule the next check of the queue at *when*; no other check is scheduled."""
        seconds = max(0.0, when - clock.monotonic())
        # Without the context of the running task, which each timer would pass to the next.
        self.timer = Context().run(self.loop.call_later, seconds, to_its_end(self._tick), None)

    def disarm(self) -> None:
        """Cancel the check that is scheduled, if any."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _tick(self) -> None:
        self.disarm()  # in a repeated call, this may already be the next timer
        while self.pending:
            oldest = next(iter(self.pending))
            if oldest.when > clock.monotonic():
                self.arm(oldest.when)
                return
            oldest.expire()
            self.pending.pop(oldest, None)
        queues = queues_of(self.loop)
        if queues.get(self.seconds) is self:
            del queues[self.seconds]


def queues_of(loop: asyncio.AbstractEventLoop) -> dict[float, DeadlineQueue]:
    """Return the queues of *loop* by the length of their deadlines."""
    return kept_on(loop, _QUEUES, dict)


def queue_of(loop: asyncio.AbstractEventLoop, seconds: float) -> DeadlineQueue:
    """Return the queue of *loop*, which runs on this thread, for deadlines of *seconds*."""
    queues = queues_of(loop)
    queue = queues.get(seconds)
    if queue is None:
        _remove_unused(queues)
        queue = queues[seconds] = DeadlineQueue(loop, seconds)
    queue.ident = get_ident()
    return queue


def _remove_unused(queues: dict[float, DeadlineQueue]) -> None:
    """Remove queues that were not used between two looks: lengths that are remaining times of callers do not recur.

    Each new length looks at some of the others in turn, so that there are few more queues than are in use.
    """
    for seconds in [*islice(queues, 4)]:
        queue = queues.pop(seconds)
        if queue.ident or queue.pending:
            queue.ident = 0
            queues[seconds] = queue
        else:
            queue.disarm()


def begin_deadline(
    seconds: float, when: float, what: str, make: Callable[[], TaskDeadline] = TaskDeadline
) -> TaskDeadline:
    """Start and return a deadline of the running task that passes at *when*, in *seconds*; *make* creates the object.

    Raises:
        FaultToleranceException: No task of asyncio runs, and *what* needs one.
    """
    latest = _get_current()
    queue, ident = latest.queue, get_ident()
    if queue.ident != ident or (task := current_task(queue.loop)) is None:
        loop = _get_loop()
        if loop is None or "trio" in _modules or (task := current_task(loop)) is None:
            loop = running_loop(what)
            task = current_task(loop)
        try:  # as ``queue_of``, without a call: nearly every request runs in a new task
            queue = loop.__faulttolerance_deadlines__[seconds]  # type: ignore[attr-defined]
            queue.ident = ident
        except (AttributeError, KeyError):
            queue = queue_of(loop, seconds)
    elif queue.seconds != seconds:
        queue = queue_of(queue.loop, seconds)
    previous = latest.effective
    while previous is not None and previous.effective is not previous:
        previous = previous.effective
    deadline = make()
    deadline.when = when
    deadline.previous = previous
    deadline.cancelling = task.cancelling()
    deadline.state = RUNNING
    deadline.task = task
    deadline.queue = queue
    if queue.timer is None:
        queue.arm(when)
    try:
        deadline.effective = deadline
        _set_current(deadline)
        # Last, and followed by no call: the caller holds the deadline before any exception can come in between.
        queue.pending[deadline] = None
    except BaseException:
        deadline.effective = previous
        raise
    return deadline


def conclude(
    record: AttemptRecord, error: BaseException | None, message: Callable[[AttemptRecord], str]
) -> BaseException | None:
    """Return the outcome of an attempt whose deadline was removed: *error*, ``None``, or ``TimeoutException``."""
    deadline = record.deadline
    ended, is_cancelled = clock.monotonic(), isinstance(error, asyncio.CancelledError)
    if deadline.state != RUNNING or (is_cancelled and ended >= deadline.when):
        cancelling = deadline.task.uncancel() if deadline.state == CANCELLED else deadline.task.cancelling()
        if cancelling > deadline.cancelling:
            if error is not None:
                return error  # also cancelled from outside, and that cancellation must not be lost
        elif is_cancelled:
            deadline.state = EXPIRED  # the detached call that the task awaits ended at this deadline
    deadline.task = NO_TASK  # the task refers to the deadline by its context
    return conclude_at(record, deadline, error, ended, message)


def conclude_at(
    record: AttemptRecord,
    deadline: TaskDeadline,
    error: BaseException | None,
    ended: float,
    message: Callable[[AttemptRecord], str],
) -> BaseException | None:
    """Return the outcome of an attempt that *ended* under *deadline*, in its caller's task or in its own."""
    was_interrupted = deadline.state >= EXPIRED
    is_own = was_interrupted and isinstance(error, asyncio.CancelledError)
    outcome = deadline_outcome(
        error,
        ended,
        deadline.when,
        partial(message, record),
        partial(_why_not_interrupted, deadline),
        is_own=is_own,
        was_interrupted=was_interrupted,
    )
    record.timed_out = outcome is not error
    return outcome


def _why_not_interrupted(deadline: TaskDeadline) -> str:
    return "it was in an uninterruptible() block" if deadline.state == DEFERRED else "the event loop was kept busy"
