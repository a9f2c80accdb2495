"""The policy of ``@adaptive_throttle``."""

from __future__ import annotations

from typing import final

from ..._policy.kind import duration, kinds, number
from ..._policy.parameter import Policy
from ...typing import Duration, ExceptionSet


@final
class AdaptiveThrottle(Policy, kw_only=True, is_observable=True):
    """Refuse a share of the calls while the callee rejects a share of them (Google, Site Reliability Engineering).

    Args:
        multiplier: Calls that are admitted for each successful call; at least 1.1.
        window: The time for which a call counts, in milliseconds; at least 1000.
        min_requests: The number of calls in the window below which no call is refused.
        fail_on: Exceptions that count as failures.
        skip_on: Exceptions that count as successes, even if *fail_on* names them.
    """

    _kinds = kinds(
        multiplier=number(1.1),
        window=duration(">= 1000"),  # a shorter window says nothing about the next second
    )

    multiplier: float = 2.0
    window: Duration = 10_000
    min_requests: int = 10
    fail_on: ExceptionSet = Exception
    skip_on: ExceptionSet = ()
