"""Units of time, as the specification's ``java.time.temporal.ChronoUnit``, and durations that are text."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import timedelta
from enum import Enum
from functools import lru_cache
from math import inf
from typing import Final, Literal, TypeAlias, TypeVar

from ..typing import Duration

E = TypeVar("E", bound=Enum)


class ChronoUnit(Enum):
    """The unit of a number that stands for a duration; the value is the unit's length in seconds."""

    NANOS = 1e-9
    MICROS = 1e-6
    MILLIS = 1e-3
    SECONDS = 1.0
    MINUTES = 60.0
    HOURS = 3_600.0
    HALF_DAYS = 43_200.0
    DAYS = 86_400.0

    __hash__ = object.__hash__  # of C: guards look durations up by their units

    def __repr__(self) -> str:
        return str(self)


Unit: TypeAlias = ChronoUnit | Literal["nanos", "micros", "millis", "seconds", "minutes", "hours", "half_days", "days"]
"""A unit, or its name."""


def member(among: type[E], value: object) -> E | None:
    """Return the member of *among* that *value* is, or names in upper or lower case; otherwise ``None``."""
    if isinstance(value, among):
        return value
    return among.__members__.get(value.upper()) if isinstance(value, str) else None


SUFFIXES: Final = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
"""The suffixes of text, with their lengths in microseconds, the longest first."""

_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_SUFFIXED = rf"{_NUMBER}\s*({'|'.join(SUFFIXES)})"
_ISO = rf"P(?=.)(?:{_NUMBER}W)?(?:{_NUMBER}D)?(?:T(?=.)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?"
_CLOCK = r"()(?:(\d+) days?, )?(\d+):([0-5]\d):([0-5]\d(?:\.\d+)?)"
"""The format of ``str`` of a ``timedelta``, in the groups of ``_ISO``."""
_FLAGS = re.ASCII | re.IGNORECASE
_LENGTHS: Final = (7 * SUFFIXES["d"], SUFFIXES["d"], SUFFIXES["h"], SUFFIXES["m"], SUFFIXES["s"])

_LONGEST: Final = 1e12
"""The longest duration, thirty thousand years: a longer one may exceed the range of ``float``."""


def parse_duration(text: str) -> float | timedelta:
    """Return a duration from text: a number counts the unit that is declared beside it, other text contains its unit.

    Letters may be of either case: ``400``, ``400ms``, ``1.5 h``, ``PT0.4S``, ``P1DT2H``, ``0:00:02``.

    Raises:
        ValueError: If *text* is no duration; with words for a message if the duration cannot be stored.
    """
    text = text.strip()
    with suppress(ValueError):
        return int(text)
    with suppress(ValueError):
        return float(text)
    try:
        span = timedelta(microseconds=_microseconds(text))
    except OverflowError:
        raise ValueError("longer than 999999999 days") from None
    if not span and re.search("[1-9]", text):
        raise ValueError("shorter than a microsecond")
    return span


def _microseconds(text: str) -> float:
    if match := re.fullmatch(_SUFFIXED, text, _FLAGS):
        return float(match[1]) * SUFFIXES[match[2].lower()]
    if match := re.fullmatch(_ISO, text, _FLAGS) or re.fullmatch(_CLOCK, text, _FLAGS):
        return sum(float(number) * length for number, length in zip(match.groups(), _LENGTHS, strict=True) if number)
    raise ValueError


def format_duration(duration: float | timedelta, unit: ChronoUnit = ChronoUnit.MILLIS) -> str:
    """Return *duration*, whose number counts *unit*, as text in the largest unit that needs no fraction.

    ``parse_duration`` reads the text, except for a duration that is no whole number of microseconds: it keeps its unit.
    """
    if isinstance(duration, timedelta):
        microseconds = duration // timedelta(microseconds=1)
    else:
        number = float(duration)  # a member of an enumeration would be formatted as its name
        exactly = number * unit.value * 1e6
        if (number and exactly in (0.0, inf)) or abs((microseconds := round(exactly)) - exactly) > 1e-9 * exactly:
            return f"{number:g} {unit.name.lower()}"
    if not microseconds:
        return "0s"
    suffix, length = next((suffix, length) for suffix, length in SUFFIXES.items() if not microseconds % length)
    return f"{microseconds // length}{suffix}"


@lru_cache
def seconds(duration: Duration, unit: Unit) -> float:
    """Return the length of *duration*, whose number counts *unit*; most guards share a few durations."""
    if isinstance(duration, str):
        duration = parse_duration(duration)
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    counted = member(ChronoUnit, unit)
    assert counted is not None  # it was checked
    return min(duration * counted.value, _LONGEST)
