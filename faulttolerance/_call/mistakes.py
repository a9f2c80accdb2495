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
        self.tell(f"an error in {what}", error)

    def tell(self, words: str, error: Exception) -> None:
        """Log what happened, in *words*, by *error*."""
        if words not in self._told:
            self._told.add(words)
            log(WARNING, "%s: %s", self._name, words, error=error)
