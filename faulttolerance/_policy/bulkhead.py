"""The policy of ``@bulkhead``."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ..typing import Duration
from .kind import SHORT, duration, integer, kinds
from .parameter import Policy

if TYPE_CHECKING:
    from dataclasses import KW_ONLY


@final
class Bulkhead(Policy, is_observable=True):
    """Limit how many calls run at once (specification, chapter Bulkhead).

    Args:
        value: Calls that may run at once; at least 1.
        waiting_task_queue: Calls that may wait for their turn; at least 1. Synchronous calls wait only where there is a
            *max_wait*, and are refused else where all permits are taken.
        max_wait: How long a call may wait, synchronous or not, in milliseconds; 0: synchronous ones not at all,
            asynchronous ones for *latency*, or where that is 0, too, for as long as it takes.
        latency: How long nine in ten calls are to take at most, in milliseconds. The limit moves for that, and *value*
            is the highest; 0: it stays at *value*.
    """

    _kinds = kinds(
        value=integer(1),
        waiting_task_queue=integer(1),
        max_wait=duration(plausible=SHORT),
        latency=duration(),
    )

    value: int = 10
    waiting_task_queue: int = 10
    _: KW_ONLY
    max_wait: Duration = 0
    latency: Duration = 0
