"""Specification, sections "Disable a group of annotations on the global level" and "Disabled individual policy"."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from faulttolerance import (
    BulkheadException,
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


class TestException(Exception):  # the catalogue's name
    __test__ = False


@pytest.fixture
def watch(clock: Clock) -> Stopwatch:
    """Return a stopwatch that starts with the test."""
    return clock.stopwatch()


def disable_annotation_client() -> Any:
    class DisableAnnotationClient:
        def __init__(self) -> None:
            self.counter = 0

        @retry(max_retries=1)
        def fail_and_retry_once(self) -> None:
            self.counter += 1
            raise TestException

        @retry(max_retries=1)
        @fallback(fallback_method="fallback")
        def fail_retry_once_then_fallback(self) -> str:
            self.counter += 1
            raise TestException

        def fallback(self) -> str:
            return "OK"

        @circuit_breaker(success_threshold=2, request_volume_threshold=1, failure_ratio=1, delay=50_000)
        def fail_with_circuit_breaker(self) -> None:
            raise TestException

        @timeout(500)
        def fail_with_timeout(self) -> None:
            try:
                sleep(2)
            except Interrupted:
                return
            raise TestException

        @asynchronous
        def async_wait_then_return(self, barrier: threading.Event | None = None) -> Future[str]:
            if barrier is None:
                sleep(2)
            else:
                assert barrier.wait(30)
            return completed_future("OK")

        @bulkhead(2)
        def wait_with_bulkhead(self, begun: threading.Event, barrier: threading.Event) -> None:
            begun.set()
            assert barrier.wait(30)

    return DisableAnnotationClient()


CLIENT = f"{__name__}.disable_annotation_client.<locals>.DisableAnnotationClient"
METHODS = {
    "Retry": "fail_and_retry_once",
    "CircuitBreaker": "fail_with_circuit_breaker",
    "Timeout": "fail_with_timeout",
    "Asynchronous": "async_wait_then_return",
    "Fallback": "fail_retry_once_then_fallback",
    "Bulkhead": "wait_with_bulkhead",
}

Keys = dict[str, str]


def globally(value: str) -> Keys:
    return {f"{annotation}/enabled": value for annotation in METHODS}


def on_class(value: str) -> Keys:
    return {f"{CLIENT}/{annotation}/enabled": value for annotation in METHODS}


def on_methods(value: str) -> Keys:
    return {f"{CLIENT}/{method}/{annotation}/enabled": value for annotation, method in METHODS.items()}


ALL_BUT_FALLBACK = {"MP_Fault_Tolerance_NonFallback_Enabled": "false"}
GLOBALLY = globally("false")
GLOBALLY_ENABLED_ON_CLASS = GLOBALLY | on_class("true")
GLOBALLY_ENABLED_ON_METHODS = GLOBALLY | on_methods("true")
DISABLED_ON_METHODS_OF_ENABLED_CLASS = (
    GLOBALLY_ENABLED_ON_CLASS | on_methods("false") | {f"{CLIENT}/fail_with_timeout/Timeout/value": "500"}
)
ON_CLASS = on_class("false")
ON_CLASS_ENABLED_ON_METHODS = ON_CLASS | on_methods("true")
ON_METHODS = on_methods("false")
SWITCH_ENABLED_ON_CLASS = ALL_BUT_FALLBACK | on_class("true")
SWITCH_ENABLED_GLOBALLY = ALL_BUT_FALLBACK | globally("true")
SWITCH_ENABLED_ON_METHODS = ALL_BUT_FALLBACK | on_methods("true")


@pytest.mark.parametrize(
    ("keys", "calls"),
    [
        pytest.param(GLOBALLY, 1, marks=pytest.mark.tck("DisableAnnotationGloballyTest.testRetryDisabled")),
        pytest.param(
            GLOBALLY_ENABLED_ON_CLASS,
            2,
            marks=pytest.mark.tck("DisableAnnotationGloballyEnableOnClassTest.testRetryEnabled"),
        ),
        pytest.param(
            GLOBALLY_ENABLED_ON_METHODS,
            2,
            marks=pytest.mark.tck("DisableAnnotationGloballyEnableOnMethodTest.testRetryEnabled"),
        ),
        pytest.param(
            DISABLED_ON_METHODS_OF_ENABLED_CLASS,
            1,
            marks=pytest.mark.tck("DisableAnnotationGloballyEnableOnClassDisableOnMethod.testRetryDisabled"),
        ),
        pytest.param(ON_CLASS, 1, marks=pytest.mark.tck("DisableAnnotationOnClassTest.testRetryDisabled")),
        pytest.param(
            ON_CLASS_ENABLED_ON_METHODS,
            2,
            marks=pytest.mark.tck("DisableAnnotationOnClassEnableOnMethodTest.testRetryEnabled"),
        ),
        pytest.param(ON_METHODS, 1, marks=pytest.mark.tck("DisableAnnotationOnMethodsTest.testRetryDisabled")),
        pytest.param(SWITCH_ENABLED_ON_CLASS, 2, marks=pytest.mark.tck("DisableFTEnableOnClassTest.testRetryEnabled")),
        pytest.param(SWITCH_ENABLED_GLOBALLY, 2, marks=pytest.mark.tck("DisableFTEnableGloballyTest.testRetryEnabled")),
        pytest.param(
            SWITCH_ENABLED_ON_METHODS, 2, marks=pytest.mark.tck("DisableFTEnableOnMethodTest.testRetryEnabled")
        ),
    ],
)
def test_retry(keys: Keys, calls: int, clock: Clock) -> None:
    """One call is two attempts where retry is on."""
    with configured(keys):
        client = disable_annotation_client()
        with pytest.raises(TestException):
            client.fail_and_retry_once()

    assert client.counter == calls


@pytest.mark.parametrize(
    ("keys", "result", "calls"),
    [
        pytest.param(GLOBALLY, None, 1, marks=pytest.mark.tck("DisableAnnotationGloballyTest.testFallbackDisabled")),
        pytest.param(
            GLOBALLY_ENABLED_ON_CLASS,
            "OK",
            2,
            marks=pytest.mark.tck("DisableAnnotationGloballyEnableOnClassTest.testFallbackEnabled"),
        ),
        pytest.param(
            GLOBALLY_ENABLED_ON_METHODS,
            "OK",
            1,
            marks=pytest.mark.tck("DisableAnnotationGloballyEnableOnMethodTest.testFallbackDisabled"),
        ),
        pytest.param(
            DISABLED_ON_METHODS_OF_ENABLED_CLASS,
            None,
            2,
            marks=pytest.mark.tck("DisableAnnotationGloballyEnableOnClassDisableOnMethod.testFallbackDisabled"),
        ),
        pytest.param(ON_CLASS, None, 1, marks=pytest.mark.tck("DisableAnnotationOnClassTest.testFallbackDisabled")),
        pytest.param(
            ON_CLASS_ENABLED_ON_METHODS,
            "OK",
            1,
            marks=pytest.mark.tck("DisableAnnotationOnClassEnableOnMethodTest.testFallbackDisabled"),
        ),
        pytest.param(ON_METHODS, None, 2, marks=pytest.mark.tck("DisableAnnotationOnMethodsTest.testFallbackDisabled")),
        pytest.param(
            SWITCH_ENABLED_ON_CLASS,
            "OK",
            2,
            marks=pytest.mark.tck("DisableFTEnableOnClassTest.testFallbackEnabled"),
        ),
        pytest.param(
            SWITCH_ENABLED_GLOBALLY,
            "OK",
            2,
            marks=pytest.mark.tck("DisableFTEnableGloballyTest.testFallbackEnabled"),
        ),
    ],
)
def test_fallback(keys: Keys, result: str | None, calls: int, clock: Clock) -> None:
    """The fallback answers where it is on, after two attempts where retry is on for the same method."""
    with configured(keys):
        client = disable_annotation_client()
        if result is None:
            with pytest.raises(TestException):
                client.fail_retry_once_then_fallback()
        else:
            assert client.fail_retry_once_then_fallback() == result

    assert client.counter == calls


@pytest.mark.parametrize(
    ("keys", "second"),
    [
        pytest.param(
            GLOBALLY,
            TestException,
            marks=pytest.mark.tck("DisableAnnotationGloballyTest.testCircuitClosedThenOpen"),
        ),
        pytest.param(
            GLOBALLY_ENABLED_ON_CLASS,
            CircuitBreakerOpenException,
            marks=pytest.mark.tck("DisableAnnotationGloballyEnableOnClassTest.testCircuitBreaker"),
        ),
        pytest.param(
            GLOBALLY_ENABLED_ON_METHODS,
            CircuitBreakerOpenException,
            marks=pytest.mark.tck("DisableAnnotationGloballyEnableOnMethodTest.testCircuitBreaker"),
        ),
        pytest.param(
            DISABLED_ON_METHODS_OF_ENABLED_CLASS,
            TestException,
            marks=pytest.mark.tck("DisableAnnotationGloballyEnableOnClassDisableOnMethod.testCircuitBreaker"),
        ),
        pytest.param(
            ON_CLASS,
            TestException,
            marks=pytest.mark.tck("DisableAnnotationOnClassTest.testCircuitClosedThenOpen"),
        ),
        pytest.param(
            ON_CLASS_ENABLED_ON_METHODS,
            CircuitBreakerOpenException,
            marks=pytest.mark.tck("DisableAnnotationOnClassEnableOnMethodTest.testCircuitBreaker"),
        ),
        pytest.param(
            ON_METHODS,
            TestException,
            marks=pytest.mark.tck("DisableAnnotationOnMethodsTest.testCircuitClosedThenOpen"),
        ),
        pytest.param(
            SWITCH_ENABLED_ON_CLASS,
            CircuitBreakerOpenException,
            marks=pytest.mark.tck("DisableFTEnableOnClassTest.testCircuitBreaker"),
        ),
        pytest.param(
            SWITCH_ENABLED_GLOBALLY,
            CircuitBreakerOpenException,
            marks=pytest.mark.tck("DisableFTEnableGloballyTest.testCircuitBreaker"),
        ),
        pytest.param(
            SWITCH_ENABLED_ON_METHODS,
            CircuitBreakerOpenException,
            marks=pytest.mark.tck("DisableFTEnableOnMethodTest.testCircuitBreaker"),
        ),
    ],
)
def test_circuit_breaker(keys: Keys, second: type[Exception], clock: Clock) -> None:
    """The second call is refused where the breaker is on."""
    with configured(keys):
        client = disable_annotation_client()
        with pytest.raises(TestException):
            client.fail_with_circuit_breaker()
        with pytest.raises(second):
            client.fail_with_circuit_breaker()


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        pytest.param(GLOBALLY, TestException, marks=pytest.mark.tck("DisableAnnotationGloballyTest.testTimeout")),
        pytest.param(
            GLOBALLY_ENABLED_ON_CLASS,
            TimeoutException,
            marks=pytest.mark.tck("DisableAnnotationGloballyEnableOnClassTest.testTimeout"),
        ),
        pytest.param(
            GLOBALLY_ENABLED_ON_METHODS,
            TimeoutException,
            marks=pytest.mark.tck("DisableAnnotationGloballyEnableOnMethodTest.testTimeout"),
        ),
        pytest.param(
            DISABLED_ON_METHODS_OF_ENABLED_CLASS,
            TestException,
            marks=pytest.mark.tck("DisableAnnotationGloballyEnableOnClassDisableOnMethod.testTimeout"),
        ),
        pytest.param(ON_CLASS, TestException, marks=pytest.mark.tck("DisableAnnotationOnClassTest.testTimeout")),
        pytest.param(
            ON_CLASS_ENABLED_ON_METHODS,
            TimeoutException,
            marks=pytest.mark.tck("DisableAnnotationOnClassEnableOnMethodTest.testTimeout"),
        ),
        pytest.param(ON_METHODS, TestException, marks=pytest.mark.tck("DisableAnnotationOnMethodsTest.testTimeout")),
        pytest.param(
            SWITCH_ENABLED_ON_CLASS, TimeoutException, marks=pytest.mark.tck("DisableFTEnableOnClassTest.testTimeout")
        ),
        pytest.param(
            SWITCH_ENABLED_GLOBALLY, TimeoutException, marks=pytest.mark.tck("DisableFTEnableGloballyTest.testTimeout")
        ),
        pytest.param(
            SWITCH_ENABLED_ON_METHODS,
            TimeoutException,
            marks=pytest.mark.tck("DisableFTEnableOnMethodTest.testTimeout"),
        ),
    ],
)
def test_timeout(keys: Keys, error: type[Exception], clock: Clock, watch: Stopwatch) -> None:
    """The body runs for two seconds where the time-out is off."""
    with configured(keys), pytest.raises(error):
        disable_annotation_client().fail_with_timeout()

    assert watch.elapsed == pytest.approx(0.5 if error is TimeoutException else 2, abs=clock.within(0.01))


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(GLOBALLY, marks=pytest.mark.tck("DisableAnnotationGloballyTest.testAsync")),
        pytest.param(
            DISABLED_ON_METHODS_OF_ENABLED_CLASS,
            marks=pytest.mark.tck("DisableAnnotationGloballyEnableOnClassDisableOnMethod.testAsync"),
        ),
        pytest.param(ON_CLASS, marks=pytest.mark.tck("DisableAnnotationOnClassTest.testAsync")),
        pytest.param(ON_METHODS, marks=pytest.mark.tck("DisableAnnotationOnMethodsTest.testAsync")),
    ],
)
def test_disabled_asynchronous_runs_in_the_callers_thread(keys: Keys, watch: Stopwatch) -> None:
    """The call takes as long as the body, and returns the body's own future."""
    with configured(keys):
        future = disable_annotation_client().async_wait_then_return()

    assert future.done()
    assert watch.elapsed >= 2
    assert future.result() == "OK"


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(
            GLOBALLY_ENABLED_ON_CLASS,
            marks=pytest.mark.tck("DisableAnnotationGloballyEnableOnClassTest.testAsync"),
        ),
        pytest.param(
            GLOBALLY_ENABLED_ON_METHODS,
            marks=pytest.mark.tck("DisableAnnotationGloballyEnableOnMethodTest.testAsync"),
        ),
        pytest.param(
            ON_CLASS_ENABLED_ON_METHODS,
            marks=pytest.mark.tck("DisableAnnotationOnClassEnableOnMethodTest.testAsync"),
        ),
        pytest.param(SWITCH_ENABLED_ON_CLASS, marks=pytest.mark.tck("DisableFTEnableOnClassTest.testAsync")),
        pytest.param(SWITCH_ENABLED_GLOBALLY, marks=pytest.mark.tck("DisableFTEnableGloballyTest.testAsync")),
        pytest.param(SWITCH_ENABLED_ON_METHODS, marks=pytest.mark.tck("DisableFTEnableOnMethodTest.testAsync")),
    ],
)
def test_enabled_asynchronous_returns_at_once(keys: Keys) -> None:
    """The future is not done while the body waits."""
    barrier = threading.Event()
    with configured(keys):
        future = disable_annotation_client().async_wait_then_return(barrier)
        done_at_once = future.done()
        barrier.set()
        result = future.result(3)

    assert not done_at_once
    assert result == "OK"


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        pytest.param(GLOBALLY, None, marks=pytest.mark.tck("DisableAnnotationGloballyTest.testBulkhead")),
        pytest.param(
            GLOBALLY_ENABLED_ON_CLASS,
            BulkheadException,
            marks=pytest.mark.tck("DisableAnnotationGloballyEnableOnClassTest.testBulkhead"),
        ),
        pytest.param(
            GLOBALLY_ENABLED_ON_METHODS,
            BulkheadException,
            marks=pytest.mark.tck("DisableAnnotationGloballyEnableOnMethodTest.testBulkhead"),
        ),
        pytest.param(
            DISABLED_ON_METHODS_OF_ENABLED_CLASS,
            None,
            marks=pytest.mark.tck("DisableAnnotationGloballyEnableOnClassDisableOnMethod.testBulkhead"),
        ),
        pytest.param(ON_CLASS, None, marks=pytest.mark.tck("DisableAnnotationOnClassTest.testBulkhead")),
        pytest.param(
            ON_CLASS_ENABLED_ON_METHODS,
            BulkheadException,
            marks=pytest.mark.tck("DisableAnnotationOnClassEnableOnMethodTest.testBulkhead"),
        ),
        pytest.param(ON_METHODS, None, marks=pytest.mark.tck("DisableAnnotationOnMethodsTest.testBulkhead")),
        pytest.param(
            SWITCH_ENABLED_ON_CLASS,
            BulkheadException,
            marks=pytest.mark.tck("DisableFTEnableOnClassTest.testBulkhead"),
        ),
        pytest.param(
            SWITCH_ENABLED_GLOBALLY,
            BulkheadException,
            marks=pytest.mark.tck("DisableFTEnableGloballyTest.testBulkhead"),
        ),
        pytest.param(
            SWITCH_ENABLED_ON_METHODS,
            BulkheadException,
            marks=pytest.mark.tck("DisableFTEnableOnMethodTest.testBulkhead"),
        ),
    ],
)
def test_bulkhead(keys: Keys, error: type[Exception] | None) -> None:
    """A third call is refused where the bulkhead is on, and returns where it is off."""
    begun = [threading.Event() for _ in range(3)]
    barrier, opened = threading.Event(), threading.Event()
    opened.set()
    with configured(keys), ThreadPoolExecutor(3) as threads:
        client = disable_annotation_client()
        try:
            inside = [threads.submit(client.wait_with_bulkhead, event, barrier) for event in begun[:2]]
            both_begun = [event.wait(3) for event in begun[:2]]
            third = threads.submit(client.wait_with_bulkhead, begun[2], opened).exception(3)
            others_done = [future.done() for future in inside]
        finally:
            barrier.set()

    assert both_begun == [True, True]
    assert others_done == [False, False]
    assert type(third) is (error or type(None))


