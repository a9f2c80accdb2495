"""The policy of ``@bulkhead``."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ..typing import Duration
from .kind import SHORT, duration, kinds
from .parameter import Policy

if TYPE_CHECKING:
    from dataclasses import KW_ONLY


@final
class Bulkhead(Policy, is_observable=True):
    """Limit the number of calls that run at the same time (specification, chapter Bulkhead).

    Args:
        value: The number of calls that may run at the same time; at least 1.
        waiting_task_queue: The number of calls that may wait for a permit; at least 1. Synchronous calls wait only with
            a *max_wait*; otherwise they are refused while all permits are taken.
        max_wait: The longest wait of a call, synchronous or not, in milliseconds; with 0, synchronous calls do not
            wait, and asynchronous calls wait for at most *latency*, or without a limit if that is 0, too.
        latency: The target for the duration of nine in ten calls, in milliseconds. The limit adapts to reach it, with
            *value* as its maximum; with 0, the limit is always *value*.
    """

    _kinds = kinds(
        max_wait=duration(plausible=SHORT),
    )

    value: int = 10
    waiting_task_queue: int = 10
    _: KW_ONLY
    max_wait: Duration = 0
    latency: Duration = 0
