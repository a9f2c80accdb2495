"""The deadline under which the running task works, inherited by the tasks and threads that it starts."""

from __future__ import annotations

from contextvars import ContextVar
from math import inf
from typing import Any

__all__ = ["TaskDeadline", "current"]


class TaskDeadline:
    """One deadline of a guarded coroutine; links to the one that encloses it.

    Args:
        when: When it passes, on the shared clock.
        previous: The deadline that encloses it.
        task: The task to cancel; ``None`` where nothing can be cancelled.
        cancelling: How many cancellations the task had been asked for when the deadline began.
        pending: The ring that watches it.
    """

    __slots__ = ("cancelled", "cancelling", "expired", "held", "owed", "pending", "previous", "task", "when")

    def __init__(
        self,
        when: float = inf,
        previous: TaskDeadline | None = None,
        task: Any = None,
        cancelling: int = 0,
        pending: dict[TaskDeadline, None] | None = None,
    ) -> None:
        self.when = when
        self.previous = previous
        self.task = task
        self.cancelling = cancelling
        self.pending: dict[TaskDeadline, None] = {} if pending is None else pending
        self.expired = False
        """Whether it has passed and the task was, or is to be, interrupted for it."""
        self.cancelled = False
        """Whether the task was asked to cancel for it; not so where ``uninterruptible`` raised it itself."""
        self.held = 0
        """How many ``uninterruptible`` blocks hold it back."""
        self.owed = False
        """Whether it passed while held back; raised at the end of the outermost of these blocks."""

    def end(self) -> None:
        """Take the deadline back: the attempt is over."""
        self.pending.pop(self, None)
        current.set(self.previous)

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
