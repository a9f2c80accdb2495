"""Exporters and the counts that reach them: chosen, found, one, both or none; and counts of guards that are gone."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import pytest

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("prometheus_client")

from opentelemetry.metrics import NoOpMeter, NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

import faulttolerance
from faulttolerance import (
    CircuitBreakerOpenException,
    FaultToleranceDefinitionException,
    Guard,
    bulkhead,
    circuit_breaker,
    configure,
    hedge,
    partition_by,
    rate_limit,
    retry,
    timeout,
)
from faulttolerance._metrics.counters import FOLD, ledger
from faulttolerance.policies import Retry
from faulttolerance.testing import reset, virtual_time
from kit.meter import OpenTelemetryMeter, PrometheusMeter
from kit.program import output_of
from kit.tiers import few_and_many

GUARDED = """
from faulttolerance import retry
@retry(max_retries=1)
def charge(): pass
"""
SCRAPE = """
print([line for line in generate_latest().decode().splitlines() if line.startswith("ft_invocations_total{")])
"""
COLLECT = """
reader = InMemoryMetricReader()
set_meter_provider(MeterProvider([reader]))
data = reader.get_metrics_data()
print([(point.attributes["result"], point.value) for resource in (data.resource_metrics if data else [])
       for scope in resource.scope_metrics for metric in scope.metrics
       if metric.name == "ft.invocations.total" for point in metric.data.data_points])
"""
PROMETHEUS = "from prometheus_client import generate_latest\n"
OPENTELEMETRY = """
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
"""
COUNTED = "[('valueReturned', 3), ('exceptionThrown', 0)]"


# Finding exporters


@pytest.mark.outside
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(PROMETHEUS + GUARDED + "for _ in range(3): charge()\n" + SCRAPE, id="before"),
        pytest.param(GUARDED + "for _ in range(3): charge()\n" + PROMETHEUS + SCRAPE, id="after the first call"),
    ],
)
def test_prometheus_is_found_when_the_application_imports_it(program: str) -> None:
    """Imports may stand anywhere in a program, and earlier counts are shown."""
    shown = output_of(program, "-W", "error")

    assert 'result="valueReturned"} 3.0' in shown


@pytest.mark.outside
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(OPENTELEMETRY + GUARDED + "for _ in range(3): charge()\n" + COLLECT, id="import before"),
        pytest.param(
            GUARDED + "for _ in range(3): charge()\n" + OPENTELEMETRY + COLLECT, id="all after the first call"
        ),
    ],
)
def test_opentelemetry_provider_may_be_set_after_the_first_call(program: str) -> None:
    """Counts from before the provider was set are not lost."""
    assert output_of(program, "-W", "error") == COUNTED


@pytest.mark.outside
def test_neither_exporter_is_imported_for_an_application_that_does_not() -> None:
    """Metrics without a reader cost no import."""
    program = GUARDED + (
        "import sys\ncharge()\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('prometheus_client', 'opentelemetry')])"
    )

    assert output_of(program, "-W", "error") == "[]"


@pytest.mark.outside
@pytest.mark.parametrize("missing", [["prometheus_client"], ["opentelemetry"], ["prometheus_client", "opentelemetry"]])
def test_missing_packages_are_no_error(missing: list[str]) -> None:
    """Either package may be installed without the other, and neither is required."""
    program = f"import sys\nfor name in {missing!r}: sys.modules[name] = None\n" + GUARDED + "charge()\nprint('served')"

    assert output_of(program, "-W", "error") == "served"


def test_nothing_is_exported_before_the_first_guarded_call() -> None:
    """A program that imports a guarded library and never calls it shows no metrics of the library."""
    meter = PrometheusMeter()

    @retry
    def charge() -> None: ...

    assert list(meter.registry.collect()) == []
    charge()
    assert list(meter.registry.collect()) != []


@pytest.mark.outside
def test_opentelemetrys_own_reader_for_prometheus_is_not_doubled() -> None:
    """If it is in the global registry, our collector gives way: each family would appear twice."""
    program = (
        """
