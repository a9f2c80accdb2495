"""Deadlines of the running thread: how an attempt begins and concludes one, and how much time is left.

An attempt begins a deadline by the plain store ``deadlines.innermost = (when, deadlines.innermost)``, having noted
*deadlines* and what stood there before, so that it can take the deadline back whatever happens. It does so by the plain
store ``deadlines.innermost = outer``, as the first thing after the body, and asks ``conclude`` then. An interruption
that was sent before may be raised from whatever is called next; it is expected until ``conclude`` has returned.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial
from math import inf
from sys import modules
from typing import TYPE_CHECKING

from .._log import WARNING, log
from .._platform.unpatched import allows_watching
from .._strategy.verdict import deadline_outcome, is_late
from .clock import clock, raise_if_expired
from .gevent import watch_in_hub
from .parent import pass_on
from .task import current
from .threads.async_exception import Interrupted, withdraw
from .threads.chain import HAS_GIL, BlockDeadline, Entry, ThreadDeadlines, deadlines_here, this_thread
from .threads.main_thread import main_thread
from .threads.pending_interrupt import OTHER_GREENLETS
from .threads.watchdog import watchdog

if TYPE_CHECKING:
    from .attempt_record import AttemptRecord

NOT_WANTED = "interrupt=False"

_LATE = 0.05
"""Seconds after its deadline from which on it is said where a call stood; Python code is usually interrupted before."""


def be_watched(deadlines: ThreadDeadlines, when: float) -> None:
    """See to it that the watchdog looks at *deadlines* by *when*, and that its thread can be interrupted then.

    To be called where ``not deadlines.is_ready or when < watchdog.next``.
    """
    if "gevent" in modules and len(deadlines.innermost) == 2 and not watchdog.is_paused:
        watch = watch_in_hub(deadlines)
        if watch is not None:
            watch.wake_at(when)
    if deadlines.is_greenlet:
        if len(deadlines.innermost) == 2 and deadlines.hub_watch is None:
            deadlines.is_ready = "gevent" not in modules
            _tell_of_greenlets()
        return
    if not deadlines.is_ready and deadlines.is_main:
        main_thread.install_handler(deadlines)
    if when < watchdog.next:
        watchdog.wake()


def settle(deadlines: ThreadDeadlines, entry: Entry) -> None:
    """Withdraw the interruption that is on its way to this thread for *entry*, which is over."""
    if deadlines.in_flight is entry:
        withdraw(deadlines)


def conclude(
    record: AttemptRecord, error: BaseException | None, message: Callable[[AttemptRecord], str]
) -> BaseException | None:
    """Return the outcome of an attempt whose deadline was taken back: *error*, nothing, or ``TimeoutException``.

    Args:
        record: The attempt; ``timed_out`` is set where it ends by its own deadline.
        error: What the body raised, or an ``Interrupted`` that was raised after it; ``None``: it returned.
        message: Gives what the ``TimeoutException`` of *record* is to say.
    """
    deadlines, entry = record.deadlines, record.entry
    assert deadlines is not None
    try:
        settle(deadlines, entry)
        ended = clock.monotonic()
    except Interrupted as late:
        error = late
        ended = clock.monotonic()
    outcome = conclude_at(record, deadlines, entry, error, ended, message)
    if record.timed_out and deadlines.heirs:
        pass_on(deadlines, entry)
    return outcome


def conclude_at(
    record: AttemptRecord,
    deadlines: ThreadDeadlines,
    entry: Entry,
    error: BaseException | None,
    ended: float,
    message: Callable[[AttemptRecord], str],
) -> BaseException | None:
    """Say the same of one that *ended* under *entry*, in its caller's thread or in one of the pool."""
    is_own, was_interrupted = _is_own(deadlines, entry, error), id(entry) in deadlines.sent
    if not is_late(error, ended, entry[0], is_own, was_interrupted):  # as nearly all: no text is made for these
        record.timed_out = False
        return error
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
        _tell_where_it_stood(deadlines, entry, ended, outcome)
    return outcome


