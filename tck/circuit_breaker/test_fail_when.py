"""Rule C6: predicates that decide which outcomes are failures of the circuit, or of the throttle instead."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import pytest

from faulttolerance import (
    CircuitBreakerOpenException,
    FaultToleranceDefinitionException,
    Future,
    Guard,
    TimeoutException,
    adaptive_throttle,
    circuit_breaker,
    circuit_breaker_name,
    circuit_breakers,
    fail_when,
    fallback,
    retry,
    timeout,
)
from faulttolerance.exceptions import ThrottleException
from faulttolerance.policies import AdaptiveThrottle, CircuitBreaker, FailWhen
from kit import Clock, Invoke, Service

BREAKER: Any = {"request_volume_threshold": 2, "failure_ratio": 1.0, "delay": 5000}


class Status(Exception):
    """An answer with a status."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Answers(Service):
    answer: Any = "served"

    async def give(self) -> Any:
        self.executions += 1
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def breaks(_: Any) -> NoReturn:
    """Make a mistake."""
    raise ZeroDivisionError("a mistake")


def is_bad(result: Any) -> bool:
    """Judge a result, or the result of a future (rule R7)."""
    return bool((result.result() if isinstance(result, Future) else result) == "bad")


async def is_bad_later(result: Any) -> bool:
    await asyncio.sleep(0)
    return is_bad(result)


def test_a_result_that_is_a_failure_of_the_circuit_is_returned_all_the_same(invoke: Invoke) -> None:
    """C6: it is neither retried nor replaced, and opens the circuit."""

    class Client(Answers):
        @fallback(lambda context: "replaced")
        @retry(jitter=0)
        @fail_when(result=is_bad)
        @circuit_breaker_name("results")
        @circuit_breaker(**BREAKER)
        @invoke.body
        async def service(self) -> Any:
            return await self.give()

    client = Client()
    client.answer = "bad"

    assert [invoke(client.service) for _ in range(3)] == ["bad", "bad", "replaced"]
    assert client.executions == 2
    assert circuit_breakers.snapshot("results").last_failure == "bad result"


def test_a_predicate_decides_about_exceptions_where_fail_on_names_all_of_them(invoke: Invoke) -> None:
    """C6: a status of 404 is an answer, one of 503 is a failure."""

    class Client(Answers):
        @fail_when(exception=lambda failure: getattr(failure, "code", 0) >= 500)
        @circuit_breaker(**BREAKER)
        @invoke.body
        async def service(self) -> Any:
            return await self.give()

    client = Client()
    client.answer = Status(404)
    answers = [invoke.outcome(client.service) for _ in range(5)]
    client.answer = Status(503)
    failures = [invoke.outcome(client.service) for _ in range(3)]

    assert answers == [Status] * 5
    assert failures == [Status, Status, CircuitBreakerOpenException]


@pytest.mark.parametrize(
    ("failure", "third"),
    [
        (ConnectionError(), CircuitBreakerOpenException),  # fail_on names it
        (Status(503), CircuitBreakerOpenException),  # the predicate does
        (Status(404), Status),
        (TimeoutError(503), TimeoutError),  # skip_on goes before both
        (KeyError(), KeyError),
    ],
)
def test_a_predicate_stands_beside_the_sets(invoke: Invoke, failure: Exception, third: type[Exception]) -> None:
    """C6: ``skip_on`` decides first, then either ``fail_on`` or the predicate."""

    class Client(Answers):
        @fail_when(exception=lambda failure: bool(failure.args) and failure.args[0] == 503)
        @circuit_breaker(fail_on=ConnectionError, skip_on=TimeoutError, **BREAKER)
        @invoke.body
        async def service(self) -> Any:
            return await self.give()

    client = Client()
    client.answer = failure

    assert [invoke.outcome(client.service) for _ in range(3)] == [type(failure)] * 2 + [third]


def test_an_exception_of_the_guard_itself_is_asked_about_too(invoke: Invoke) -> None:
    """C6: a time-out is an exception as any other."""
    asked: list[type[BaseException]] = []

    class Client(Service):
        @fail_when(exception=lambda failure: asked.append(type(failure)) or True)
        @circuit_breaker(**BREAKER)
        @timeout(100)
        @invoke.body
        async def service(self) -> None:
            await invoke.sleep(1)

    client = Client()

    assert [invoke.outcome(client.service) for _ in range(3)][:2] == [TimeoutException] * 2
    assert asked == [TimeoutException] * 2  # not about what the circuit refused


def test_control_flow_is_not_asked_about() -> None:
    """Rule R0: control flow is neither success nor failure."""
    asked: list[BaseException] = []

    @fail_when(exception=lambda failure: bool(asked.append(failure)), result=bool)
    @circuit_breaker_name("control flow")
    @circuit_breaker(**BREAKER)
    def service() -> None:
        raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            service()

    assert asked == []
    assert circuit_breakers.snapshot("control flow").results == 0


def test_a_predicate_that_raises_changes_nothing(invoke: Invoke, caplog: pytest.LogCaptureFixture) -> None:
    """C6: it is logged once, and counts as false."""

    class Client(Answers):
        @fail_when(exception=breaks, result=breaks)
        @circuit_breaker(fail_on=ConnectionError, **BREAKER)
        @invoke.body
        async def service(self) -> Any:
            return await self.give()

    client = Client()
    assert [invoke(client.service) for _ in range(3)] == ["served"] * 3
    client.answer = Status(503)
    assert [invoke.outcome(client.service) for _ in range(3)] == [Status] * 3

    told = [one.getMessage() for one in caplog.records if one.exc_info]
    assert [text.partition("service: ")[2] for text in told] == [
        "an error in the result predicate of @fail_when; it counts as false",
        "an error in the exception predicate of @fail_when; it counts as false",
    ]


