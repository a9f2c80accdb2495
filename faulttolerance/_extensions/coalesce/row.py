"""The row of ``@coalesce``."""

from __future__ import annotations

from typing import Any

from ..._call.row import Binding, Layer, Row, StrategyFactory, key_of
from ..._metrics.catalogue import Metric, PolicyMetrics
from .policy import Coalesce


def _flights(*_: object) -> Any:
    from .strategy import Flights

    return Flights()


def _layer(policy: Coalesce, binding: Binding) -> Layer:
    from .layer import Coalescing

    flights, counters = binding.strategies.get(Coalesce), binding.counters_of(Coalesce)
    return Coalescing(binding.name, flights, key_of(policy.key, binding), counters)


_SERIES = PolicyMetrics(
    Coalesce,
    metrics=(
        Metric(
            "ft.coalesce.calls.total",
            "counter",
            "The number of calls that ran, and of calls that shared the outcome of another",
            ("role",),
            {"leader": ("leader",), "follower": ("follower",)},
        ),
    ),
)

COALESCE = Row(
    Coalesce,
    strategy_factory=StrategyFactory(_flights, lambda *_: None),
    layer=_layer,
    is_for_classes=False,
    series=_SERIES,
    needs_arguments=True,
)
