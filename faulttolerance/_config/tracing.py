"""The switch for span events, which is ours and not the specification's."""

from __future__ import annotations

import os

from .._shown import shown
from ..exceptions import Fault

__all__ = ["TRACING_VARIABLE", "is_tracing_enabled", "tracing_faults"]

TRACING_VARIABLE = "FAULTTOLERANCE_TRACING"


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
