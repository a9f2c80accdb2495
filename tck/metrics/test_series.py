"""Every series follows from the catalogue's table: a row that does not fit is found here."""

from __future__ import annotations

import pytest

from faulttolerance._call.order import Strategies
from faulttolerance._metrics.catalogue import (
    Meter,
    Metric,
    PolicyMetrics,
    Series,
    call_series,
    every_metric,
    every_policy,
    schema_of,
    series_of_facts,
)
from faulttolerance._metrics.counters import ledger
from faulttolerance._policy import Asynchronous, Bulkhead, CircuitBreaker, Fallback, Retry, Timeout
from faulttolerance._strategy import bulkhead, circuit_breaker


@pytest.mark.parametrize("metric", every_metric(), ids=lambda metric: metric.name)
def test_a_metric_comes_from_facts_or_from_readings_or_is_a_histogram(metric: Metric) -> None:
    of_process = [one for one, _ in ledger.of_process]
    sources = [*metric.facts.values(), *metric.readings]

    assert bool(sources) is (metric.kind != "histogram" and metric not in of_process)
    assert all(metric.series(values) for values in sources)  # as many values as there are tags
    assert not (metric.kind == "gauge" and metric.facts)


@pytest.mark.parametrize("row", every_policy(), ids=lambda row: row.policy.annotation)
def test_the_series_of_a_first_try_is_a_fact_of_the_policy(row: PolicyMetrics) -> None:
    facts = {fact for metric in row.metrics for fact in metric.facts}

    assert row.at_once in facts or not row.at_once


def test_facts_advance_their_series_and_a_neutral_verdict_none() -> None:
    facts = (("CircuitBreaker", "neutral"), ("Timeout", "timedOut"), ("Bulkhead", "passed"))

    assert series_of_facts(facts) == (
        ("ft.timeout.calls.total", (("timedOut", "true"),)),
        ("ft.bulkhead.calls.total", (("bulkheadResult", "accepted"),)),
    )
    assert series_of_facts(tuple(facts)) is series_of_facts(facts)


def test_a_call_advances_the_retry_logic_where_there_is_one() -> None:
    invocation = ("ft.invocations.total", (("result", "exceptionThrown"), ("fallback", "notDefined")))
    run = ("ft.retry.calls.total", (("retried", "true"), ("retryResult", "maxRetriesReached")))

    assert call_series(False, "notDefined") == (invocation,)
    assert call_series(False, "notDefined", True, "maxRetriesReached") == (invocation, run)


def test_methods_with_the_same_policies_share_a_schema() -> None:
    schema = schema_of([Retry, Bulkhead], queue=True)

    assert schema is schema_of({Asynchronous: 1, Bulkhead: 2, Retry: 3}, queue=True)
    assert schema is not schema_of([Retry, Bulkhead], queue=False)
    assert schema_of([Asynchronous], queue=True) is None


def test_only_calls_that_may_wait_have_waiting_times() -> None:
    queued, unqueued = schema_of([Timeout, Bulkhead], queue=True), schema_of([Timeout, Bulkhead], queue=False)
    assert queued is not None
    assert unqueued is not None

    assert unqueued.histograms == ("ft.timeout.executionDuration", "ft.bulkhead.runningDuration")
    assert unqueued.waits == ()
    assert queued.histograms == (*unqueued.histograms, "ft.bulkhead.waitingDuration")
    assert queued.waits == ("ft.bulkhead.waitingDuration",)


def test_the_series_of_a_first_try_exist_from_the_beginning() -> None:
    schema = schema_of([row.policy for row in every_policy()], queue=True)
    assert schema is not None

    assert set(schema.first_try) < set(schema.series)
    assert (
        len(schema.first_try) == len([row for row in every_policy() if row.at_once]) + 1
    )  # one of the call for the fallback's, and one of each other policy


def test_a_method_with_a_fallback_never_counts_that_it_has_none() -> None:
    schema = schema_of([Fallback], queue=False)
    assert schema is not None

    assert {dict(tags)["fallback"] for _, tags in schema.series} == {"applied", "notApplied"}


def test_a_meter_reads_strategies_and_levels_only_when_they_are_wanted() -> None:
    strategies = Strategies.of(
        {
            CircuitBreaker: circuit_breaker.CircuitBreaker(
                "shop", circuit_breaker.CircuitValues(5.0, 2, 0.5, 1), now=0.0
            ),
            Bulkhead: bulkhead.Bulkhead(3, 4, "shop"),
        }
    )
    meter = Meter(strategies, (CircuitBreaker, Bulkhead), queues=False)

    def read(meter: Meter, *, levels: bool = True) -> dict[Series, float]:
        counts: dict[Series, float] = {}
        meter.read(counts, levels=levels)
        return counts

    totals = read(meter, levels=False)
    levels = read(meter).keys() - totals.keys()

    assert {name for name, _ in totals} == {"ft.circuitbreaker.state.total", "ft.circuitbreaker.opened.total"}
    assert levels == {("ft.bulkhead.executionsRunning", ())}
    assert ("ft.bulkhead.executionsWaiting", ()) in read(meter._replace(queues=True))
