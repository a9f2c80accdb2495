"""The deadlines under which the running task works, inherited by the tasks and threads that it starts."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio

    from .task_deadlines import Ring

__all__ = [
    "CANCELLED",
    "EXPIRED",
    "NO_TASK",
    "OWED",
    "RUNS",
    "Place",
    "TaskDeadline",
    "current",
    "standing",
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
    """One deadline of a guarded coroutine; links to the one that encloses it.

    A context variable holds the one that began last, and is set for each: what a task or a thread inherits that is
    started meanwhile are the deadlines that stand then, and none that begins later. Nothing is taken back from the
    variable: whoever looks goes on to the one that ``counts``, wherever it was inherited.
    """

    __slots__ = ("_blocks", "cancelling", "counts", "pending", "place", "previous", "state", "when")

    when: float
    """When it passes, on the shared clock."""
    previous: TaskDeadline | None
    """The deadline that encloses it."""
    place: Place
    """That of the task to cancel; else one of its own."""
    cancelling: int
    """How many cancellations the task had been asked for when the deadline began."""
    pending: dict[TaskDeadline, None]
    """The ring that watches it; not there before one does."""
    state: int
    """``RUNS``, or what became of it."""
    counts: TaskDeadline | None
    """Itself as long as its call lasts; afterwards the one that encloses it."""
    _blocks: dict[object, None]
    """The ``uninterruptible`` blocks that hold it back; not there before one does."""

    def start(self, when: float, previous: TaskDeadline | None, task: Any = NO_TASK) -> None:
        """Take values; not an ``__init__``, which the one that is made for each attempt does without."""
        self.when = when
        self.previous = previous
        self.place = Place()
        self.place.ident = 0
        self.place.task = task
        self.cancelling = 0
        self.state = RUNS
        self.counts = self

    def end(self) -> None:
        """Take the deadline back: the attempt is over."""
        self.counts = self.previous
        self.watch_no_more()

    def watch_no_more(self) -> None:
        """Let it not interrupt any more, whether or not the attempt is over."""
        if hasattr(self, "pending"):
            self.pending.pop(self, None)

    def expire(self) -> None:
        """Interrupt the task, now that the deadline has passed; later where that is held back."""
        if self.state >= EXPIRED:
            return
        if self.is_held:
            self.state = OWED
            if self.is_held:
                return  # and not let go on another thread, which did not see that it was owed
        task = self.task
        before = task.cancelling()
        try:
            self.state = CANCELLED if task.cancel() else EXPIRED
        except BaseException:
            if task.cancelling() > before:  # a signal's handler raised, and the task was asked all the same
                self.state = CANCELLED
            raise

    @property
    def task(self) -> Any:
        """The task to cancel, or ``NO_TASK``."""
        return self.place.task

    @task.setter
    def task(self, task: Any) -> None:
        self.place.task = task

    @property
    def is_held(self) -> bool:
        """Whether an ``uninterruptible`` block holds it back."""
        return bool(getattr(self, "_blocks", None))

    def hold(self, block: object) -> None:
        """Hold it back until ``let_go`` was called for the same block; from any thread."""
        if not hasattr(self, "_blocks"):
            # Two threads may be here at once: both take the one that was stored first.
            blocks = _first_blocks.setdefault(self, {})
            if not hasattr(self, "_blocks"):
                self._blocks = blocks
            _first_blocks.pop(self, None)
        self._blocks[block] = None

    def let_go(self, block: object) -> None:
        """Undo ``hold``, also where that did not get to its end."""
        _first_blocks.pop(self, None)
        getattr(self, "_blocks", {}).pop(block, None)


_first_blocks: dict[TaskDeadline, dict[object, None]] = {}


class Place:
    """What a task needs for each deadline that it begins; found by the last one that it began."""

    __slots__ = ("ident", "loop", "ring", "seconds", "task")

    task: Any
    """``NO_TASK`` where the place belongs to none."""
    loop: asyncio.AbstractEventLoop
    ident: int
    """The thread of the loop; 0 where the place belongs to no task."""
    seconds: float
    """The length of the deadline that began last."""
    ring: Ring
    """The ring for deadlines of that length."""


_NONE_YET = TaskDeadline()
_NONE_YET.start(0.0, None)
_NONE_YET.end()

current: ContextVar[TaskDeadline] = ContextVar("faulttolerance_deadlines", default=_NONE_YET)
"""The deadline that began last in the running context, or in the one from which that was copied."""


def standing(deadline: TaskDeadline | None) -> TaskDeadline | None:
    """*deadline*, or the nearest one around it, whose call has not ended."""
    while deadline is not None and deadline.counts is not deadline:
        deadline = deadline.counts
    return deadline


def work_under(deadline: TaskDeadline) -> None:
    """Let *deadline* be the innermost one of the running context."""
    current.set(deadline)
