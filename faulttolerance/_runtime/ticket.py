"""What one attempt holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .task_deadline import TaskDeadline

if TYPE_CHECKING:
    from .._strategy.bulkhead import Waiter
    from .interruption import Slot

__all__ = ["Ticket"]


class Ticket(TaskDeadline):
    """One attempt: the identity under which permits and probe places are taken, and what is to be given back.

    It is made before anything is taken, so that nothing is lost where an interruption lands between taking and noting.
    """

    began: float = 0.0
    """When the attempt asked to be let in."""
    era: Any = None
    """The state of the breaker that admitted it."""
    limited: bool = False
    """Whether its deadline runs, in one of the two ways below."""
    slot: Slot | None = None
    """The thread whose chain of deadlines it stands in."""
    entry: Any = None
    """Its entry in that chain."""
    outer: Any = None
    """The entry below."""
    pending: dict[TaskDeadline, None] | None = None
    """The ring that watches its deadline, where a task runs it."""
    waiter: Waiter | None = None
    """Its place in the bulkhead's queue."""
    turn: Any = None
    """What completes when the queue lets it in."""
    running_since: float = 0.0
    """When it left that queue; 0.0 where it never stood in it."""
    apart: TaskDeadline | None = None
    """The deadline of its task, where it runs as a task of its own."""
    passed: bool = False
    """Whether the rate limit let it through."""
    admitted: bool = False
    """Whether the bulkhead let it in."""
    timed_out: bool = False
    """Whether its own deadline ended it."""