from prometheus_client import REGISTRY, generate_latest
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
class Collector:
    __module__ = "opentelemetry.exporter.prometheus"
    def collect(self): return []
REGISTRY.register(Collector())
set_meter_provider(MeterProvider())
"""
        + GUARDED
        + "charge()\n"
        + SCRAPE
    )

    assert output_of(program, "-W", "error") == "[]"


# Choosing exporters


def test_both_exporters_show_the_same_counts() -> None:
    """Specification: metrics are exported to both where both exist."""
    prometheus = PrometheusMeter()
    opentelemetry = OpenTelemetryMeter()
    configure(prometheus_registry=prometheus.registry)

    @retry(max_retries=2, jitter=0)
    @bulkhead(2)
    def charge() -> None:
        raise ValueError

    for meter in (prometheus, opentelemetry):
        meter.watch(charge)
    with pytest.raises(ValueError):
        charge()

    for meter in (prometheus, opentelemetry):
        assert meter.value("ft.retry.retries.total") == 2
        assert meter.value("ft.bulkhead.calls.total", bulkheadResult="accepted") == 3
        assert meter.durations("ft.bulkhead.runningDuration").count == 3


def test_none_turns_an_exporter_off_while_it_is_in_use() -> None:
    """It may be turned on again: no count of the meantime is lost."""
    meter = PrometheusMeter()
    opentelemetry = OpenTelemetryMeter()

    @retry
    def charge() -> None: ...

    charge()
    configure(prometheus_registry=None, meter_provider=None)
    charge()
    assert list(meter.registry.collect()) == []
    assert opentelemetry.values() == {}
    configure(prometheus_registry=meter.registry, meter_provider=opentelemetry.provider)

    for one in (meter, opentelemetry):
        one.watch(charge)
        assert one.value("ft.invocations.total", result="valueReturned", fallback="notDefined") == 2


@pytest.mark.parametrize("argument", ["prometheus_registry", "meter_provider"])
def test_an_unknown_exporter_is_refused(argument: str) -> None:
    """The error names the unknown word and the allowed values."""
    given: dict[str, Any] = {argument: "automatic"}

    with pytest.raises(FaultToleranceDefinitionException, match="is 'automatic'"):
        configure(**given)


def test_a_clash_in_the_registry_does_not_fail_the_call(caplog: pytest.LogCaptureFixture) -> None:
    """The reason of missing metrics is logged, and the application goes on."""
    meter = PrometheusMeter()
    other = PrometheusMeter()
    from prometheus_client import Counter

    Counter("ft_invocations", "somebody else's", registry=other.registry)

    @retry
    def charge() -> int:
        return 1

    assert charge() == 1
    assert [record.message for record in caplog.records] == ["metrics are not exported"]
    assert list(meter.registry.collect()) == []


def test_guarded_function_may_be_called_first_by_a_callback_of_opentelemetry() -> None:
    """The SDK holds a lock while it asks callbacks, and takes it to make instruments: no thread waits for ever."""
    from opentelemetry.metrics import CallbackOptions, Observation

    @retry
    def fetch() -> int:
        return 7

    def observe(_: CallbackOptions) -> list[Observation]:
        return [Observation(fetch())]

    meter = OpenTelemetryMeter()
    meter.provider.get_meter("application").create_observable_gauge("level", [observe])
    collecting = threading.Thread(target=meter.reader.collect, daemon=True)
    collecting.start()
    collecting.join(20)

    assert not collecting.is_alive()


def test_a_provider_without_a_hash_is_a_provider() -> None:
    """A dataclass has none; chosen again, it has the same instruments."""

    @dataclass
    class Provider:
        provider: MeterProvider

        def get_meter(self, name: str) -> Any:
            return self.provider.get_meter(name)

    @retry
    def charge() -> None: ...

    meter = OpenTelemetryMeter()
    meter.watch(charge)
    provider: Any = Provider(meter.provider)
    for chosen in (provider, None, provider):
        configure(meter_provider=chosen)
        charge()

    assert meter.value("ft.retry.calls.total", retried="false", retryResult="valueReturned") == 3


def test_instruments_that_their_provider_knows_weakly_stay() -> None:
    """Such a provider moves them to another, as the application's settings change."""
    made: WeakSet[Any] = WeakSet()

    class Meter(NoOpMeter):
        def create_observable_counter(self, *args: Any, **kwargs: Any) -> Any:
            made.add(instrument := super().create_observable_counter(*args, **kwargs))
            return instrument

    class Provider(NoOpMeterProvider):
        def get_meter(self, name: str, *args: Any, **kwargs: Any) -> Any:
            made.add(meter := Meter(name))
            return meter

    @retry
    def charge() -> None: ...

    configure(meter_provider=(provider := Provider()), prometheus_registry=None)
    charge()
    gc.collect()

    assert [type(one) for one in made].count(Meter) == 1
    assert len(made) > 1
    del provider


