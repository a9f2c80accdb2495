"""How log records and spans name the class of a failure."""

from __future__ import annotations

__all__ = ["error_type"]


def error_type(failure: BaseException) -> str:
    """The qualified name of the class, as in ``acme.errors.Busy``; that of a built-in alone."""
    kind = type(failure)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
