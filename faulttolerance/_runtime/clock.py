"""Time and chance, in one place: everything else in the library asks the one clock that it shares."""

from __future__ import annotations

import _thread
import random
import time
from collections.abc import Callable
from math import inf

from ..typing import Clock, Timer
from .slot import expired, slots, unmasked
from .watchdog import Interrupted, watchdog

__all__ = ["SharedClock", "clock", "next_deadline", "raise_if_expired"]


def raise_if_expired(now: float) -> None:
    """Raise ``Interrupted`` for a deadline of this thread that has passed at *now* and has not interrupted it yet."""
    slot = slots.slot
    if slot.top is None:
        return
    entry = expired(slot, now)
    if entry is not None:
        slot.sent += (entry,)
        slot.fired = entry
        raise Interrupted


def next_deadline() -> float:
    """When the next deadline interrupts this thread; infinity where there is none."""
    slot = slots.slot
    soonest = inf
    for entry in unmasked(slot.top):
        if not any(one is entry for one in slot.sent):
            soonest = min(soonest, -inf if any(one is entry for one in slot.asked) else entry[0])
    return soonest


def _sleep(seconds: float) -> None:
    slot = slots.slot
    end = time.monotonic() + seconds
    gate = _thread.allocate_lock()
    gate.acquire()

    def open_gate() -> None:
        try:
            gate.release()
        except RuntimeError:
            pass

    slot.gate = open_gate
    try:
        while True:
            now = time.monotonic()
            raise_if_expired(now)
            if now >= end:
                return
            gate.acquire(timeout=min(end, next_deadline()) - now)
    finally:
        slot.gate = None


class SharedClock:
    """The clock that the library uses: the system's, or another one in its place."""

    __slots__ = ("call_at", "is_virtual", "monotonic", "random", "sleep")

    monotonic: Callable[[], float]
    """Seconds since some moment; never goes back."""
    random: Callable[[], float]
    """A number in [0, 1)."""
    sleep: Callable[[float], None]
    """Block the thread, or raise ``Interrupted`` as soon as one of its deadlines passes."""
    call_at: Callable[[float, Callable[[], object]], Timer]
    """Run a short callback once ``monotonic()`` has reached a moment."""
    is_virtual: bool
    """Whether it is not the system's time that passes."""

    def __init__(self) -> None:
        self._use_parts_of_system()

    def _use_parts_of_system(self) -> None:
        self.is_virtual = False
        self.monotonic = time.monotonic
        self.random = random.random
        self.sleep = _sleep
        self.call_at = watchdog.call_at

    def use(self, other: Clock) -> None:
        """Follow *other*, which interrupts its own sleepers; the watchdog interrupts nobody meanwhile."""
        watchdog.pause()
        self.is_virtual = True
        self.monotonic = other.monotonic
        self.random = other.random
        self.sleep = other.sleep
        self.call_at = other.call_at

    def use_system(self) -> None:
        """Follow the system's time again."""
        self._use_parts_of_system()
        watchdog.resume()


clock = SharedClock()
"""The one that everything in the library asks. Its parts are attributes, so that asking costs no Python call."""
