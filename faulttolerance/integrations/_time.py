"""Time-outs for clients: never longer than the time to the nearest deadline (rule S3)."""

from __future__ import annotations

from time import monotonic as monotonic

from .. import remaining

_SHORTEST = 0.001
"""Seconds: to a socket 0 is no time-out, but "do not wait"."""
_LONGEST = 2_000_000.0
"""Seconds: a socket counts milliseconds in 32 bits, and more is no limit."""


def time_limit(seconds: float | None) -> float | None:
    """Return *seconds* (``None``: no end), or the time to the nearest deadline, if that is less."""
    left = remaining()
    if left is None or left > _LONGEST:
        return seconds
    return max(left, _SHORTEST) if seconds is None else min(seconds, max(left, _SHORTEST))
