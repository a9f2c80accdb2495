"""Specification, chapter "Fault Tolerance configuration": parameters that are set from outside."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import pytest

from faulttolerance import (
    BulkheadException,
    ChronoUnit,
    CircuitBreakerOpenException,
    ExecutionContext,
    Interrupted,
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
from kit import Clock, Stopwatch


class TestException(RuntimeError):  # the catalogue's name
    __test__ = False


class TestConfigExceptionA(RuntimeError):
    __test__ = False


class TestConfigExceptionB(RuntimeError):
    __test__ = False


class TestConfigExceptionB1(TestConfigExceptionB):
    __test__ = False


class FallbackHandlerA:
    def handle(self, context: ExecutionContext) -> str:
        return type(self).__name__


class FallbackHandlerB(FallbackHandlerA):
    pass


A, B = f"{__name__}.TestConfigExceptionA", f"{__name__}.TestConfigExceptionB"


@pytest.fixture
def watch(clock: Clock) -> Stopwatch:
    """Return a stopwatch that starts with the test."""
    return clock.stopwatch()


def name(cls: type) -> str:
    """Return the <class> of configuration keys."""
    return f"{cls.__module__}.{cls.__qualname__}"


def outcome(call: Callable[[], object]) -> object:
    """Return the result of the call, or the class of its exception."""
    try:
        return call()
    except Exception as error:
        return type(error)


# Timeouts


class TimeoutClient:
    @timeout()
    def service_a(self, milliseconds: int) -> None:
        try:
            sleep(milliseconds / 1000)
        except Interrupted:
            return
        raise TestException("Test Exception")


@pytest.mark.tck("TimeoutGlobalConfigTest.testTimeout")
def test_a_global_key_shortens_a_timeout(clock: Clock) -> None:
    """`<annotation>/<parameter>` overrides the parameter of every occurrence."""
    with configured({"Timeout/value": 200}), pytest.raises(TimeoutException):
        TimeoutClient().service_a(500)


@pytest.mark.tck("TimeoutMethodConfigTest.testTimeout")
def test_a_method_key_shortens_a_timeout(clock: Clock) -> None:
    """`<classname>/<methodname>/<annotation>/<parameter>` overrides one occurrence."""
    key = f"{name(TimeoutClient)}/service_a/Timeout/value"

    with configured({key: 200}), pytest.raises(TimeoutException):
        TimeoutClient().service_a(500)


class TimeoutConfigClient:
    @timeout(1, unit=ChronoUnit.MILLIS)
    def service_value(self) -> None:
        sleep(60)

    @timeout(1000, unit=ChronoUnit.MICROS)
    def service_unit(self) -> None:
        sleep(60)

    @asynchronous
    @timeout(10, unit=ChronoUnit.MICROS)
    async def service_both(self) -> None:
        await asyncio.sleep(60)


@pytest.mark.tck("TimeoutConfigTest.testConfigValue")
def test_value_of_timeout_is_configured(clock: Clock, watch: Stopwatch) -> None:
    """It counts in the declared unit."""
    with (
        configured({f"{name(TimeoutConfigClient)}/service_value/Timeout/value": 1000}),
        pytest.raises(TimeoutException),
    ):
        TimeoutConfigClient().service_value()

    assert 0.8 < watch.elapsed < clock.within(2)


@pytest.mark.tck("TimeoutConfigTest.testConfigUnit")
def test_unit_of_timeout_is_configured(clock: Clock, watch: Stopwatch) -> None:
    """A unit is a parameter like others."""
    key = f"{name(TimeoutConfigClient)}/service_unit/Timeout"

    with configured({f"{key}/unit": "MILLIS", f"{key}/value": 1000}), pytest.raises(TimeoutException):
        TimeoutConfigClient().service_unit()

    assert 0.8 < watch.elapsed < clock.within(2)


@pytest.mark.tck("TimeoutConfigTest.testConfigBoth")
def test_value_and_unit_of_an_asynchronous_timeout_are_configured(clock: Clock, watch: Stopwatch) -> None:
    """The result fails when the configured time is over."""
    key = f"{name(TimeoutConfigClient)}/service_both/Timeout"

    async def call() -> None:
        await TimeoutConfigClient().service_both()

    with configured({f"{key}/unit": "MILLIS", f"{key}/value": 1000}), pytest.raises(TimeoutException):
        clock.run(call())

    assert 0.8 < watch.elapsed < clock.within(2)


# Circuit breakers


def breaker_client() -> Any:
    class CircuitClient:
        def __init__(self) -> None:
            self.counter = 0

        @circuit_breaker(success_threshold=1, request_volume_threshold=4, failure_ratio=0.75, delay=1000)
        def service_a(self, successes: set[int]) -> None:
            self.counter += 1
            if self.counter not in successes:
                raise TestException("Test Exception")

    return CircuitClient()


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(
            "CircuitBreaker/delay",
            marks=pytest.mark.tck("CircuitBreakerConfigGlobalTest.testCircuitDefaultSuccessThreshold"),
        ),
        pytest.param(
            f"{__name__}.breaker_client.<locals>.CircuitClient/service_a/CircuitBreaker/delay",
            marks=pytest.mark.tck("CircuitBreakerConfigOnMethodTest.testCircuitDefaultSuccessThreshold"),
        ),
    ],
)
def test_the_delay_of_a_circuit_breaker_is_configured(key: str, clock: Clock) -> None:
    """The circuit is half-open after 200 ms, where the decorator says 1000."""
    with configured({key: 200}):
        client = breaker_client()
        outcomes = []
        for number in range(1, 12):
            outcomes.append(outcome(lambda: client.service_a({5})))
            if number == 5:
                clock.work(0.5)

    refused = CircuitBreakerOpenException
    assert outcomes == [*[TestException] * 4, refused, None, *[TestException] * 4, refused]
    assert client.counter == 9


def circuit_breaker_config_client() -> Any:
    class CircuitBreakerConfigClient:
        @circuit_breaker(request_volume_threshold=2, fail_on=[TestConfigExceptionB])
        def fail_on_method(self) -> None:
            raise TestConfigExceptionA

        @circuit_breaker(request_volume_threshold=2)
        def skip_on_method(self) -> None:
            raise TestConfigExceptionA

        @circuit_breaker(request_volume_threshold=2, delay=20, delay_unit=ChronoUnit.MICROS)
        def delay_method(self, fail: bool) -> None:
            if fail:
                raise TestConfigExceptionA

        @circuit_breaker(request_volume_threshold=2)
        def request_volume_threshold_method(self) -> None:
            raise TestConfigExceptionA

        @circuit_breaker(request_volume_threshold=10, failure_ratio=1.0)
        def failure_ratio_method(self, fail: bool) -> None:
            if fail:
                raise TestConfigExceptionA

        @circuit_breaker(request_volume_threshold=10, success_threshold=4, delay=1000)
        def success_threshold_method(self, fail: bool) -> None:
            if fail:
                raise TestConfigExceptionA

    return CircuitBreakerConfigClient()


BREAKER = f"{__name__}.circuit_breaker_config_client.<locals>.CircuitBreakerConfigClient"


@pytest.mark.tck("CircuitBreakerConfigTest.testConfigureFailOn")
def test_fail_on_is_configured() -> None:
    """It is set by the name of a class, and replaces that of the decorator."""
    with configured({f"{BREAKER}/fail_on_method/CircuitBreaker/failOn": A}):
        client = circuit_breaker_config_client()
        outcomes = [outcome(client.fail_on_method) for _ in range(3)]

    assert outcomes == [TestConfigExceptionA, TestConfigExceptionA, CircuitBreakerOpenException]


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(
            f"{BREAKER}/skip_on_method/CircuitBreaker/skipOn",
            marks=pytest.mark.tck("CircuitBreakerConfigTest.testConfigureSkipOn"),
        ),
        pytest.param(
            "CircuitBreaker/skipOn", marks=pytest.mark.tck("CircuitBreakerSkipOnConfigTest.testConfigureSkipOn")
        ),
    ],
)
def test_skip_on_is_configured(key: str) -> None:
    """It is set for one method or for all."""
    with configured({key: A}):
        client = circuit_breaker_config_client()
        outcomes = [outcome(client.skip_on_method) for _ in range(3)]

    assert outcomes == [TestConfigExceptionA] * 3


@pytest.mark.tck("CircuitBreakerConfigTest.testConfigureDelay")
def test_delay_and_its_unit_are_configured(clock: Clock, watch: Stopwatch) -> None:
    """The circuit stays open for a second, where the decorator says 20 microseconds."""
    key = f"{BREAKER}/delay_method/CircuitBreaker"
    with configured({f"{key}/delay": 1000, f"{key}/delayUnit": "MILLIS"}):
        client = circuit_breaker_config_client()
        outcomes = [outcome(lambda: client.delay_method(True)) for _ in range(2)]
        outcomes.append(outcome(lambda: client.delay_method(False)))
        began = watch.elapsed
        while outcome(lambda: client.delay_method(False)) is CircuitBreakerOpenException:
            clock.work(0.1)

    assert outcomes == [TestConfigExceptionA, TestConfigExceptionA, CircuitBreakerOpenException]
    assert 0.8 < watch.elapsed - began < clock.within(2)


@pytest.mark.tck("CircuitBreakerConfigTest.testConfigureRequestVolumeThreshold")
def test_request_volume_threshold_is_configured() -> None:
    """The window is longer than declared."""
    key = f"{BREAKER}/request_volume_threshold_method/CircuitBreaker/requestVolumeThreshold"
    with configured({key: 4}):
        client = circuit_breaker_config_client()
        outcomes = [outcome(client.request_volume_threshold_method) for _ in range(5)]

    assert outcomes == [*[TestConfigExceptionA] * 4, CircuitBreakerOpenException]


@pytest.mark.tck("CircuitBreakerConfigTest.testConfigureFailureRatio")
def test_failure_ratio_is_configured() -> None:
    """Eight failures of ten are exactly 0.8."""
    calls = [True, True, False, True, True, True, False, True, True, True, False]
    with configured({f"{BREAKER}/failure_ratio_method/CircuitBreaker/failureRatio": "0.8"}):
        client = circuit_breaker_config_client()
        outcomes = [outcome(lambda fail=fail: client.failure_ratio_method(fail)) for fail in calls]  # type: ignore[misc]

    expected = [TestConfigExceptionA if fail else None for fail in calls[:10]]
    assert outcomes == [*expected, CircuitBreakerOpenException]


@pytest.mark.tck("CircuitBreakerConfigTest.testConfigureSuccessThreshold")
def test_success_threshold_is_configured(clock: Clock) -> None:
    """Two successful probes close the circuit, where the decorator asks for four."""
    key = f"{BREAKER}/success_threshold_method/CircuitBreaker"
    with configured({f"{key}/successThreshold": 2, f"{key}/delay": 1000}):
        client = circuit_breaker_config_client()

        def call(fail: bool, times: int = 1) -> list[object]:
            return [outcome(lambda: client.success_threshold_method(fail)) for _ in range(times)]

        def poll() -> None:
            while call(False) == [CircuitBreakerOpenException]:
                clock.work(0.1)

        opened = call(True, 10) + call(False)
        poll()
        closed = call(False)
        opened_again = call(True, 10) + call(False)
        poll()
        reopened = call(True) + call(False)

    failed, refused = TestConfigExceptionA, CircuitBreakerOpenException
    assert opened == [*[failed] * 10, refused]
    assert closed == [None]
    assert opened_again == [*[failed] * 10, refused]
    assert reopened == [failed, refused]


# Bulkheads


class Barriers:
    """Calls on threads of their own, each of which begins and then waits for its barrier."""

    def __init__(self, method: Callable[[threading.Event, threading.Event], object]) -> None:
        self._method = method
        self._threads = ThreadPoolExecutor(20)
        self._opened: list[threading.Event] = []

    def start(self) -> tuple[threading.Event, threading.Event, Future[object]]:
        begun, barrier = threading.Event(), threading.Event()
        self._opened.append(barrier)
        return begun, barrier, self._threads.submit(self._method, begun, barrier)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for barrier in self._opened:
            barrier.set()
        self._threads.shutdown()


@pytest.mark.tck("BulkheadSynchConfigTest.testBulkheadClassSemaphore3")
def test_a_global_key_reaches_a_bulkhead_on_a_class() -> None:
    """Five calls are admitted, where the decorator says three."""

    @bulkhead(3)
    class BulkheadClassSemaphore:
        def test(self, begun: threading.Event, barrier: threading.Event) -> None:
            begun.set()
            assert barrier.wait(30)

    with configured({"Bulkhead/value": 5}), Barriers(BulkheadClassSemaphore().test) as calls:
        running = [calls.start() for _ in range(5)]
        first_five = [begun.wait(3) for begun, _, _ in running]
        extra = calls.start()[2].exception(3)
        running[2][1].set()
        released = running[2][2].result(3)
        next_begun = calls.start()[0].wait(3)
        last = calls.start()[2].exception(3)

    assert first_five == [True] * 5
    assert isinstance(extra, BulkheadException)
    assert released is None
    assert next_begun
    assert isinstance(last, BulkheadException)


@pytest.mark.tck("BulkheadConfigTest.testConfigValue")
def test_value_of_a_bulkhead_is_configured() -> None:
    """One call is admitted, where the decorator says five."""

    class BulkheadConfigBean:
        @bulkhead(5)
        def service_value(self, begun: threading.Event, barrier: threading.Event) -> None:
            begun.set()
            assert barrier.wait(30)

    with (
        configured({f"{name(BulkheadConfigBean)}/service_value/Bulkhead/value": 1}),
        Barriers(BulkheadConfigBean().service_value) as calls,
    ):
        first = calls.start()[0].wait(3)
        second = calls.start()[2].exception(3)

    assert first
    assert isinstance(second, BulkheadException)


@pytest.mark.tck("BulkheadConfigTest.testWaitingTaskQueue")
def test_waiting_task_queue_is_configured() -> None:
    """One call waits and the next is refused, where the decorator lets five wait."""

    class BulkheadConfigBean:
        @asynchronous
        @bulkhead(1, waiting_task_queue=5)
        def service_waiting_task_queue(self, begun: threading.Event, barrier: threading.Event) -> Future[None]:
            begun.set()
            assert barrier.wait(30)
            return completed_future(None)

    events = [(threading.Event(), threading.Event()) for _ in range(3)]
    with configured({f"{name(BulkheadConfigBean)}/service_waiting_task_queue/Bulkhead/waitingTaskQueue": 1}):
        bean = BulkheadConfigBean()
        futures = [bean.service_waiting_task_queue(*events[0])]
        first = events[0][0].wait(3)
        futures += [bean.service_waiting_task_queue(*events[1]), bean.service_waiting_task_queue(*events[2])]
        third = futures[2].exception(3)
        second_began_early = events[1][0].is_set()
        for _, barrier in events:
            barrier.set()
        second = futures[1].result(3)

    assert first
    assert isinstance(third, BulkheadException)
    assert not second_began_early
    assert second is None


# Levels of keys, on retries


def config_client() -> Any:
    class ConfigClient:
        def __init__(self) -> None:
            self.counter = 0

        @retry(max_retries=5)
        def service_a(self) -> None:
            self.counter += 1
            raise TestException("Test Exception")

        @retry(max_retries=90, max_duration=3000)
        def service_c(self) -> None:
            self.counter += 1
            sleep(0.1)
            raise TestException("Test Exception")

    return ConfigClient()


CLIENT = f"{__name__}.config_client.<locals>.ConfigClient"


@pytest.mark.tck("ConfigTest.testConfigMaxRetries")
def test_a_method_key_lowers_max_retries(clock: Clock) -> None:
    """Three retries are made, where the decorator says five."""
    with configured({f"{CLIENT}/service_a/Retry/maxRetries": 3}):
        client = config_client()
        failed = outcome(client.service_a)

    assert (failed, client.counter) == (TestException, 4)


@pytest.mark.tck("ConfigTest.testConfigMaxDuration")
def test_a_method_key_lowers_max_duration(clock: Clock) -> None:
    """A second holds ten attempts of 100 ms."""
    with configured({f"{CLIENT}/service_c/Retry/maxDuration": 1000}):
        client = config_client()
        failed = outcome(client.service_c)

    assert failed is TestException
    assert client.counter <= 11


def class_level_client(**parameters: Any) -> Any:
    @retry(**parameters)
    class ConfigClassLevelClient:
        def __init__(self) -> None:
            self.counter = 0

        def service(self) -> None:
            self.counter += 1
            sleep(0.1)
            raise TestException("Test Exception")

        @retry(max_retries=1)
        def service_with_its_own(self) -> None:
            self.counter += 1
            sleep(0.1)
            raise TestException("Test Exception")

    return ConfigClassLevelClient()


CLASS_LEVEL_CLIENT = f"{__name__}.class_level_client.<locals>.ConfigClassLevelClient"


@pytest.mark.tck("ConfigTest.testClassLevelConfigMaxRetries")
def test_a_class_key_reaches_a_decorator_on_the_class(clock: Clock) -> None:
    """`<classname>/<annotation>/<parameter>`, for every method that the class covers."""
    with configured({f"{CLASS_LEVEL_CLIENT}/Retry/maxRetries": 3}):
        client = class_level_client(max_retries=5)
        failed = outcome(client.service)

    assert (failed, client.counter) == (TestException, 4)


@pytest.mark.tck("ConfigTest.testClassLevelConfigMaxDuration")
def test_a_class_key_lowers_max_duration(clock: Clock) -> None:
    """A second holds ten attempts of 100 ms."""
    with configured({f"{CLASS_LEVEL_CLIENT}/Retry/maxDuration": 1000}):
        client = class_level_client(max_retries=90, max_duration=3000)
        failed = outcome(client.service)

    assert failed is TestException
    assert client.counter <= 11


@pytest.mark.tck("ConfigTest.testClassLevelConfigMethodOverrideMaxRetries")
def test_a_class_key_does_not_reach_a_decorator_on_a_method(clock: Clock) -> None:
    """The method's own decorator is in force, and the key is for the class's."""
    with configured({f"{CLASS_LEVEL_CLIENT}/Retry/maxRetries": 3}):
        client = class_level_client(max_retries=5)
        failed = outcome(client.service_with_its_own)

    assert (failed, client.counter) == (TestException, 2)


def priority_client() -> Any:
    @retry
    class ConfigPropertyBean:
        def __init__(self) -> None:
            self.counter = 0

        @retry
        def trigger_exception(self) -> None:
            self.counter += 1
            raise RuntimeError("illegal state")

    return ConfigPropertyBean()


BEAN = f"{__name__}.priority_client.<locals>.ConfigPropertyBean"


@pytest.mark.parametrize(
    ("keys", "calls"),
    [
        pytest.param(
            {f"{BEAN}/Retry/maxRetries": 5, "Retry/maxRetries": 7},
            8,
            marks=pytest.mark.tck("ConfigPropertyGlobalVsClassTest.propertyPriorityTest"),
            id="class and global",
        ),
        pytest.param(
            {f"{BEAN}/Retry/maxRetries": 5, f"{BEAN}/trigger_exception/Retry/maxRetries": 6, "Retry/maxRetries": 7},
            7,
            marks=pytest.mark.tck("ConfigPropertyGlobalVsClassVsMethodTest.propertyPriorityTest"),
            id="method, class and global",
        ),
        pytest.param(
            {f"{BEAN}/Retry/maxRetries": 5, f"{BEAN}/trigger_exception/Retry/maxRetries": 6},
            7,
            marks=pytest.mark.tck("ConfigPropertyOnClassAndMethodTest.propertyPriorityTest"),
            id="method and class",
        ),
    ],
)
def test_the_key_of_the_declaration_s_own_level_wins_before_the_global_one(
    keys: dict[str, int], calls: int, clock: Clock
) -> None:
    """The decorator in force stands on the method: its key first, then the global one, never the class's."""
    with configured(keys):
        client = priority_client()
        failed = outcome(client.trigger_exception)

    assert (failed, client.counter) == (RuntimeError, calls)


