"""Deadlines of the running thread: start, conclusion and remaining time.

An attempt starts a deadline with the plain store ``deadlines.innermost = (when, deadlines.innermost)``. Before that it
records *deadlines* and the previous entry, so that it can always remove the deadline. It removes the deadline with the
plain store ``deadlines.innermost = outer`` as the first step after the body, and then calls ``conclude``. An
interruption that was sent earlier may be raised in any function that is called next. The attempt expects it until
``conclude`` has returned.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial
from math import inf
from sys import modules
from typing import TYPE_CHECKING

from .._cause import links_of
from .._log import DEBUG, WARNING, log
from .._platform.event_loop import loop_here
from .._platform.fork import is_torn
from .._platform.unpatched import allows_watching
from .._strategy.verdict import deadline_outcome
from .clock import clock, raise_if_expired
from .gevent import watch_in_hub
from .parent import mark_missed
from .task import current, effective_deadlines
from .threads.async_exception import Interrupted, withdraw
from .threads.chain import BindingMark, BlockDeadline, Entry, ThreadDeadlines, deadlines_here, this_thread, uncovered
from .threads.main_thread import main_thread
from .threads.pending_interrupt import OTHER_GREENLETS
from .threads.watchdog import watchdog

if TYPE_CHECKING:
    from .attempt_record import AttemptRecord

NOT_WANTED = "interrupt=False"

_TORN = "C code forked its process beside threads, without Python's hooks; in uWSGI set py-call-uwsgi-fork-hooks"

_GREENLETS = (
    "deadlines do not interrupt a call that runs in a greenlet without a hub of gevent, or in a thread where other"
    " greenlets run meanwhile: such a call ends late, by itself; set a time-out on each operation it waits for"
)

_LATE = 0.05
"""The lateness in seconds from which on a note reports the place of the call; Python code is usually faster."""

_warned: set[str] = set()
"""The places that the log named at WARNING: a slow server makes every call there late, and the remedy is the same."""


def watch_deadline(deadlines: ThreadDeadlines, when: float) -> None:
    """Wake the watchdog for a deadline of *deadlines* at *when*, and prepare the thread for an interruption.

    To be called if ``not deadlines.is_ready or when < watchdog.next``.
    """
    if "gevent" in modules and len(deadlines.innermost) == 2 and not watchdog.is_paused:
        watch = watch_in_hub(deadlines)
        if watch is not None:
            watch.wake_at(when)
    if deadlines.is_greenlet:
        if len(deadlines.innermost) == 2 and deadlines.hub_watch is None:
            deadlines.is_ready = "gevent" not in modules
            _warn(_GREENLETS)
        return
    if not deadlines.is_ready and deadlines.is_main:
        main_thread.install_handler(deadlines)
    if when < watchdog.next:
        watchdog.wake()


def settle(deadlines: ThreadDeadlines, entry: Entry) -> None:
    """Withdraw the interruption that is on its way to this thread for *entry*, whose call is over."""
    if deadlines.in_flight is entry:
        withdraw(deadlines)


def conclude(
    record: AttemptRecord, error: BaseException | None, message: Callable[[AttemptRecord], str]
) -> BaseException | None:
    """Return the outcome of an attempt whose deadline was removed: *error*, ``None``, or ``TimeoutException``.

    Args:
        record: The attempt; sets its ``timed_out`` if its own deadline ended it.
        error: The exception of the body, or an ``Interrupted`` that was raised after the body; ``None``: it returned.
        message: Returns the message of the ``TimeoutException`` of *record*.
    """
    deadlines, entry = record.deadlines, record.entry
    assert deadlines is not None
    try:
        if deadlines.in_flight is entry:
            withdraw(deadlines)
        ended = clock.monotonic()
    except Interrupted as late:
        error = late
        ended = clock.monotonic()
    outcome = conclude_at(record, deadlines, entry, error, ended, message)
    if record.timed_out and deadlines.dependents:
        mark_missed(deadlines, entry)
    return outcome


def conclude_at(
    record: AttemptRecord,
    deadlines: ThreadDeadlines,
    entry: Entry,
    error: BaseException | None,
    ended: float,
    message: Callable[[AttemptRecord], str],
) -> BaseException | None:
    """Return the outcome of an attempt that *ended* under *entry*, on the caller's thread or a thread of the pool."""
    is_own, was_interrupted = _is_own(deadlines, entry, error), id(entry) in deadlines.sent
    outcome = deadline_outcome(
        error,
        ended,
        entry[0],
        partial(message, record),
        partial(_why_not_interrupted, deadlines, entry),
        is_own=is_own,
        was_interrupted=was_interrupted,
    )
    record.timed_out = outcome is not error
    if outcome is not None and record.timed_out and ended - entry[0] > _LATE and (is_own or not was_interrupted):
        _note_location(deadlines, entry, ended, outcome, is_own)
    return outcome


