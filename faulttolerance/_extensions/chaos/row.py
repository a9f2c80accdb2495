"""The row of chaos, which configuration alone declares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..._call.row import AttemptBinding, Row
from ..._metrics.catalogue import Metric, schema_of_metric
from .policy import Chaos

CHAOS = Metric(
    "ft.chaos.total",
    "counter",
    "The number of delays and errors that chaos added to attempts",
    ("kind",),
    {"error": ("error",), "latency": ("latency",)},
)
"""Counted for each guard that carries chaos."""


_SCHEMA = schema_of_metric(CHAOS)


def _around_attempt(function: Callable[..., Any], body: AttemptBinding) -> Callable[..., Any]:
    binding = body.binding
    policy = binding.policies.get(Chaos)
    if not isinstance(policy, Chaos) or not policy.rate:
        return function
    from .layer import chaos_of

    counters = binding.counters_under(_SCHEMA)
    fault_injection = chaos_of(binding.metrics_name, policy, counters, lambda kind: CHAOS.series((kind,)))
    return fault_injection.around(function, body.environment, body.is_awaited, is_block=binding.is_block)


def _reset() -> None:
    from .layer import forget_chaos

    forget_chaos()


CHAOS_ROW = Row(beside=(Chaos,), around_attempt=_around_attempt, metrics=(CHAOS,), reset=_reset)