# Every series


def test_every_combination_of_tags_is_there_after_one_call() -> None:
    """An alert on a rate needs the 0 before the first event."""
    meter = PrometheusMeter()

    @retry
    @rate_limit(100)
    @circuit_breaker
    @timeout
    @bulkhead
    def charge() -> None: ...

    charge()
    counts = [name for name, _ in meter.values()]

    assert {name: counts.count(name) for name in set(counts)} == {
        "ft_config_info": 1,
        "ft_invocations_total": 2,
        "ft_retry_calls_total": 8,
        "ft_retry_retries_total": 1,
        "ft_timeout_calls_total": 2,
        "ft_circuitbreaker_calls_total": 3,
        "ft_circuitbreaker_state_total": 3,
        "ft_circuitbreaker_opened_total": 1,
        "ft_bulkhead_calls_total": 2,
        "ft_bulkhead_executionsRunning": 1,
        "ft_ratelimit_calls_total": 2,
    }


def test_rejection_while_half_open_counts_as_open() -> None:
    """Specification: circuitBreakerOpen is for open and half-open alike."""
    meter = PrometheusMeter()
    held = threading.Event()
    entered = threading.Event()

    @circuit_breaker(request_volume_threshold=1, failure_ratio=1.0, delay=0, success_threshold=1)
    def charge(fails: bool) -> None:
        if fails:
            raise ValueError
        entered.set()
        held.wait(10)

    meter.watch(charge)
    with pytest.raises(ValueError):
        charge(True)
    probe = threading.Thread(target=charge, args=(False,))
    probe.start()
    entered.wait(10)
    with pytest.raises(CircuitBreakerOpenException):
        charge(False)
    held.set()
    probe.join()

    results = ("success", "failure", "circuitBreakerOpen")
    calls = [meter.value("ft.circuitbreaker.calls.total", circuitBreakerResult=one) for one in results]
    assert calls == [1, 1, 1]


def test_registry_can_be_asked_for_one_family() -> None:
    """Prometheus asks so with ``name[]=``."""
    meter = PrometheusMeter()

    @retry
    def charge() -> None: ...

    charge()
    text = generate_latest(meter.registry.restricted_registry(["ft_retry_retries_total"])).decode()

    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        f'ft_retry_retries_total{{method="{__name__}.{charge.__qualname__}"}} 0.0'
    ]


# Exactness


@few_and_many("threads", 2, 6)
def test_no_call_is_lost_or_counted_twice_under_threads(threads: int) -> None:
    """Successes, failures and readings overlap: folding takes each appended count once."""
    meter = PrometheusMeter()
    calls = 2 * FOLD

    @retry(max_retries=1, jitter=0, delay=0)
    @bulkhead(threads)
    def charge(number: int) -> None:
        if number % 10 == 0:
            raise ValueError

    def work() -> None:
        for number in range(calls):
            try:
                charge(number)
            except ValueError:
                pass

    meter.watch(charge)
    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    seen = []
    while any(worker.is_alive() for worker in workers):
        seen.append(meter.value("ft.bulkhead.calls.total", bulkheadResult="accepted"))
    for worker in workers:
        worker.join()

    failures = threads * len(range(0, calls, 10))
    assert seen == sorted(seen)
    assert meter.value("ft.invocations.total", result="exceptionThrown", fallback="notDefined") == failures
    assert (
        meter.value("ft.invocations.total", result="valueReturned", fallback="notDefined") == threads * calls - failures
    )
    assert meter.value("ft.bulkhead.calls.total", bulkheadResult="accepted") == threads * calls + failures
    assert meter.durations("ft.bulkhead.runningDuration").count == threads * calls + failures


