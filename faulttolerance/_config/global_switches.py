"""What is only on or off, and the priority: read without pydantic, so that a service mesh can switch everything off."""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from .._shown import shown
from ..exceptions import Fault
from .key import INTERCEPTOR_PRIORITY, METRICS_ENABLED, NON_FALLBACK_ENABLED, TRACING_VARIABLE, switch_key
from .snapshot import Entry, Snapshot


class Switches(NamedTuple):
    """What the specification lets be set once for the whole application."""

    non_fallback_enabled: bool = True
    metrics_enabled: bool = True
    interceptor_priority: int = 4010


def flag(value: object) -> bool:
    """``true`` or ``false``, in any case of letters.

    Raises:
        ValueError: For everything else.
    """
    if isinstance(value, bool):
        return value
    text = value.strip().lower() if isinstance(value, str) else ""
    if text not in ("true", "false"):
        raise ValueError
    return text == "true"


def read_enabled(key: str, entry: Entry) -> tuple[bool, list[Fault]]:
    """Whether *entry* switches on, and what is wrong with it."""
    value, faults = _read(flag, "true or false", key, entry)
    return bool(value), faults


def read_switches(snapshot: Snapshot) -> tuple[Switches, list[Fault]]:
    """The global switches, and what is wrong with them."""
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for field, name, read, allowed in (
        ("non_fallback_enabled", NON_FALLBACK_ENABLED, flag, "true or false"),
        ("metrics_enabled", METRICS_ENABLED, flag, "true or false"),
        ("interceptor_priority", INTERCEPTOR_PRIORITY, _integer, "an integer"),
    ):
        if entry := snapshot.find(switch_key(name)):
            value, wrong = _read(read, allowed, name, entry)
            faults += wrong
            values |= {} if wrong else {field: value}
    return Switches(**values), faults


def _read(read: Callable[[object], Any], allowed: str, key: str, entry: Entry) -> tuple[Any, list[Fault]]:
    try:
        return read(entry.value), []
    except ValueError:
        return None, [Fault(key, f"is {shown(entry.value)}", entry.value, allowed, entry.place)]


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError
    return int(value)


def is_tracing_enabled() -> bool:
    """What the environment says: on unless it says ``false``."""
    return _said().strip().lower() != "false"


def tracing_faults() -> list[Fault]:
    """What is wrong with it: who writes ``off`` does not mean what is not understood."""
    if _said().strip().lower() in ("", "true", "false"):
        return []
    said, place = _said(), f"environment variable {TRACING_VARIABLE}"
    return [Fault(TRACING_VARIABLE, f"is {shown(said)}", said, "true or false", place)]


def _said() -> str:
    return os.environ.get(TRACING_VARIABLE, "")