def test_a_predicate_that_is_awaited_decides(invoke: Invoke) -> None:
    """C6: where the method is asynchronous."""
    if invoke.convention == "blocking":
        return

    class Client(Answers):
        @fail_when(result=is_awaited(invoke))
        @circuit_breaker(**BREAKER)
        @invoke.body
        async def service(self) -> Any:
            return await self.give()

    client = Client()
    client.answer = "bad"

    assert [invoke.outcome(client.service) for _ in range(3)] == ["bad", "bad", CircuitBreakerOpenException]


def is_awaited(invoke: Invoke) -> Any:
    """Return a coroutine function that waits where a loop runs."""

    async def at_once(result: Any) -> bool:
        return is_bad(result)

    return is_bad_later if invoke.is_on_loop else at_once


def test_a_coroutine_function_on_a_synchronous_method_is_refused() -> None:
    """C6: the coroutine would never be awaited."""
    with pytest.raises(FaultToleranceDefinitionException, match=r"@FailWhen\(result\) is is_bad_later, a corou"):

        @fail_when(result=is_bad_later)
        @circuit_breaker
        def service() -> str:
            return "served"

    with pytest.raises(FaultToleranceDefinitionException, match=r"@FailWhen\(result\) is is_bad_later, a corou"):
        Guard(circuit_breaker=CircuitBreaker(), fail_when=FailWhen(result=is_bad_later)).call(int)


@pytest.mark.parametrize("cancel_at", [1, 2])
def test_a_probe_that_is_cancelled_while_it_is_judged_gives_its_place_back(cancel_at: int) -> None:
    """Rule R4: the caller is cancelled while the predicate is awaited."""

    async def is_bad_slowly(result: Any) -> bool:
        await asyncio.sleep(30)
        return False

    async def main() -> str:
        guard = Guard(
            circuit_breaker=CircuitBreaker(request_volume_threshold=1, delay=0),
            fail_when=FailWhen(result=is_bad_slowly),
        )
        with pytest.raises(ConnectionError):
            await guard.call_async(fails)
        for _ in range(cancel_at):
            probe = asyncio.ensure_future(guard.call_async(serves))
            for _ in range(5):
                await asyncio.sleep(0)
            probe.cancel()
            with pytest.raises(asyncio.CancelledError):
                await probe
        assert circuit_breakers.state(guard.name) == "half-open"
        probe = asyncio.ensure_future(guard.call_async(serves))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not probe.done()
        probe.cancel()
        return "let in"

    async def fails() -> None:
        raise ConnectionError

    async def serves() -> None:
        return None

    assert asyncio.run(main()) == "let in"


def test_the_throttle_asks_too(invoke: Invoke, clock: Clock) -> None:
    """C6: it replaces the breaker."""

    class Client(Answers):
        @fail_when(result=is_bad, exception=lambda failure: False)
        @adaptive_throttle(min_requests=3)
        @invoke.body
        async def service(self) -> Any:
            return await self.give()

    client, other = Client(), Client()
    other.answer = Status(404)
    assert [invoke.outcome(other.service) for _ in range(9)] == [Status] * 9
    clock.sleep(60)
    client.answer = "bad"
    outcomes = [invoke.outcome(client.service) for _ in range(30)]

    assert ThrottleException in outcomes
    assert outcomes[:3] == ["bad"] * 3


def test_a_guard_takes_it_as_a_value() -> None:
    """C6: with a breaker or a throttle, and no other policy."""
    guard = Guard(circuit_breaker=CircuitBreaker(**BREAKER), fail_when=FailWhen(result=lambda found: found is None))

    assert [guard.call(lambda: None) for _ in range(2)] == [None, None]
    with pytest.raises(CircuitBreakerOpenException):
        guard.call(lambda: None)
    assert Guard(adaptive_throttle=AdaptiveThrottle(), fail_when=FailWhen(result=bool)).call(int) == 0


def test_without_a_breaker_or_a_throttle_it_is_refused() -> None:
    """Rule R9: the predicate would have no effect."""

    @fail_when(result=bool)
    @retry
    def service() -> None: ...

    allowed = "@circuit_breaker or @adaptive_throttle on the same method or its class"
    with pytest.raises(FaultToleranceDefinitionException, match=f"is used without @CircuitBreaker or .*{allowed}"):
        service()


@pytest.mark.parametrize("given", [{}, {"exception": 3}, {"result": "no"}])
def test_wrong_predicates_are_refused(given: dict[str, Any]) -> None:
    """Rule R9: the error has the policy, the parameter, the value got and the allowed values."""
    with pytest.raises(FaultToleranceDefinitionException, match=r"@FailWhen\((exception|result)\) is .*allowed: "):
        fail_when(**given)(circuit_breaker(lambda: None))


def test_slow_and_fail_when_count_once(invoke: Invoke) -> None:
    """C5, C6: a slow bad result is one failure."""

    class Client(Service):
        @fail_when(result=is_bad)
        @circuit_breaker_name("both")
        @circuit_breaker(request_volume_threshold=4, slow=100)
        @invoke.body
        async def service(self) -> str:
            await invoke.sleep(0.1)
            return "bad"

    assert invoke(Client().service) == "bad"
    assert circuit_breakers.snapshot("both")[4:6] == (1, 1)
