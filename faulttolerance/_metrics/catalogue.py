"""The table of all metrics: a row for each policy, from which every metric and every series follows.

The names, tags and descriptions are those of the specification. Beyond it, those of the rate limit follow SmallRye, and
those of the adaptive throttle are of this library.
"""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import product
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from .._deadline.clock import clock
from .._policy import Bulkhead, CircuitBreaker, Fallback, Policy, RateLimit, Retry, RetryBudget, Timeout
from .._policy.rows import rows
from .._strategy.circuit_breaker import CLOSED, HALF_OPEN, OPEN

Series: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""A metric's name and its tags, without ``method``."""

T = TypeVar("T")


class Interned(tuple[T, ...]):
    """A tuple that a cache always returns as the same object; compared by identity, which is cheap to hash."""

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__


def labels(method: str, series: Series) -> dict[str, str]:
    """Return the labels of *series* as receivers show them."""
    return {**({"method": method} if method else {}), **dict(series[1])}


BOUNDARIES = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Upper bounds of the histograms' buckets, in seconds, as the specification lists them."""


class Metric(NamedTuple):
    """One metric: its description in the specification, and the origin of its values."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    description: str
    tags: tuple[str, ...] = ()
    """The tags beside ``method``, which every metric of guards has."""
    facts: Mapping[str, tuple[str, ...]] = {}
    """The facts about a call or an attempt, each with the values of the tags that it advances by one."""
    readings: Mapping[tuple[str, ...], Callable[[Any, float], float | None]] = {}
    """By the values of the tags, functions of the policy's strategy and the time; correct also without any calls."""
    unit: Literal["", "seconds", "nanoseconds"] = ""
    needs_queue: bool = False
    """Whether the metric exists only if calls may wait."""
    total: Literal["sum", "max", "min"] = "sum"
    """The value for several readings, each of a key, of a guard of the same name, or of a process."""

    def series(self, values: tuple[str, ...]) -> Series:
        """Return the series whose tags have *values*."""
        return self.name, tuple(zip(self.tags, values, strict=True))


class PolicyMetrics(NamedTuple):
    """The metrics of one policy."""

    policy: type[Policy]
    at_once: str = ""
    """The fact of a call that succeeds at its first attempt; it adds its duration to every histogram."""
    metrics: tuple[Metric, ...] = ()


