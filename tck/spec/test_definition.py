"""Specification, "Definition errors": a wrong declaration is refused when it is made, and nothing is ever called."""

from __future__ import annotations

import math
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future as ExecutorFuture
from datetime import timedelta
from typing import Any

import pytest

from faulttolerance import (
    ChronoUnit,
    ExecutionContext,
    FallbackHandler,
    FaultToleranceDefinitionException,
    FaultToleranceException,
    Future,
    asynchronous,
    bulkhead,
    circuit_breaker,
    completed_future,
    exponential_backoff,
    fallback,
    fibonacci_backoff,
    rate_limit,
    retry,
    timeout,
    unguarded,
)
from faulttolerance.policies import Bulkhead, CircuitBreaker, Fallback, Retry, Timeout
from kit.definition import refused

# Parameters out of range


@pytest.mark.parametrize(
    ("policy", "given", "words"),
    [
        pytest.param(
            bulkhead, {"value": -1}, "@Bulkhead(value) is -1", marks=pytest.mark.tck("InvalidBulkheadValueTest.test")
        ),
        pytest.param(
            circuit_breaker,
            {"failure_ratio": -1},
            "@CircuitBreaker(failure_ratio) is -1; allowed: a number from 0.0 to 1.0",
            marks=pytest.mark.tck("InvalidCircuitBreakerDelayTest.test"),
        ),
        pytest.param(
            circuit_breaker,
            {"delay": -1},
            "@CircuitBreaker(delay) is -1",
            marks=pytest.mark.tck("InvalidCircuitBreakerDelayTest.test"),
        ),
        pytest.param(
            circuit_breaker,
            {"failure_ratio": -0.1},
            "@CircuitBreaker(failure_ratio) is -0.1",
            marks=pytest.mark.tck("InvalidCircuitBreakerFailureRatioNegTest.test"),
        ),
        pytest.param(
            circuit_breaker,
            {"failure_ratio": 1.1},
            "@CircuitBreaker(failure_ratio) is 1.1",
            marks=pytest.mark.tck("InvalidCircuitBreakerFailureRatioPosTest.test"),
        ),
        pytest.param(
            circuit_breaker,
            {"request_volume_threshold": 0},
            "@CircuitBreaker(request_volume_threshold) is 0",
            marks=pytest.mark.tck("InvalidCircuitBreakerFailureReqVol0Test.test"),
        ),
        pytest.param(
            circuit_breaker,
            {"request_volume_threshold": -1},
            "@CircuitBreaker(request_volume_threshold) is -1",
            marks=pytest.mark.tck("InvalidCircuitBreakerFailureReqVolNegTest.test"),
        ),
        pytest.param(
            circuit_breaker,
            {"success_threshold": 0},
            "@CircuitBreaker(success_threshold) is 0",
            marks=pytest.mark.tck("InvalidCircuitBreakerFailureSuccess0Test.test"),
        ),
        pytest.param(
            circuit_breaker,
            {"success_threshold": -1},
            "@CircuitBreaker(success_threshold) is -1",
            marks=pytest.mark.tck("InvalidCircuitBreakerFailureSuccessNegTest.test"),
        ),
        pytest.param(
            retry,
            {"delay": 1000, "max_duration": 500},
            "@Retry(max_duration)",
            marks=pytest.mark.tck("InvalidRetryDelayDurationTest.test"),
        ),
        pytest.param(retry, {"delay": -1}, "@Retry(delay) is -1", marks=pytest.mark.tck("InvalidRetryDelayTest.test")),
        pytest.param(
            retry, {"jitter": -1}, "@Retry(jitter) is -1", marks=pytest.mark.tck("InvalidRetryJitterTest.test")
        ),
        pytest.param(
            retry,
            {"max_retries": -3},
            "@Retry(max_retries) is -3",
            marks=pytest.mark.tck("InvalidRetryMaxRetriesTest.test"),
        ),
        pytest.param(
            timeout, {"value": -1}, "@Timeout(value) is -1", marks=pytest.mark.tck("InvalidTimeoutValueTest.test")
        ),
        # Beyond the kit
        (bulkhead, {"value": 0}, "@Bulkhead(value) is 0"),
        (bulkhead, {"waiting_task_queue": 0}, "@Bulkhead(waiting_task_queue) is 0"),
        (retry, {"max_duration": -1}, "@Retry(max_duration) is -1"),
        (retry, {"max_retries": 1.5}, "@Retry(max_retries) is 1.5"),
        (retry, {"max_retries": True}, "@Retry(max_retries) is True"),
        (retry, {"max_retries": None}, "@Retry(max_retries) is None"),
        (retry, {"delay": None}, "@Retry(delay) is None"),
        (retry, {"delay": "1 sec"}, "@Retry(delay) is '1 sec'"),
        (retry, {"delay": math.nan}, "@Retry(delay) is nan"),
        (retry, {"delay": math.inf}, "@Retry(delay) is inf"),
        (retry, {"delay": timedelta(seconds=-1)}, "@Retry(delay) is "),
        (retry, {"delay": 1, "delay_unit": ChronoUnit.HOURS}, "@Retry(max_duration)"),
        (retry, {"delay_unit": "FORTNIGHTS"}, "@Retry(delay_unit) is 'FORTNIGHTS'"),
        (retry, {"retry_on": "OSError"}, "@Retry(retry_on) is 'OSError'"),
        (retry, {"retry_on": OSError()}, "@Retry(retry_on) is OSError()"),
        (retry, {"retry_on": int}, "@Retry(retry_on) is <class 'int'>"),
        (retry, {"retry_on": [OSError, "KeyError"]}, "@Retry(retry_on) is "),
        (retry, {"retry_on": None}, "@Retry(retry_on) is None"),
        (timeout, {"value": "-400ms"}, "@Timeout(value) is '-400ms'"),
        (timeout, {"value": True}, "@Timeout(value) is True"),
        (timeout, {"value": 1, "interrupt": 1}, "@Timeout(interrupt) is 1"),
        (circuit_breaker, {"failure_ratio": True}, "@CircuitBreaker(failure_ratio) is True"),
        (circuit_breaker, {"fail_on": "OSError"}, "@CircuitBreaker(fail_on) is 'OSError'"),
        (rate_limit, {"value": 0}, "@RateLimit(value) is 0"),
    ],
)
def test_a_parameter_out_of_range_is_refused(policy: Callable[..., Any], given: dict[str, Any], words: str) -> None:
    """On a method, on a function, and on a class: the error says what is wrong, where, and what is right."""
    calls: list[object] = []
    with refused(words, "test_definition.", "; allowed: ") as method:

        class Client:
            @policy(**given)
            def service(self) -> None:
                calls.append(self)

    with refused(words, "; allowed: ") as function:

        @policy(**given)
        def service() -> None:
            calls.append(None)

    with refused(words, "; allowed: ") as whole:

        @policy(**given)
        class Whole:
            def service(self) -> None:
                calls.append(self)

    assert f"Client.service {words}" in str(method)
    assert f".service {words}" in str(function)
    assert f"Whole {words}" in str(whole)
    assert calls == []


