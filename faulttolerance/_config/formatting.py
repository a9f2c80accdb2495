"""Values as they would be written in a file: what is read back is the same value."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import Any

SPANS = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
"""Units of durations, in microseconds."""


def formatted(value: Any) -> str:
    """Spell *value* as a configuration would; ``None`` is empty."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, timedelta):
        return _span(value)
    if isinstance(value, (tuple, list, set, frozenset)):
        return ",".join(map(formatted, value))
    if callable(value):
        return _qualified(value)
    return str(value)


def _span(value: timedelta) -> str:
    """Count the largest unit that needs no fraction."""
    microseconds = value // timedelta(microseconds=1)
    if not microseconds:
        return "0s"
    unit, length = next((unit, length) for unit, length in SPANS.items() if not microseconds % length)
    return f"{microseconds // length}{unit}"


def _qualified(value: Any) -> str:
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not module or not name:
        return repr(value)
    return str(name) if module == "builtins" else f"{module}.{name}"