class StringFallbackHandler:
    def handle(self, context: ExecutionContext) -> str:
        return f"fallback for {context.method.__name__}"


def disable_client() -> Any:
    class DisableClient:
        def __init__(self) -> None:
            self.counter = 0

        @retry(max_retries=1)
        def service_a(self) -> None:
            self.counter += 1
            sleep(0.1)
            raise TestException

        @retry(max_retries=1)
        @fallback(StringFallbackHandler)
        def service_b(self) -> str:
            self.counter += 1
            raise TestException

        @circuit_breaker(success_threshold=2, request_volume_threshold=4, failure_ratio=0.75, delay=50_000)
        def service_c(self) -> None:
            self.counter += 1
            raise TestException

        @timeout()
        def service_d(self, milliseconds: int) -> None:
            try:
                sleep(milliseconds / 1000)
            except Interrupted:
                return
            raise TestException

    return DisableClient()


@pytest.mark.tck("DisableTest.testRetryDisabled")
def test_the_switch_disables_retry(clock: Clock) -> None:
    """`MP_Fault_Tolerance_NonFallback_Enabled=false`."""
    with configured(ALL_BUT_FALLBACK):
        client = disable_client()
        with pytest.raises(TestException):
            client.service_a()

    assert client.counter == 1


@pytest.mark.tck("DisableTest.testFallbackSuccess")
def test_the_switch_leaves_fallback_alone(clock: Clock) -> None:
    """Fallback logic "can only be defined by microservices"."""
    with configured(ALL_BUT_FALLBACK):
        client = disable_client()
        result = client.service_b()

    assert "service_b" in result
    assert client.counter == 1


@pytest.mark.tck("DisableTest.testCircuitClosedThenOpen")
def test_the_switch_disables_circuit_breakers(clock: Clock) -> None:
    """Every call goes through."""
    with configured(ALL_BUT_FALLBACK):
        client = disable_client()
        for _ in range(7):
            with pytest.raises(TestException):
                client.service_c()

    assert client.counter == 7


@pytest.mark.tck("DisableTest.testTimeout")
def test_the_switch_disables_timeouts(watch: Stopwatch) -> None:
    """The body runs to its end."""
    with configured(ALL_BUT_FALLBACK), pytest.raises(TestException):
        disable_client().service_d(3000)

    assert watch.elapsed >= 3
