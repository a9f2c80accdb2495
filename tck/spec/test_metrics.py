"""Specification, chapter "Integration with MicroProfile Metrics and MicroProfile Telemetry": when each metric counts.

Every scenario runs twice: scraped by Prometheus, and collected by OpenTelemetry. Calls, permits and circuits are new in
each test, so that readings are differences from nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("prometheus_client")

from faulttolerance import (
    BulkheadException,
    ChronoUnit,
    CircuitBreakerOpenException,
    ExecutionContext,
    Future,
    TimeoutException,
    asynchronous,
    bulkhead,
    circuit_breaker,
    completed_future,
    fallback,
    retry,
    sleep,
    timeout,
)
from faulttolerance.testing import configured
from kit import Barrier, Calls, Clock, Invoke, Service, TestException, key
from kit.meter import EXPORTERS, Meter, OpenTelemetryMeter, exporters

RETRY_RESULTS = ("valueReturned", "exceptionNotRetryable", "maxRetriesReached", "maxDurationReached")


@pytest.fixture
def meter(request: pytest.FixtureRequest) -> Meter:
    """Return the reader of the test; each test names its exporters."""
    return EXPORTERS[request.param]()


@pytest.fixture
def threads(clock: Clock) -> Iterator[Calls]:
    """Yield a maker of synchronous calls on threads of their own."""
    calls = Calls(Invoke("blocking", clock), clock)
    yield calls
    calls.end()


@pytest.fixture
def futures(clock: Clock) -> Iterator[Calls]:
    """Yield a maker of calls of methods that return a future."""
    calls = Calls(Invoke("offloaded", clock), clock)
    yield calls
    calls.end()


def retry_calls(meter: Meter) -> dict[tuple[str, str], int]:
    """Return how often the retry logic ended in each way that occurred."""
    found = {
        (retried, result): meter.value("ft.retry.calls.total", retried=retried, retryResult=result)
        for retried, result in product(("true", "false"), RETRY_RESULTS)
    }
    for retried, result in found:
        assert meter.exists("ft.retry.calls.total", retried=retried, retryResult=result)
    return {tags: count for tags, count in found.items() if count}


def invocations(meter: Meter, choice: str = "notDefined") -> tuple[int, int]:
    """Return how many calls returned, and how many failed."""
    results = ("valueReturned", "exceptionThrown")
    return tuple(meter.value("ft.invocations.total", result=one, fallback=choice) for one in results)  # type: ignore[return-value]


def breaker_calls(meter: Meter) -> tuple[int, ...]:
    """Return the successes, failures, calls that were not let through, and openings of the circuit."""
    results = ("success", "failure", "circuitBreakerOpen")
    calls = [meter.value("ft.circuitbreaker.calls.total", circuitBreakerResult=one) for one in results]
    return (*calls, meter.value("ft.circuitbreaker.opened.total"))


def bulkhead_calls(meter: Meter) -> tuple[int, ...]:
    """Return the number of calls that were let in, and that of those that were not."""
    return tuple(meter.value("ft.bulkhead.calls.total", bulkheadResult=one) for one in ("accepted", "rejected"))


# All policies at once


class AllMetrics(Service):
    @asynchronous
    @retry(max_retries=5)
    @bulkhead(3)
    @timeout(1, ChronoUnit.MINUTES)
    @circuit_breaker(failure_ratio=1.0, request_volume_threshold=20)
    @fallback(fallback_method="do_fallback")
    def do_work(self) -> Future[None]:
        return completed_future(None)

    def do_fallback(self) -> Future[None]:
        return completed_future(None)


ALL_METRICS_CONFIGURATION = {
    key(AllMetrics, "do_work", *parts.split("/")): value
    for parts, value in {
        "Retry/maxDuration": "180000",
        "Retry/maxDurationUnit": "MILLIS",  # no parameter of the specification's: it is ignored
        "Retry/delay": "0",
        "Retry/delayUnit": "MILLIS",
        "Retry/jitter": "200",
        "Retry/jitterDelayUnit": "MILLIS",
        "Timeout/value": "60000",
        "Timeout/unit": "MILLIS",
        "CircuitBreaker/delay": "5000",
        "CircuitBreaker/delayUnit": "MILLIS",
    }.items()
}


@exporters(
    prometheus=pytest.mark.tck("AllMetricsTest.testAllMetrics"),
    opentelemetry=pytest.mark.tck("AllAnnotationTelemetryTest.testAllMetrics"),
)
def test_a_call_through_all_policies_is_counted_before_its_future_completes(meter: Meter, clock: Clock) -> None:
    """Each policy counts one call, and every other combination of tags is there with 0."""
    meter.watch(AllMetrics.do_work, AllMetrics)
    with configured(ALL_METRICS_CONFIGURATION):
        AllMetrics().do_work().result(10)
        read = {name: value for (name, _), value in meter.values().items()}
        calls, results = invocations(meter, "notApplied"), retry_calls(meter)

    assert calls == (1, 0)
    assert invocations(meter, "applied") == (0, 0)
    assert meter.exists("ft.invocations.total", result="exceptionThrown", fallback="applied")
    assert results == {("false", "valueReturned"): 1}
    assert meter.value("ft.retry.retries.total") == 0
    assert [meter.value("ft.timeout.calls.total", timedOut=one) for one in ("true", "false")] == [0, 1]
    assert breaker_calls(meter) == (1, 0, 0, 0)
    assert bulkhead_calls(meter) == (1, 0)
    for gauge in ("ft.bulkhead.executionsRunning", "ft.bulkhead.executionsWaiting"):
        assert meter.exists(gauge)
        assert meter.value(gauge) == 0
    for histogram in ("ft.timeout.executionDuration", "ft.bulkhead.runningDuration", "ft.bulkhead.waitingDuration"):
        assert meter.durations(histogram).count == 1
    assert all(value == int(value) for value in read.values())

    clock.sleep(0.1)
    times = [meter.value("ft.circuitbreaker.state.total", state=one) for one in ("closed", "halfOpen", "open")]
    assert times[0] >= 100_000_000
    assert times[1:] == [0, 0]


@exporters(opentelemetry=pytest.mark.tck("AllAnnotationTelemetryTest.testAllMetrics"))
def test_opentelemetry_gets_each_metric_as_the_type_that_the_specification_names(meter: Meter, clock: Clock) -> None:
    """Counters and state times only grow; the numbers of running and waiting calls go up and down."""
    assert isinstance(meter, OpenTelemetryMeter)
    AllMetrics().do_work().result(10)
    metrics = meter.metrics()

    levels = {"ft.bulkhead.executionsrunning", "ft.bulkhead.executionswaiting", "ft.config.info"}
    for name, metric in metrics.items():
        if not name.endswith("duration"):
            assert metric.data.is_monotonic is (name not in levels)
            assert all(isinstance(point.value, int) for point in metric.data.data_points)


@exporters(prometheus=pytest.mark.tck("AllMetricsTest.testMetricUnits"))
def test_prometheus_says_the_unit_of_durations_in_their_names(meter: Meter, clock: Clock) -> None:
    """Prometheus counts durations in seconds; the time in each state stays in nanoseconds, as specified."""
    AllMetrics().do_work().result(10)

    units = {
        name: meter.unit(name)
        for name in (
            "ft.invocations.total",
            "ft.retry.calls.total",
            "ft.retry.retries.total",
            "ft.timeout.calls.total",
            "ft.timeout.executionDuration",
            "ft.circuitbreaker.calls.total",
            "ft.circuitbreaker.state.total",
            "ft.circuitbreaker.opened.total",
            "ft.bulkhead.calls.total",
            "ft.bulkhead.executionsRunning",
            "ft.bulkhead.executionsWaiting",
            "ft.bulkhead.runningDuration",
            "ft.bulkhead.waitingDuration",
        )
    }
    assert {name for name, unit in units.items() if unit == "seconds"} == {
        "ft.timeout.executionDuration",
        "ft.bulkhead.runningDuration",
        "ft.bulkhead.waitingDuration",
    }
    assert set(units.values()) == {"", "seconds"}


@exporters(
    prometheus=pytest.mark.tck("MetricsDisabledTest.testMetricsDisabled"),
    opentelemetry=pytest.mark.tck("FaultToleranceDisabledTelemetryTest.testMetricsDisabled"),
)
def test_nothing_is_exported_when_metrics_are_switched_off(meter: Meter, clock: Clock) -> None:
    """The specification's switch turns both exports off; calls go on as before."""
    with configured({"MP_Fault_Tolerance_Metrics_Enabled": "false"}):

        class Client(Service):
            @asynchronous
            @retry(max_retries=5)
            @bulkhead(3)
            @timeout(1, ChronoUnit.MINUTES)
            @circuit_breaker(failure_ratio=1.0, request_volume_threshold=20)
            @fallback(fallback_method="do_fallback")
            def do_work(self) -> Future[None]:
                return completed_future(None)

            def do_fallback(self) -> Future[None]:
                return completed_future(None)

        assert Client().do_work().result(10) is None

        assert meter.values() == {}
        assert meter.histograms() == {}


