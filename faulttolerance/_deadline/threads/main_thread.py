"""Interrupting the main thread, by a signal: that ends calls in which it waits, too, and is handled where it stands.

The signal is sent, and at times sent again, until the handler finds that the place is good, and raises.
"""

from __future__ import annotations

import signal
import sys
from itertools import dropwhile, islice
from math import inf
from types import FrameType
from typing import cast

from ..._platform.atomic import once, stack_of
from ..._platform.swap import Swap
from ..._platform.unpatched import get_ident, native
from .activity import Activity, sleeps
from .async_exception import interruption_for
from .chain import (
    HAS_GIL,
    ThreadDeadlines,
    current_greenlet,
    deadlines_of_threads,
    depth,
    is_open,
    lateness,
    this_thread,
)
from .pending_interrupt import OTHER_GREENLETS, OURS, PendingInterrupt
from .safe_point import place, reason_unsafe
from .sleeper import sleeper_in
from .watchdog import watchdog

_SEND_AGAIN = (0.001, 0.005, 0.05, 0.5, 1.0)
"""Seconds after which a signal is repeated: one that comes just before a blocking call is lost.

Code in C that waits in turns, and looks only between them whether a signal has come, may begin its turn anew at each
(gRPC: 0.2 s).
"""
_MOST_LOOKS = 250
"""How often to ask the system, while no other thread runs, whether a signal has arrived; some milliseconds."""
_CAN_SIGNAL = hasattr(signal, "pthread_kill")
_DEFAULT_SIGNAL: int | None = getattr(signal, "SIGURG", None)


class MainThread:
    """The signal that interrupts the main thread, and what is known of how it takes that."""

    def __init__(self) -> None:
        self.signum = _DEFAULT_SIGNAL
        """The signal that interrupts blocking calls of the main thread; ``None``: nothing does."""
        self.is_deaf = False
        """Whether the main thread notices signals in blocking calls only."""
        self.is_blind = False
        """Whether the system does not tell what the main thread does."""
        self._installed: int | None = None
        self._activity: Activity | None = None

    def owns_signal(self) -> bool:
        """Tell whether our handler stands; an application may have put its own in the place at any time."""
        return self.signum is not None and _CAN_SIGNAL and signal.getsignal(self.signum) is on_signal

    def install_handler(self, deadlines: ThreadDeadlines) -> None:
        """Have the signal handled here, if nothing else handles it; called by the main thread, with its deadlines."""
        deadlines.is_ready = True
        signum, installed = self.signum, self._installed
        try:
            if installed is not None and installed != signum:
                if signal.getsignal(installed) is on_signal:
                    signal.signal(installed, signal.SIG_DFL)
                self._installed = None
            if signum is not None and _CAN_SIGNAL and signal.getsignal(signum) in (signal.SIG_DFL, on_signal):
                signal.signal(signum, on_signal)
                self._installed = signum
        except ValueError:  # the main thread of a sub-interpreter: signals are not its own
            self.signum = None

    def activity(self, deadlines: ThreadDeadlines) -> Activity | None:
        """Return what the system tells of the main thread, where it does."""
        if self._activity is None and not self.is_blind:
            try:
                self._activity = Activity(deadlines.ident)
            except (ImportError, AttributeError, OSError):
                self.is_blind = True
        return self._activity

    def begin_anew(self) -> None:
        """Look at another main thread, in the child of a fork."""
        # CPython 3.13 goes on to tell of signals whoever was the main thread before.
        self.is_deaf = HAS_GIL and sys.version_info >= (3, 13) and (self.is_deaf or get_ident() != native.main_ident)
        self.is_blind = False
        if self._activity is not None:
            self._activity.close()
            self._activity = None

    def send(self, deadlines: ThreadDeadlines, pending: PendingInterrupt, activity: Activity | None = None) -> None:
        """Send the signal; with *activity* only if that shows the main thread blocked at this very moment."""
        kill = once(signal.pthread_kill, deadlines.ident, cast("int", self.signum))
        watchdog.busy = deadlines
        deadlines.in_flight = pending.entry
        is_sent = False
        if not HAS_GIL:
            deadlines.order.clear()
        if is_open(deadlines, pending.entry):
            if activity is None:
                is_sent = next(kill, 0) is None
            else:
                # No other thread runs from the first look to the last. So nothing but the signal can end what the main
                # thread waits for: it has come out of that with nothing taken once it has run, and sleeps again, for
                # the interpreter's lock. Otherwise the handler, at the same place, is to refuse.
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
    """Raise ``Interrupted`` in the main thread where a deadline has passed and this is the place for it."""
    deadlines = this_thread.deadlines
    entry, seen_blocked = deadlines.in_flight, deadlines.seen_blocked
    deadlines.seen_blocked = None  # it held for this moment
    if entry is None or id(entry) in deadlines.sent or not is_open(deadlines, entry) or frame is None:
        return
    pending = deadlines.pending_interrupt
    if current_greenlet() is not None:
        if pending is not None:
            pending.why = OTHER_GREENLETS
        return
    blocked = seen_blocked is not None and seen_blocked == place(frame)
    late_by = lateness(deadlines, entry, native.monotonic())
    layers, blind = depth(deadlines, entry), main_thread.is_blind or not HAS_GIL
    stack = stack_of(frame)
    why = reason_unsafe(stack, late_by, exact=True, asleep=True, blocked=blocked, blind=blind, depth=layers)
    if why == OURS and not HAS_GIL:
        # Nobody has seen whether the thread is blocked in the call of a guarded function, or has just come out of it.
        # What that returned comes too late in either case.
        why = reason_unsafe(stack, late_by, exact=True, asleep=True, blocked=True, depth=layers)
    sleeper = sleeper_in(frame) if why is None else None
    if sleeper is not None and not sleeper.leave():
        why = "it was being notified"
    if why is None:
        raise interruption_for(deadlines, entry)
    if pending is not None:
        pending.refuse(why)
        pending.refused_at = place(frame)
        pending.send_at = -inf  # this one was not lost, and need not be waited for


def can_interrupt(signum: object) -> bool:
    """Tell whether a handler can be installed for *signum*."""
    uncatchable = (getattr(signal, name, None) for name in ("SIGKILL", "SIGSTOP"))
    return (
        isinstance(signum, int)
        and signum is not True
        and signum in signal.valid_signals()
        and signum not in uncatchable
    )


def put_interrupt_signal(signum: int | None, swap: Swap) -> None:
    """Let this signal interrupt blocking calls of the main thread once *swap* takes place; ``None``: they end late.

    The next guarded call on the main thread installs the handler, and only where the signal has none.
    """
    swap.attribute(main_thread, "signum", signum)
    for deadlines in deadlines_of_threads():
        swap.attribute(deadlines, "is_ready", not deadlines.is_main)


def set_interrupt_signal(signum: int | None = _DEFAULT_SIGNAL) -> None:
    """Let this signal interrupt blocking calls of the main thread at once; see ``put_interrupt_signal``."""
    swap = Swap()
    put_interrupt_signal(signum, swap)
    swap.take_place()
