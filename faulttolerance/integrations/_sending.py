"""The records of calls that send something: whether another attempt may follow a failure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self

from .. import veto_retries
from ..exceptions import FaultToleranceException


class SendRecord:
    """The facts about one call while its guard runs it.

    Args:
        obstacle: Why the call may not be sent again once it may have arrived; ``None``: it may.
    """

    def __init__(self, obstacle: str | None) -> None:
        self.obstacle = obstacle
        self.is_running = False
        self.is_sent = False
        """Whether the last attempt may have arrived."""
        self.failure: BaseException | None = None
        """The failure of the last attempt."""

    @contextmanager
    def current(self) -> Iterator[Self]:
        """Pass the record to vetoes within the block."""
        token = current_record.set(self)
        try:
            yield self
        finally:
            current_record.reset(token)
            self.obstacle = self.failure = None  # tasks that were started meanwhile may still have it

    def forbids_retry(self, failure: BaseException) -> bool:
        """Return whether no attempt may follow *failure*: of this call, not of a guard that its fallback calls."""
        # While an attempt runs, only a guard inside it can ask, and it sends something else.
        if self.is_running or not self.is_sent:
            return False
        is_own = self.failure is not None and any(one is self.failure for one in (failure, failure.__cause__))
        return is_own or isinstance(failure, FaultToleranceException)  # a time-out or a refusal, of whichever guard


current_record: ContextVar[Any] = ContextVar("faulttolerance.integrations.sending")
"""The record of the innermost call that a guard runs."""


def _veto(failure: BaseException) -> str | None:
    record = current_record.get(None)
    return record.obstacle if record is not None and record.forbids_retry(failure) else None


veto_retries(_veto)