# Bulkhead


class Bulkheads(Service):
    @bulkhead(2)
    def wait_for(self, barrier: Barrier) -> None:
        barrier.pass_through()

    @asynchronous
    @bulkhead(2, waiting_task_queue=2)
    def wait_for_async(self, barrier: Barrier) -> Future[None]:
        barrier.pass_through()
        return completed_future(None)


@exporters(
    prometheus=pytest.mark.tck("BulkheadMetricTest.bulkheadMetricTest"),
    opentelemetry=pytest.mark.tck("BulkheadTelemetryTest.bulkheadMetricTest"),
)
def test_running_calls_are_shown_while_they_run(meter: Meter, threads: Calls) -> None:
    """The gauge follows the permits; a synchronous method has no metrics of waiting."""
    meter.watch(Bulkheads.wait_for, Bulkheads)
    running = [threads.start_running(Bulkheads().wait_for) for _ in range(2)]
    assert meter.value("ft.bulkhead.executionsRunning") == 2
    for call in running:
        call.release()
        call.result(60)

    assert meter.value("ft.bulkhead.executionsRunning") == 0
    assert bulkhead_calls(meter) == (2, 0)
    assert not meter.exists("ft.bulkhead.executionsWaiting")
    assert not meter.exists("ft.bulkhead.waitingDuration")
    assert invocations(meter) == (2, 0)


