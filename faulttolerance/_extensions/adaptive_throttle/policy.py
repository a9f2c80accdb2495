"""What ``@adaptive_throttle`` asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, final

from ..._policy.kind import duration, exceptions, integer, kinds, number
from ..._policy.parameter import Contradiction, Policy
from ..._policy.unit import ChronoUnit, seconds
from ..._shown import shown
from ...typing import Duration, ExceptionSet


@final
class AdaptiveThrottle(Policy, kw_only=True, is_observable=True):
    """Refuse a part of the calls while the callee turns a part of them down (Google, Site Reliability Engineering).

    Args:
        multiplier: Calls that are let through for each one that succeeds; at least 1.1.
        window: How long a call counts, in milliseconds; at least 1000.
        min_requests: Nothing is refused below so many calls in the window.
        fail_on: What counts as a failure.
        skip_on: What counts as a success, also where *fail_on* names it.
    """

    _kinds = kinds(
        multiplier=number(1.1),
        window=duration(">= 1000"),
        min_requests=integer(1),
        fail_on=exceptions(),
        skip_on=exceptions(),
    )

    multiplier: float = 2.0
    window: Duration = 10_000
    min_requests: int = 10
    fail_on: ExceptionSet = Exception
    skip_on: ExceptionSet = ()

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> Iterable[Contradiction]:
        """Refuse a window of less than a second, which says nothing about the next one."""
        if seconds(values["window"], ChronoUnit.MILLIS) < 1.0:
            yield "window", f"is {shown(values['window'])}", "a duration >= 1 s", ()
