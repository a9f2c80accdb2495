"""The row of chaos, which configuration alone declares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..._call.row import AttemptBinding, Row
from ..._deadline.clock import clock
from ..._log import WARNING, log
from ..._metrics.catalogue import Metric, schema_of_metric
from ..._policy import ChronoUnit, seconds
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
_said: set[tuple[str, str]] = set()
"""The guards, or the lines that several guards share, of whose chaos was warned, each with its chaos."""


def _around_attempt(function: Callable[..., Any], body: AttemptBinding) -> Callable[..., Any]:
    binding = body.binding
    policy, name = binding.policies.get(Chaos), binding.metrics_name
    if not isinstance(policy, Chaos) or not policy.rate:
        return function
    from ..._call.fault_injection import FaultInjection

    if (name, repr(policy)) not in _said:
        _said.add((name, repr(policy)))
        log(WARNING, "%s has %r: calls fail or wait on purpose", name, policy, fields={"ft_method": name})
    counters, delay = binding.counters_under(_SCHEMA), seconds(policy.latency, ChronoUnit.MILLIS)
    errors: Any = policy.error or (() if delay else (ConnectionError,))  # a tuple, once it is checked

    def failure() -> BaseException | None:
        if not errors:
            return None
        kind = errors[0] if len(errors) == 1 else errors[int(clock.random() * len(errors))]
        made: BaseException = kind(f"{name}: made by chaos")
        return made

    def tell(kind: str) -> None:
        if counters is not None:
            counters.add((CHAOS.series((kind,)),))

    injection = FaultInjection(failure, delay, rate=policy.rate, report=tell)
    return injection.around(function, body.environment, body.is_awaited, is_block=binding.is_block)


CHAOS_ROW = Row(beside=(Chaos,), around_attempt=_around_attempt, metrics=(CHAOS,), reset=_said.clear)
