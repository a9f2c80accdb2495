"""The policy of ``@partition_by``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import final

from ..._policy.kind import integer, key, kinds
from ..._policy.parameter import Policy


@final
class PartitionBy(Policy):
    """Keep a circuit breaker or throttle, permits and a rate window for each key, instead of one for all calls.

    Args:
        key: What tells calls apart: a callable with the parameters of the function, the name of one of them, or several
            names.
        max_partitions: How many keys have a state of their own; at least 1. Of more, the idle ones that were used least
            recently are forgotten; calls that find no place share one state.
    """

    _kinds = kinds(
        key=key(is_optional=False),
        max_partitions=integer(1),
    )

    key: Callable[..., Hashable] | str | Sequence[str]
    max_partitions: int = 1000
