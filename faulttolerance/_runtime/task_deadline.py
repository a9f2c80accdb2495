"""The deadlines under which the running task works, inherited by the tasks and threads that it starts."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

__all__ = [
    "CANCELLED",
    "EXPIRED",
    "NO_TASK",
    "OWED",
    "RUNS",
    "Place",
    "TaskDeadline",
    "current",
    "innermost",
    "work_under",
]

RUNS: Final = 0
"""It has not passed, or nobody has looked yet."""
OWED: Final = 1
"""It passed while it was held back; the task is interrupted at the end of the outermost ``uninterruptible`` block."""
EXPIRED: Final = 2
"""It passed, and the task was interrupted otherwise than by asking it to cancel."""
CANCELLED: Final = 3
"""It passed, and the task was asked to cancel."""


class _NoTask:
    def cancelling(self) -> int:
        return 0

    def cancel(self) -> bool:
        return False


NO_TASK: Any = _NoTask()
"""Stands for the task where none runs the coroutine, or none is to be cancelled."""


class TaskDeadline:
    """One deadline of a guarded coroutine; links to the one that encloses it."""

    __slots__ = ("_blocks", "cancelling", "pending", "place", "previous", "state", "task", "when")

    when: float
    """When it passes, on the shared clock."""
    previous: TaskDeadline | None
    """The deadline that encloses it."""
    task: Any
    """The task to cancel, or ``NO_TASK``."""
    cancelling: int
    """How many cancellations the task had been asked for when the deadline began."""
    pending: dict[TaskDeadline, None]
    """The ring that watches it."""
    place: Place
    """Where it is the innermost one."""
    state: int
    """``RUNS``, or what became of it."""
    _blocks: int
    """How many ``uninterruptible`` blocks hold it back; not there before one does."""

    def start(self, when: float, previous: TaskDeadline | None, task: Any = NO_TASK) -> None:
        """Take values; not an ``__init__``, which the one that is made for each attempt does without."""
        self.when = when
        self.previous = previous
        self.task = task
        self.cancelling = 0
        self.state = RUNS

    def end(self) -> None:
        """Take the deadline back: the attempt is over."""
        self.pending.pop(self, None)
        self.place.top = self.previous

    def expire(self) -> None:
        """Interrupt the task, now that the deadline has passed; later where that is held back."""
        if self.is_held:
            self.state = OWED
        else:
            self.state = CANCELLED if self.task.cancel() else EXPIRED

    @property
    def is_held(self) -> bool:
        """Whether an ``uninterruptible`` block holds it back."""
        return getattr(self, "_blocks", 0) > 0

    def hold(self) -> None:
        """Hold it back, until ``let_go`` was called as often."""
        self._blocks = getattr(self, "_blocks", 0) + 1

    def let_go(self) -> None:
        """Undo one ``hold``."""
        self._blocks -= 1


class Place:
    """Where the innermost deadline of one task stands.

    A context variable is set once per task, to this, and not for each call: what a task starts inherits the place, and
    makes one of its own when it begins a deadline itself.
    """

    __slots__ = ("ident", "loop", "ring", "seconds", "task", "top")

    top: TaskDeadline | None
    task: Any
    """``NO_TASK`` where the place belongs to none."""
    loop: Any
    ident: int
    """The thread of the loop; 0 where the place belongs to no task."""
    seconds: float
    """The length of the deadline that began last."""
    ring: Any
    """The ring for deadlines of that length."""


current: ContextVar[Place | None] = ContextVar("faulttolerance_deadlines", default=None)
"""The place of the running context, or the one that it inherited."""


def innermost() -> TaskDeadline | None:
    """The innermost deadline of the running context."""
    place = current.get()
    return place.top if place is not None else None


def work_under(deadline: TaskDeadline | None) -> None:
    """Let *deadline* be the innermost one of the running context."""
    place = Place()
    place.top = deadline
    place.task = NO_TASK
    place.ident = 0
    current.set(place)
