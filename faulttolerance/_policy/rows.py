"""The rows of all policies, which define their parts in a call; this package imports none of them."""

from collections.abc import Callable
from functools import cache
from typing import Any

load: Callable[[], Any] = tuple
"""Imports the rows, when the first function is guarded or metrics are read; the module ``policies`` sets it."""


@cache
def rows() -> Any:
    """Return the rows of all policies and extensions, outermost first."""
    return load()
