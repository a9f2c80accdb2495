"""What one attempt holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._strategy.gate import Era
    from .interrupting.thread_deadlines import Entry, ThreadDeadlines
    from .task_deadline import TaskDeadline


class AttemptRecord:
    """One attempt: the identity under which permits and probe places are taken, and what is to be given back.

    It is made before anything is taken, so that nothing is lost where an interruption lands between taking and noting.
    """

    # Defaults stand on the class and not in an ``__init__``: most attempts write few of them.

    began: float = 0.0
    """When the attempt asked to be let in."""
    permit: object = None
    """What its permit and its probe place are held under; ``None`` where it took neither."""
    passed = 0
    """How many of its gates let it in."""
    refused_by = ""
    """The policy that did not let it in."""
    era: Era | None = None
    """The state of the gate that let it in."""
    verdict = ""
    """How the gate judged it."""
    deadlines: ThreadDeadlines | None = None
    """The thread whose chain of deadlines it stands in."""
    entry: Entry = None
    """Its entry in that chain."""
    deadline: TaskDeadline | None = None
    """The deadline of the task that runs it."""
    queued = False
    """Whether it stood in the bulkhead's queue."""
    admitted = False
    """Whether the bulkhead let it in."""
    running_since: float = 0.0
    """When it left that queue; 0.0 where it never stood in it."""
    ended: float = 0.0
    """When its body ended, where that is not when the call hears of it; 0.0: as it did."""
    timed_out = False
    """Whether its own deadline ended it."""
    result: object = None
    """What its body returned."""
    failure: BaseException | None = None
    """What it failed with."""