@exporters(
    prometheus=pytest.mark.tck("BulkheadMetricTest.bulkheadMetricRejectionTest"),
    opentelemetry=pytest.mark.tck("BulkheadTelemetryTest.bulkheadMetricRejectionTest"),
)
def test_rejected_call_is_an_invocation_and_never_runs(meter: Meter, threads: Calls) -> None:
    """A rejection counts as rejected and as an invocation that failed; the gauge does not move."""
    meter.watch(Bulkheads.wait_for, Bulkheads)
    running = [threads.start_running(Bulkheads().wait_for) for _ in range(2)]
    rejected = threads.start(Bulkheads().wait_for)

    assert rejected.failure() is BulkheadException
    assert meter.value("ft.bulkhead.executionsRunning") == 2
    for call in running:
        call.release()
        call.result(60)
    assert meter.value("ft.bulkhead.executionsRunning") == 0
    assert bulkhead_calls(meter) == (2, 1)
    assert invocations(meter) == (2, 1)


@exporters(
    prometheus=pytest.mark.tck("BulkheadMetricTest.bulkheadMetricHistogramTest"),
    opentelemetry=pytest.mark.tck("BulkheadTelemetryTest.bulkheadMetricHistogramTest"),
)
def test_running_times_are_recorded_and_rejections_leave_none(meter: Meter, threads: Calls, clock: Clock) -> None:
    """One record per call that ran, of the time between its admission and its end."""
    meter.watch(Bulkheads.wait_for, Bulkheads)
    running = [threads.start_running(Bulkheads().wait_for) for _ in range(2)]
    assert threads.start(Bulkheads().wait_for).failure() is BulkheadException
    clock.sleep(1.0)
    for call in running:
        call.release()
        call.result(60)

    first = meter.durations("ft.bulkhead.runningDuration")
    assert first.count == 2
    assert 0.8 < first.sum / 2 < 1.2
    for _ in range(2):
        opened = Barrier()
        opened.open()
        Bulkheads().wait_for(opened)
    second = meter.durations("ft.bulkhead.runningDuration")
    assert second.count == 4
    assert second.fits(1.0, 1.0, 0.0, 0.0)