def _note_location(
    deadlines: ThreadDeadlines, entry: Entry, ended: float, outcome: BaseException, was_interrupted: bool
) -> None:
    """Add to the note of a late outcome, and to the log, where the watchdog saw the body at its deadline.

    If it interrupted the body later, add why not earlier.
    """
    pending = deadlines.pending_interrupt
    if pending is None or pending.entry is not entry or pending.location is None:
        return
    if pending.seen_at is not None and ended - pending.seen_at > _LATE:
        if was_interrupted and pending.why is not None:
            outcome.__notes__[0] += f"; it was not interrupted earlier: {pending.why}"
        outcome.__notes__[0] += f"; at its deadline it ran {pending.location}; pass remaining() there as a time-out"
        level = DEBUG if pending.location in _warned else WARNING
        _warned.add(pending.location)
        log(level, "%s: %s", outcome, outcome.__notes__[0])


def _is_own(deadlines: ThreadDeadlines, entry: Entry, error: BaseException | None) -> bool:
    if isinstance(error, Interrupted):
        return error.owner is entry
    if isinstance(error, BaseExceptionGroup) and not isinstance(error, Exception):  # of a task group in the call
        return all(isinstance(one, Exception) or _is_own(deadlines, entry, one) for one in error.exceptions)
    # The loop inside the call was cancelled for this deadline, and raised its own exception.
    return deadlines.cancelled is entry and isinstance(error, sys.modules["asyncio"].CancelledError)


def _why_not_interrupted(deadlines: ThreadDeadlines, entry: Entry) -> str:
    if deadlines.called is entry:
        return ""  # a function of on_deadline ended the call
    if len(entry) == 3:
        return str(entry[2])
    if clock.is_virtual:
        return "under virtual time only the library's own sleeps are interrupted"
    if deadlines.is_greenlet:
        return "it ran in a greenlet"
    if not allows_watching:
        return "it ran in an isolated sub-interpreter"
    if not (watchdog.forks or watchdog.start()):
        why = _TORN if is_torn() else "no thread could be started to interrupt it"
        _warn(f"deadlines interrupt no call of a thread: {why}")
        return why
    pending = deadlines.pending_interrupt
    if pending is not None and pending.entry is entry and pending.why is not None:
        if pending.why == OTHER_GREENLETS:
            _warn(_GREENLETS)
        return pending.why
    return ""


@cache
def _warn(message: str) -> None:
    """Log *message* once."""
    log(WARNING, "%s", message)


def interrupt(deadlines: ThreadDeadlines, entry: Entry) -> None:
    """Raise ``Interrupted`` in the thread of *deadlines* while *entry* stands in its chain, regardless of the clock.

    *entry* may also be added to the chain shortly after this call.
    """
    deadlines.requested[id(entry)] = (entry, clock.monotonic())
    if deadlines.is_greenlet:
        if (gate := deadlines.gate) is not None:
            gate()
        elif deadlines.hub_watch is not None:
            deadlines.hub_watch.look_soon()
    else:
        watchdog.rouse()


def examine_soon(deadlines: ThreadDeadlines) -> None:
    """Schedule an examination of *deadlines*, of which a deadline has passed; called on any thread."""
    if deadlines.hub_watch is not None:
        deadlines.hub_watch.look_soon()
    else:
        watchdog.wake()


