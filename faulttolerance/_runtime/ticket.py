"""What one attempt holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .._strategy.bulkhead import Waiter
    from .slot import Slot
    from .task_deadline import TaskDeadline

__all__ = ["Ticket"]


class Ticket:
    """One attempt: the identity under which permits and probe places are taken, and what is to be given back.

    It is made before anything is taken, so that nothing is lost where an interruption lands between taking and noting.
    """

    __slots__ = (
        "admitted",
        "began",
        "deadline",
        "entry",
        "era",
        "passed",
        "permit",
        "running_since",
        "slot",
        "timed_out",
        "waiter",
    )

    def __init__(self) -> None:
        self.began = 0.0
        """When the attempt asked to be let in."""
        self.permit: object = self
        """What its permit and its probe place are held under."""
        self.era: Any = None
        """The state of the breaker that admitted it."""
        self.passed = False
        """Whether the rate limit let it through."""
        self.slot: Slot | None = None
        """The thread whose chain of deadlines it stands in."""
        self.entry: Any = None
        """Its entry in that chain."""
        self.deadline: TaskDeadline | None = None
        """The deadline of the task that runs it."""
        self.waiter: Waiter | None = None
        """Its place in the bulkhead's queue."""
        self.admitted = False
        """Whether the bulkhead let it in."""
        self.running_since = 0.0
        """When it left that queue; 0.0 where it never stood in it."""
        self.timed_out = False
        """Whether its own deadline ended it."""
