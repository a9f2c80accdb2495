"""The rows of observed policies: they decorate the strategies of other rows (rule X7)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from ..._call.row import AttemptBinding, Binding, Layer, Row
from ..._deadline.interruption import remaining
from ..._metrics.catalogue import Metric, Schema, schema_of_metric
from ..._metrics.counters import Counters
from ..._policy import Bulkhead, ChronoUnit, Policy, RateLimit, seconds
from ..._strategy.gate import Gate, OnRefusal

OBSERVED = Metric(
    "ft.observed.total",
    "counter",
    "The number of attempts that an observed policy would have refused or ended",
    ("policy",),
    {policy.annotation: (policy.annotation,) for policy in Policy.__subclasses__() if policy.is_observable},
)
"""Counted for each observed policy."""


def _observer(name: str, kind: type[Policy], counters: Counters | None) -> OnRefusal:
    from .layer import report

    return partial(report, name, kind.annotation, counters, OBSERVED.series((kind.annotation,)))


@cache
def _schema(annotation: str) -> Schema:
    return schema_of_metric(OBSERVED, annotation)


def _gate(gate: Gate, policy: Policy, binding: Binding) -> Gate:
    tell = binding.on_refusal_of(type(policy))
    if tell is None:
        return gate
    from .strategy import ObservedGate

    return ObservedGate(gate, tell)


def _limit(limit: Any, may_wait: bool, binding: Binding) -> tuple[Any, bool]:
    tell = binding.on_refusal_of(RateLimit)
    if tell is None:
        return limit, may_wait
    from .strategy import ObservedRateLimit

    return ObservedRateLimit(limit, tell, remaining, may_wait=may_wait), False


def _permits(permits: Any, may_queue: bool, binding: Binding) -> Any:
    tell = binding.on_refusal_of(Bulkhead)
    if tell is None:
        return permits
    from .strategy import ObservedBulkhead

    return ObservedBulkhead(permits, tell, may_wait=may_queue)


OBSERVE = Row(
    is_for_observed=True,
    gate=_gate,
    limit=_limit,
    permits=_permits,
    observer=_observer,
    schema_of_observed=lambda kind: _schema(kind.annotation),
    metrics=(OBSERVED,),
)


def observed_duration(kind: type[Policy]) -> Row:
    """Return the row that times calls, attempts or blocks under an observed policy of *kind*, a longest duration."""

    def layer(_: object, binding: Binding) -> Layer | None:
        return None if binding.is_block else _timed(kind, binding)

    def around_attempt(function: Callable[..., Any], body: AttemptBinding) -> Callable[..., Any]:
        timed = _timed(kind, body.binding) if body.binding.is_block else None
        if timed is None:
            return function
        call = timed(lambda args, kwargs: function(*args, **kwargs), body.environment)
        return lambda *args, **kwargs: call(args, kwargs)

    return Row(beside=(kind,), is_for_observed=True, layer=layer, around_attempt=around_attempt)


def _timed(kind: type[Policy], binding: Binding) -> Layer | None:
    policy: Any = binding.policies.get(kind)
    tell = binding.on_refusal_of(kind)
    if tell is None or not policy.value:
        return None
    from .layer import timed

    limit, adaptive = seconds(policy.value, getattr(policy, "unit", ChronoUnit.MILLIS)), None
    if getattr(policy, "adaptive", False):
        adaptive = binding.strategies.get(kind).adaptive(limit)
    return timed(limit, tell, adaptive, binding.name)
