"""The switch for span events, which is ours and not the specification's."""

from __future__ import annotations

import os

__all__ = ["TRACING_VARIABLE", "is_tracing_enabled"]

TRACING_VARIABLE = "FAULTTOLERANCE_TRACING"


def is_tracing_enabled() -> bool:
    """What the environment says: on unless it says ``false``."""
    return os.environ.get(TRACING_VARIABLE, "").strip().lower() != "false"
