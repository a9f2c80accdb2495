"""The record of one attempt: what it holds, and what happened to it."""

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

    __slots__ = (
        "admitted",
        "began",
        "deadline",
        "deadlines",
        "ended",
        "entry",
        "era",
        "passed",
        "permit",
        "queued",
        "refused_by",
        "running_since",
        "timed_out",
        "verdict",
    )

    def __init__(self) -> None:
        self.began = 0.0
        """When the attempt asked to be let in."""
        self.permit: object = None
        """The key of its permit and of its probe place; ``None`` where it took neither."""
        self.passed = 0
        """How many of its gates let it in."""
        self.refused_by = ""
        """The policy that did not let it in."""
        self.era: Era | None = None
        """The state of the gate that let it in."""
        self.verdict = ""
        """The verdict of the gate."""
        self.deadlines: ThreadDeadlines | None = None
        """The thread whose chain of deadlines it stands in."""
        self.entry: Entry = None
        """Its entry in that chain."""
        self.deadline: TaskDeadline | None = None
        """The deadline of the task that runs it."""
        self.queued = False
        """Whether it stood in the bulkhead's queue."""
        self.admitted = False
        """Whether the bulkhead let it in."""
        self.running_since = 0.0
        """When it left that queue; 0.0 where it never stood in it."""
        self.ended = 0.0
        """When its body ended, if that was before the call heard of it; else 0.0."""
        self.timed_out = False
        """Whether its own deadline ended it."""
