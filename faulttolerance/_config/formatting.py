"""The text of values as in a configuration file: parsing it returns an equal value."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import Any

from .._cause import CausedBy
from .._policy import format_duration


def formatted(value: Any) -> str:
    """Format *value* as in a configuration file; ``None`` is empty."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, (tuple, list, set, frozenset)):
        return ",".join(map(formatted, value))
    if isinstance(value, CausedBy):
        return f"caused_by({formatted(value.classes)})"
    if not callable(value):
        return str(value)
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not module or not name:
        return repr(value)
    return str(name) if module == "builtins" else f"{module}.{name}"


def plain(value: Any) -> Any:
    """Return *value* as JSON can hold it."""
    if isinstance(value, (tuple, list)):
        return [plain(member) for member in value]
    if value is None or (isinstance(value, (bool, int, float, str)) and not isinstance(value, Enum)):
        return value
    # An object without a name shows an address, which the next process does not have.
    is_named = isinstance(value, (Enum, timedelta, CausedBy)) or hasattr(value, "__qualname__")
    return formatted(value if is_named else type(value))
