"""Specification, chapter "Integration with MicroProfile Metrics and MicroProfile Telemetry": names and units.

What each metric counts is in ``test_metrics.py``, for both exporters.
"""

from __future__ import annotations

import pytest

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("prometheus_client")

from faulttolerance import (
    CircuitBreakerOpenException,
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
from kit import Clock, Service, TestException
from kit.meter import BOUNDARIES, OpenTelemetryMeter


@pytest.fixture
def meter() -> OpenTelemetryMeter:
    """Return a meter with a provider that is there before the first call."""
    return OpenTelemetryMeter()


class Client(Service):
    @bulkhead(2)
    def run(self) -> None:
        pass

    @asynchronous
    @bulkhead(2, waiting_task_queue=2)
    def run_apart(self) -> Future[None]:
        return completed_future(None)

    @circuit_breaker(request_volume_threshold=2, failure_ratio=1.0)
    def break_down(self) -> None:
        raise TestException

    @fallback(fallback_method="substitute")
    def fall_back(self) -> None:
        raise TestException

    def substitute(self) -> None:
        pass

    @retry(max_retries=5)
    def try_again(self) -> None:
        self.executions += 1
        if self.executions <= 3:
            raise TestException

    @timeout(500)
    def take(self, milliseconds: int) -> None:
        sleep(milliseconds / 1000)


@pytest.mark.tck("BulkheadTelemetryTest.testMetricUnits")
def test_units_of_the_bulkhead(meter: OpenTelemetryMeter, clock: Clock) -> None:
    """Durations are in seconds, by that word and not by an abbreviation; numbers of calls have no unit."""
    Client().run()
    Client().run_apart().result(10)

    assert meter.unit("ft.bulkhead.calls.total") == ""
    assert meter.unit("ft.bulkhead.executionsRunning") == ""
    assert meter.unit("ft.bulkhead.executionsWaiting") == ""
    assert meter.unit("ft.bulkhead.runningDuration") == "seconds"
    assert meter.unit("ft.bulkhead.waitingDuration") == "seconds"


@pytest.mark.tck("CircuitBreakerTelemetryTest.testMetricUnits")
def test_units_of_the_circuit_breaker(meter: OpenTelemetryMeter, clock: Clock) -> None:
    """The time in each state is in nanoseconds here, too."""
    for failure in (TestException, TestException, CircuitBreakerOpenException):
        with pytest.raises(failure):
            Client().break_down()

    assert meter.unit("ft.circuitbreaker.calls.total") == ""
    assert meter.unit("ft.circuitbreaker.state.total") == "nanoseconds"
    assert meter.unit("ft.circuitbreaker.opened.total") == ""


@pytest.mark.tck("FallbackTelemetryTest.testMetricUnits")
def test_units_of_invocations(meter: OpenTelemetryMeter, clock: Clock) -> None:
    """Numbers of calls have no unit."""
    Client().fall_back()

    assert meter.unit("ft.invocations.total") == ""


@pytest.mark.tck("RetryTelemetryTest.testMetricUnits")
def test_units_of_retries(meter: OpenTelemetryMeter, clock: Clock) -> None:
    """Numbers of calls have no unit."""
    Client().try_again()

    assert meter.unit("ft.retry.calls.total") == ""
    assert meter.unit("ft.retry.retries.total") == ""


@pytest.mark.tck("TimeoutTelemetryTest.testMetricUnits")
def test_units_of_the_time_out(meter: OpenTelemetryMeter, clock: Clock) -> None:
    """Execution times are in seconds."""
    Client().take(100)
    with pytest.raises(TimeoutException):
        Client().take(2000)

    assert meter.unit("ft.timeout.calls.total") == ""
    assert meter.unit("ft.timeout.executionDuration") == "seconds"


def test_histograms_have_the_buckets_of_the_specification(meter: OpenTelemetryMeter, clock: Clock) -> None:
    """The SDK's own boundaries, 0 to 10,000, would put every duration into the same bucket."""
    Client().run()

    (point,) = meter.metrics()["ft.bulkhead.runningduration"].data.data_points
    assert tuple(point.explicit_bounds) == BOUNDARIES


def test_time_in_a_state_grows_while_nobody_calls(meter: OpenTelemetryMeter, clock: Clock) -> None:
    """A circuit that no call asks is open, and then half-open, all the same."""
    meter.watch(Client.break_down, Client)
    for _ in range(2):
        with pytest.raises(TestException):
            Client().break_down()
    clock.sleep(7.0)

    times = {
        state: meter.value("ft.circuitbreaker.state.total", state=state) / 1e9
        for state in ("closed", "open", "halfOpen")
    }
    assert times["open"] == pytest.approx(5.0, abs=clock.within(0.1))
    assert times["halfOpen"] == pytest.approx(2.0, abs=clock.within(0.1))
