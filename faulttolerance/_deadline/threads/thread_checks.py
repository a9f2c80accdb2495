"""The watchdog's round, which finds the deadlines that have passed and interrupts their threads."""

from __future__ import annotations

import os
import sys
from functools import partial
from itertools import takewhile
from math import inf
from types import FrameType

from ..._platform.atomic import frames_of_threads, stack_of
from ..._platform.fork import at_fork
from ..._platform.frames import module_of
from ..._platform.unpatched import native
from .activity import cpu_of
from .application import is_application, is_standard
from .async_exception import find_sender, send
from .callbacks import are_running, call_due
from .chain import (
    Depth,
    Entry,
    ThreadDeadlines,
    deadlines_of_threads,
    depth,
    due,
    forget_other_threads,
    is_in_chain,
    lateness,
    this_thread,
    unmasked,
)
from .inner_loop import find_loop
from .instructions import ACQUIRE_RELEASE, callee_at, may_call
from .main_thread import main_thread
from .pending_interrupt import OTHER_GREENLETS, PendingInterrupt
from .roles import calls_guarded_function, has_deadline, is_ours, is_timed_attempt
from .safe_point import IS_EXACT, Stack, cleans_up, frames_of_call, is_of_call, position, reason_unsafe
from .sleeper import sleeper_in
from .watchdog import watchdog

_PATIENCE_WITH_CALLS = 0.04
"""Seconds in which a call off the main thread may end by its own time-out; less than a lateness that is reported."""
_PATIENCE_WITH_ONE_CALL = 0.25
"""As ``_PATIENCE_WITH_CALLS``, for the call of the deadline's moment: its time-out may count from its own start."""
_PATIENCE_WITH_DATA = 1.0
"""Seconds in which installed code that goes on after a deadline does not lose what it receives."""
_SOON = 0.0005
"""Seconds until the next look at a thread whose ``on_deadline`` functions run first."""


def check_threads() -> float:
    """Interrupt every thread with a passed deadline that is at a safe point; return the moment of the next look."""
    soonest = inf
    threads = deadlines_of_threads()
    for deadlines in threads:
        if deadlines.callbacks and not watchdog.is_paused:
            call_due(deadlines, native.monotonic())  # first: an interrupted thread leaves the block
    for deadlines in threads:
        if deadlines.innermost is not None:
            if not (deadlines.is_main and main_thread.owns_signal()) or main_thread.misses_signals:
                find_sender()
            soonest = min(soonest, _check_thread(deadlines))
    return soonest


def _check_thread(deadlines: ThreadDeadlines) -> float:
    now = native.monotonic()
    soonest = inf
    if not watchdog.is_paused:
        soonest = min((entry[0] for entry in unmasked(deadlines) if entry[0] > now), default=inf)
    soonest = min(soonest, _remove_requests(deadlines, now))
    if (entry := due(deadlines, -inf if watchdog.is_paused else now)) is not None:
        soonest = min(soonest, _interrupt_when_safe(deadlines, entry, now))
    return soonest


def _remove_requests(deadlines: ThreadDeadlines, now: float) -> float:
    """Remove requests that were met, or whose call is over or has not started within 1 s; return the next look."""
    soonest = inf
    for key, (entry, since) in list(deadlines.requested.items()):
        if key in deadlines.sent:
            deadlines.requested.pop(key, None)
        elif not is_in_chain(deadlines, entry):
            if now - since > 1.0:
                deadlines.requested.pop(key, None)
            else:
                soonest = now + 0.001
    return soonest


