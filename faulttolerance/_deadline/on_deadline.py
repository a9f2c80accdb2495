"""A block of the application's code with a function that is called when a deadline passes (rule S1)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from inspect import iscoroutinefunction
from math import inf
from types import FrameType, TracebackType
from typing import Any

from .._platform.event_loop import loop_here
from .._platform.greenlets import lock_here
from ..typing import Timer
from .clock import clock, raise_if_expired
from .task import EXPIRED, NO_QUEUE, TaskDeadline, current, effective_deadlines
from .threads.callbacks import DeadlineCallback, call_due
from .threads.chain import BindingMark, Entry, ThreadDeadlines, deadlines_here, latest_of, uncovered


class on_deadline:  # noqa: N801
    """A ``with`` block inside a guarded body that calls *cancel* when the nearest deadline passes.

    Use it for code that no interruption ends: C code, and blocking calls off the main thread. ``connection.interrupt``
    of sqlite3, ``connection.cancel`` of psycopg, ``call.cancel`` of gRPC and ``sock.shutdown`` make such code fail. The
    exception that the body then raises becomes the cause of ``TimeoutException``.

    *cancel* is called at most once, without arguments, on a thread of the library. For the deadline of a coroutine, the
    event loop calls it before it cancels the task. *cancel* is never called after the block was left; the end of the
    block waits for a call that is under way. An exception of *cancel* is logged. The block does nothing if there is no
    deadline, or for deadlines that an ``uninterruptible()`` block holds back.

    Raises:
        TypeError: *cancel* cannot be called, or is a coroutine function.
        Interrupted: A deadline had passed before the block was entered.
    """

    def __init__(self, cancel: Callable[[], object]) -> None:
        if not callable(cancel) or iscoroutinefunction(cancel) or iscoroutinefunction(type(cancel).__call__):
            raise TypeError(f"on_deadline(cancel) is {cancel!r}; allowed: a function without arguments, not async def")
        self._cancel = cancel
        self._entered: list[_Registration] = []

    def __enter__(self) -> None:
        registration = _Registration(self._cancel, sys._getframe(1))
        try:
            raise_if_expired(clock.monotonic())
            self._entered.append(registration)
            registration.begin()
        except BaseException:
            self._remove(registration)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        registration: Any = None
        try:
            registration = latest_of(self._entered, sys._getframe(1))
            self._remove(registration)
        except BaseException:  # the handler of a signal raised; each step may be repeated
            self._remove(registration or latest_of(self._entered, sys._getframe(1)))
            raise

    def _remove(self, registration: _Registration) -> None:
        registration.end()
        if registration in self._entered:
            self._entered.remove(registration)


class _Registration:
    """One entry into a block, with the mechanism that calls its ``cancel``."""

    def __init__(self, function: Callable[[], object], holder: FrameType) -> None:
        self._cancel = DeadlineCallback(function, lock_here())
        self._callbacks: dict[DeadlineCallback, None] = {}
        self._timer: Timer | None = None
        self.holder = holder
        self.deadlines = deadlines_here()

    def begin(self) -> None:
        """Register for the nearest deadline of the running call, if there is a deadline."""
        cancel, deadlines = self._cancel, self.deadlines
        when, entry = _nearest_of_thread(deadlines)
        deadline = _nearest_of_task(when)
        if deadline is not None:
            cancel.when, cancel.is_effective = deadline.when, partial(_counts, deadline)
            if _is_of_running_loop(deadline):
                self._callbacks = deadline.callbacks_before()
                self._callbacks[cancel] = None
                return
        elif entry is not None:
            cancel.when, cancel.entry, cancel.is_effective = when, entry, partial(_is_uncovered, deadlines, entry)
        else:
            return
        self._callbacks = deadlines.callbacks
        self._callbacks[cancel] = None
        self._timer = clock.call_at(cancel.when, partial(_look, deadlines))

    def end(self) -> None:
        """Remove the registration; each step may be repeated."""
        self._cancel.revoke()
        self._callbacks.pop(self._cancel, None)
        if self._timer is not None:
            self._timer.cancel()


def _look(deadlines: ThreadDeadlines) -> None:
    call_due(deadlines, clock.monotonic())


def _nearest_of_thread(deadlines: ThreadDeadlines) -> tuple[float, Entry]:
    entries = (entry for entry in uncovered(deadlines) if type(entry) is not BindingMark)
    return min(((entry[0], entry) for entry in entries), key=lambda one: one[0], default=(inf, None))


def _nearest_of_task(before: float) -> TaskDeadline | None:
    """Return the nearest deadline before *before* that counts for the running context, or ``None``."""
    deadlines = (one for one in effective_deadlines(current.get()) if one.when < before and one.state < EXPIRED)
    return min((one for one in deadlines if not one.is_held), key=lambda one: one.when, default=None)


def _is_of_running_loop(deadline: TaskDeadline) -> bool:
    """Return whether the loop that watches *deadline* runs on this thread, so that *cancel* may use the loop."""
    loop, queue = loop_here(), deadline.queue
    return loop is not None and (queue is NO_QUEUE or queue.loop is loop)


def _counts(deadline: TaskDeadline) -> bool:
    return not deadline.is_held and (deadline.effective is deadline or deadline.state >= EXPIRED)


def _is_uncovered(deadlines: ThreadDeadlines, entry: Entry) -> bool:
    return any(other is entry for other in uncovered(deadlines))