@exporters(
    prometheus=pytest.mark.tck("BulkheadMetricTest.bulkheadMetricAsyncTest"),
    opentelemetry=pytest.mark.tck("BulkheadTelemetryTest.bulkheadMetricAsyncTest"),
)
def test_waiting_calls_are_shown_and_their_waits_recorded(meter: Meter, futures: Calls, clock: Clock) -> None:
    """A call that starts at once has waited for 0 s; a call that is rejected leaves no record."""
    meter.watch(Bulkheads.wait_for_async, Bulkheads)
    running = [futures.start_running(Bulkheads().wait_for_async) for _ in range(2)]
    stopwatch = clock.stopwatch()
    waiting = [futures.start(Bulkheads().wait_for_async) for _ in range(2)]
    futures.eventually(lambda: meter.value("ft.bulkhead.executionsWaiting") == 2)
    rejected = futures.start(Bulkheads().wait_for_async)
    assert rejected.failure() is BulkheadException
    assert meter.value("ft.bulkhead.executionsRunning") == 2
    assert meter.value("ft.bulkhead.executionsWaiting") == 2
    clock.sleep(1.0)
    for call in running + waiting:
        call.release()
    waited = stopwatch.elapsed
    for call in running + waiting:
        call.result(60)

    assert meter.value("ft.bulkhead.executionsRunning") == 0
    assert bulkhead_calls(meter) == (4, 1)
    assert meter.durations("ft.bulkhead.waitingDuration").fits(0.0, 0.0, waited, waited)
    assert invocations(meter) == (4, 1)


# Circuit breaker


class SkippedException(TestException):
    """An exception that counts as a success."""


@exporters(
    prometheus=pytest.mark.tck("CircuitBreakerMetricTest.testCircuitBreakerMetric"),
    opentelemetry=pytest.mark.tck("CircuitBreakerTelemetryTest.testCircuitBreakerMetric"),
)
def test_circuit_breaker_counts_its_verdict_on_each_call(meter: Meter, clock: Clock) -> None:
    """A call that is no failure to the breaker is a success, also where the caller gets an exception."""

    class Client(Service):
        @circuit_breaker(
            request_volume_threshold=2,
            failure_ratio=1.0,
            delay=1000,
            success_threshold=2,
            fail_on=[TestException],
            skip_on=[SkippedException],
        )
        def do_work(self, failure: type[Exception] | None) -> None:
            if failure is not None:
                raise failure

    meter.watch(Client.do_work, Client)
    client = Client()
    with configured(
        {
            key(Client, "do_work", "CircuitBreaker", "delay"): "1000",
            key(Client, "do_work", "CircuitBreaker", "delayUnit"): "MILLIS",
        }
    ):
        for failure, expected in (
            (TestException, (0, 1, 0, 0)),
            (TestException, (0, 2, 0, 1)),
        ):
            with pytest.raises(failure):
                client.do_work(failure)
            assert breaker_calls(meter) == expected
        with pytest.raises(CircuitBreakerOpenException):
            client.do_work(None)
        assert breaker_calls(meter) == (0, 2, 1, 1)
        clock.sleep(1.5)
        client.do_work(None)
        client.do_work(None)
        assert breaker_calls(meter) == (2, 2, 1, 1)
        with pytest.raises(RuntimeError):
            client.do_work(RuntimeError)
        assert breaker_calls(meter) == (3, 2, 1, 1)
        with pytest.raises(SkippedException):
            client.do_work(SkippedException)

    assert breaker_calls(meter) == (4, 2, 1, 1)
    assert invocations(meter) == (2, 5)