# Parameters of retries


def retry_config_bean() -> Any:
    class RetryConfigBean:
        def __init__(self, clock: Clock | None = None) -> None:
            self.counter = 0
            self.clock = clock
            self.began: float | None = None

        @retry(delay=0, jitter=0)
        def service_max_retries(self) -> None:
            self.counter += 1
            raise TestException("Test Exception")

        @retry(max_duration=10_000, duration_unit=ChronoUnit.MILLIS, max_retries=10_000, delay=200, jitter=0)
        def service_max_duration(self) -> None:
            raise TestException("Test Exception")

        @retry(max_retries=5, delay=2, delay_unit=ChronoUnit.SECONDS, jitter=0)
        def service_delay(self) -> None:
            raise TestException("Test Exception")

        @retry(max_retries=1, delay=0, jitter=0)
        def service_retry_on(self, error: Exception) -> None:
            self.counter += 1
            raise error

        @retry(
            retry_on=[TestConfigExceptionA, TestConfigExceptionB],
            abort_on=[RuntimeError],
            max_retries=1,
            delay=0,
            jitter=0,
        )
        def service_abort_on(self, error: Exception) -> None:
            self.counter += 1
            raise error

        @retry(
            abort_on=[TestConfigExceptionA],
            delay=0,
            jitter=0,
            max_retries=1000,
            max_duration=10,
            duration_unit=ChronoUnit.SECONDS,
        )
        def service_jitter(self) -> None:
            assert self.clock is not None
            last, self.began = self.began, self.clock.monotonic()
            if last is not None and self.began - last > 0.1:
                raise TestConfigExceptionA
            raise TestException("Test Exception")

    return RetryConfigBean