def _interrupt_when_safe(deadlines: ThreadDeadlines, entry: Entry, now: float) -> float:
    """Interrupt one thread for one deadline if it is at a safe point; return the moment of the next look."""
    if (gate := deadlines.gate) is not None:
        gate()  # a thread that sleeps there raises the interruption itself
        return now + 0.001
    by_signal = deadlines.is_main and main_thread.owns_signal()
    in_flight, pending = deadlines.in_flight, deadlines.pending_interrupt
    if in_flight is not None and (id(in_flight) in deadlines.sent or not by_signal):
        return inf  # under way, or about to be withdrawn
    if by_signal and main_thread.misses_signals and pending is not None and pending.send_at > now:
        by_signal = False  # a signal was sent, and ends a wait; nothing else notices it
    if not (by_signal or find_sender()):
        return inf
    if pending is None or pending.entry is not entry:
        pending = deadlines.pending_interrupt = PendingInterrupt(entry)
    late_by = lateness(deadlines, entry, now)
    if deadlines.callbacks and are_running(deadlines, late_by):
        return now + _SOON
    frame = frames_of_threads().get(deadlines.ident)
    if frame is not None and _interrupt(deadlines, pending, stack_of(frame), late_by, by_signal):
        return inf
    return pending.next_check_at(late_by)


def _interrupt(
    deadlines: ThreadDeadlines, pending: PendingInterrupt, stack: Stack, late_by: float, by_signal: bool
) -> bool:
    """Interrupt a thread that has *stack* if that is safe; return whether the exception was sent."""
    entry = pending.entry
    if "greenlet" in sys.modules and not is_of_call(stack, entry):
        pending.why = OTHER_GREENLETS
        return False
    layers = depth(deadlines, entry)
    pending.seen_at = pending.seen_at or native.monotonic()
    pending.location = pending.location or _locate_body(stack, layers)
    if (loop := find_loop(stack, layers)) is not None:
        if not pending.has_cancelled_loop:
            pending.has_cancelled_loop = loop.schedule_cancel(deadlines, entry)
        if loop.is_idle and (late_by < 1.0 or loop.is_compiled):
            return False  # the loop is about to end by itself
    if _send_if_safe(deadlines, pending, stack, late_by, layers, by_signal):
        return True
    watchdog.switches_often = watchdog.switches_often or pending.needs_more_switches(late_by)
    return False


def _send_if_safe(
    deadlines: ThreadDeadlines, pending: PendingInterrupt, stack: Stack, late_by: float, layers: Depth, by_signal: bool
) -> bool:
    """Send the thread the exception or the signal if that is safe; return whether the exception was sent."""
    frame, now = stack[0], native.monotonic()
    activity = main_thread.activity(deadlines) if by_signal and pending.why is not None else None
    sleeper = sleeper_in(frame)
    cpu = activity.cpu() if activity is not None else cpu_of(deadlines.native_id)
    pending.look(position(frame), cpu, now)
    is_still = now - pending.since >= max(0.01, 2.5 * sys.getswitchinterval())
    # A thread that woke up by itself may only wait for the interpreter, and would be hit at the end of its wait.
    may_be_awake = not (by_signal or IS_EXACT) and sleeper is not None and sleeper.is_timed
    why = _reason_to_wait(pending, stack, now, by_signal) or reason_unsafe(
        stack,
        late_by,
        exact=by_signal or IS_EXACT,
        asleep=is_still and cpu > 0.0 if may_be_awake else pending.looks > 1,
        stuck=is_still and not by_signal,
        may_wait=not pending.goes_round,
        blind=by_signal and main_thread.lacks_activity,
        depth=layers,
    )
    pending.record_reason(why)
    if not by_signal:
        seen_at = pending.seen_at or now
        is_patient = now < min(seen_at + _PATIENCE_WITH_ONE_CALL, pending.went_on_at + _PATIENCE_WITH_CALLS)
        if is_patient and sleeper is None and _may_end_by_itself(pending, stack, layers):
            return False
        return why is None and send(deadlines, pending, frame, sleeper)
    if pending.send_at > now:
        return False
    misses_signals = why is None and _needs_exception(pending, stack, late_by, layers)
    if misses_signals and send(deadlines, pending, frame, sleeper):
        return True
    if why is None or pending.has_moved:
        # A moving thread is elsewhere by the time that it notices; the handler checks that place.
        main_thread.send(deadlines, pending)
    elif (
        activity is not None
        and is_still
        and reason_unsafe(stack, late_by, exact=True, blocked=True, depth=layers) is None
    ):
        main_thread.send(deadlines, pending, activity)
    return False


