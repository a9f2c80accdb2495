"""A log of errors in code of the application that do not change the outcome of the call."""

from __future__ import annotations

from .._log import WARNING, log


class ErrorLog:
    """Logs each kind of error in the application's code that a guard calls, once (rule R10)."""

    __slots__ = ("_logged", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._logged: set[str] = set()

    def __call__(self, what: str, error: Exception) -> None:
        """Log that *what* failed with *error*."""
        self.log(f"an error in {what}", error)

    def log(self, words: str, error: Exception) -> None:
        """Log *error* with the message *words*, once for each message."""
        if words not in self._logged:
            self._logged.add(words)
            log(WARNING, "%s: %s", self._name, words, error=error)
