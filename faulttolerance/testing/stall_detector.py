"""The real time for which virtual time may be held before it counts as stuck."""

from __future__ import annotations

import os
from collections.abc import Callable

_LONG_SECONDS = 1.0
"""Real seconds."""
_LONGEST_SECONDS = 10.0
"""The end of all patience, also while the process computes."""
_MAX_SECONDS_PER_LOOK = 0.02
"""The most that one look counts for: where it took longer, the process was not allowed to run either."""
_WINDOW_SECONDS = 0.1
"""The time over which the use of the processor is measured; it is counted in steps of up to 10 ms."""
_BUSY_FRACTION = 0.2
"""The part of a window that must have been computed if anything went on in it."""


class StallDetector:
    """The real time for which virtual time has not moved.

    Args:
        real_time: The monotonic clock of the system.
    """

    def __init__(self, real_time: Callable[[], float]) -> None:
        self._real_time = real_time
        self._looked_at = real_time()
        self._waited = self._idle = self._window = 0.0
        self._cpu: float | None = None
        """The processor time when the window began; read from the first look on: time that moves at once needs none."""

    def count(self) -> None:
        """Record that somebody has looked again, and time may still not move."""
        now = self._real_time()
        passed = min(now - self._looked_at, _MAX_SECONDS_PER_LOOK)
        self._looked_at = now
        self._waited += passed
        if self._cpu is None:
            self._cpu = cpu_seconds()
            return
        self._window += passed
        if self._window >= _WINDOW_SECONDS:
            cpu = cpu_seconds()
            self._idle = 0.0 if cpu - self._cpu > _BUSY_FRACTION * self._window else self._idle + self._window
            self._window, self._cpu = 0.0, cpu

    @property
    def poll_seconds(self) -> float:
        """The seconds until the next look: few at first, then more."""
        return 0.001 if self._waited < _WINDOW_SECONDS else 0.005

    @property
    def has_waited_long(self) -> bool:
        """Whether a second is over, whatever went on in it."""
        return self._waited >= _LONG_SECONDS

    @property
    def is_stalled(self) -> bool:
        """Whether a second is over in which the process did nothing worth mentioning."""
        return self._idle >= _LONG_SECONDS or self._waited >= _LONGEST_SECONDS


def cpu_seconds() -> float:
    """Return the processor time of this process."""
    times = os.times()
    return times.user + times.system
