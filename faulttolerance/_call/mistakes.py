"""Code of the application that fails beside a call, without changing what becomes of that."""

from __future__ import annotations

from .._log import WARNING, log


class Mistakes:
    """Logs, once each, what failed of the code that a guard asks (rule R10)."""

    __slots__ = ("_name", "_told")

    def __init__(self, name: str) -> None:
        self._name = name
        self._told: set[str] = set()

    def __call__(self, what: str, error: Exception) -> None:
        """Log that *what* failed by *error*."""
        if what not in self._told:
            self._told.add(what)
            log(WARNING, "%s: an error in %s", self._name, what, error=error)