@pytest.fixture
def no_garbage() -> Iterator[None]:
    """Collect garbage before and after, so that only the classes of this test go."""
    gc.collect()
    yield
    gc.collect()


def test_dropped_class_leaves_its_final_counts_and_nothing_else(no_garbage: None) -> None:
    """Rule L4: the class goes, its counters stay, and its gauges go."""
    meter = PrometheusMeter()

    def make() -> type[Any]:
        class Client:
            @bulkhead(2)
            def charge(self) -> None: ...

        return Client

    for _ in range(3):
        client = make()
        meter.watch(client.charge, client)  # type: ignore[attr-defined]
        client().charge()
        client().charge()
    del client
    gc.collect()

    assert meter.value("ft.bulkhead.calls.total", bulkheadResult="accepted") == 6
    assert meter.durations("ft.bulkhead.runningDuration").count == 6
    assert not meter.exists("ft.bulkhead.executionsRunning")
    assert len(ledger._accounts) == 0


def test_guards_made_in_a_loop_do_not_grow_the_registry(no_garbage: None) -> None:
    """A name has one set of series, however many guards had it."""
    meter = PrometheusMeter()
    for _ in range(500):
        guard = Guard(retry=Retry(max_retries=1), name="payments")
        guard.call(int, "7")
        guard.close()

    assert len(ledger._accounts) <= FOLD // 8 + 1
    assert meter.values()[("ft_retry_retries_total", frozenset({("method", "payments")}))] == 0
    meter.method = "payments"
    assert meter.value("ft.invocations.total", result="valueReturned", fallback="notDefined") == 500


def test_call_that_outlives_its_guard_is_counted() -> None:
    """Counts are final when no call can count any more, and not when the guard's last reference goes."""
    meter = PrometheusMeter()
    entered, leave = threading.Event(), threading.Event()

    def body() -> None:
        entered.set()
        leave.wait(10)

    guard = Guard(retry=Retry(max_retries=1), name="outlived")
    guarded = guard(body)
    worker = threading.Thread(target=guarded)
    worker.start()
    entered.wait(10)
    guard.close()
    del guard, guarded
    gc.collect()
    meter.method = "outlived"
    before = meter.value("ft.invocations.total", result="valueReturned", fallback="notDefined")
    leave.set()
    worker.join()

    assert before == 0
    del worker
    gc.collect()
    assert meter.value("ft.invocations.total", result="valueReturned", fallback="notDefined") == 1


@pytest.mark.outside
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this platform")
def test_forked_child_counts_from_zero() -> None:
    """Rule L5: the child has no calls of the parent, even where only the child is scraped."""
    program = (
        PROMETHEUS
        + GUARDED
        + """
import os
for _ in range(3): charge()
pid = os.fork()
if pid == 0:
    charge()
"""
        + SCRAPE
        + """
import sys
sys.stdout.flush()
os._exit(0) if pid == 0 else os.waitpid(pid, 0)
"""
    )

    shown = output_of(program, "-W", "error")

    assert 'result="valueReturned"} 1.0' in shown
    assert 'result="valueReturned"} 3.0' in shown


def test_reset_forgets_counts_and_choices() -> None:
    """Tests of applications begin at 0, even with a reader that they keep."""
    meter = OpenTelemetryMeter()

    @retry
    @bulkhead
    def charge() -> None: ...

    meter.watch(charge)
    for _ in range(3):
        charge()
    assert meter.durations("ft.bulkhead.runningDuration").count == 3
    reset()
    assert meter.values() == {}
    configure(meter_provider=meter.provider, prometheus_registry=None)
    charge()

    assert meter.value("ft.bulkhead.calls.total", bulkheadResult="accepted") == 1


