"""Time and chance, in one place: everything else in the library asks the one clock that it shares."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import inf

from .._platform.greenlets import lock_here, timer_here
from .._platform.unpatched import native, wall_time
from ..typing import Clock, Timer
from .threads.async_exception import interruption_for, withdraw
from .threads.cancels import make_due_first
from .threads.chain import deadlines_here, due, unmasked
from .threads.watchdog import watchdog

_LONGEST_WAIT = 86400.0
_RealLock = type(native.allocate_lock())


class Alarm:
    """Ends one sleep early, from any thread; whoever sleeps may set it again."""

    __slots__ = ("_end_sleep", "_order", "rings")

    def __init__(self) -> None:
        self.rings = False
        """Whether it rang, before the sleep or in it."""
        self._end_sleep: Callable[[], object] | None = None
        # Always empty. Without the GIL, who empties it between storing and looking sees what the other one stored.
        self._order: list[object] = []

    def ring(self) -> None:
        """End the sleep; one that has yet to begin ends at once."""
        self.rings = True
        self._order.clear()
        end_sleep = self._end_sleep
        if end_sleep is not None:
            end_sleep()

    def ends(self, sleep: Callable[[], object] | None) -> None:
        """Let it end a sleep by calling *sleep*, which looks at ``rings`` afterwards."""
        self._end_sleep = sleep
        self._order.clear()


def raise_if_expired(now: float) -> None:
    """Raise ``Interrupted`` for a deadline of this thread that has passed at *now* and has not interrupted it yet."""
    deadlines = deadlines_here()
    if deadlines.innermost is not None:
        if deadlines.in_flight is not None:
            withdraw(deadlines)
        entry = due(deadlines, now)
        if entry is not None:
            make_due_first(deadlines, now)
            raise interruption_for(deadlines, entry)


def next_deadline() -> float:
    """Tell when a deadline is next going to interrupt this thread; infinity: none does, minus infinity: now."""
    deadlines = deadlines_here()
    soonest = inf
    for entry in unmasked(deadlines):
        if id(entry) not in deadlines.sent:
            soonest = min(soonest, entry[0] if id(entry) not in deadlines.requested else -inf)
    return soonest


def _sleep(seconds: float, alarm: Alarm | None = None) -> None:
    deadlines = deadlines_here()
    end = native.monotonic() + seconds
    gate = lock_here()
    gate.acquire()

    def open_gate() -> None:
        try:
            gate.release()
        except RuntimeError:
            pass  # it is open

    # At its deadline a sleep ends by itself, and nobody gives up a call of the main thread; so the watchdog need not
    # open a lock there that switches greenlets.
    outer = deadlines.gate  # of the sleep in which a signal's handler sleeps
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
    return timer_here(when, callback) or watchdog.call_at(when, callback)


class _SystemClock:
    monotonic = staticmethod(native.monotonic)
    random = staticmethod(random.random)
    sleep = staticmethod(_sleep)
    call_at = staticmethod(_call_at)


def _wall_time_of(other: Clock | type[_SystemClock]) -> Callable[[], float]:
    ahead = wall_time() - other.monotonic()
    return lambda: other.monotonic() + ahead


class SharedClock:
    """The clock that the library uses: the system's, or another one in its place.

    Its parts are attributes, so that asking it costs no call but the one of the part.
    """

    __slots__ = ("call_at", "changes", "is_virtual", "monotonic", "random", "sleep", "wall_time")

    monotonic: Callable[[], float]
    """Seconds since some moment; never goes back."""
    random: Callable[[], float]
    """A number in [0, 1)."""
    sleep: Callable[..., None]
    """Block the thread for seconds, or until the ``Alarm`` that may be given rings.

    Raises ``Interrupted`` as soon as one of the thread's deadlines passes.
    """
    call_at: Callable[[float, Callable[[], object]], Timer]
    """Run a short callback once ``monotonic()`` has reached a moment."""
    changes: int
    """How often another clock was put in place: moments from before a change say nothing after it."""
    is_virtual: bool
    """Whether time is another one than the system's."""
    wall_time: Callable[[], float]
    """Seconds since 1970; another clock's go on from where the system's stood."""

    def __init__(self) -> None:
        self.changes = 0
        self._take(_SystemClock, is_virtual=False)

    def use(self, other: Clock) -> None:
        """Follow *other*, which interrupts its own sleepers and loops; deadlines interrupt nobody else meanwhile."""
        watchdog.pause()
        self._take(other, is_virtual=True)

    def use_system(self) -> None:
        """Follow the system's time again."""
        self._take(_SystemClock, is_virtual=False)
        watchdog.resume()

    def _take(self, other: Clock | type[_SystemClock], is_virtual: bool) -> None:
        self.changes += 1
        self.is_virtual = is_virtual
        self.wall_time = _wall_time_of(other) if is_virtual else wall_time
        self.monotonic = other.monotonic
        self.random = other.random
        self.sleep = other.sleep
        self.call_at = other.call_at


chance = random.random
"""A number in [0, 1), for what is no call's: the clock of a test gives its calls the same numbers each time."""

clock = SharedClock()
"""The one that everything in the library asks."""
