"""The share of a fleet's rate limit that one of its processes uses while it decides alone (rule F5).

It also counts the turns that the fleet grants to the process. So a process that has just used its share has nothing
left when the fleet is silent for a moment, and all processes together keep the limit.
"""

from __future__ import annotations

from ..._strategy.rate_limit import LimitValues, RateLimit, ticks


class LocalShare:
    """The share of a limit for one of several processes; guarded by the lock of the whole limit."""

    def __init__(self) -> None:
        self.full_until = 0
        """The moment until which the fleet has no turn for any process, by its own answer."""
        self._limit: RateLimit | None = None
        self._known: tuple[object, int, int] | None = None  # window and spacing of the whole, and the processes

    def take_locked(self, whole: RateLimit, processes: int, now: float) -> int:
        """Count a turn if one of *processes* has one of the *whole* left at *now*; return the moment when it is due."""
        limit, wanted = self._limit, (whole.window, whole.spacing, processes)
        if limit is None or self._known != wanted:
            self.full_until = self.full_until if limit is None else 0
            limit = self._limit = _resized(limit, whole, processes, now)
            self._known = wanted
        moment = ticks(now)
        due = max(limit.due_locked(moment), self.full_until)
        if due <= moment:
            limit.count(now)
        return due


def _resized(share: RateLimit | None, whole: RateLimit, processes: int, now: float) -> RateLimit:
    """Return the limit of the *share*, resized with its counts, or new if there was none."""
    window, spacing = whole.window, whole.spacing * processes / 1e9
    value, length, burst = window.limit, window.length / 1e9, -(-window.burst // processes)
    if whole.kind == "smooth" or value < processes:
        length *= processes  # turns come one by one
        value, length = (value, length) if whole.kind == "smooth" else (1, length / value)
    else:
        value //= processes
    values = LimitValues(value, length, spacing, whole.kind, burst=burst)
    if share is None:
        return RateLimit("", values)
    share.reconfigure(values, now)
    return share
