"""The real time for which virtual time may be held before it counts as stuck."""

from __future__ import annotations

from collections.abc import Callable

_LONG_SECONDS = 1.0
"""Real seconds."""
_LONGEST_SECONDS = 10.0
"""The end of all patience, also while a thread computes."""
_MAX_SECONDS_PER_LOOK = 0.02
"""The most that one look counts for: where it took longer, the process was not allowed to run either."""
_BUSY = 4.0
"""A look at a thread that runs takes back so many looks at none: what waits in a loop of short sleeps is idle, too."""


class StallDetector:
    """The real time for which virtual time has not moved.

    Args:
        real_time: The monotonic clock of the system.
    """

    def __init__(self, real_time: Callable[[], float]) -> None:
        self._real_time = real_time
        self._looked_at = real_time()
        self._waited = self._idle = 0.0

    def count(self, is_idle: bool) -> None:
        """Record that somebody has looked again, and time may still not move; *is_idle*: no thread ran."""
        now = self._real_time()
        passed = min(now - self._looked_at, _MAX_SECONDS_PER_LOOK)
        self._looked_at = now
        self._waited += passed
        self._idle = max(0.0, self._idle + (passed if is_idle else -_BUSY * passed))

    @property
    def poll_seconds(self) -> float:
        """The seconds until the next look: few at first, then more."""
        return 0.001 if self._waited < 0.1 else 0.005

    @property
    def has_waited_long(self) -> bool:
        """Whether a second is over, whatever went on in it."""
        return self._waited >= _LONG_SECONDS

    @property
    def is_stalled(self) -> bool:
        """Whether a second is over in which no thread did anything worth mentioning."""
        return self._idle >= _LONG_SECONDS or self._waited >= _LONGEST_SECONDS
