"""What is read from a page of metrics, whoever wrote it."""

from __future__ import annotations

from importlib.metadata import version

import pytest

pytest.importorskip("prometheus_client")
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from faulttolerance import bulkhead, circuit_breaker, configure, fallback, retry, timeout
from faulttolerance._command.top.exposition import Sample, parse_exposition, plain_name
from faulttolerance._command.top.guard_stats import ADDED, COUNTERS, HIGHEST, STATES
from faulttolerance._metrics.catalogue import every_metric
from faulttolerance._telemetry.prometheus import exposed_name

OPENTELEMETRY = """
# TYPE ft_circuitbreaker_state_nanoseconds_total counter
ft_circuitbreaker_state_nanoseconds_total{method="shop.charge",otel_scope_name="faulttolerance",state="closed"} 1.4e+07
ft_circuitbreaker_opened_total{method="shop.charge",otel_scope_name="faulttolerance",otel_scope_version=""} 2.0
# TYPE ft_bulkhead_executionsrunning gauge
ft_bulkhead_executionsrunning{method="shop.charge",otel_scope_name="faulttolerance"} 3.0
ft_bulkhead_runningduration_seconds_bucket{le="0.005",method="shop.charge",otel_scope_name="faulttolerance"} 2.0
"""
"""As its exporter for Prometheus writes: in lower case, the unit before ``total``."""


def values(text: str) -> dict[tuple[str, str], float]:
    """By metric and method."""
    return {
        (name, dict(labels).get("method", "")): value
        for (name, labels), value in parse_exposition(text).samples.items()
    }


def test_the_names_that_are_looked_for_are_those_of_the_catalogue() -> None:
    """A misspelt one would show nothing."""
    asked = [choice for table in (COUNTERS, STATES, ADDED, HIGHEST) for choice in table.values()]
    metrics = {plain_name(exposed_name(metric)): metric for metric in every_metric()}

    assert {name for name, _ in asked} | {"ft_fleet_up", "ft_config_info"} <= metrics.keys()
    assert len(metrics) == len(every_metric())
    for name, wanted in asked:
        assert wanted.keys() <= set(metrics[name].tags)
        known = {value for values in (*metrics[name].facts.values(), *metrics[name].readings) for value in values}
        assert set(wanted.values()) <= known


def test_which_gauges_add_up_is_what_the_catalogue_says() -> None:
    metrics = {plain_name(exposed_name(metric)): metric for metric in every_metric()}

    assert not any(metrics[name].is_highest for name, _ in ADDED.values())
    assert {plain_name(exposed_name(metric)) for metric in every_metric() if metric.is_highest} == {
        name for name, _ in HIGHEST.values()
    }


@pytest.mark.parametrize("write", [generate_latest, generate_openmetrics], ids=["classic", "openmetrics"])
def test_what_a_process_shows_is_read(write: object) -> None:
    """In both formats, without the histograms."""
    registry = CollectorRegistry()
    configure(prometheus_registry=registry)

    @fallback(lambda context: "later")
    @retry(max_retries=1, jitter=0, retry_on=OSError)
    @circuit_breaker
    @timeout(1000)
    @bulkhead(2)
    def charge() -> str:
        raise OSError

    charge()
    found = parse_exposition(write(registry).decode()).samples  # type: ignore[operator]
    name = next(dict(labels)["method"] for (metric, labels) in found if metric == "ft_retry_retries")
    labels: frozenset[tuple[str, str]] = frozenset({("method", name)})

    assert found["ft_retry_retries", labels] == 1
    assert found["ft_invocations", labels | {("result", "valueReturned"), ("fallback", "applied")}] == 1
    assert found["ft_circuitbreaker_state", labels | {("state", "closed")}] > 0
    assert not any("duration" in metric for metric, _ in found)


def test_what_opentelemetry_shows_is_read() -> None:
    assert values(OPENTELEMETRY) == {
        ("ft_circuitbreaker_state", "shop.charge"): 1.4e7,
        ("ft_circuitbreaker_opened", "shop.charge"): 2,
        ("ft_bulkhead_executionsrunning", "shop.charge"): 3,
    }


def test_exemplars_and_times_do_no_harm() -> None:
    text = (
        'ft_retry_retries_total{method="a # b"} 5 1700000000\n'
        'ft_retry_retries_total{method="c"} 6 # {trace_id="1"} 0.3 12.5\n'
        'ft_retry_retries_total{method="d } # {\\"}"} 7 1.5e9 # {trace_id="}"} 0.3\n'
        'ft_retry_retries_total{method="not a number"} NaN\n'
        'ft_retry_retries_total{method="endless"} +Inf\n'
        'ft_retry_retries_total{method="absurd"} 1e308\n'
        'ft_retry_retries_created{method="a"} 1.7e9\n# EOF\n'
    )

    assert values(text) == {
        ("ft_retry_retries", "a # b"): 5, ("ft_retry_retries", "c"): 6, ("ft_retry_retries", 'd } # {"}'): 7
    }  # fmt: skip


@pytest.mark.skipif(tuple(map(int, version("prometheus_client").split(".")[:2])) < (0, 22), reason="too old for it")
def test_a_name_may_have_dots() -> None:
    assert values('{"ft.retry.retries.total",method="a"} 7\n') == {("ft_retry_retries", "a"): 7}


@pytest.mark.parametrize("method", ["shop.read_count", "shop.get_bucket", "a_sum b"])
def test_a_method_may_be_called_as_a_part_of_a_histogram(method: str) -> None:
    assert values(f'ft_retry_retries_total{{method="{method}"}} 1\n') == {("ft_retry_retries", method): 1}


def test_a_hostile_label_is_a_text() -> None:
    [(_, method)] = values('ft_retry_retries_total{method="\\"\\n\\\\[red]{\x1b[2J"} 1\n')

    assert method == '"\n\\[red]{\x1b[2J'


def test_the_start_of_the_process_is_read() -> None:
    assert parse_exposition("process_start_time_seconds 1.7e9\nother 1\n").started == 1.7e9
    assert parse_exposition('process_start_time_seconds{instance="a"} 1.7e9\n').started is None


def test_a_page_of_other_metrics_has_nothing_of_ours() -> None:
    text = "".join(f'http_requests_total{{path="/{number}"}} {number}\n' for number in range(30_000))
    nothing: dict[Sample, float] = {}

    assert (
        parse_exposition(text).samples
        == nothing
        == parse_exposition("").samples
        == parse_exposition("# HELP a b\n\n").samples
    )


@pytest.mark.parametrize(
    "text", ["<!doctype html>\n<html><p>ft_a 1</p></html>", '{"status": "up"}', "ft_a{", "a b c d", "\x00\x01\x02"]
)
def test_what_is_no_page_of_metrics_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_exposition(text)
