"""The refusal to retry inside an open transaction: the framework is asked for one, once a retry would follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import FaultToleranceDefinitionException, Retry, veto_retries
from ..exceptions import Fault
from ..typing import ExceptionSet

__all__ = ["Failures", "failures", "refuse_retries"]

Failures = tuple[Any, ...]
"""Of exception classes and ``caused_by(...)``."""


def failures(where: str, value: ExceptionSet) -> Failures:
    """Read an exception set.

    Raises:
        FaultToleranceDefinitionException: It is none; *where* says whose it is.
    """
    try:
        given: Any = Retry(retry_on=value).retry_on
    except FaultToleranceDefinitionException as error:
        found = error.faults[0]
        raise FaultToleranceDefinitionException(Fault(where, found.problem, found.got, found.allowed)) from None
    return tuple(given)


def refuse_retries(what: str, is_open: Callable[[BaseException], bool]) -> None:
    """Let nothing follow a failure for which *is_open* says that a transaction, *what*, is open in its context."""
    reason = f"{what} is open, in which another attempt would go on: retry around the transaction, not inside it"

    def ask(failure: BaseException) -> str | None:
        return reason if is_open(failure) else None

    veto_retries(ask)
