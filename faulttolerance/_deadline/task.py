"""The deadlines under which the running task works, inherited by the tasks and threads that it starts."""

from __future__ import annotations

from contextvars import ContextVar
from math import inf
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .queue import DeadlineQueue
    from .threads.cancels import Cancel

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


class _NoQueue:
    ident = 0
    pending: dict[TaskDeadline, None] = {}  # noqa: RUF012  # nothing is ever stored in it


NO_TASK: Any = _NoTask()
"""Stands for the task where none runs the coroutine, or none is to be cancelled."""
NO_QUEUE: Any = _NoQueue()
"""Stands for the queue of a deadline that stands in none; no thread runs its loop."""


class TaskDeadline:
    """One deadline of a guarded coroutine; links to the one that encloses it.

    A context variable holds the one that began last, and is set for each: what a task or a thread inherits that is
    started meanwhile are the deadlines that stand then, and none that begins later. Nothing is taken back from the
    variable: whoever looks goes on to the one that ``counts``, wherever it was inherited.
    """

    __slots__ = ("_blocks", "_cancels", "_rules", "cancelling", "counts", "previous", "queue", "state", "task", "when")

    when: float
    """When it passes, on the shared clock."""
    previous: TaskDeadline | None
    """The deadline that encloses it."""
    task: Any
    """The task to cancel, or ``NO_TASK``."""
    cancelling: int
    """How many cancellations the task had been asked for when the deadline began."""
    queue: DeadlineQueue
    """The queue that watches it, or ``NO_QUEUE``."""
    state: int
    """``RUNS``, or what became of it."""
    counts: TaskDeadline | None
    """Itself as long as its call lasts; afterwards the one that encloses it."""
    _blocks: dict[object, None]
    """The ``uninterruptible`` blocks that hold it back; not there before one does."""
    _cancels: dict[Cancel, None]
    """What ``on_deadline`` has called before the task is interrupted; not there before a block of it."""
    _rules: bool
    """Whether it is one of ``deadline``; not there where it is not."""

    def start(self, when: float, previous: TaskDeadline | None) -> None:
        """Take values; not an ``__init__``, which the one that is made for each attempt does without."""
        self.when = when
        self.previous = previous
        self.task = NO_TASK
        self.cancelling = 0
        self.queue = NO_QUEUE
        self.state = RUNS
        self.counts = self

    def end(self) -> None:
        """Take the deadline back: the attempt is over."""
        self.counts = self.previous
        self.queue.pending.pop(self, None)

    def expire(self) -> None:
        """Interrupt the task, now that the deadline has passed; later where that is held back."""
        if self.state >= EXPIRED:
            return
        if self.is_held:
            self.state = OWED
            if self.is_held:
                return  # and not let go on another thread, which did not see that it was owed
        for cancel in reversed([*getattr(self, "_cancels", ())]):
            if cancel.claim():
                cancel.make()
        task = self.task
        before = task.cancelling()
        try:
            self.state = CANCELLED if task.cancel() else EXPIRED
        except BaseException:
            if task.cancelling() > before:  # a signal's handler raised, and the task was asked all the same
                self.state = CANCELLED
            raise

    def cancels_before(self) -> dict[Cancel, None]:
        """Give what is to be called before the task is interrupted, to add something; called by its loop's thread."""
        if not hasattr(self, "_cancels"):
            self._cancels = {}
        return self._cancels

    @property
    def is_ruling(self) -> bool:
        """Whether detached calls that are made under it end with it (rule D4), as those do under ``deadline``."""
        return getattr(self, "_rules", False)

    def rule(self) -> None:
        """Let detached calls end with it that are made from now on."""
        self._rules = True

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

NO_DEADLINE: Final = TaskDeadline()
"""Stands for the deadline of an attempt that has begun none, and for the one around an outermost one."""
NO_DEADLINE.start(0.0, None)
NO_DEADLINE.end()

current: ContextVar[TaskDeadline] = ContextVar("faulttolerance_deadlines", default=NO_DEADLINE)
"""The deadline that began last in the running context, or in the one from which that was copied."""


def standing(deadline: TaskDeadline | None) -> TaskDeadline | None:
    """Find the nearest one whose call has not ended: *deadline*, or one around it."""
    while deadline is not None and deadline.counts is not deadline:
        deadline = deadline.counts
    return deadline


def nearest_ruling(deadline: TaskDeadline | None, task: object = None) -> TaskDeadline | None:
    """Find the nearest deadline that ends detached calls, from *deadline* outwards, unless it is one of *task* itself.

    One counts that passed while its block or call lasted, even if that is over.
    """
    nearest, when = None, inf
    while deadline is not None:
        has_ruled = deadline.counts is deadline or deadline.state >= EXPIRED
        if deadline.when < when and has_ruled and deadline.is_ruling and deadline.task is not task:
            nearest, when = deadline, deadline.when
        deadline = deadline.previous
    return nearest
