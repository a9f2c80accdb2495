"""The ban on retries inside an ``atomic`` block of Django."""

from __future__ import annotations

from typing import Any

from django.db import connections  # type: ignore[import-untyped]

from ..typing import ExceptionSet
from ._transactions import Failures, failures, refuse_retries

_not_retried: list[Failures] = []
"""The failures after which no attempt follows, once they were declared."""


def install(*, no_retry_on: ExceptionSet = Exception) -> None:
    """Forbid further attempts of any guard while an ``atomic`` block is open on this thread, of any database.

    The effects of a failed attempt are still in the transaction, and another attempt would repeat them; after an error
    of the database the transaction accepts no more queries at all. The failure propagates at once, with a note that
    explains this, and leaves the block, which rolls back. Call the function once, as in ``AppConfig.ready``; the last
    call counts. The block that ``TestCase`` puts around each test does not count.

    Args:
        no_retry_on: The failures that this concerns: ``django.db.Error`` for those of databases alone, ``()`` for none.

    Raises:
        FaultToleranceDefinitionException: If *no_retry_on* is no set of exceptions.
    """
    given = failures("install(no_retry_on)", no_retry_on)
    is_first = not _not_retried
    _not_retried[:] = [given]
    if is_first:
        refuse_retries("an atomic block of Django", _is_open)


def _is_open(failure: BaseException) -> bool:
    return isinstance(failure, _not_retried[0]) and any(map(_is_in_block, connections.all(initialized_only=True)))


def _is_in_block(connection: Any) -> bool:
    # ``in_atomic_block`` is true of the block around a test, too.
    return any(not getattr(block, "_from_testcase", False) for block in connection.atomic_blocks)