@pytest.mark.parametrize(
    ("policy", "given"),
    [
        (retry, {"max_retries": -1}),
        (retry, {"max_retries": 0, "delay": 0, "jitter": 0}),
        (retry, {"max_duration": 0, "delay": 3_600_000}),
        (retry, {"delay": timedelta(seconds=1), "max_duration": timedelta(seconds=2)}),
        (retry, {"retry_on": [], "abort_on": (OSError,)}),
        (retry, {"retry_on": (one for one in (OSError, KeyError))}),
        (timeout, {"value": 0}),
        (circuit_breaker, {"failure_ratio": 0, "delay": 0}),
        (circuit_breaker, {"failure_ratio": 1}),
        (circuit_breaker, {"fail_on": {OSError}, "skip_on": BaseException}),
    ],
)
def test_the_ends_of_the_ranges_are_fine(policy: Callable[..., Any], given: dict[str, Any]) -> None:
    """An explicit 0 is 0, and not absent."""

    @policy(**given)
    def service() -> str:
        return "result"

    assert service() == "result"


@pytest.mark.tck("InvalidBulkheadAsynchQueueTest.test")
def test_a_waiting_queue_of_a_negative_size_is_refused() -> None:
    """The method has no other fault."""
    with refused("@Bulkhead(waiting_task_queue) is -1; allowed: "):

        class Client:
            @asynchronous
            @bulkhead(waiting_task_queue=-1)
            def service_a(self) -> ExecutorFuture[str]:
                return completed_future("result")


# Asynchronous methods


