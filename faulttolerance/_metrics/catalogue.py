"""What the specification says of each metric."""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

from typing import Literal, NamedTuple, TypeAlias

__all__ = ["BOUNDARIES", "METRICS", "WAITING_DURATION", "Metric", "Series"]

Series: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""A metric's name and its tags, without ``method``."""

BOUNDARIES = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Upper bounds of the histograms' buckets, in seconds, as the specification lists them."""

WAITING_DURATION = "ft.bulkhead.waitingDuration"


class Metric(NamedTuple):
    """What the specification says of one metric."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: Literal["", "seconds", "nanoseconds"]
    tags: tuple[str, ...]
    """Beside ``method``, which every metric has."""
    description: str


METRICS = (
    Metric("ft.invocations.total", "counter", "", ("result", "fallback"), "The number of times the method was called"),
    Metric(
        "ft.retry.calls.total",
        "counter",
        "",
        ("retried", "retryResult"),
        "The number of times the retry logic was run. This will always be once per method call.",
    ),
    Metric("ft.retry.retries.total", "counter", "", (), "The number of times the method was retried"),
    Metric("ft.timeout.calls.total", "counter", "", ("timedOut",), "The number of times the timeout logic was run"),
    Metric("ft.timeout.executionDuration", "histogram", "seconds", (), "Histogram of execution times for the method"),
    Metric(
        "ft.circuitbreaker.calls.total",
        "counter",
        "",
        ("circuitBreakerResult",),
        "The number of times the circuit breaker logic was run",
    ),
    Metric(
        "ft.circuitbreaker.state.total",
        "counter",
        "nanoseconds",
        ("state",),
        "Amount of time the circuit breaker has spent in each state",
    ),
    Metric(
        "ft.circuitbreaker.opened.total",
        "counter",
        "",
        (),
        "Number of times the circuit breaker has moved from closed state to open state",
    ),
    Metric(
        "ft.bulkhead.calls.total", "counter", "", ("bulkheadResult",), "The number of times the bulkhead logic was run"
    ),
    Metric("ft.bulkhead.executionsRunning", "gauge", "", (), "Number of currently running executions"),
    Metric("ft.bulkhead.executionsWaiting", "gauge", "", (), "Number of executions currently waiting in the queue"),
    Metric(
        "ft.bulkhead.runningDuration",
        "histogram",
        "seconds",
        (),
        "Histogram of the time that method executions spent running",
    ),
    Metric(
        WAITING_DURATION,
        "histogram",
        "seconds",
        (),
        "Histogram of the time that method executions spent waiting in the queue",
    ),
    # Beyond the specification, after SmallRye.
    Metric(
        "ft.ratelimit.calls.total", "counter", "", ("rateLimitResult",), "The number of times the rate limit was run"
    ),
)
"""Every metric there is, in the order of the specification's table."""