RETRY = f"{__name__}.retry_config_bean.<locals>.RetryConfigBean"


@pytest.mark.tck("RetryConfigTest.testConfigMaxRetries")
def test_max_retries_is_configured() -> None:
    """Ten retries, where the default is three."""
    with configured({f"{RETRY}/service_max_retries/Retry/maxRetries": 10}):
        bean = retry_config_bean()()
        failed = outcome(bean.service_max_retries)

    assert (failed, bean.counter) == (TestException, 11)


@pytest.mark.tck("RetryConfigTest.testConfigMaxDuration")
def test_max_duration_and_its_unit_are_configured(clock: Clock, watch: Stopwatch) -> None:
    """The retries last one second, where the decorator says ten."""
    key = f"{RETRY}/service_max_duration/Retry"
    with configured({f"{key}/maxDuration": 1, f"{key}/durationUnit": "SECONDS"}):
        failed = outcome(retry_config_bean()().service_max_duration)

    assert failed is TestException
    assert watch.elapsed < clock.within(8)


@pytest.mark.tck("RetryConfigTest.testConfigDelay")
def test_the_delay_of_a_retry_and_its_unit_are_configured(clock: Clock, watch: Stopwatch) -> None:
    """The delay is 2000 microseconds, where the decorator says two seconds."""
    key = f"{RETRY}/service_delay/Retry"
    with configured({f"{key}/delay": 2000, f"{key}/delayUnit": "MICROS"}):
        failed = outcome(retry_config_bean()().service_delay)

    assert failed is TestException
    assert watch.elapsed < clock.within(8)