def test_private_reader_with_delta_temporality_gets_differences() -> None:
    """The temporality of OpenTelemetry's metrics is a decision of its reader."""
    from opentelemetry.sdk.metrics import Counter, Histogram, ObservableCounter
    from opentelemetry.sdk.metrics.export import AggregationTemporality

    delta = AggregationTemporality.DELTA
    reader = InMemoryMetricReader({Counter: delta, ObservableCounter: delta, Histogram: delta})
    configure(meter_provider=MeterProvider([reader], shutdown_on_exit=False), prometheus_registry=None)

    @bulkhead
    def charge() -> None: ...

    def read() -> dict[str, int]:
        data = reader.get_metrics_data()
        metrics = data.resource_metrics[0].scope_metrics[0].metrics if data else []
        return {
            metric.name: sum(getattr(one, "value", getattr(one, "count", 0)) for one in metric.data.data_points)
            for metric in metrics
        }

    charge()
    charge()
    first = read()
    charge()
    second = read()

    assert (first["ft.invocations.total"], first["ft.bulkhead.runningduration"]) == (2, 2)
    assert (second["ft.invocations.total"], second["ft.bulkhead.runningduration"]) == (1, 1)


@pytest.mark.outside
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this platform")
def test_reader_of_differences_gets_the_calls_of_a_forked_child() -> None:
    """A count that began at 0 again would be negative for it; the child of a child goes on likewise."""
    program = (
        OPENTELEMETRY
        + GUARDED
        + """
import os, sys
from opentelemetry.sdk.metrics import ObservableCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality
reader = InMemoryMetricReader({ObservableCounter: AggregationTemporality.DELTA})
set_meter_provider(MeterProvider([reader]))
def tell():
    data = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
    print(*[point.value for metric in data if metric.name in ("ft.invocations.total", "ft.config.info")
            for point in metric.data.data_points], flush=True)
for calls in (3, 1, 2):
    for _ in range(calls): charge()
    tell()
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        break
"""
    )

    assert output_of(program, "-W", "error").splitlines() == ["3 0 1", "1 0 1", "2 0 1"]


def test_of_the_levels_of_guards_of_one_name_the_highest_is_shown() -> None:
    """Three that hedge after 0.1, 0.2 and 0.3 s do not hedge after 0.6 s; a probability is never more than 1."""
    registry = CollectorRegistry()
    configure(prometheus_registry=registry, meter_provider=None)

    def made(delay: str) -> Any:
        @hedge(delay=delay)
        async def ask() -> None: ...

        return ask

    guards = [made(delay) for delay in ("100ms", "300ms", "200ms")]
    for one in guards:
        asyncio.run(one())

    method = f"{__name__}.{guards[0].__qualname__}"
    assert registry.get_sample_value("ft_hedge_delay_seconds", {"method": method}) == 0.3
    tags = {"method": method, "result": "notHedged"}
    assert registry.get_sample_value("ft_hedge_calls_total", tags) == 3


def test_times_of_many_keys_can_be_exported_for_ever() -> None:
    """OTLP has integers below 2 ** 63, which 1,000 keys reach in 107 days: then their nanoseconds are a float."""
    meter = OpenTelemetryMeter()

    @partition_by(lambda key: key)
    @circuit_breaker
    def charge(key: int) -> None: ...

    meter.watch(charge)
    with virtual_time() as clock:
        for key in range(1000):
            charge(key)
        clock.advance(110 * 86400)
        [closed] = [
            value
            for (name, tags), value in meter.values().items()
            if name == "ft.circuitbreaker.state.total" and ("state", "closed") in tags
        ]

    assert closed == pytest.approx(1000 * 110 * 86400e9, rel=0.01)
    assert isinstance(closed, float)


def test_counts_of_a_guard_show_every_series() -> None:
    """A program can read the exported counts without an exporter."""

    @circuit_breaker
    @bulkhead
    def charge() -> None: ...

    charge()
    (found,) = [one for one in faulttolerance.guards() if one.method is charge]

    assert found.counts["ft.circuitbreaker.calls.total", (("circuitBreakerResult", "success"),)] == 1
    assert found.counts["ft.circuitbreaker.opened.total", ()] == 0
    assert found.counts["ft.bulkhead.executionsRunning", ()] == 0


