"""The record of a deadline that passed and could not interrupt its thread at once."""

from __future__ import annotations

from math import inf

from ..._platform.unpatched import native
from .chain import Entry

_LOOK_AGAIN = 0.0005
"""Seconds until the next look at a thread that moves, and may soon reach a safe point."""
_LOOK_OFTEN = 0.005
_LOOK_SELDOM = 0.05
"""The longest delays before the next look at a thread that does not move: in the first second, and later."""
_PRESSED_FOR = 10.0
"""Seconds for which the interpreter switches threads more often, for the sake of a thread that moves."""

_NEXT_TO_NOTHING = 0.0002
"""Seconds of processor time that a thread may use to wake up and to wait for the interpreter."""

OURS = "it was in code of this library"
"""A reason that reveals nothing about the body: the call was about to start or to end."""
NOT_PYTHON = "it was in a call of code that is not Python, which is interrupted only if it waits on the main thread"
"""The reason why a guarded function without a frame is not interrupted."""
OTHER_GREENLETS = "other greenlets ran in its thread"
"""The reason why a call is not interrupted while the stack of another greenlet runs on the thread."""

Position = tuple[int, int]
"""A frame, by its identity, and one of its instructions."""


class PendingInterrupt:
    """The deadline *entry* that must interrupt its thread, and the observations of that thread."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.at: Position | None = None
        """The position at which the thread was seen last."""
        self.since = -inf
        """The moment at which the thread was first seen there."""
        self.cpu = -1.0
        """The processor time that the thread had used by then."""
        self.looks = 0
        """The number of consecutive looks that found the thread there without any activity."""
        self.is_first = True
        """Whether there was only one look at the thread."""
        self.waits = False
        """Whether the thread has slept at that position since the last look; it may be about to continue."""
        self.goes_round = False
        """Whether the thread has mostly run since the last look, which saw it at the same position."""
        self.has_moved = False
        """Whether the thread was elsewhere at the previous look, or has returned to the same place."""
        self.went_on_at = inf
        """The moment at which the thread had gone on for the first time."""
        self.why: str | None = None
        """The last reason why the thread was not interrupted, or an earlier reason that reveals more."""
        self.location: str | None = None
        """The place of the body at the first look, with a text for messages."""
        self.seen_at: float | None = None
        """The moment of the first look, which may be late on a busy machine."""
        self.has_cancelled_loop = False
        """Whether the loop that runs in the call was cancelled."""
        self.signals = 0
        self.send_at = -inf
        """The moment at which the signal is repeated."""
        self._wait = _LOOK_AGAIN

    def look(self, at: Position, cpu: float, now: float) -> None:
        """Record the position of the thread, and the processor time that it has used, in seconds."""
        self.is_first = self.at is None
        self.waits = at == self.at and cpu - self.cpu < _NEXT_TO_NOTHING
        # The wait for the interpreter uses some time, too.
        self.goes_round = at == self.at and not self.waits and cpu - self.cpu > (now - self.since) / 4
        # A frame of the next iteration may have the address of the last one; the processor time distinguishes them.
        self.has_moved = self.at is not None and not self.waits
        if at == self.at and cpu == self.cpu:
            self.looks += 1
            self._wait = min(self._wait * 1.5, _LOOK_SELDOM)
        else:
            if not self.is_first:
                self.went_on_at = min(self.went_on_at, now)
            self.at, self.cpu, self.since = at, cpu, now
            self.looks = 1
            self._wait = _LOOK_AGAIN

    def record_reason(self, why: str | None) -> None:
        """Record why the thread was not interrupted; ``None``: there was no reason at that moment.

        ``OURS`` reveals the least, because a call is in the library's code whenever it starts or ends.
        """
        if why is not None and (why != OURS or self.why is None):
            self.why = why

    def next_check_at(self, late_by: float) -> float:
        """Return the moment of the next look."""
        return native.monotonic() + (self._wait if late_by > 1.0 else min(self._wait, _LOOK_OFTEN))

    def needs_more_switches(self, late_by: float) -> bool:
        """Return whether to switch threads more often, so that looks see the thread in more places."""
        return self.has_moved and _LOOK_OFTEN < late_by < _PRESSED_FOR
