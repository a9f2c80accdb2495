"""The series of a method, and those that a call, an attempt and a retry advance; all follows from the table."""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple, Protocol

from .._policy import Fallback, Policy
from .._runtime.clock import clock
from .catalogue import INVOCATIONS, TABLE, Series

Fact = tuple[str, str]
"""A policy's annotation, and what happened under it: ``("Timeout", "timedOut")``."""

_SERIES = {
    (row.policy.annotation, fact): metric.series(values)
    for row in TABLE
    for metric in row.metrics
    for fact, values in metric.facts.items()
}
_METRICS = {row.policy: row.metrics for row in TABLE}


class Schema(NamedTuple):
    """The series of a guarded method under one set of policies; methods with the same policies share it."""

    series: tuple[Series, ...]
    """Every counter that exists from the beginning."""
    first_try: tuple[Series, ...]
    """Those that a call advances by one each when its first attempt succeeds and nothing was refused."""
    histograms: tuple[str, ...]
    waits: tuple[str, ...]
    """Those histograms that such a call adds 0 to, as it did not wait; it adds its duration to the others."""


@cache
def advanced(facts: tuple[Fact, ...]) -> tuple[Series, ...]:
    """Give the series that *facts* advance: the same tuple each time, which is cheaper to count.

    A fact without a series, as a neutral verdict, advances none.
    """
    return tuple(_SERIES[fact] for fact in facts if fact in _SERIES)


@cache
def call_series(returned: bool, fallback: str, retried: bool | None = None, result: str = "") -> tuple[Series, ...]:
    """Give the series that a call advances once, when it is over.

    Args:
        returned: Whether it did not raise.
        fallback: ``applied``, ``notApplied`` or ``notDefined``.
        retried: Whether there was a second attempt; ``None`` without a retry.
        result: Why the retry logic made no further attempt.
    """
    invocation = INVOCATIONS.series(("valueReturned" if returned else "exceptionThrown", fallback))
    if retried is None:
        return (invocation,)
    return (invocation, _SERIES["Retry", f"{'true' if retried else 'false'} {result}"])


def schema_of(policies: Iterable[type[Policy]], *, queue: bool) -> Schema | None:
    """Give the schema of a method with *policies*, the same object each time; ``None`` if nothing of it is counted.

    *queue* tells whether its calls may wait.
    """
    counted = frozenset(_METRICS.keys() & policies)
    return _schema(counted, queue) if counted else None


@cache
def _schema(policies: frozenset[type[Policy]], queue: bool) -> Schema:
    rows = [row for row in TABLE if row.policy in policies]
    choices = ("applied", "notApplied") if Fallback in policies else ("notDefined",)
    calls = [series for returned in (True, False) for choice in choices for series in call_series(returned, choice)]
    facts = [(row.policy.annotation, fact) for row in rows for metric in row.metrics for fact in metric.facts]
    at_once = tuple((row.policy.annotation, row.at_once) for row in rows)
    metrics = [metric for row in rows for metric in row.metrics if queue or not metric.needs_queue]
    histograms = [metric for metric in metrics if metric.kind == "histogram"]
    return Schema(
        (*calls, *advanced(tuple(facts))),
        (*call_series(True, choices[-1]), *advanced(at_once)),
        tuple(metric.name for metric in histograms),
        tuple(metric.name for metric in histograms if metric.needs_queue),
    )


class Strategies(Protocol):
    """The strategies of one method that remember something."""

    def items(self) -> Iterable[tuple[type[Policy], object]]:
        """Give each with its policy."""
        ...


class Meter(NamedTuple):
    """Reads what strategies keep themselves."""

    strategies: Strategies
    """Those of one method, by their policies."""
    queues: bool
    """Whether calls may wait for a permit, or ever might."""

    def read(self, *, levels: bool) -> Iterator[tuple[Series, float]]:
        """Give the series that only grow and, with *levels*, those that go up and down."""
        now = clock.monotonic()
        for policy, strategy in self.strategies.items():
            for metric in _METRICS.get(policy, ()):
                if (levels or metric.kind != "gauge") and (self.queues or not metric.needs_queue):
                    for values, read in metric.readings.items():
                        if (value := read(strategy, now)) is not None:
                            yield metric.series(values), value
