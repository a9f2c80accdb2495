"""A log of errors in code of the application that do not change the outcome of the call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from .._execution.caller_thread import Callback
from .._execution.environment import Environment
from .._log import WARNING, log


class ErrorLog:
    """Logs each kind of error in the application's code that a guard calls, once (rule R10)."""

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


class Hook(NamedTuple):
    """Code of the application that runs before each retry; its errors are logged and change nothing."""

    function: Callback
    error_log: ErrorLog

    def run(self, *args: Any) -> None:
        """Run the code of a synchronous call."""
        with self._logged_errors():
            self.function(*args)

    async def run_in(self, environment: Environment, *args: Any) -> None:
        """Run the code of a call that waits in *environment*."""
        with self._logged_errors():
            await environment.call(self.function, *args)

    @contextmanager
    def _logged_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001  # it changes nothing
            self.error_log.log("the function of @before_retry failed; the retry is made anyway", error)