# Names


@exporters(
    prometheus=pytest.mark.tck("ClashingNameTest.testClashingName"),
    opentelemetry=pytest.mark.tck("ClashingNameTelemetryTest.testClashingName"),
)
def test_metrics_of_methods_with_one_name_add_up(meter: Meter, clock: Clock) -> None:
    """Two classes of one name are no clash: there is one series, which counts the calls of both."""

    def make() -> type[Any]:
        class Client(Service):
            @asynchronous
            @retry(max_retries=5)
            @bulkhead(3)
            @timeout(1000)
            @circuit_breaker(failure_ratio=1.0, request_volume_threshold=20)
            @fallback(fallback_method="do_fallback")
            def do_work(self, *texts: str) -> Future[None]:
                return completed_future(None)

            def do_fallback(self, *texts: str) -> Future[None]:
                return completed_future(None)

        return Client

    first, second = make(), make()
    meter.watch(first.do_work, first)  # type: ignore[attr-defined]
    first().do_work().result(10)
    second().do_work("").result(10)

    assert invocations(meter, "notApplied") == (2, 0)


class RetriedClass(Service):
    """A class that is guarded as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0


@retry(max_retries=5)
class ClassLevel(RetriedClass):
    def fail_several_times(self, times_to_fail: int) -> None:
        self.calls += 1
        if self.calls <= times_to_fail:
            raise TestException


@pytest.mark.parametrize(
    ("meter", "calls", "times_to_fail", "results", "retries"),
    [
        pytest.param(
            "prometheus", 1, 0, {("false", "valueReturned"): 1}, 0,
            marks=pytest.mark.tck("ClassLevelMetricTest.testRetryMetricSuccessfulImmediately"),
        ),
        pytest.param(
            "prometheus", 1, 3, {("true", "valueReturned"): 1}, 3,
            marks=pytest.mark.tck("ClassLevelMetricTest.testRetryMetricSuccessfulAfterRetry"),
        ),
        pytest.param(
            "prometheus", 2, 20, {("true", "maxRetriesReached"): 2}, 10,
            marks=pytest.mark.tck("ClassLevelMetricTest.testRetryMetricUnsuccessful"),
        ),
        pytest.param(
            "opentelemetry", 1, 0, {("false", "valueReturned"): 1}, 0,
            marks=pytest.mark.tck("ClassLevelTelemetryTest.testRetryMetricSuccessfulImmediately"),
        ),
        pytest.param(
            "opentelemetry", 1, 3, {("true", "valueReturned"): 1}, 3,
            marks=pytest.mark.tck("ClassLevelTelemetryTest.testRetryMetricSuccessfulAfterRetry"),
        ),
        pytest.param(
            "opentelemetry", 2, 20, {("true", "maxRetriesReached"): 2}, 10,
            marks=pytest.mark.tck("ClassLevelTelemetryTest.testRetryMetricUnsuccessful"),
        ),
    ],
    indirect=["meter"],
)  # fmt: skip
def test_metrics_of_a_guarded_class_carry_the_name_of_the_method(
    meter: Meter, clock: Clock, calls: int, times_to_fail: int, results: dict[tuple[str, str], int], retries: int
) -> None:
    """Where the decorator stands does not matter: metrics belong to methods."""
    meter.watch(ClassLevel.fail_several_times, ClassLevel)
    client = ClassLevel()
    fails = times_to_fail > 5
    for _ in range(calls):
        if fails:
            with pytest.raises(TestException):
                client.fail_several_times(times_to_fail)
        else:
            client.fail_several_times(times_to_fail)

    assert retry_calls(meter) == results
    assert meter.value("ft.retry.retries.total") == retries
    assert invocations(meter) == ((0, calls) if fails else (calls, 0))


# Fallback


class NonFallbackException(Exception):
    """An exception without a fallback."""


class Fallbacks(Service):
    fallback_fails = False

    def act(self, failure: type[Exception] | None) -> None:
        if failure is not None:
            raise failure

    @fallback(fallback_method="do_fallback", skip_on=[NonFallbackException])
    def do_work(self, failure: type[Exception] | None) -> None:
        self.act(failure)

    def do_fallback(self, failure: type[Exception] | None) -> None:
        if Fallbacks.fallback_fails:
            raise TestException


class Handler:
    def handle(self, context: ExecutionContext) -> None:
        if Fallbacks.fallback_fails:
            raise TestException


class FallbacksByHandler(Fallbacks):
    @fallback(Handler, apply_on=[TestException])
    def do_work_with_handler(self, failure: type[Exception] | None) -> None:
        self.act(failure)


@pytest.mark.parametrize(
    ("meter", "method"),
    [
        pytest.param("prometheus", "do_work", marks=pytest.mark.tck("FallbackMetricTest.fallbackMetricMethodTest")),
        pytest.param(
            "prometheus", "do_work_with_handler", marks=pytest.mark.tck("FallbackMetricTest.fallbackMetricHandlerTest")
        ),
        pytest.param(
            "opentelemetry", "do_work", marks=pytest.mark.tck("FallbackTelemetryTest.fallbackMetricMethodTest")
        ),
        pytest.param(
            "opentelemetry",
            "do_work_with_handler",
            marks=pytest.mark.tck("FallbackTelemetryTest.fallbackMetricHandlerTest"),
        ),
    ],
    indirect=["meter"],
)
def test_invocations_tell_whether_the_fallback_was_applied(
    meter: Meter, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fallback that fails was applied, too; a failure that it does not cover was not."""
    client = FallbacksByHandler()
    meter.watch(getattr(FallbacksByHandler, method), FallbacksByHandler)
    do_work: Callable[[type[Exception] | None], None] = getattr(client, method)

    def read() -> tuple[int, ...]:
        return (*invocations(meter, "notApplied"), *invocations(meter, "applied"))

    do_work(None)
    assert read() == (1, 0, 0, 0)
    do_work(TestException)
    assert read() == (1, 0, 1, 0)
    monkeypatch.setattr(Fallbacks, "fallback_fails", True)
    with pytest.raises(TestException):
        do_work(TestException)
    assert read() == (1, 0, 1, 1)
    monkeypatch.setattr(Fallbacks, "fallback_fails", False)
    with pytest.raises(NonFallbackException):
        do_work(NonFallbackException)
    assert read() == (1, 1, 1, 1)