@pytest.mark.tck("RetryConfigTest.testConfigRetryOn")
def test_retry_on_is_configured() -> None:
    """It is set by names, separated by commas; subclasses count."""
    cases = {TestException: 1, TestConfigExceptionA: 2, TestConfigExceptionB: 2, TestConfigExceptionB1: 2}
    with configured({f"{RETRY}/service_retry_on/Retry/retryOn": f"{A},{B}"}):
        found = {}
        for error in cases:
            bean = retry_config_bean()()
            assert outcome(lambda bean=bean, error=error: bean.service_retry_on(error())) is error  # type: ignore[misc]
            found[error] = bean.counter

    assert found == cases


@pytest.mark.tck("RetryConfigTest.testConfigAbortOn")
def test_abort_on_is_configured() -> None:
    """It replaces that of the decorator."""
    cases = {TestException: 1, TestConfigExceptionA: 1, TestConfigExceptionB: 2, TestConfigExceptionB1: 1}
    with configured({f"{RETRY}/service_abort_on/Retry/abortOn": f"{A},{B}1"}):
        found = {}
        for error in cases:
            bean = retry_config_bean()()
            assert outcome(lambda bean=bean, error=error: bean.service_abort_on(error())) is error  # type: ignore[misc]
            found[error] = bean.counter

    assert found == cases


