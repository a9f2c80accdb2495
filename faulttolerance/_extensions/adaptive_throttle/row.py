"""The row of ``@adaptive_throttle``."""

from __future__ import annotations

from typing import Any

from ..._call.core import chance, gate_values
from ..._call.row import Row, StrategyFactory
from ..._deadline.clock import clock
from ..._execution.criticality import Criticality
from ..._metrics.catalogue import Metric, PolicyMetrics
from ..._policy import ChronoUnit, seconds
from ...exceptions import ThrottleException
from .policy import AdaptiveThrottle


def _values(policy: AdaptiveThrottle) -> tuple[float, float, int]:
    return policy.multiplier, seconds(policy.window, ChronoUnit.MILLIS), policy.min_requests


def _throttle(name: str, policy: AdaptiveThrottle, _: object) -> Any:
    from . import strategy

    return strategy.AdaptiveThrottle(name, *_values(policy), chance, Criticality.current)


_STRATEGY_FACTORY = StrategyFactory(
    _throttle,
    lambda throttle, policy: throttle.reconfigure(*_values(policy), clock.monotonic()),
)

_SERIES = PolicyMetrics(
    AdaptiveThrottle,
    "success",
    (
        Metric(
            "ft.throttle.calls.total",
            "counter",
            "The number of times the adaptive throttle was run",
            ("result",),
            {"success": ("accepted",), "failure": ("failed",), "refused": ("refused",)},
        ),
        Metric(
            "ft.throttle.probability",
            "gauge",
            "The probability with which a call is refused, from 0 to 1",
            readings={(): lambda throttle, now: throttle.probability(now)},
            total="max",
        ),
    ),
)


ADAPTIVE_THROTTLE = Row(
    AdaptiveThrottle,
    gate_values,
    _STRATEGY_FACTORY,
    is_gate=True,
    series=_SERIES,
    refusal=(ThrottleException, "the adaptive throttle refuses"),
)