@pytest.mark.tck("InvalidAsynchronousMethodTest.test")
def test_an_asynchronous_method_that_returns_another_type_is_refused() -> None:
    """That is neither a future nor awaitable."""
    with refused("Client.get_string @Asynchronous is on a function that returns str", "-> Future[str]", "`async def`"):

        class Client:
            @asynchronous
            def get_string(self) -> str:
                return "result"


@pytest.mark.tck("InvalidAsynchronousClassTest.test")
def test_a_method_of_another_type_makes_an_asynchronous_class_invalid() -> None:
    """The message says how to exempt it."""
    with refused("Client.get_string @Asynchronous is on a function that returns str", "@unguarded") as error:

        @asynchronous
        class Client:
            def get_string_async(self) -> ExecutorFuture[str]:
                return completed_future("result")

            def get_string(self) -> str:
                return "result"

    assert "get_string_async" not in str(error)


def test_an_asynchronous_class_may_exempt_methods() -> None:
    """Rule L7; a method without an annotation is decided by the value that it returns."""

    @asynchronous
    class Client:
        def submitted(self) -> Future[str]:
            return completed_future("result")

        async def started(self) -> str:
            return "result"

        def awaitable(self) -> Awaitable[str]:
            return self.started()

        def not_told(self):  # type: ignore[no-untyped-def]
            return completed_future("result")

        @unguarded
        def name(self) -> str:
            return "name"

        def _private(self) -> str:
            return "private"

    client = Client()

    assert client.submitted().result(10) == "result"
    assert client.name() == "name"
    assert client._private() == "private"


# Fallbacks


class IntHandler(FallbackHandler[int]):
    def handle(self, context: ExecutionContext) -> int:
        return 1


class IncompatibleFallbackHandler(FallbackHandler[str]):
    def handle(self, context: ExecutionContext) -> str:
        return "fallback"


@pytest.mark.tck("IncompatibleFallbackTest.test")
def test_a_handler_of_another_type_is_refused() -> None:
    """Its type is that of its annotation, or the one that it gives the protocol."""
    words = "returns str; allowed: int, as the guarded function returns"
    with refused("Client.service_b @Fallback(value) is IncompatibleFallbackHandler.handle, which", words):

        class Client:
            @retry(max_retries=4)
            @fallback(IncompatibleFallbackHandler)
            def service_b(self) -> int:
                raise RuntimeError

    class Unannotated(FallbackHandler[str]):
        def handle(self, context):  # type: ignore[no-untyped-def]
            return "fallback"

    with refused(words):

        @fallback(Unannotated)
        def service() -> int:
            raise RuntimeError


@pytest.mark.tck("IncompatibleFallbackMethodTest.test")
def test_a_fallback_method_of_another_type_is_refused() -> None:
    """The parameters agree, and the results do not."""
    with refused("@Fallback(fallback_method) names 'fallback_for_service_b', which returns str; allowed: int"):

        class Client:
            @retry(max_retries=4)
            @fallback(fallback_method="fallback_for_service_b")
            def service_b(self) -> int:
                raise RuntimeError

            def fallback_for_service_b(self) -> str:
                return "fallback"


@pytest.mark.tck("IncompatibleFallbackMethodWithArgsTest.test")
def test_a_fallback_method_with_a_parameter_less_is_refused() -> None:
    """The message shows both lists of parameters."""
    with refused("whose parameters (name: 'str') are not those", "allowed: (name: 'str', type_: 'int')"):

        class Client:
            @retry(max_retries=4)
            @fallback(fallback_method="fallback_for_service_b")
            def service_b(self, name: str, type_: int) -> int:
                raise RuntimeError

            def fallback_for_service_b(self, name: str) -> int:
                return 1


@pytest.mark.tck("IncompatibleFallbackPolicies.test")
def test_a_handler_and_a_method_at_once_are_refused() -> None:
    """Each of them would fit."""
    with refused("@Fallback(fallback_method) is 'service_b_fallback' beside a handler"):

        class Client:
            @retry(max_retries=4)
            @fallback(IntHandler, fallback_method="service_b_fallback")
            def service_b(self) -> int:
                raise RuntimeError

            def service_b_fallback(self) -> int:
                return 1


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"value": None},
        {"value": 1},
        {"value": str},
        {"value": IntHandler()},
        {"fallback_method": "no name"},
        {"fallback_method": None},
        {"value": IntHandler, "apply_on": "OSError"},
        {"value": IntHandler, "skip_on": [1]},
    ],
)
def test_a_fallback_that_names_nothing_to_call_is_refused(given: dict[str, Any]) -> None:
    """It has neither of the two, or no handler, or no name, or no exceptions."""
    with refused("@Fallback("):

        @fallback(**given)
        def service() -> int:
            raise RuntimeError


