"""The view of a bulkhead for attempts that never wait for a permit."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .bulkhead import Bulkhead, Waiter


class UnqueuedBulkhead:
    """A bulkhead that admits an attempt while a permit is free, and lets none wait; hedges use it (rule H2).

    Args:
        bulkhead: Holds the permits, and has the queue of the attempts that do wait.
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
        """The number of attempts that may run before ``enter`` has to be called."""
        return self._bulkhead.limit

    @property
    def waiting(self) -> Collection[object]:
        """The attempts that wait, which came another way."""
        return self._bulkhead.waiting

    def enter(self, waiter: Waiter) -> Any:
        """Acquire a permit for *waiter*, which does not wait.

        Raises:
            BulkheadException: No permit is free.
        """
        waiter.wake = None
        return self._bulkhead.enter(waiter)

    def release(self, attempt_id: Hashable) -> None:
        """Release a permit, or the place of an attempt that waits."""
        self._bulkhead.release(attempt_id)

    def admit_waiters(self) -> None:
        """Grant the free permits to the attempts that wait."""
        self._bulkhead.admit_waiters()