def _may_end_by_itself(pending: PendingInterrupt, stack: Stack, layers: Depth) -> bool:
    """Return whether a thread waits in a call that no exception ends, or cleans up after a failed call.

    The call may have a time-out of its own, for which ``remaining()`` exists, and which ends it when the deadline
    passes. An exception that was sent meanwhile would be raised in the middle of the cleanup.
    """
    frame = stack[0]
    if (pending.waits or pending.is_first) and may_call(frame.f_code, frame.f_lasti):
        name, _ = callee_at(frame.f_code, frame.f_lasti)
        if name.rpartition(".")[2] != "sleep":  # ``sleep`` never fails
            return True
    return cleans_up(stack, layers)


def _reason_to_wait(pending: PendingInterrupt, stack: Stack, now: float, by_signal: bool) -> str | None:
    """Return why not to interrupt a thread, even if its place is safe.

    It costs less than a look at all frames, which would be repeated while the thread receives.
    """
    receiver = next(step for step in stack if module_of(step) != "ssl")  # whose sockets receive in a call of theirs
    receives = not by_signal and callee_at(receiver.f_code, receiver.f_lasti)[0].rpartition(".")[2].startswith("recv")
    is_patient = now - pending.went_on_at < _PATIENCE_WITH_DATA
    if receives and is_patient and not (is_application(receiver) or is_standard(receiver)):
        return f"it was receiving in {_function_in(receiver)}"  # the data would be lost, and the stream out of step
    return None


def _needs_exception(pending: PendingInterrupt, stack: Stack, late_by: float, layers: Depth) -> bool:
    """Return whether to send the main thread an exception instead, which it notices where it stands, or soon.

    A signal is noticed at the next place where the thread checks for signals. If that place is in code that is never
    interrupted, as in a loop that only calls such code, or under a trace function, every signal would have no effect.
    """
    if not pending.signals or may_call(stack[0].f_code, stack[0].f_lasti):
        return False
    return (IS_EXACT or reason_unsafe(stack, late_by, exact=False, depth=layers) is None) and find_sender()


def _locate_body(stack: Stack, layers: Depth) -> str | None:
    """Return the place of a body at its deadline, and the line of the application that led there, for messages.

    Returns:
        The place of the body whose extent on *stack* is *layers*; ``None`` if the body has not begun, or has ended.
    """
    steps = takewhile(lambda step: has_deadline(step) or not is_timed_attempt(step), frames_of_call(stack, layers))
    body = [step for step in steps if not is_ours(step)]
    if body:
        what, application = _function_in(body[0]), next((step for step in body if is_application(step)), body[0])
    else:
        caller = next((step for step in stack if is_application(step) and not is_ours(step)), None)
        if caller is None or not calls_guarded_function(stack[0]):
            return None
        what, application = "code that is not Python", caller
    return f"in {what}, from {os.path.basename(application.f_code.co_filename)}:{application.f_lineno}"


def _function_in(frame: FrameType) -> str:
    """Return the name of what *frame* runs; a function written in C has no frame, so the code that calls it has it."""
    name = frame.f_code.co_qualname
    callee, is_global = callee_at(frame.f_code, frame.f_lasti)
    if is_application(frame):
        return callee or name
    if is_global and "." in callee:
        return callee
    last = callee.rpartition(".")[2]
    return f"{module_of(frame)}.{last if last and last not in ACQUIRE_RELEASE else name}"


def _restart_in_child() -> None:
    """Continue in the child of a fork: the deadlines of the forking thread still hold, all others are gone."""
    main_thread.restart_in_child()
    forget_other_threads()
    for callback in this_thread.deadlines.callbacks:
        callback.is_over = True  # the thread of its call does not exist here
    if this_thread.deadlines.innermost is not None:
        main_thread.install_handler(this_thread.deadlines)
    watchdog.restart_in_child()


# C code counts the forks, because no signal's handler raises in it. Hooks run in reverse order before a fork only.
at_fork(parent=watchdog.forks.pop)
at_fork(before=watchdog.stop, parent=watchdog.restart, child=_restart_in_child)
at_fork(before=partial(watchdog.forks.append, None))
