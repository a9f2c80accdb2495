"""One deadline that has passed and could not interrupt its thread at once, and what was seen of the thread since."""

from __future__ import annotations

from math import inf

from ..._platform.unpatched import native
from .chain import Entry

_LOOK_AGAIN = 0.0005
"""Seconds until the next look at a thread that moves, and may soon come to a better place."""
_LOOK_OFTEN = 0.005
_LOOK_SELDOM = 0.05
"""The same, at the longest, for a thread that does not move: in the first second, and later."""
_PRESSED_FOR = 10.0
"""Seconds for which the interpreter is asked to switch threads more often, for the sake of one that moves."""

_NEXT_TO_NOTHING = 0.0002
"""Seconds of processor time that a thread may use to wake up, and to wait for the interpreter."""

OURS = "it was in code of this library"
"""A reason that says nothing of the body: the call was about to begin, or to end."""
OTHER_GREENLETS = "other greenlets ran in its thread"
"""Why a call is not interrupted while another stack than its own stands on the thread."""

Position = tuple[int, int]
"""A frame, by its identity, and an instruction of it."""


class PendingInterrupt:
    """The deadline *entry* that is to interrupt its thread, and where that was seen."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.at: Position | None = None
        """The position at which the thread was seen last."""
        self.since = -inf
        """When it was first seen there."""
        self.cpu = -1.0
        """The processor time that it had used by then."""
        self.looks = 0
        """How often in a row it was seen there without having done anything."""
        self.is_first = True
        """Whether it was looked at once only."""
        self.waits = False
        """Whether it has slept at that position since the last look, and may only be about to go on."""
        self.has_moved = False
        """Whether it was somewhere else when it was last looked at, or has come back there."""
        self.why: str | None = None
        """The last reason why it was not interrupted, or one that says more."""
        self.sighting: object = None
        """Where the body stood when it was first looked at, in words for whoever asks."""
        self.seen_at: float | None = None
        """When that was; the watchdog may have been late itself, on a busy machine."""
        self.refused_at: Position = (0, 0)
        """The position at which the handler of the signal refused to interrupt."""
        self.has_told_loop = False
        """Whether the loop that runs in the call was told to end."""
        self.signals = 0
        self.send_at = -inf
        """When to repeat the signal."""
        self._wait = _LOOK_AGAIN

    def look(self, at: Position, cpu: float, now: float) -> None:
        """Note where the thread stands, and the processor time that it has used, in seconds."""
        self.is_first = self.at is None
        self.waits = at == self.at and cpu - self.cpu < _NEXT_TO_NOTHING
        # A frame of the next round may lie where that of the last one lay; the processor time tells them apart.
        self.has_moved = self.at is not None and not self.waits
        if at == self.at and cpu == self.cpu:
            self.looks += 1
            self._wait = min(self._wait * 1.5, _LOOK_SELDOM)
        else:
            self.at, self.cpu, self.since = at, cpu, now
            self.looks = 1
            self._wait = _LOOK_AGAIN

    def refuse(self, why: str | None) -> None:
        """Note why it was not interrupted; ``None``: nothing was the matter, at that moment.

        That it was in code of this library says the least: a call is there whenever it begins or ends.
        """
        if why is not None and (why != OURS or self.why is None):
            self.why = why

    def look_again_at(self, late_by: float) -> float:
        """Return when to look again."""
        return native.monotonic() + (self._wait if late_by > 1.0 else min(self._wait, _LOOK_OFTEN))

    def presses(self, late_by: float) -> bool:
        """Tell whether to have threads switched more often, so that the thread is seen in more places."""
        return self.has_moved and _LOOK_OFTEN < late_by < _PRESSED_FOR
