"""Specification, chapter "Retry Policy", without its conditions: number, duration and delays of retries."""

from __future__ import annotations

from itertools import pairwise

import pytest

from faulttolerance import BulkheadException, ChronoUnit, TimeoutException, retry, timeout
from faulttolerance.testing import configured
from kit import INTERRUPTION, Clock, Invoke, Service, TestException, key

# How often and how long


@pytest.mark.tck("RetryTest.testRetryMaxRetries")
def test_call_that_always_fails_is_made_once_and_retried_max_retries_times(invoke: Invoke) -> None:
    """max_retries counts the attempts after the first, and the failure of the last attempt comes out."""

    class Client(Service):
        @retry(max_retries=5)
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            raise TestException

    client = Client()
    with pytest.raises(TestException):
        invoke(client.work)

    assert client.executions == 6


@pytest.mark.tck("RetryTest.testRetryMaxDuration")
def test_no_retry_begins_after_max_duration_in_milliseconds(invoke: Invoke) -> None:
    """Attempts of 100 ms fit into a second ten times at most; jitter of up to 200 ms between them is the default."""

    class Client(Service):
        @retry(max_retries=90, max_duration=1000)
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            await invoke.sleep(0.1)
            raise TestException

    client = Client()
    with pytest.raises(TestException):
        invoke(client.work)

    assert 1 < client.executions < 11


@pytest.mark.tck("RetryTest.testRetryMaxDurationSeconds")
def test_no_retry_begins_after_max_duration_in_seconds(invoke: Invoke) -> None:
    """max_duration counts in duration_unit."""

    class Client(Service):
        @retry(max_retries=90, max_duration=1, duration_unit=ChronoUnit.SECONDS)
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            await invoke.sleep(0.1)
            raise TestException

    client = Client()
    with pytest.raises(TestException):
        invoke(client.work)

    assert 1 < client.executions < 11


def test_max_duration_counts_from_the_beginning_of_the_call(invoke: Invoke) -> None:
    """The first attempt is part of it: ten attempts of 100 ms, one after the other, take the whole second."""

    class Client(Service):
        @retry(max_retries=90, max_duration=1000, jitter=0)
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            await invoke.sleep(0.1)
            raise TestException

    client = Client()
    with pytest.raises(TestException):
        invoke(client.work)

    assert 1 < client.executions < 11


# Delays


@pytest.mark.tck("RetryTest.testRetryWithDelay")
def test_delays_stay_within_delay_plus_jitter(invoke: Invoke, clock: Clock) -> None:
    """400 ms with jitter of 400 ms is 0 to 800 ms; the key of no parameter, from the official kit, is ignored."""

    class Client(Service):
        def __init__(self) -> None:
            super().__init__()
            self.moments: list[float] = []

        @retry(delay=400, jitter=400, max_duration=3200, max_retries=10)
        @invoke.body
        async def service_a(self) -> None:
            self.executions += 1
            self.moments.append(clock.monotonic())
            raise TestException

    properties = {
        key(Client, "service_a", "Retry", "maxDuration"): 3200,
        key(Client, "service_a", "Retry", "maxDurationUnit"): "MILLIS",
        key(Client, "service_a", "Retry", "delay"): 400,
        key(Client, "service_a", "Retry", "delayUnit"): "MILLIS",
        key(Client, "service_a", "Retry", "jitter"): 400,
        key(Client, "service_a", "Retry", "jitterDelayUnit"): "MILLIS",
    }
    client = Client()
    with configured(properties), pytest.raises(TestException):
        invoke(client.service_a)

    assert client.executions > 4
    gaps = _gaps(client.moments)
    assert max(gaps) < clock.within(1.0)


@pytest.mark.tck("RetryTest.testRetryWithNoDelayAndJitter")
def test_jitter_applies_without_a_delay(invoke: Invoke, clock: Clock) -> None:
    """Without a delay jitter alone spreads the attempts; a negative delay counts as none."""

    class Client(Service):
        def __init__(self) -> None:
            super().__init__()
            self.moments: list[float] = []

        @retry(delay=0, jitter=400, max_duration=3200, max_retries=100)
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            self.moments.append(clock.monotonic())
            raise TestException

    client = Client()
    with pytest.raises(TestException):
        invoke(client.work)

    assert max(int(gap * 1000) for gap in _gaps(client.moments)) > 5
    assert 8 < client.executions < 100