def test_a_bare_fallback_is_refused() -> None:
    """It would take the method for its handler."""
    with refused("service @Fallback", "without arguments"):

        class Client:
            @fallback
            def service(self) -> int:
                raise RuntimeError

    with refused("service @Fallback", "without arguments"):

        @fallback
        def service() -> int:
            raise RuntimeError


# Contradictions of a decorator, in itself or with another one


@pytest.mark.parametrize("policy", [retry, timeout, circuit_breaker, bulkhead, asynchronous, rate_limit])
def test_the_same_policy_twice_is_refused(policy: Any) -> None:
    """One of the two would be ignored silently."""
    with refused("service @", "is present twice"):

        @policy
        @policy
        async def service() -> None: ...

    with refused("Client @", "is present twice"):

        @policy
        @policy
        class Client:
            async def service(self) -> None: ...


def test_two_back_offs_are_refused() -> None:
    """The second one is refused when it is applied."""
    with refused("@FibonacciBackoff is combined with @ExponentialBackoff; allowed: only one of them"):

        @exponential_backoff()
        @fibonacci_backoff()
        @retry
        def service() -> None: ...


@pytest.mark.parametrize("policy", [retry, timeout(100), circuit_breaker, bulkhead, asynchronous, fallback(print)])
def test_generator_functions_are_refused(policy: Any) -> None:
    """A stream cannot be run again: the body of the loop is the part to guard."""

    def generator() -> Iterator[int]:
        yield 1

    async def asynchronous_generator() -> AsyncIterator[int]:
        yield 1

    for function in (generator, asynchronous_generator):
        with refused("is on a generator function", "guard the body of the loop"):
            policy(function)


def test_class_level_policies_leave_generator_functions_out() -> None:
    """Rule L7: they are skipped, not refused."""

    @retry
    class Client:
        def stream(self) -> Iterator[int]:
            yield 1

        def service(self) -> int:
            return 2

    assert list(Client().stream()) == [1]
    assert Client().service() == 2


@pytest.mark.parametrize("target", [1, "name", None, property(lambda self: 1), [print]])
def test_a_target_that_cannot_be_called_cannot_be_guarded(target: Any) -> None:
    """A property's getter can be guarded, below `@property`."""
    with refused():
        retry(max_retries=1)(target)


# The exception


def test_all_faults_of_a_decorator_are_reported_at_once() -> None:
    """One error lists all its parameters that are wrong."""
    with refused("@Retry(max_retries) is -3", "@Retry(delay) is -1") as error:

        class Client:
            @retry(max_retries=-3, delay=-1)
            def service(self) -> None: ...

    assert len(error.faults) == 2


def test_a_definition_error_carries_its_parts() -> None:
    """No code has to parse the text; and the error can be sent to another process."""
    with pytest.raises(FaultToleranceDefinitionException) as raised:

        @retry(max_retries=-3)
        def service() -> None: ...

    error = raised.value
    assert error.where.endswith(".service @Retry(max_retries)")
    assert error.got == -3
    assert "-1" in error.allowed
    assert error.source == "set by the decorator"
    assert isinstance(error, FaultToleranceException)
    assert isinstance(error, ValueError)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    ("policy", "given"),
    [
        (Retry, {"max_retries": -3}),
        (Timeout, {"value": -1}),
        (CircuitBreaker, {"failure_ratio": 2}),
        (Bulkhead, {"value": 0}),
        (Fallback, {}),
    ],
)
def test_policies_as_values_are_checked_when_they_are_made(policy: Callable[..., Any], given: dict[str, Any]) -> None:
    """They follow the same rules as decorators."""
    with refused(f"@{policy.__name__}("):
        policy(**given)


def test_a_class_that_was_refused_leaves_no_policies_behind() -> None:
    """The decorator may be corrected and applied again."""

    class Client:
        def service(self) -> str:
            return "result"

    with refused():
        asynchronous(Client)

    assert Client().service() == "result"
    assert retry(Client)().service() == "result"
