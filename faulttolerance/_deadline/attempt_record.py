"""The record of one attempt: the identity by which it takes permits, what it gives back, and facts about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._strategy.gate import Era
    from .task import TaskDeadline
    from .threads.chain import Entry, ThreadDeadlines


class AttemptRecord:
    """One attempt: the identity under which permits and probe places are taken, and what is to be given back.

    It is made before anything is taken, so that nothing is lost where an interruption lands between taking and noting.
    """

    # Attributes of the class, so that making one calls no Python: most stay as they are.
    began = 0.0
    """When the attempt asked to be let in, or when the turn came that it waited for."""
    asked = 0.0
    """When it asked to be let in, before it waited for a turn."""
    permit: object = None
    """The key of its permit and of its probe place; ``None`` where it took neither."""
    passed = 0
    """How many of its gates let it in."""
    refused_by = ""
    """The policy that did not let it in."""
    era: Era | None = None
    """The state of the gate that let it in."""
    fails: bool | None = False
    """Whether the predicate of ``@fail_when`` says that it is a failure to the gate."""
    verdict = ""
    """The verdict of the gate."""
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
    running_since = 0.0
    """When it left that queue; 0.0 where it never stood in it."""
    ended = 0.0
    """When its body ended, if that was before the call heard of it; else 0.0."""
    timed_out = False
    """Whether its own deadline ended it."""
    limit = 0.0
    """How long it may take, in seconds, where that adapts."""