@pytest.mark.tck("RetryConfigTest.testConfigJitter")
def test_jitter_and_its_unit_are_configured(clock: Clock) -> None:
    """Some delay is longer than 100 ms, where the decorator has none."""
    key = f"{RETRY}/service_jitter/Retry"
    with (
        configured({f"{key}/jitter": 1, f"{key}/jitterDelayUnit": "SECONDS"}),
        pytest.raises(TestConfigExceptionA),
    ):
        retry_config_bean()(clock).service_jitter()


# Fallbacks


def fallback_config_bean() -> Any:
    class FallbackConfigBean:
        @fallback(fallback_method="the_fallback", apply_on=[TestConfigExceptionB])
        def apply_on_method(self) -> str:
            raise TestConfigExceptionA

        @fallback(fallback_method="the_fallback")
        def skip_on_method(self) -> str:
            raise TestConfigExceptionA

        @fallback(fallback_method="the_fallback")
        def fallback_method_config(self) -> str:
            raise ValueError("illegal argument")

        @fallback(FallbackHandlerA)
        def fallback_handler_config(self) -> str:
            raise ValueError("illegal argument")

        def the_fallback(self) -> str:
            return "FALLBACK"

        def another_fallback(self) -> str:
            return "ANOTHER FALLBACK"

    return FallbackConfigBean()


