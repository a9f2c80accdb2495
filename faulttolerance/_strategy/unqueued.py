"""A bulkhead as those see it who never wait for a permit."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .bulkhead import Bulkhead, Waiter

__all__ = ["UnqueuedBulkhead"]


class UnqueuedBulkhead:
    """A bulkhead that lets in whom it has a permit for, and lets nobody wait; as hedges see it (rule H2).

    Args:
        bulkhead: Holds the permits, and has the queue of those that do wait.
    """

    __slots__ = ("_bulkhead",)

    max_wait: Final = 0.0

    def __init__(self, bulkhead: Bulkhead) -> None:
        self._bulkhead = bulkhead

    @property
    def held(self) -> dict[Hashable, int]:
        """The thread of each attempt that runs."""
        return self._bulkhead.held

    @property
    def limit(self) -> int:
        """How many may run before it is asked."""
        return self._bulkhead.limit

    @property
    def waiting(self) -> Collection[object]:
        """Those that wait, which came another way."""
        return self._bulkhead.waiting

    def enter(self, waiter: Waiter) -> Any:
        """Take a permit for *waiter*, which does not wait.

        Raises:
            BulkheadException: None is free.
        """
        waiter.wake = None
        return self._bulkhead.enter(waiter)

    def release(self, attempt_id: Hashable) -> None:
        """Give back a permit, or the place of one that waits."""
        self._bulkhead.release(attempt_id)

    def admit_waiters(self) -> None:
        """Let those go on that wait."""
        self._bulkhead.admit_waiters()
