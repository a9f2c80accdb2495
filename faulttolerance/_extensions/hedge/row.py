"""The row of ``@hedge``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..._call.row import AttemptBinding, Binding, Layer, Row, StrategyFactory
from ..._metrics.catalogue import Metric, PolicyMetrics
from ..._policy import ChronoUnit, seconds
from ..._strategy.gate import Gate
from ...exceptions import Fault
from .policy import Hedge


def _values(policy: Hedge) -> tuple[int, float, float]:
    return policy.max_hedges, policy.quantile, seconds(policy.delay, ChronoUnit.MILLIS)


def _hedges(name: str, policy: Hedge, _: object) -> Any:
    from . import strategy

    return strategy.Hedge(*_values(policy))


_STRATEGY_FACTORY = StrategyFactory(
    _hedges,
    lambda hedges, policy: hedges.reconfigure(*_values(policy)),
)


def _bind(policy: Hedge, binding: Binding) -> Mapping[str, Any]:
    """Bind nothing; but with this row the policies around a race count the calls, each call once."""
    return {}


def _layer(policy: Hedge, binding: Binding) -> Layer | None:
    if binding.is_block or not binding.asynchronous:
        return None
    from .layer import Hedging

    return Hedging(binding)


def _gate(gate: Gate, policy: object, binding: Binding) -> Gate:
    if not binding.is_enforced(Hedge):
        return gate
    from ..._execution.race import has_lost
    from .strategy import DeafGate

    return DeafGate(gate, has_lost)


def _around_attempt(function: Callable[..., Any], body: AttemptBinding) -> Callable[..., Any]:
    if body.binding.may_wait:
        return function
    from .layer import announced

    return announced(function, body.binding.name)


def _faults(policy: Hedge, *args: Any) -> list[Fault]:
    from .faults import hedge_faults

    return hedge_faults(*args)


_SERIES = PolicyMetrics(
    Hedge,
    metrics=(
        Metric(
            "ft.hedge.calls.total",
            "counter",
            "The number of times the hedge logic was run, by result",
            ("result",),
            {result: (result,) for result in ("notHedged", "primary", "hedge", "failed")},
        ),
        Metric(
            "ft.hedge.delay",
            "gauge",
            "The time after which a hedge is sent; 0 while no hedge would be sent",
            readings={(): lambda hedge, _: hedge.delay},
            unit="seconds",
            total="max",
        ),
    ),
)

HEDGE = Row(
    Hedge,
    _bind,
    _STRATEGY_FACTORY,
    layer=_layer,
    gate=_gate,
    around_attempt=_around_attempt,
    series=_SERIES,
    faults=_faults,
    block_fault=("runs slow code twice at once, and a block cannot run twice", ""),
)