# Retry


class NonRetryableException(Exception):
    """An exception that ends the attempts."""


class Retries(Service):
    @retry(max_retries=5)
    def fail_several_times(self, times_to_fail: int) -> None:
        self.executions += 1
        if self.executions <= times_to_fail:
            raise TestException

    @retry(max_retries=5, abort_on=NonRetryableException)
    def fail_several_times_then_non_retryable(self, times_to_fail: int) -> None:
        self.executions += 1
        raise TestException if self.executions <= times_to_fail else NonRetryableException

    @retry(max_retries=0)
    def max_retries_zero(self, times_to_fail: int) -> None:
        raise TestException

    @retry(max_retries=-1, max_duration=1000, delay=0, jitter=0)
    def fail_after_delay(self, milliseconds: int) -> None:
        sleep(milliseconds / 1000)
        raise TestException


@pytest.mark.parametrize(
    ("meter", "method", "argument", "calls", "failure", "results", "retries"),
    [
        pytest.param(
            "prometheus", "fail_several_times", 0, 1, None, {("false", "valueReturned"): 1}, 0,
            marks=pytest.mark.tck("RetryMetricTest.testRetryMetricSuccessfulImmediately"),
        ),
        pytest.param(
            "prometheus", "fail_several_times", 3, 1, None, {("true", "valueReturned"): 1}, 3,
            marks=pytest.mark.tck("RetryMetricTest.testRetryMetricSuccessfulAfterRetry"),
        ),
        pytest.param(
            "prometheus", "fail_several_times_then_non_retryable", 0, 1, NonRetryableException,
            {("false", "exceptionNotRetryable"): 1}, 0,
            marks=pytest.mark.tck("RetryMetricTest.testRetryMetricNonRetryableImmediately"),
        ),
        pytest.param(
            "prometheus", "fail_several_times_then_non_retryable", 3, 1, NonRetryableException,
            {("true", "exceptionNotRetryable"): 1}, 3,
            marks=pytest.mark.tck("RetryMetricTest.testRetryMetricNonRetryableAfterRetries"),
        ),
        pytest.param(
            "prometheus", "fail_several_times", 20, 2, TestException, {("true", "maxRetriesReached"): 2}, 10,
            marks=pytest.mark.tck("RetryMetricTest.testRetryMetricMaxRetries"),
        ),
        pytest.param(
            "prometheus", "max_retries_zero", 0, 1, TestException, {("false", "maxRetriesReached"): 1}, 0,
            marks=pytest.mark.tck("RetryMetricTest.testRetryMetricMaxRetriesHitButNoRetry"),
        ),
        pytest.param(
            "prometheus", "fail_after_delay", 100, 1, TestException, {("true", "maxDurationReached"): 1}, None,
            marks=pytest.mark.tck("RetryMetricTest.testRetryMetricMaxDuration"),
        ),
        pytest.param(
            "prometheus", "fail_after_delay", 1500, 1, TestException, {("false", "maxDurationReached"): 1}, 0,
            marks=pytest.mark.tck("RetryMetricTest.testRetryMetricMaxDurationNoRetries"),
        ),
        pytest.param(
            "opentelemetry", "fail_several_times", 0, 1, None, {("false", "valueReturned"): 1}, 0,
            marks=pytest.mark.tck("RetryTelemetryTest.testRetryMetricSuccessfulImmediately"),
        ),
        pytest.param(
            "opentelemetry", "fail_several_times", 3, 1, None, {("true", "valueReturned"): 1}, 3,
            marks=pytest.mark.tck("RetryTelemetryTest.testRetryMetricSuccessfulAfterRetry"),
        ),
        pytest.param(
            "opentelemetry", "fail_several_times_then_non_retryable", 0, 1, NonRetryableException,
            {("false", "exceptionNotRetryable"): 1}, 0,
            marks=pytest.mark.tck("RetryTelemetryTest.testRetryMetricNonRetryableImmediately"),
        ),
        pytest.param(
            "opentelemetry", "fail_several_times_then_non_retryable", 3, 1, NonRetryableException,
            {("true", "exceptionNotRetryable"): 1}, 3,
            marks=pytest.mark.tck("RetryTelemetryTest.testRetryMetricNonRetryableAfterRetries"),
        ),
        pytest.param(
            "opentelemetry", "fail_several_times", 20, 2, TestException, {("true", "maxRetriesReached"): 2}, 10,
            marks=pytest.mark.tck("RetryTelemetryTest.testRetryMetricMaxRetries"),
        ),
        pytest.param(
            "opentelemetry", "max_retries_zero", 0, 1, TestException, {("false", "maxRetriesReached"): 1}, 0,
            marks=pytest.mark.tck("RetryTelemetryTest.testRetryMetricMaxRetriesHitButNoRetry"),
        ),
        pytest.param(
            "opentelemetry", "fail_after_delay", 100, 1, TestException, {("true", "maxDurationReached"): 1}, None,
            marks=pytest.mark.tck("RetryTelemetryTest.testRetryMetricMaxDuration"),
        ),
        pytest.param(
            "opentelemetry", "fail_after_delay", 1500, 1, TestException, {("false", "maxDurationReached"): 1}, 0,
            marks=pytest.mark.tck("RetryTelemetryTest.testRetryMetricMaxDurationNoRetries"),
        ),
    ],
    indirect=["meter"],
)  # fmt: skip
def test_retry_counts_why_there_was_no_further_attempt(
    meter: Meter,
    clock: Clock,
    method: str,
    argument: int,
    calls: int,
    failure: type[Exception] | None,
    results: dict[tuple[str, str], int],
    retries: int | None,
) -> None:
    """A call has one result, with or without a retry; retries are counted one by one."""
    meter.watch(getattr(Retries, method), Retries)
    with configured(
        {
            key(Retries, "fail_after_delay", "Retry", name): value
            for name, value in {
                "maxDuration": "1000",
                "maxDurationUnit": "MILLIS",  # no parameter of the specification's: it is ignored
                "delay": "0",
                "delayUnit": "MILLIS",
                "jitter": "0",
                "jitterDelayUnit": "MILLIS",
            }.items()
        }
    ):
        for _ in range(calls):
            if failure is None:
                getattr(Retries(), method)(argument)
            else:
                with pytest.raises(failure):
                    getattr(Retries(), method)(argument)

    assert retry_calls(meter) == results
    assert retries is None or meter.value("ft.retry.retries.total") == retries
    assert invocations(meter) == ((calls, 0) if failure is None else (0, calls))