@pytest.mark.tck("ZeroRetryJitterTest.test")
def test_no_jitter_is_no_error(invoke: Invoke, clock: Clock) -> None:
    """jitter=0 draws from an empty range, and the retries follow at once."""

    class Client(Service):
        def __init__(self) -> None:
            super().__init__()
            self.moments: list[float] = []

        @retry(max_retries=3, jitter=0)
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            self.moments.append(clock.monotonic())
            if self.executions <= 3:
                raise RuntimeError("not yet")

    client = Client()
    invoke(client.work)

    assert client.executions == 4
    assert sum(_gaps(client.moments)) < clock.within(0.6)


def _gaps(moments: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(moments)]


# On classes


@pytest.mark.tck("RetryTest.testClassLevelRetryMaxRetries")
def test_retry_of_a_class_holds_for_its_methods(invoke: Invoke) -> None:
    """A method without a decorator of its own is retried as its class says."""

    @retry(max_retries=2)
    class Client(Service):
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            raise TestException

    client = Client()
    with pytest.raises(TestException):
        invoke(client.work)

    assert client.executions == 3


@pytest.mark.tck("RetryTest.testClassLevelRetryMaxDuration")
def test_retry_of_a_method_replaces_that_of_its_class_as_a_whole(invoke: Invoke) -> None:
    """No value of the class, such as max_retries, is left where the method has a decorator of its own."""

    @retry(max_retries=2)
    class Client(Service):
        @retry(max_retries=90, max_duration=1000)
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            await invoke.sleep(0.1)
            raise TestException

    client = Client()
    with pytest.raises(TestException):
        invoke(client.work)

    assert 3 < client.executions < 11


@pytest.mark.tck("RetryTest.testClassLevelRetryMaxDurationSeconds")
def test_retry_of_a_method_replaces_that_of_its_class_in_seconds(invoke: Invoke) -> None:
    """duration_unit of the method goes with max_duration of the method."""

    @retry(max_retries=2)
    class Client(Service):
        @retry(max_retries=90, max_duration=1, duration_unit=ChronoUnit.SECONDS)
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            await invoke.sleep(0.1)
            raise TestException

    client = Client()
    with pytest.raises(TestException):
        invoke(client.work)

    assert 1 < client.executions < 11


# Around a time-out


@pytest.mark.tck("RetryTimeoutTest.testRetryTimeout")
def test_time_out_begins_anew_with_each_retry(invoke: Invoke) -> None:
    """An attempt that times out is retried under a new deadline, also where the body swallows the interruption."""

    class Client(Service):
        @timeout(500)
        @retry(max_retries=1)
        @invoke.body
        async def work(self, seconds: float) -> None:
            self.executions += 1
            await _sleep_then_fail(invoke, seconds)

    client = Client()
    with configured({key(Client, "work", "Timeout", "value"): 500}), pytest.raises(TimeoutException):
        invoke(client.work, 1.0)

    assert client.executions == 2


@pytest.mark.tck("RetryTimeoutTest.testRetryNoTimeout")
def test_failure_in_time_is_retried_and_comes_out_unchanged(invoke: Invoke) -> None:
    """A body that fails before its deadline fails with its own exception, after the retry too."""

    class Client(Service):
        @timeout(500)
        @retry(max_retries=1)
        @invoke.body
        async def work(self, seconds: float) -> None:
            self.executions += 1
            await _sleep_then_fail(invoke, seconds)

    client = Client()
    with pytest.raises(TestException):
        invoke(client.work, 0.01)

    assert client.executions == 2


@pytest.mark.tck("RetryTimeoutTest.testRetryWithoutRetryOn")
def test_time_out_that_retry_on_does_not_name_is_final(invoke: Invoke) -> None:
    """TimeoutException is a failure like any other: retry_on decides whether it is retried."""

    class Client(Service):
        @timeout(500)
        @retry(max_retries=1, retry_on=[BulkheadException])
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            await _sleep_then_fail(invoke, 1.0)

    client = Client()
    with pytest.raises(TimeoutException):
        invoke(client.work)

    assert client.executions == 1


@pytest.mark.tck("RetryTimeoutTest.testRetryWithAbortOn")
def test_time_out_that_abort_on_names_is_final(invoke: Invoke) -> None:
    """abort_on ends the retries for a TimeoutException as for any other failure."""

    class Client(Service):
        @timeout(500)
        @retry(max_retries=1, abort_on=[TimeoutException])
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            await _sleep_then_fail(invoke, 1.0)

    client = Client()
    with pytest.raises(TimeoutException):
        invoke(client.work)

    assert client.executions == 1


async def _sleep_then_fail(invoke: Invoke, seconds: float) -> None:
    try:
        await invoke.sleep(seconds)
    except INTERRUPTION:
        return
    raise TestException
