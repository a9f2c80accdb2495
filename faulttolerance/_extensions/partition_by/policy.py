"""The policy of ``@partition_by``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import final

from ..._policy.kind import key, kinds
from ..._policy.parameter import Policy


@final
class PartitionBy(Policy):
    """Keep a circuit breaker or throttle, permits and a rate window for each key, instead of one for all calls.

    Args:
        key: The key of a call: a callable with the parameters of the function, the name of one of them, or several
            names.
        max_partitions: The number of keys that have their own state; at least 1. If there are more keys, the idle keys
            that were used least recently are removed; calls without a place share one state.
    """

    _kinds = kinds(
        key=key(is_optional=False),
    )

    key: Callable[..., Hashable] | str | Sequence[str]
    max_partitions: int = 1000