def test_collector_registry_of_another_kind_is_taken() -> None:
    """A subclass of ``CollectorRegistry`` is a registry."""

    class Registry(CollectorRegistry):
        pass

    registry = Registry()
    configure(prometheus_registry=registry, meter_provider=None)

    @retry
    def charge() -> None: ...

    charge()

    assert b"ft_invocations_total" in generate_latest(registry)


@pytest.mark.parametrize("knows_the_sdk", [True, False])
@pytest.mark.parametrize("views", ["none", "boundaries", "drop", "exponential"])
def test_histograms_of_many_calls_are_exact(knows_the_sdk: bool, views: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal samples are added at once where the SDK allows it, and one by one where it does not; views hold in both."""
    from opentelemetry.sdk.metrics.view import (
        DropAggregation,
        ExplicitBucketHistogramAggregation,
        ExponentialBucketHistogramAggregation,
        View,
    )

    from faulttolerance._telemetry import opentelemetry

    if not knows_the_sdk:
        monkeypatch.setattr(opentelemetry, "add_again", lambda *_: False)
    aggregations = {
        "boundaries": ExplicitBucketHistogramAggregation([0.5]),
        "drop": DropAggregation(),
        "exponential": ExponentialBucketHistogramAggregation(),
    }
    given = [View(instrument_name="ft.bulkhead.*", aggregation=aggregations[views])] if views in aggregations else []
    readers = [InMemoryMetricReader(), InMemoryMetricReader()]
    provider = MeterProvider(readers, views=given, shutdown_on_exit=False)
    configure(meter_provider=provider, prometheus_registry=None)

    @timeout
    @bulkhead
    def charge() -> None: ...

    for _ in range(500):
        charge()

    for reader in readers:
        data = reader.get_metrics_data()
        assert data is not None
        points = {
            metric.name: metric.data.data_points[0] for metric in data.resource_metrics[0].scope_metrics[0].metrics
        }
        executions: Any = points["ft.timeout.executionduration"]
        assert executions.count == sum(executions.bucket_counts) == 500
        (found,) = ledger.read().durations.values()
        assert executions.sum == pytest.approx(sum(found["ft.timeout.executionDuration"].sums))
        if views == "drop":
            assert "ft.bulkhead.runningduration" not in points
        else:
            running: Any = points["ft.bulkhead.runningduration"]
            assert running.count == 500
            assert running.sum == pytest.approx(executions.sum)


@pytest.mark.parametrize("kind", ["ExplicitBucketHistogram", "ExponentialBucketHistogram", "Drop"])
def test_equal_samples_are_recorded_at_once(kind: str) -> None:
    """A reader gives up after 10 s, and loses all metrics of the application: thousands one by one take too long."""
    from opentelemetry.sdk.metrics import Histogram, view

    from faulttolerance._telemetry.opentelemetry import add_again

    samples = [0.001, 0.0, 0.5, 1e-9, 90.0, 0.5, 3.0, 0.001]
    points = []
    for at_once in (True, False):
        reader = InMemoryMetricReader(preferred_aggregation={Histogram: getattr(view, f"{kind}Aggregation")()})
        provider = MeterProvider([reader], shutdown_on_exit=False)
        histogram = provider.get_meter("shop").create_histogram("duration")
        for _ in range(2):
            for sample in samples:
                for _ in range(1 if at_once else 100):
                    histogram.record(sample, {"method": "pay"})
                assert not at_once or add_again(histogram, sample, {"method": "pay"}, 99)
            data = reader.get_metrics_data()
            metrics = data.resource_metrics[0].scope_metrics[0].metrics if data else []
            points.append([vars(point) for metric in metrics for point in metric.data.data_points])

    ignored = {"start_time_unix_nano", "time_unix_nano", "exemplars", "sum"}
    kept = [[{name: one[name] for name in one.keys() - ignored} for one in many] for many in points]
    assert kept[:2] == kept[2:]
    assert [one["sum"] for many in points[:2] for one in many] == pytest.approx(
        [one["sum"] for many in points[2:] for one in many]
    )