_get_current = current.get  # bound once: an attribute look-up in each call costs time


def remaining() -> float | None:
    """Return the seconds left until the nearest deadline of the running call, including the deadlines around it.

    Returns 0.0 after the deadline has passed, and ``None`` if there is no deadline. Works in threads and in coroutines.
    """
    entry = (this_thread.deadlines if "greenlet" not in modules else deadlines_here()).innermost
    deadline = _get_current().effective
    if entry is None and deadline is None:
        return None
    soonest = inf
    while entry is not None:
        if type(entry) is not list and entry[0] < soonest and not (type(entry) is BlockDeadline and entry.is_at_rest):
            soonest = entry[0]
        entry = entry[1]
    while deadline is not None:
        if deadline.when < soonest and deadline.effective is deadline:
            soonest = deadline.when
        deadline = deadline.previous
    return None if soonest == inf else max(0.0, soonest - clock.monotonic())


def is_past(deadlines: ThreadDeadlines, *, binds_thread: bool = False, binds_task: bool = False) -> bool:
    """Return whether a deadline has passed that would interrupt code that starts now.

    Args:
        deadlines: The deadlines of this thread.
        binds_thread: Whether of them only those of a ``deadline`` count.
        binds_task: Whether of those of the running task only those of a ``deadline`` count.
    """
    if deadlines.innermost is None and current.get().effective is None:
        return False
    now = clock.monotonic()
    for entry in uncovered(deadlines):
        binds = type(entry) is BindingMark or (type(entry) is BlockDeadline and entry.is_binding)
        if entry[0] <= now and (binds or not binds_thread):
            return True
    deadlines_of_task = effective_deadlines(current.get())
    return any(one.when <= now and not one.is_held and (one.is_binding or not binds_task) for one in deadlines_of_task)


def is_outer(failure: BaseException, handled: BaseException | None) -> bool:
    """Return whether an enclosing deadline has passed, or *failure* came of a cancellation of the running task.

    Then no outcome is that of the call, as where its clean-up failed (rules R0, D3); see ``replaces_cancellation``.
    """
    deadlines = this_thread.deadlines if "greenlet" not in modules else deadlines_here()
    return is_past(deadlines) or (failure.__context__ is not handled and replaces_cancellation(failure, handled))


def replaces_cancellation(failure: BaseException, handled: BaseException | None) -> bool:
    """Return whether the running task is cancelled, and *failure* came of that, as of a clean-up that failed.

    A time-out or a failed task group did not: some libraries, and up to Python 3.12 a ``TaskGroup``, cancel the task
    for it, and never withdraw that request. Neither did a failure of a call that the clean-up itself makes, where its
    caller *handled* the cancellation.
    """
    if failure.__context__ is handled or (loop := loop_here()) is None:
        return False
    asyncio = modules["asyncio"]
    causes = (asyncio.CancelledError, TimeoutError, BaseExceptionGroup)
    cause = next((link for link, _ in links_of(failure, handled) if isinstance(link, causes)), None)
    task = asyncio.current_task(loop) if isinstance(cause, asyncio.CancelledError) else None
    return task is not None and task.cancelling() > 0


def ends_this(handled: BaseException | None) -> bool:
    """Return whether a deadline has passed that interrupts this thread, or ends the calls that are made under it.

    None ends the calls of a clean-up, where the caller *handled* the interruption: they started later.
    """
    if handled is not None and not isinstance(handled, Exception):
        return False
    return is_past(this_thread.deadlines if "greenlet" not in modules else deadlines_here(), binds_task=True)


def sleep(seconds: float) -> None:
    """Block the thread for *seconds*; every interruption ends the sleep at once, on every thread.

    Raises:
        Interrupted: A deadline of the running call passed, or the call was cancelled.
        ValueError: *seconds* is negative or not a number.
    """
    if not seconds >= 0:
        raise ValueError(f"cannot sleep for {seconds!r} seconds; allowed: a number >= 0")
    if seconds:
        clock.sleep(seconds)
    else:
        raise_if_expired(clock.monotonic())
