"""The deadline under which the running task works, inherited by the tasks and threads that it starts."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

__all__ = ["TaskDeadline", "current"]


class TaskDeadline:
    """One deadline of a guarded coroutine; links to the one that encloses it.

    The fields start as class attributes: one is made per attempt, and most of them are never written.
    """

    when: float
    """When it passes, on the shared clock."""
    previous: TaskDeadline | None = None
    """The deadline that encloses it."""
    task: Any = None
    """The task to cancel; ``None`` where nothing can be cancelled."""
    cancelling: int = 0
    """How many cancellations the task had been asked for when the deadline began."""
    expired: bool = False
    """Whether it has passed and the task was, or is to be, interrupted for it."""
    cancelled: bool = False
    """Whether the task was asked to cancel for it; not so where ``uninterruptible`` raised it itself."""
    held: int = 0
    """How many ``uninterruptible`` blocks hold it back."""
    owed: bool = False
    """Whether it passed while held back; raised at the end of the outermost of these blocks."""

    def expire(self) -> None:
        """Interrupt the task, now that the deadline has passed; later where that is held back."""
        if self.held:
            self.owed = True
            return
        self.expired = True
        if self.task is not None:
            self.cancelled = True
            self.task.cancel()


current: ContextVar[TaskDeadline | None] = ContextVar("faulttolerance_deadline", default=None)
"""The innermost deadline of the running context."""