def _tell_where_it_stood(deadlines: ThreadDeadlines, entry: Entry, ended: float, outcome: BaseException) -> None:
    """Say in the note of a late end, and in one line of the log, where the watchdog saw the body at its deadline."""
    pending = deadlines.pending_interrupt
    if pending is None or pending.entry is not entry or pending.sighting is None:
        return
    if pending.seen_at is not None and ended - pending.seen_at > _LATE:
        outcome.__notes__[0] += f"; it stood {pending.sighting}; give it remaining()"
        log(WARNING, "%s: %s", outcome, outcome.__notes__[0])


def _is_own(deadlines: ThreadDeadlines, entry: Entry, error: BaseException | None) -> bool:
    if isinstance(error, Interrupted):
        return error.owner is entry
    # The loop that ran in the call was told to end, and did so in its own way.
    return deadlines.cancelled is entry and isinstance(error, sys.modules["asyncio"].CancelledError)


def _why_not_interrupted(deadlines: ThreadDeadlines, entry: Entry) -> str:
    if deadlines.called is entry:
        return ""  # it ended by what on_deadline called
    if len(entry) == 3:
        return str(entry[2])
    if clock.is_virtual:
        return "under virtual time only the library's own sleeps are interrupted"
    if deadlines.withdrawn is entry:
        return "it was in a call that is no Python code; only one that waits can be interrupted, on the main thread"
    if deadlines.is_greenlet:
        return "it ran in a greenlet"
    if not allows_watching:
        return "it ran in an isolated sub-interpreter"
    pending = deadlines.pending_interrupt
    if pending is not None and pending.entry is entry and pending.why is not None:
        if pending.why == OTHER_GREENLETS:
            _tell_of_greenlets()
        return pending.why
    if not HAS_GIL and not (deadlines.is_main and main_thread.owns_signal()):
        return "without the GIL only the main thread is interrupted, by a signal"
    return ""


@cache
def _tell_of_greenlets() -> None:
    """Say once that there are calls that no deadline interrupts, and what does."""
    log(
        WARNING,
        "deadlines interrupt no call that runs in a greenlet without a hub of gevent, nor one during which other"
        " greenlets run in its thread: such calls end late, by themselves; let what they wait for have a time-out of"
        " its own, or put it under eventlet.Timeout(remaining(), TimeoutError)",
    )


def interrupt(deadlines: ThreadDeadlines, entry: Entry) -> None:
    """Raise ``Interrupted`` in the thread of *deadlines* while *entry* stands in its chain, whatever the clock says.

    *entry* may be about to be put there.
    """
    deadlines.requested[id(entry)] = (entry, clock.monotonic())
    if deadlines.is_greenlet:
        if (gate := deadlines.gate) is not None:
            gate()
        elif deadlines.hub_watch is not None:
            deadlines.hub_watch.look_soon()
    else:
        watchdog.rouse()


def see_to(deadlines: ThreadDeadlines) -> None:
    """Have *deadlines* looked at, one of which has passed; called on any thread."""
    if deadlines.hub_watch is not None:
        deadlines.hub_watch.look_soon()
    else:
        watchdog.wake()


_get_current = current.get  # each call finds it anew otherwise


def remaining() -> float | None:
    """Return the seconds left to the innermost deadline of the running call, the nearest one where they differ.

    0.0 once it has passed, ``None`` where there is none; in threads and in coroutines.
    """
    soonest = inf
    entry = (this_thread.deadlines if "greenlet" not in modules else deadlines_here()).innermost
    deadline = _get_current().counts
    if entry is None and deadline is None:
        return None
    while entry is not None:
        if type(entry) is not list and entry[0] < soonest and not (type(entry) is BlockDeadline and entry.is_at_rest):
            soonest = entry[0]
        entry = entry[1]
    while deadline is not None:
        if deadline.when < soonest and deadline.counts is deadline:
            soonest = deadline.when
        deadline = deadline.previous
    return None if soonest == inf else max(0.0, soonest - clock.monotonic())


def sleep(seconds: float) -> None:
    """Block the thread for *seconds*; any interruption ends it, at once and on every thread.

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
