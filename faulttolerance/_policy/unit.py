"""Units of time, as the specification's ``java.time.temporal.ChronoUnit``."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from functools import lru_cache


class ChronoUnit(Enum):
    """What a number that stands for a duration counts; the value is the unit's length in seconds."""

    NANOS = 1e-9
    MICROS = 1e-6
    MILLIS = 1e-3
    SECONDS = 1.0
    MINUTES = 60.0
    HOURS = 3_600.0
    HALF_DAYS = 43_200.0
    DAYS = 86_400.0


_LONGEST = 1e12
"""No duration counts as longer than this, thirty thousand years: a longer one may be more than a ``float`` holds."""


@lru_cache
def seconds(duration: float | timedelta, unit: ChronoUnit) -> float:
    """Give the length of *duration*, which counts *unit* unless it is a ``timedelta``; most guards share a few."""
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    return min(duration * unit.value, _LONGEST)
