"""Faults in place of bodies: those of functions in a test, and those that are injected into guarded functions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from faulttolerance import (
    Guard,
    asynchronous,
    asynchronous_non_blocking,
    bulkhead,
    circuit_breaker,
    configure,
    deadline,
    partition_by,
    retry,
    timeout,
)
from faulttolerance.exceptions import CircuitBreakerOpenException, TimeoutException
from faulttolerance.policies import CircuitBreaker, Retry, Timeout
from faulttolerance.testing import VirtualClock, disabled, fail_times, inject, recorded, reset, virtual_time
from kit.definition import refused


class Outage(Exception):
    pass


class Client:
    """The same guarded call in five ways of calling."""

    def __init__(self) -> None:
        self.bodies = 0

    def _answer(self) -> str:
        self.bodies += 1
        return "fresh"

    @retry(max_retries=2, delay=20, jitter=0)
    @timeout(1000)
    def call(self) -> str:
        return self._answer()

    @retry(max_retries=2, delay=20, jitter=0)
    @timeout(1000)
    async def call_async(self) -> str:
        return self._answer()

    @asynchronous
    @retry(max_retries=2, delay=20, jitter=0)
    @timeout(1000)
    def call_offloaded(self) -> Any:
        return self._answer()

    @asynchronous
    @retry(max_retries=2, delay=20, jitter=0)
    @timeout(1000)
    async def call_as_task(self) -> str:
        return self._answer()

    @asynchronous_non_blocking
    @retry(max_retries=2, delay=20, jitter=0)
    @timeout(1000)
    def call_non_blocking(self) -> Awaitable[str]:
        future = asyncio.get_running_loop().create_future()
        future.set_result(self._answer())
        return future


WAYS = ("call", "call_async", "call_offloaded", "call_as_task", "call_non_blocking")


def outcome(clock: VirtualClock, call: Callable[[], Any]) -> Any:
    """Return the outcome of a call in any way of calling."""

    async def awaited() -> Any:
        result = call()
        return await result if isinstance(result, Awaitable) else result

    try:
        result = clock.run(awaited())
        return result.result() if isinstance(result, Future) else result
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("way", WAYS)
def test_policies_treat_injected_faults_as_those_of_the_body(way: str) -> None:
    """In every way of calling errors are retried, latency is timed out, a result is returned; the body does not run."""
    client, target = Client(), getattr(Client, way)
    call = getattr(client, way)
    with virtual_time() as clock:
        with inject(target, error=Outage), recorded(target) as calls:
            assert outcome(clock, call) is Outage
        with inject(target, latency=3000), recorded(target) as late:
            began = clock.monotonic()
            assert outcome(clock, call) is TimeoutException
            # An attempt that is left behind keeps nobody waiting.
            assert clock.monotonic() - began == pytest.approx(3.04)
        with inject(target, result="stale"):
            assert outcome(clock, call) == "stale"
        assert client.bodies == 0
        with inject(target, latency=timedelta(seconds=0.5)):
            began = clock.monotonic()
            assert outcome(clock, call) == "fresh"
            assert clock.monotonic() - began == pytest.approx(0.5)
        assert outcome(clock, call) == "fresh"
    assert client.bodies == 2
    assert [attempt.outcome for attempt in calls[0].attempts] == ["raised"] * 3
    assert [attempt.outcome for attempt in late[0].attempts] == ["timed out"] * 3


@pytest.mark.parametrize("way", WAYS)
def test_a_call_that_fails_twice_succeeds_by_its_retries(way: str) -> None:
    """The failures of ``fail_times`` are counted over all attempts, and then the body runs."""
    client = Client()
    with virtual_time() as clock, inject(getattr(client, way), error=fail_times(2, Outage)):
        assert outcome(clock, getattr(client, way)) == "fresh"
    assert client.bodies == 1


def test_injected_failures_open_circuits() -> None:
    """They count as failures of the body."""

    @circuit_breaker(request_volume_threshold=2, delay=60_000)
    def query() -> str:
        return "fresh"

    with inject(query, error=ConnectionError):
        for _ in range(2):
            with pytest.raises(ConnectionError):
                query()
    with pytest.raises(CircuitBreakerOpenException):
        query()


def test_a_deadline_interrupts_the_latency() -> None:
    """It does so on the real clock, too."""

    @deadline(20)
    def query() -> str:
        return "fresh"

    with inject(query, latency=60_000), pytest.raises(TimeoutException):
        query()


def test_faults_are_injected_into_blocks_before_they_are_entered() -> None:
    """This holds for ``with`` and for ``async with``; a retry enters the block, which has no result."""
    guard = Guard(retry=Retry(max_retries=2, delay=20, jitter=0), timeout=Timeout(1000))
    bodies = []

    def blocks() -> None:
        for attempt in guard.attempts():
            with attempt:
                bodies.append(attempt.number)

    async def awaited() -> None:
        async for attempt in guard.attempts():
            async with attempt:
                bodies.append(attempt.number)

    with virtual_time() as clock:
        for run in (blocks, lambda: clock.run(awaited())):
            with inject(guard, error=fail_times(2, Outage), latency=100):
                began = clock.monotonic()
                run()
                assert clock.monotonic() - began == pytest.approx(0.34)
            with inject(guard, error=Outage), pytest.raises(Outage):
                run()
            with inject(guard, latency=5000), pytest.raises(TimeoutException):
                run()
            with inject(guard, result="stale"):
                run()
    assert bodies == [3, 1, 3, 1]


def test_faults_are_injected_into_guards_and_their_functions() -> None:
    """The functions are those that a guard decorates, and those that it is given to call."""
    guard = Guard(circuit_breaker=CircuitBreaker())

    @guard
    def decorated() -> str:
        return "fresh"

    with inject(guard, result="stale"):
        assert (decorated(), guard.call(lambda: "fresh"), decorated()) == ("stale",) * 3
        assert asyncio.run(guard.call_async(asyncio.sleep, 0, "fresh")) == "stale"
    assert decorated() == "fresh"


def test_a_part_of_the_attempts_is_chosen_by_the_seed() -> None:
    """A seed chooses the same attempts each time that the block is entered; a rate of 0 chooses none."""

    @bulkhead(5)
    def query() -> str:
        return "fresh"

    def run(**values: Any) -> list[str]:
        with inject(query, result="stale", **values):
            return [query() for _ in range(200)]

    injected = inject(query, result="stale", rate=0.5, seed=3)
    rows = []
    for _ in range(2):
        with injected:
            rows.append([query() for _ in range(200)])
    assert rows[0] == rows[1] == run(rate=0.5, seed=3) != run(rate=0.5, seed=4)
    assert 60 < rows[0].count("stale") < 140
    assert run(rate=0) == ["fresh"] * 200
    with virtual_time(seed=5):
        first = run(rate=0.5)
    with virtual_time(seed=5):
        assert run(rate=0.5) == first


def test_an_injection_stands_inside_the_blocks_that_were_entered_first() -> None:
    """A recording sees it; the last injection is asked first; switched-off policies and keys do not matter."""

    @retry(max_retries=1, delay=0, jitter=0)
    @partition_by("key")
    def query(key: str) -> str:
        return key

    with recorded(query) as calls, inject(query, result="first"), inject(query, result="last", rate=1):
        configure(properties={"Retry/maxRetries": 0})
        assert query("a") == query("b") == "last"
        with disabled(), inject(query, error=Outage), pytest.raises(Outage):
            query("c")
    assert [call.attempts[0].outcome for call in calls] == ["returned", "returned", "raised"]
    assert query("a") == "a"


def test_faults_are_injected_into_a_class_and_by_a_decorator() -> None:
    """Subclasses go with their class, and nothing else does; a coroutine function can be decorated, too."""

    class Other(Client):
        pass

    with inject(Other, result="stale"):
        assert (Other().call(), Client().call()) == ("stale", "fresh")
        reset()
        assert Other().call() == "stale"

    @inject(Client, result="stale")
    async def test() -> tuple[str, str]:
        return await Client().call_async(), Other().call()

    assert asyncio.run(test()) == ("stale", "stale")
    assert Client().call() == "fresh"


def test_a_body_fails_the_given_number_of_times() -> None:
    """``fail_times`` decorates bodies, and is a side effect of a body or a stand-in; each failure of a class is new."""

    @fail_times(2, Outage)
    def body(answer: str) -> str:
        return answer

    failures = []
    for _ in range(2):
        with pytest.raises(Outage) as raised:
            body("fresh")
        failures.append(raised.value)
    assert failures[0] is not failures[1]
    assert body("fresh") == "fresh"

    @retry(max_retries=2, delay=0, jitter=0)
    @fail_times(2, ConnectionError("gone"))
    async def awaited() -> str:
        return "fresh"

    assert asyncio.run(awaited()) == "fresh"
    flaky = fail_times(1, Outage)
    with pytest.raises(Outage):
        flaky()
    assert flaky() is None
    assert repr(flaky) == "<testing.fail_times: 1 of 1 failures have come>"
    stub = Mock(side_effect=fail_times(1, Outage)(lambda: "fresh"))
    with pytest.raises(Outage):
        stub()
    assert stub() == "fresh"


class Picky(Exception):
    def __init__(self, code: int) -> None:
        self.code = code


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: inject(refused, error=Outage), ("testing.inject", "not guarded")),
        (lambda: inject(Client), ("testing.inject", "injects nothing", "an error, a latency or a result")),
        (lambda: inject(Client, error="Outage"), ("testing.inject(error)", "'Outage'", "exception class")),  # type: ignore[arg-type]
        (lambda: inject(Client, error=Picky), ("testing.inject(error)", "needs arguments")),
        (lambda: inject(Client, error=Outage, result=1), ("testing.inject(result)", "beside an error")),
        (lambda: inject(Client, latency=-1), ("testing.inject(latency)", "-1")),
        (lambda: inject(Client, error=Outage, rate=1.5), ("testing.inject(rate)", "1.5", "from 0")),
        (lambda: fail_times(-1, Outage), ("testing.fail_times(n)", "-1", "an integer >= 0")),
        (lambda: fail_times(True, Outage), ("testing.fail_times(n)", "True")),
        (lambda: fail_times(2, None), ("testing.fail_times(error)", "None")),  # type: ignore[arg-type]
    ],
)
def test_an_argument_that_makes_no_sense_is_refused(make: Callable[[], Any], words: tuple[str, ...]) -> None:
    """The error names the argument, the place, the value and the allowed ones, before the block begins."""
    with refused(*words):
        make()
