"""The clock and the random numbers that all modules of the library share."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from math import inf

from .._platform.greenlets import GreenletTimer, lock_here
from .._platform.unpatched import native, threads_are_real, wall_time
from ..typing import Clock, Timer
from .threads.async_exception import find_sender, interruption_for, withdraw
from .threads.callbacks import call_due_and_wait
from .threads.chain import deadlines_here, due, unmasked
from .threads.watchdog import watchdog

_LONGEST_WAIT = 86400.0 if sys.platform != "win32" else 0.1
"""Seconds until a sleep is continued: up to CPython 3.13, Ctrl-C does not end the wait for a lock on Windows."""
_RealLock = type(native.allocate_lock())


class Alarm:
    """An alarm that ends one sleep early, from any thread; the sleeping thread may use it again."""

    __slots__ = ("_end_sleep", "rings")

    def __init__(self) -> None:
        self.rings = False
        """Whether the alarm rang, before the sleep or during it."""
        self._end_sleep: Callable[[], object] | None = None

    def ring(self) -> None:
        """End the sleep; a sleep that has not started yet then ends at once."""
        self.rings = True
        if (end_sleep := self._end_sleep) is not None:
            end_sleep()

    def ends(self, sleep: Callable[[], object] | None) -> None:
        """Use the alarm for a sleep, which ends when *sleep* is called and then reads ``rings``."""
        self._end_sleep = sleep


def raise_if_expired(now: float) -> None:
    """Raise ``Interrupted`` if a deadline of this thread has passed at *now* and has not interrupted the thread yet."""
    deadlines = deadlines_here()
    if deadlines.innermost is not None:
        if deadlines.in_flight is not None:
            withdraw(deadlines)
        if (entry := due(deadlines, now)) is not None:
            call_due_and_wait(deadlines, now)
            raise interruption_for(deadlines, entry)


def next_deadline() -> float:
    """Return when a deadline next interrupts this thread: infinity means never, minus infinity means now."""
    deadlines = deadlines_here()
    awaited = (entry for entry in unmasked(deadlines) if id(entry) not in deadlines.sent)
    return min((-inf if id(entry) in deadlines.requested else entry[0] for entry in awaited), default=inf)


def _sleep(seconds: float, alarm: Alarm | None = None) -> None:
    deadlines = deadlines_here()
    end = native.monotonic() + seconds
    if not deadlines.is_main:
        find_sender()  # from now on, an exception that other code sends ends the sleep, too
    gate = lock_here()
    gate.acquire()

    def open_gate() -> None:
        try:
            gate.release()
        except RuntimeError:
            pass  # the gate is open already

    # A sleep ends by itself at its deadline, and no call on the main thread is interrupted on request. So the watchdog
    # need not release a lock there that switches greenlets.
    outer = deadlines.gate  # the gate of an enclosing sleep, when the handler of a signal sleeps
    deadlines.gate = open_gate if isinstance(gate, _RealLock) or not deadlines.is_main else None
    try:
        if alarm is not None:
            alarm.ends(open_gate)
        while True:
            now = native.monotonic()
            raise_if_expired(now)
            if now >= end or (alarm is not None and alarm.rings):
                return
            gate.acquire(timeout=max(0.0, min(end - now, next_deadline() - now, _LONGEST_WAIT)))
    finally:
        deadlines.gate = outer


def _call_at(when: float, callback: Callable[[], object]) -> Timer:
    return watchdog.call_at(when, callback) if threads_are_real() else GreenletTimer(when, callback)  # pyright: ignore[reportReturnType]


class _SystemClock:
    monotonic = staticmethod(native.monotonic)
    random = staticmethod(random.random)
    sleep = staticmethod(_sleep)
    call_at = staticmethod(_call_at)


class SharedClock:
    """The clock of the library: the clock of the system, or a replacement.

    Its functions are stored as attributes, so that a use of the clock costs only the call of that function.
    """

    __slots__ = ("call_at", "changes", "is_virtual", "monotonic", "random", "sleep", "wall_time")

    monotonic: Callable[[], float]
    """Seconds since an arbitrary moment; never decreases."""
    random: Callable[[], float]
    """A number in [0, 1)."""
    sleep: Callable[..., None]
    """Block the thread for a number of seconds, or until the ``Alarm`` that may be passed rings.

    Raises ``Interrupted`` as soon as a deadline of the thread passes.
    """
    call_at: Callable[[float, Callable[[], object]], Timer]
    """Run a short callback as soon as ``monotonic()`` has reached a moment."""
    changes: int
    """The number of times that the clock was replaced; moments from before a replacement mean nothing after it."""
    is_virtual: bool
    """Whether the time differs from the system's."""
    wall_time: Callable[[], float]
    """Seconds since 1970; the time of a replacement continues from the system's time."""

    def __init__(self) -> None:
        self.changes = 0
        self._adopt(_SystemClock, is_virtual=False)

    def use(self, other: Clock) -> None:
        """Use *other*, which interrupts its own sleeping threads and loops; deadlines interrupt nothing else then."""
        watchdog.pause()
        self._adopt(other, is_virtual=True)

    def use_system(self) -> None:
        """Use the clock of the system again."""
        self._adopt(_SystemClock, is_virtual=False)
        watchdog.resume()

    def _adopt(self, other: Clock | type[_SystemClock], is_virtual: bool) -> None:
        self.changes += 1
        self.is_virtual = is_virtual
        ahead = wall_time() - other.monotonic()
        self.wall_time = (lambda: other.monotonic() + ahead) if is_virtual else wall_time
        self.monotonic = other.monotonic
        self.random = other.random
        self.sleep = other.sleep
        self.call_at = other.call_at


chance = random.random
"""A random number in [0, 1) for uses outside of calls, so that a test's clock gives its calls the same numbers."""

clock = SharedClock()
"""The clock that the whole library uses."""
