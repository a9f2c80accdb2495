"""The order of all policies: the rows of the core and of the extensions, outermost first."""

from __future__ import annotations

from .._call import core
from .._call.row import Row
from .._policy import Timeout
from .adaptive.row import ADAPTIVE
from .adaptive_throttle.policy import AdaptiveThrottle
from .adaptive_throttle.row import ADAPTIVE_THROTTLE
from .chaos.row import CHAOS_ROW
from .coalesce.row import COALESCE
from .deadline.policy import Deadline
from .deadline.row import DEADLINE
from .fleet.row import FLEET_WIDE
from .hedge.policy import Hedge
from .hedge.row import HEDGE
from .last_good.row import with_last_good
from .observe.row import OBSERVE, observed_duration
from .partition_by.row import PARTITION_BY
from .spans.row import SPANS

ORDER: tuple[Row, ...] = (
    PARTITION_BY,
    COALESCE,
    core.ASYNCHRONOUS,
    core.ASYNCHRONOUS_NON_BLOCKING,
    with_last_good(core.FALLBACK),
    DEADLINE,
    observed_duration(Deadline),
    *core.RETRY,
    core.retry_budget(or_else=Hedge),
    SPANS,
    HEDGE,
    core.CIRCUIT_BREAKER,
    core.CIRCUIT_BREAKER_NAME,
    ADAPTIVE_THROTTLE,
    core.fail_when(or_else=AdaptiveThrottle),
    core.RATE_LIMIT,
    FLEET_WIDE,
    core.TIMEOUT,
    observed_duration(Timeout),
    core.BULKHEAD,
    OBSERVE,
    ADAPTIVE,
    core.CALL_WRAPPERS,
    CHAOS_ROW,
)
"""Outermost first; an extension without a policy stands where it wraps attempts or calls."""
