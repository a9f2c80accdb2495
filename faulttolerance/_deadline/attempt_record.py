"""The record of one attempt: its identity for permits, and the facts about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._strategy.gate import GateState
    from .task import TaskDeadline
    from .threads.chain import Entry, ThreadDeadlines


class AttemptRecord:
    """The record of one attempt, which is also the identity under which it takes permits and probe places.

    The record is created before the attempt takes anything. So nothing is lost when an interruption comes after a
    permit was taken and before the record of it was made.
    """

    # Attributes of the class, so that the creation of a record calls no Python code; most keep their default. Those
    # without a value are stored at the end of each attempt: CPython specializes no store of one that the class has.
    began: float
    """The moment at which the attempt requested admission, or at which its turn came if it waited for one."""
    requested: float
    """The moment at which the attempt requested admission, before it waited for a turn."""
    permit: object
    """The key of the permit and of the probe place; ``None`` if the attempt took neither."""
    admitted_by: int
    """The last policy that admitted the attempt: a constant of ``_call/bound_policies.py``, ``BY_NONE`` for none."""
    refused_by = ""
    """The policy that refused the attempt."""
    gate_state: GateState
    """The state of the gate when it admitted the attempt."""
    fails: bool | None = False
    """Whether the predicate of ``@fail_when`` counts the attempt as a failure for the gate."""
    verdict = ""
    """The verdict for the gate."""
    deadlines: ThreadDeadlines | None
    """The deadlines of the thread in whose chain the attempt stands."""
    entry: Entry
    """The attempt's entry in that chain."""
    deadline: TaskDeadline
    """The deadline of the task that runs the attempt, or ``NO_DEADLINE``."""
    queued = False
    """Whether the attempt waited in the queue of the bulkhead."""
    admitted = False
    """Whether the bulkhead admitted the attempt."""
    running_since = 0.0
    """The moment at which the attempt left that queue; 0.0 if it never waited there."""
    ended = 0.0
    """The moment at which the body ended, if the call was notified later; else 0.0."""
    timed_out = False
    """Whether its own deadline ended the attempt."""
