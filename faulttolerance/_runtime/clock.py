"""Time and chance, in one place: everything else in the library asks the one clock that it shares."""

from __future__ import annotations

import _thread
import random
import time
from collections.abc import Callable
from math import inf

from ..typing import Clock, Timer
from .slot import due, slots, unmasked
from .watchdog import interruption_for, watchdog, withdraw

__all__ = ["SharedClock", "clock", "next_deadline", "raise_if_expired"]

_LONGEST_WAIT = 86400.0


def raise_if_expired(now: float) -> None:
    """Raise ``Interrupted`` for a deadline of this thread that has passed at *now* and has not interrupted it yet."""
    slot = slots.slot
    if slot.top is not None:
        if slot.fired is not None:
            withdraw(slot)
        entry = due(slot, now)
        if entry is not None:
            raise interruption_for(slot, entry)


def next_deadline() -> float:
    """When a deadline is next going to interrupt this thread: infinity: none does, minus infinity: now."""
    slot = slots.slot
    soonest = inf
    for entry in unmasked(slot.top):
        if id(entry) not in slot.sent:
            soonest = min(soonest, entry[0] if id(entry) not in slot.asked else -inf)
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
            pass  # it is open

    slot.gate = open_gate
    try:
        while True:
            now = time.monotonic()
            raise_if_expired(now)
            if now >= end:
                return
            gate.acquire(timeout=max(0.0, min(end - now, next_deadline() - now, _LONGEST_WAIT)))
    finally:
        slot.gate = None


class SharedClock:
    """The clock that the library uses: the system's, or another one in its place.

    Its parts are attributes, so that asking it costs no call but the one of the part.
    """

    __slots__ = ("call_at", "is_virtual", "monotonic", "random", "sleep")

    monotonic: Callable[[], float]
    """Seconds since some moment; never goes back."""
    random: Callable[[], float]
    """A number in [0, 1)."""
    sleep: Callable[[float], None]
    """Block the thread; raise ``Interrupted`` as soon as one of its deadlines passes."""
    call_at: Callable[[float, Callable[[], object]], Timer]
    """Run a short callback once ``monotonic()`` has reached a moment."""
    is_virtual: bool
    """Whether time is another one than the system's."""

    def __init__(self) -> None:
        self._take_from_system()

    def _take_from_system(self) -> None:
        self.monotonic = time.monotonic
        self.random = random.random
        self.sleep = _sleep
        self.call_at = watchdog.call_at
        self.is_virtual = False

    def use(self, other: Clock) -> None:
        """Follow *other*, which interrupts its own sleepers; deadlines interrupt nobody else meanwhile."""
        watchdog.pause()
        self.is_virtual = True
        self.monotonic = other.monotonic
        self.random = other.random
        self.sleep = other.sleep
        self.call_at = other.call_at

    def use_system(self) -> None:
        """Follow the system's time again."""
        self._take_from_system()
        watchdog.resume()


clock = SharedClock()
"""The one that everything in the library asks."""
