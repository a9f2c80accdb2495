"""The ban on retries inside an open transaction; the framework is queried once a retry would follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import FaultToleranceDefinitionException, veto_retries
from ..policies import Retry
from ..typing import ExceptionSet

Failures = tuple[Any, ...]
"""Exception classes and ``caused_by(...)``."""


def failures(where: str, value: ExceptionSet) -> Failures:
    """Convert an exception set to a tuple.

    Raises:
        FaultToleranceDefinitionException: It is none; *where* names its owner.
    """
    try:
        given: Any = Retry(retry_on=value).retry_on
    except FaultToleranceDefinitionException as error:
        raise FaultToleranceDefinitionException(error.faults[0]._replace(where=where, source="")) from None
    return tuple(given)


def refuse_retries(what: str, is_open: Callable[[BaseException], bool]) -> None:
    """Veto retries after a failure for which *is_open* returns true: a transaction, *what*, is open in its context."""
    reason = f"{what} is open, and another attempt would run inside it: retry around the transaction, not inside it"

    def ask(failure: BaseException) -> str | None:
        return reason if is_open(failure) else None

    veto_retries(ask)
