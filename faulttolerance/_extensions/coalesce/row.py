"""The row of ``@coalesce``."""

from __future__ import annotations

from ..._call.row import Binding, Layer, Row, StrategyFactory, key_of
from ..._metrics.catalogue import Metric, PolicyMetrics
from .policy import Coalesce
from .strategy import Flights


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
    strategy_factory=StrategyFactory(lambda *_: Flights(), lambda *_: None),
    layer=_layer,
    is_for_classes=False,
    series=_SERIES,
    needs_arguments=True,
)
