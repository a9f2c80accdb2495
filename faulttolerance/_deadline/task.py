"""The deadlines of the running task, which the tasks and threads that it starts inherit."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .queue import DeadlineQueue
    from .threads.callbacks import DeadlineCallback

RUNNING: Final = 0
"""The deadline has not passed, or its passing was not noticed yet."""
DEFERRED: Final = 1
"""The deadline passed while it was held back; the task is interrupted at the end of the ``uninterruptible`` block."""
EXPIRED: Final = 2
"""The deadline passed, and the task was interrupted without a request to cancel."""
CANCELLED: Final = 3
"""The deadline passed, and the task was requested to cancel."""


NO_TASK: Any = SimpleNamespace(done=lambda: True, cancelling=lambda: 0, cancel=lambda: False)
"""Replaces the task where no task is to be cancelled."""
NO_QUEUE: Any = SimpleNamespace(ident=0, pending={})
"""Replaces the queue of a deadline that stands in no queue; it stays empty."""
NO_LOOP: Any = SimpleNamespace(ident=0, loop=None, pending={})
"""Replaces the queue of a deadline that no loop watches; it stays empty."""

_NONE: dict[Any, None] = {}


class TaskDeadline:
    """One deadline of a guarded coroutine, linked to the deadline that encloses it.

    A context variable holds the deadline that started last, and each deadline sets it. So a task or thread that is
    started meanwhile inherits the deadlines that stand at that moment, and none that starts later. The variable is
    never reset: every reader moves on to the deadline that is ``effective``, wherever the variable was inherited.
    """

    __slots__ = ("__dict__", "cancelling", "effective", "previous", "queue", "state", "task", "when")

    when: float
    """The moment at which the deadline passes, on the shared clock."""
    previous: TaskDeadline | None
    """The deadline that encloses this deadline."""
    task: Any
    """The task to cancel, or ``NO_TASK``."""
    cancelling: int
    """The number of cancellations that had been requested of the task when the deadline started."""
    queue: DeadlineQueue
    """The queue that watches the deadline, ``NO_QUEUE``, or ``NO_LOOP``."""
    state: int
    """``RUNNING``, ``DEFERRED``, ``EXPIRED`` or ``CANCELLED``."""
    effective: TaskDeadline | None
    """Itself while its call lasts; afterwards the deadline that encloses it."""
    _blocks: dict[object, None] = _NONE
    """The ``uninterruptible`` blocks that hold the deadline back; an own dict from the first block on."""
    _callbacks: dict[DeadlineCallback, None] = _NONE
    """The functions that ``on_deadline`` calls before the task is interrupted; an own dict from the first block on."""
    is_binding = False
    """Whether detached calls that are made from now on end with the deadline (rule D4), as under ``deadline``."""

    def start(self, when: float, previous: TaskDeadline | None) -> None:
        """Set the values; not an ``__init__``, because the deadline of an attempt is created without this call."""
        self.when = when
        self.previous = previous
        self.task = NO_TASK
        self.cancelling = 0
        self.queue = NO_QUEUE
        self.state = RUNNING
        self.effective = self

    def end(self) -> None:
        """Remove the deadline, because the attempt is over."""
        self.effective = self.previous
        self.queue.pending.pop(self, None)

    def expire(self) -> None:
        """Interrupt the task, now that the deadline has passed; later if a block holds the deadline back."""
        if self.state >= EXPIRED:
            return
        if self.is_held:
            self.state = DEFERRED
            if self.is_held:
                return  # still held: no other thread released it before it could see ``DEFERRED``
        for cancel in reversed([*self._callbacks]):
            if cancel.claim():
                cancel.call()
        if self.effective is not self:
            return  # one of the functions has left the block
        task = self.task
        before = task.cancelling()
        try:
            self.state = CANCELLED if task.cancel() else EXPIRED
        except BaseException:
            if task.cancelling() > before:  # a signal's handler raised, but the cancellation was requested
                self.state = CANCELLED
            raise

    def callbacks_before(self) -> dict[DeadlineCallback, None]:
        """Return the functions to call before the task is interrupted, for an addition by the thread of its loop."""
        own: dict[DeadlineCallback, None] = self.__dict__.setdefault("_callbacks", {})
        return own

    @property
    def is_held(self) -> bool:
        """Whether an ``uninterruptible`` block holds the deadline back."""
        return bool(self._blocks)

    def hold(self, block: object) -> None:
        """Hold the deadline back until ``release`` is called for *block*; from any thread."""
        self.__dict__.setdefault("_blocks", {})[block] = None  # two threads may be here at the same time

    def release(self, block: object) -> None:
        """Undo ``hold`` for *block*, even if that call was interrupted."""
        self._blocks.pop(block, None)


NO_DEADLINE: Final = TaskDeadline()
"""Replaces the deadline of an attempt without a deadline, and the deadline around an outermost deadline."""
NO_DEADLINE.start(0.0, None)
NO_DEADLINE.end()

current: ContextVar[TaskDeadline] = ContextVar("faulttolerance_deadlines", default=NO_DEADLINE)
"""The deadline that started last in the running context, or in the context from which that was copied."""


def effective_deadline(deadline: TaskDeadline | None) -> TaskDeadline | None:
    """Return the nearest deadline whose call has not ended: *deadline*, or a deadline around it; else ``None``."""
    while deadline is not None and deadline.effective is not deadline:
        deadline = deadline.effective
    return deadline


def effective_deadlines(innermost: TaskDeadline | None) -> Iterator[TaskDeadline]:
    """Yield the deadlines whose calls have not ended: *innermost*, and those around it."""
    deadline = effective_deadline(innermost)
    while deadline is not None:
        yield deadline
        deadline = effective_deadline(deadline.previous)


def binding_deadlines(deadline: TaskDeadline | None, task: object = None) -> list[TaskDeadline]:
    """Return the deadlines, from *deadline* outwards, that end a detached call which is made now, in *task* if any.

    The deadlines of *task* are left out, because they end the call themselves, and those that an ``uninterruptible``
    block holds back: the call may clean up there.
    """
    binding = (one for one in effective_deadlines(deadline) if one.is_binding and one.task is not task)
    return [one for one in binding if not one.is_held]