FALLBACK = f"{__name__}.fallback_config_bean.<locals>.FallbackConfigBean"


@pytest.mark.parametrize(
    "key",
    [
        pytest.param("Fallback/applyOn", marks=pytest.mark.tck("FallbackApplyOnConfigTest.testApplyOn")),
        pytest.param(
            f"{FALLBACK}/apply_on_method/Fallback/applyOn", marks=pytest.mark.tck("FallbackConfigTest.testApplyOn")
        ),
    ],
)
def test_apply_on_is_configured(key: str) -> None:
    """It is set for all methods or for one."""
    with configured({key: A}):
        assert fallback_config_bean().apply_on_method() == "FALLBACK"


@pytest.mark.parametrize(
    "key",
    [
        pytest.param("Fallback/skipOn", marks=pytest.mark.tck("FallbackSkipOnConfigTest.testSkipOn")),
        pytest.param(
            f"{FALLBACK}/skip_on_method/Fallback/skipOn", marks=pytest.mark.tck("FallbackConfigTest.testSkipOn")
        ),
    ],
)
def test_skip_on_of_a_fallback_is_configured(key: str) -> None:
    """It is set for all methods or for one."""
    with configured({key: A}), pytest.raises(TestConfigExceptionA):
        fallback_config_bean().skip_on_method()


@pytest.mark.tck("FallbackConfigTest.testFallbackMethod")
def test_fallback_method_is_configured() -> None:
    """It is set by its name."""
    with configured({f"{FALLBACK}/fallback_method_config/Fallback/fallbackMethod": "another_fallback"}):
        assert fallback_config_bean().fallback_method_config() == "ANOTHER FALLBACK"


@pytest.mark.tck("FallbackConfigTest.testFallbackHandler")
def test_fallback_handler_is_configured() -> None:
    """It is set by the name of its class."""
    with configured({f"{FALLBACK}/fallback_handler_config/Fallback/value": f"{__name__}.FallbackHandlerB"}):
        assert fallback_config_bean().fallback_handler_config() == "FallbackHandlerB"
