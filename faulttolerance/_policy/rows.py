"""The rows of all policies, which define their parts in a call; this package imports none of them."""

from collections.abc import Callable
from functools import cache
from typing import Any

_load: Callable[[], Any] = tuple


def provide_rows(load: Callable[[], Any]) -> None:
    """Set the function that imports the rows; it is called when the first function is guarded or metrics are read."""
    global _load
    _load = load


@cache
def rows() -> Any:
    """Return the rows of all policies and extensions, outermost first."""
    return _load()
