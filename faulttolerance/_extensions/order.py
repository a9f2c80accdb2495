"""The order of all policies: the rows of the core and of the extensions, outermost first."""

from __future__ import annotations

from .._call.core import (
    ASYNCHRONOUS,
    ASYNCHRONOUS_NON_BLOCKING,
    BULKHEAD,
    CALL_WRAPPERS,
    CIRCUIT_BREAKER,
    CIRCUIT_BREAKER_NAME,
    FALLBACK,
    RATE_LIMIT,
    RETRY,
    TIMEOUT,
    fail_when,
    retry_budget,
)
from .._call.row import Row
from .._extensions.adaptive_throttle.policy import AdaptiveThrottle
from .._extensions.hedge.policy import Hedge
from .adaptive.row import ADAPTIVE
from .adaptive_throttle.row import ADAPTIVE_THROTTLE
from .chaos.row import CHAOS_ROW
from .coalesce.row import COALESCE
from .deadline.policy import Deadline
from .deadline.row import DEADLINE
from .fleet.row import FLEET_WIDE
from .hedge.row import HEDGE
from .last_good.row import with_last_good
from .observe.row import OBSERVE, OBSERVED_TIMEOUT, observed_duration
from .partition_by.row import PARTITION_BY
from .spans.row import SPANS

ORDER: tuple[Row, ...] = (
    PARTITION_BY,
    COALESCE,
    ASYNCHRONOUS,
    ASYNCHRONOUS_NON_BLOCKING,
    with_last_good(FALLBACK),
    DEADLINE,
    observed_duration(Deadline),
    *RETRY,
    retry_budget(or_else=Hedge),
    SPANS,
    HEDGE,
    CIRCUIT_BREAKER,
    CIRCUIT_BREAKER_NAME,
    ADAPTIVE_THROTTLE,
    fail_when(or_else=AdaptiveThrottle),
    RATE_LIMIT,
    FLEET_WIDE,
    TIMEOUT,
    OBSERVED_TIMEOUT,
    BULKHEAD,
    OBSERVE,
    ADAPTIVE,
    CALL_WRAPPERS,
    CHAOS_ROW,
)
"""Outermost first; an extension without a policy stands where it wraps attempts or calls."""
