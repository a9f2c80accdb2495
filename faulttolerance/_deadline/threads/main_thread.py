"""The interruption of the main thread by a signal, which also ends its blocking calls.

The signal is sent, and repeated if needed, until its handler finds the thread at a safe point and raises there.
"""

from __future__ import annotations

import signal
import sys
from itertools import dropwhile, islice
from math import inf
from types import FrameType
from typing import cast

from ..._platform.atomic import once, stack_of
from ..._platform.fork import is_subinterpreter
from ..._platform.unpatched import get_ident, native
from .activity import Activity, sleeps
from .async_exception import interruption_for
from .chain import ThreadDeadlines, current_greenlet, deadlines_of_threads, depth, is_open, lateness, this_thread
from .inner_loop import find_loop
from .pending_interrupt import OTHER_GREENLETS, PendingInterrupt
from .safe_point import position, reason_unsafe
from .sleeper import sleeper_in
from .watchdog import watchdog

_SEND_AGAIN = (0.001, 0.005, 0.05, 0.5, 1.0)
"""Seconds after which a signal is repeated, because a signal that arrives just before a blocking call is lost.

C code that waits in turns, and checks for signals only between them, may restart its turn at each signal (gRPC: 0.2 s).
"""
_MOST_LOOKS = 250
"""The most checks, while no other thread runs, of whether a signal has arrived; they take some milliseconds."""
_CAN_SIGNAL = hasattr(signal, "pthread_kill")
_DEFAULT_SIGNAL: int | None = getattr(signal, "SIGURG", None)


class MainThread:
    """The signal that interrupts the main thread, and the known facts about its effect there."""

    def __init__(self) -> None:
        self.signum = _DEFAULT_SIGNAL
        """The signal that interrupts blocking calls of the main thread; ``None``: no signal does."""
        self.misses_signals = False
        """Whether the main thread notices signals only in blocking calls."""
        self.lacks_activity = False
        """Whether the system does not report the activity of the main thread."""
        self._installed: int | None = None
        self._activity: Activity | None = None

    def owns_signal(self) -> bool:
        """Return whether the library's handler is installed; an application may replace it at any time."""
        return self.signum is not None and _CAN_SIGNAL and signal.getsignal(self.signum) is on_signal

    def install_handler(self, deadlines: ThreadDeadlines) -> None:
        """Install the handler of the signal if it has no other; called by the main thread, with its *deadlines*."""
        deadlines.is_ready = True
        signum = None if is_subinterpreter() else self.signum
        try:
            if (installed := self._installed) is not None and installed != signum:
                if signal.getsignal(installed) is on_signal:
                    signal.signal(installed, signal.SIG_DFL)
                self._installed = None
            if signum is not None and _CAN_SIGNAL and signal.getsignal(signum) in (signal.SIG_DFL, on_signal):
                signal.signal(signum, on_signal)
                self._installed = signum
        except ValueError:  # the thread that has imported ``threading`` is not the one that receives signals
            self.signum = None

    def activity(self, deadlines: ThreadDeadlines) -> Activity | None:
        """Return the activity of the main thread; ``None`` if the system does not report it."""
        if self._activity is None and not self.lacks_activity:
            try:
                self._activity = Activity(deadlines.ident)
            except (ImportError, AttributeError, OSError):
                self.lacks_activity = True
        return self._activity

    def restart_in_child(self) -> None:
        """Reset the state for another main thread, in the child of a fork."""
        # CPython 3.13 continues to notify the previous main thread of signals.
        self.misses_signals = sys.version_info >= (3, 13) and (self.misses_signals or get_ident() != native.main_ident)
        self.lacks_activity = False
        if self._activity is not None:
            self._activity.close()
            self._activity = None

    def send(self, deadlines: ThreadDeadlines, pending: PendingInterrupt, activity: Activity | None = None) -> None:
        """Send the signal; if *activity* is passed, only while it shows that the main thread is blocked."""
        kill = once(signal.pthread_kill, deadlines.ident, cast("int", self.signum))
        watchdog.busy = deadlines
        deadlines.in_flight = pending.entry
        is_sent = False
        # The handler of an earlier signal may have raised meanwhile: what is in flight is withdrawn when the call ends.
        if is_open(deadlines, pending.entry) and id(pending.entry) not in deadlines.sent:
            if activity is None:
                is_sent = next(kill, 0) is None
            else:
                # No other thread runs from the first look to the last. So only the signal can end the wait of the main
                # thread. After the thread has run, it has left the wait with nothing taken, and sleeps again, for the
                # interpreter's lock. In every other case the handler, at the same place, must reject.
                cpu, at = pending.cpu, pending.at
                has_run = dropwhile(cpu.__eq__, islice(activity.clocks, 20 * _MOST_LOOKS))
                sleeps_again = filter(sleeps, islice(activity.states, _MOST_LOOKS))
                for state in activity.states:
                    for used in activity.clocks:
                        if used == cpu and b") S " in state:
                            for _ in kill:
                                is_sent = True
                                break
                            for _ in has_run:
                                for _ in sleeps_again:
                                    deadlines.seen_blocked = at
                                    break
                                break
                        break
                    break
        if is_sent:
            pending.send_at = native.monotonic() + _SEND_AGAIN[min(pending.signals, len(_SEND_AGAIN) - 1)]
            pending.signals += 1
        else:
            deadlines.in_flight = None
        watchdog.busy = None


main_thread = MainThread()


def on_signal(signum: int, frame: FrameType | None) -> None:
    """Raise ``Interrupted`` in the main thread if a deadline has passed and the thread stands at a safe point."""
    deadlines = this_thread.deadlines
    entry, seen_blocked = deadlines.in_flight, deadlines.seen_blocked
    deadlines.seen_blocked = None  # valid only for this signal
    if entry is None or id(entry) in deadlines.sent or not is_open(deadlines, entry) or frame is None:
        return
    pending = deadlines.pending_interrupt
    if current_greenlet() is not None:
        if pending is not None:
            pending.why = OTHER_GREENLETS
        return
    blocked = seen_blocked is not None and seen_blocked == position(frame)
    late_by, layers, stack = lateness(deadlines, entry, native.monotonic()), depth(deadlines, entry), stack_of(frame)
    why = reason_unsafe(
        stack,
        late_by,
        exact=True,
        asleep=True,
        blocked=blocked,
        may_wait=pending is None or not pending.goes_round,
        blind=main_thread.lacks_activity,
        depth=layers,
    )
    loop = find_loop(stack, layers) if why is None else None
    if loop is not None and loop.is_idle and loop.is_compiled:
        why = "it waited in an event loop of compiled code"
    sleeper = sleeper_in(frame) if why is None else None
    if sleeper is not None and not sleeper.leave():
        why = "it was being notified"
    if why is None:
        raise interruption_for(deadlines, entry)
    if pending is not None:
        pending.record_reason(why)
        pending.send_at = -inf  # this signal was not lost, so the next need not wait


def can_interrupt(signum: object) -> bool:
    """Return whether a handler can be installed for *signum*."""
    uncatchable = (getattr(signal, name, None) for name in ("SIGKILL", "SIGSTOP"))
    return (
        isinstance(signum, int)
        and signum is not True
        and signum in signal.valid_signals()
        and signum not in uncatchable
    )


def set_interrupt_signal(signum: int | None = _DEFAULT_SIGNAL) -> None:
    """Set *signum* as the signal that interrupts the main thread; ``None``: no signal does.

    The next guarded call on the main thread installs the handler, and only if the signal has no other handler.
    """
    main_thread.signum = signum
    for deadlines in deadlines_of_threads():
        deadlines.is_ready = not deadlines.is_main