def _each(*choices: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return facts named after the values of the tags, for all combinations of *choices*."""
    return {" ".join(values): values for values in product(*choices)}


INVOCATIONS = Metric(
    "ft.invocations.total",
    "counter",
    "The number of times the method was called",
    ("result", "fallback"),
    _each(("valueReturned", "exceptionThrown"), ("applied", "notApplied", "notDefined")),
)
"""Counted for every method with a policy that has a row."""

_RETRY = (
    Metric(
        "ft.retry.calls.total",
        "counter",
        "The number of times the retry logic was run. This will always be once per method call.",
        ("retried", "retryResult"),
        _each(
            ("true", "false"),
            ("valueReturned", "exceptionNotRetryable", "maxRetriesReached", "maxDurationReached", "budgetExhausted"),
        ),
    ),
    Metric("ft.retry.retries.total", "counter", "The number of times the method was retried", facts={"retried": ()}),
)
_RETRY_BUDGET = (
    Metric(
        "ft.retry.budget.total",
        "counter",
        "The number of times a token of the retry budget was requested",
        ("kind", "result"),
        _each(("retry", "hedge"), ("granted", "exhausted")),
    ),
)
_OF_BUDGETS = ("true budgetExhausted", "false budgetExhausted")
"""The facts of retries that exist only if a budget is declared."""
_TIMEOUT = (
    Metric(
        "ft.timeout.calls.total",
        "counter",
        "The number of times the timeout logic was run",
        ("timedOut",),
        {"passed": ("false",), "timedOut": ("true",)},
    ),
    Metric("ft.timeout.executionDuration", "histogram", "Histogram of execution times for the method", unit="seconds"),
    Metric(
        "ft.timeout.abandoned",
        "gauge",
        "Number of executions that go on although their call has timed out",
        readings={(): lambda left_behind, _: left_behind.count},
    ),
    Metric(
        "ft.timeout.limit",
        "gauge",
        "The time that an execution may take, if it adapts to the durations of executions",
        readings={(): lambda left_behind, _: left_behind.limit.seconds if left_behind.limit is not None else None},
        unit="seconds",
        total="max",
    ),
)
_CIRCUIT_BREAKER = (
    Metric(
        "ft.circuitbreaker.calls.total",
        "counter",
        "The number of times the circuit breaker logic was run",
        ("circuitBreakerResult",),
        {"success": ("success",), "failure": ("failure",), "refused": ("circuitBreakerOpen",)},
    ),
    Metric(
        "ft.circuitbreaker.state.total",
        "counter",
        "Amount of time the circuit breaker has spent in each state",
        ("state",),
        readings={
            ("closed",): lambda breaker, now: int(breaker.time_in(CLOSED, now) * 1_000_000_000),
            ("open",): lambda breaker, now: int(breaker.time_in(OPEN, now) * 1_000_000_000),
            ("halfOpen",): lambda breaker, now: int(breaker.time_in(HALF_OPEN, now) * 1_000_000_000),
        },
        unit="nanoseconds",
    ),
    Metric(
        "ft.circuitbreaker.opened.total",
        "counter",
        "Number of times the circuit breaker has moved from closed state to open state",
        readings={(): lambda breaker, _: breaker.opened_total},
    ),
)
_BULKHEAD = (
    Metric(
        "ft.bulkhead.calls.total",
        "counter",
        "The number of times the bulkhead logic was run",
        ("bulkheadResult",),
        {"passed": ("accepted",), "refused": ("rejected",)},
    ),
    Metric(
        "ft.bulkhead.executionsRunning",
        "gauge",
        "Number of currently running executions",
        readings={(): lambda bulkhead, _: bulkhead.running},
    ),
    Metric(
        "ft.bulkhead.executionsWaiting",
        "gauge",
        "Number of executions currently waiting in the queue",
        readings={(): lambda bulkhead, _: len(bulkhead.waiting)},
        needs_queue=True,
    ),
    Metric(
        "ft.bulkhead.limit",
        "gauge",
        "The number of executions that may run at once, if it adapts to their latency",
        readings={(): lambda bulkhead, _: bulkhead.limit if bulkhead.adaptive is not None else None},
    ),
    Metric(
        "ft.bulkhead.runningDuration",
        "histogram",
        "Histogram of the time that method executions spent running",
        unit="seconds",
    ),
    Metric(
        "ft.bulkhead.waitingDuration",
        "histogram",
        "Histogram of the time that method executions spent waiting in the queue",
        unit="seconds",
        needs_queue=True,
    ),
)
_RATE_LIMIT = (
    Metric(
        "ft.ratelimit.calls.total",
        "counter",
        "The number of times the rate limit was run",
        ("rateLimitResult",),
        {"passed": ("permitted",), "refused": ("rejected",)},
    ),
)
_CORE = (
    PolicyMetrics(Fallback),
    PolicyMetrics(Retry, "false valueReturned", _RETRY),
    PolicyMetrics(Timeout, "passed", _TIMEOUT),
    PolicyMetrics(CircuitBreaker, "success", _CIRCUIT_BREAKER),
    PolicyMetrics(Bulkhead, "passed", _BULKHEAD),
    PolicyMetrics(RateLimit, "passed", _RATE_LIMIT),
    PolicyMetrics(RetryBudget, metrics=_RETRY_BUDGET),
)
"""In the order of the specification's table."""

CONFIGURATION = Metric(
    "ft.config.info",
    "gauge",
    "The configuration of the process, in one text: always 1",
    ("fingerprint",),
)
"""Of the whole process: its method is called ``""``, and it has no tag ``method``."""

Fact = tuple[str, str]
"""A policy's annotation, and a fact about a call under it: ``("Timeout", "timedOut")``."""


@cache
def every_policy() -> tuple[PolicyMetrics, ...]:
    """Return the metrics of every policy that has some, of the core and of extensions."""
    return (*_CORE, *(row.series for row in rows() if row.series is not None))


@cache
def _metrics_by_policy() -> Mapping[type[Policy], tuple[Metric, ...]]:
    return {row.policy: row.metrics for row in every_policy()}


@cache
def _series_by_fact() -> Mapping[Fact, Series]:
    """Return the series that each fact advances."""
    return {
        (row.policy.annotation, fact): metric.series(values)
        for row in every_policy()
        for metric in row.metrics
        for fact, values in metric.facts.items()
    }


def every_metric() -> tuple[Metric, ...]:
    """Return every metric that there is."""
    of_policies = (metric for row in every_policy() for metric in row.metrics)
    others = (metric for row in rows() for metric in row.metrics)
    return (INVOCATIONS, *of_policies, *others, CONFIGURATION)


class Schema(NamedTuple):
    """The series of a guarded method under one set of policies; methods with the same policies share it."""

    series: tuple[Series, ...]
    """Every counter that exists from the start."""
    first_try: tuple[Series, ...]
    """The series that a call advances by one each when its first attempt succeeds and nothing was refused."""
    histograms: tuple[str, ...]
    waits: tuple[str, ...]
    """The histograms to which such a call adds 0, as it did not wait; it adds its duration to the others."""


@cache
def series_of_facts(facts: tuple[Fact, ...]) -> tuple[Series, ...]:
    """Return the series that *facts* advance: the same tuple each time, which is cheaper to count.

    A fact without a series, such as a neutral verdict, advances none.
    """
    series = _series_by_fact()
    return Interned(series[fact] for fact in facts if fact in series)


@cache
def call_series(
    returned: bool, fallback: str | None, retried: bool | None = None, result: str = ""
) -> tuple[Series, ...]:
    """Return the series that a call advances once, when it is over.

    Args:
        returned: Whether it did not raise.
        fallback: ``applied``, ``notApplied`` or ``notDefined``; ``None`` if the call itself is counted elsewhere.
        retried: Whether there was a second attempt; ``None`` without a retry.
        result: The reason why the retry logic made no further attempt.
    """
    calls: tuple[Series, ...] = ()
    if fallback is not None:
        calls = (INVOCATIONS.series(("valueReturned" if returned else "exceptionThrown", fallback)),)
    if retried is not None:
        calls = (*calls, _series_by_fact()["Retry", f"{'true' if retried else 'false'} {result}"])
    return Interned(calls)


def schema_of(policies: Iterable[type[Policy]], *, queue: bool, counts_calls: bool = True) -> Schema | None:
    """Return the schema of a method with *policies*, the same object each time; ``None`` if there is nothing to count.

    *queue*: whether its calls may wait. *counts_calls*: whether the calls are counted, beside the effects of policies.
    """
    counted = frozenset(_metrics_by_policy().keys() & policies)
    return _schema(counted, queue, counts_calls) if counted else None


@cache
def _schema(policies: frozenset[type[Policy]], queue: bool, counts_calls: bool) -> Schema:
    rows = [row for row in every_policy() if row.policy in policies]
    choices: tuple[str | None, ...] = ("applied", "notApplied") if Fallback in policies else ("notDefined",)
    if not counts_calls:
        choices = (None,)
    calls = [series for returned in (True, False) for choice in choices for series in call_series(returned, choice)]
    facts = [(row.policy.annotation, fact) for row in rows for metric in row.metrics for fact in metric.facts]
    if RetryBudget not in policies:
        facts = [fact for fact in facts if fact[1] not in _OF_BUDGETS]
    at_once = tuple((row.policy.annotation, row.at_once) for row in rows)
    metrics = [metric for row in rows for metric in row.metrics if queue or not metric.needs_queue]
    histograms = [metric for metric in metrics if metric.kind == "histogram"]
    return Schema(
        (*calls, *series_of_facts(tuple(facts))),
        (*call_series(True, choices[-1]), *series_of_facts(at_once)),
        tuple(metric.name for metric in histograms),
        tuple(metric.name for metric in histograms if metric.needs_queue),
    )


def schema_of_metric(metric: Metric, *facts: str) -> Schema:
    """Return the schema of the series of *metric* that some *facts* advance; by default all.

    Counters are found by the identity of their schema: the caller keeps it.
    """
    return Schema(tuple(metric.series(metric.facts[fact]) for fact in facts or metric.facts), (), (), ())


class Meter(NamedTuple):
    """A reader of the values that strategies keep themselves."""

    strategies: Any
    """The ``Strategies`` of one method."""
    in_force: tuple[type[Policy], ...]
    """The policies in force: strategies of others have no levels."""
    queues: bool
    """Whether calls may wait for a permit, now or later."""

    def read(self, counts: dict[Series, float], *, levels: bool) -> None:
        """Add the values that never decrease to *counts* and, with *levels*, those that rise and fall."""
        now = clock.monotonic()
        for policy, strategy in self.strategies.items():
            for metric in _metrics_by_policy().get(policy, ()):
                if metric.kind != "gauge":
                    _read(metric, strategy, now, counts)
        for policy, strategy in self.strategies.in_use(self.in_force) if levels else ():
            for metric in _metrics_by_policy().get(policy, ()):
                if metric.kind == "gauge" and (self.queues or not metric.needs_queue):
                    _read(metric, strategy, now, counts)


def _read(metric: Metric, strategy: object, now: float, counts: dict[Series, float]) -> None:
    for values, read in metric.readings.items():
        value = read(strategy, now)
        if value is not None:
            series = metric.series(values)
            known = counts.get(series, 0)
            counts[series] = max(known, value) if metric.total == "max" else known + value
