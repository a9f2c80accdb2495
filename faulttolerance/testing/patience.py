"""For how long time may be held before it is stuck."""

from __future__ import annotations

import os

__all__ = ["POLL_SECONDS", "Patience"]

POLL_SECONDS = 0.001
"""Real seconds between two looks at what the threads do."""
_LONG = 1000
"""So many looks: a second of real time, and no less where the process was not scheduled meanwhile."""
_LONGEST = 10 * _LONG
"""The end of all patience, also while the process computes."""
_WINDOW = 100
"""Looks over which the use of the processor is measured; it is counted in steps of up to 10 ms."""
_BUSY = 0.2
"""The part of a window that must have been computed for something to have gone on in it."""


class Patience:
    """Counts the looks since time last moved."""

    def __init__(self) -> None:
        self._looks = 0
        self._idle = 0
        self._window = 0
        self._since = (0.0, 0.0)
        self.has_complained = False
        """Whether it was logged already that time is held."""

    def count(self) -> None:
        """Note that another look is over and time did not move."""
        if self._looks == 0:
            self._since = _cpu_and_real_seconds()
        self._looks += 1
        if self._looks % _WINDOW:
            return
        cpu, real = _cpu_and_real_seconds()
        is_busy = cpu - self._since[0] > _BUSY * (real - self._since[1])
        self._idle = 0 if is_busy else self._idle + _WINDOW
        self._since = cpu, real

    @property
    def has_waited_long(self) -> bool:
        """Whether a second is over, whatever went on in it."""
        return self._looks >= _LONG

    @property
    def is_over(self) -> bool:
        """Whether a second is over in which the process did nothing worth mentioning."""
        return self._idle >= _LONG or self._looks >= _LONGEST


def _cpu_and_real_seconds() -> tuple[float, float]:
    times = os.times()
    return times.user + times.system, times.elapsed