# Time-out


class Timeouts(Service):
    @timeout(500)
    def counter_test_work_for_millis(self, milliseconds: int) -> None:
        sleep(milliseconds / 1000)

    @timeout(2000)
    def histogram_test_work_for_millis(self, milliseconds: int) -> None:
        sleep(milliseconds / 1000)


@exporters(
    prometheus=pytest.mark.tck("TimeoutMetricTest.testTimeoutMetric"),
    opentelemetry=pytest.mark.tck("TimeoutTelemetryTest.testTimeoutMetric"),
)
def test_time_outs_are_counted(meter: Meter, clock: Clock) -> None:
    """Each attempt either timed out or did not."""
    meter.watch(Timeouts.counter_test_work_for_millis, Timeouts)
    with configured({key(Timeouts, "counter_test_work_for_millis", "Timeout", "value"): "500"}):
        for _ in range(2):
            with pytest.raises(TimeoutException):
                Timeouts().counter_test_work_for_millis(2000)
        Timeouts().counter_test_work_for_millis(100)

    assert [meter.value("ft.timeout.calls.total", timedOut=one) for one in ("true", "false")] == [2, 1]
    assert invocations(meter) == (1, 2)


@exporters(
    prometheus=pytest.mark.tck("TimeoutMetricTest.testTimeoutHistogram"),
    opentelemetry=pytest.mark.tck("TimeoutTelemetryTest.testTimeoutHistogram"),
)
def test_execution_times_are_recorded_also_where_they_timed_out(meter: Meter, clock: Clock) -> None:
    """An attempt that is ended at its deadline lasted until then."""
    meter.watch(Timeouts.histogram_test_work_for_millis, Timeouts)
    with configured({key(Timeouts, "histogram_test_work_for_millis", "Timeout", "value"): "2000"}):
        Timeouts().histogram_test_work_for_millis(300)
        with pytest.raises(TimeoutException):
            Timeouts().histogram_test_work_for_millis(5000)

    found = meter.durations("ft.timeout.executionDuration")
    assert found.count == 2
    assert found.fits(0.3, 2.0)
