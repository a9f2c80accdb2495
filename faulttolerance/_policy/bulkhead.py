"""The policy of ``@bulkhead``."""

from __future__ import annotations

from typing import final

from .kind import integer
from .parameter import Policy, parameter


@final
class Bulkhead(Policy):
    """Limit how many calls run at once (specification, chapter Bulkhead).

    Args:
        value: Calls that may run at once; at least 1.
        waiting_task_queue: Calls that may wait for their turn, first in first out; at least 1. Synchronous calls never
            wait: they are refused where all permits are taken.
    """

    value: int = parameter(integer(1), 10)
    waiting_task_queue: int = parameter(integer(1), 10)
