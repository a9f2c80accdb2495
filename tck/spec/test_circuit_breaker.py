"""Specification, chapter "Circuit Breaker": its opening, its refusals, and its closing."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from faulttolerance import BulkheadException, CircuitBreakerOpenException, TimeoutException, circuit_breaker, timeout
from kit import INTERRUPTION, Clock, Invoke, Service, TestException

FAILED, OPEN = TestException, CircuitBreakerOpenException
OK = None
"""The outcome of a call that succeeds."""


# Opening and closing


@pytest.mark.tck("CircuitBreakerTest.testCircuitClosedThenOpen")
def test_circuit_opens_once_the_window_is_full_of_failures(invoke: Invoke) -> None:
    """After four failures in a window of four no further call reaches the method."""

    class Client(Service):
        @circuit_breaker(success_threshold=2, request_volume_threshold=4, failure_ratio=0.75, delay=50_000)
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            if self.executions < 5:
                raise TestException

    client = Client()
    outcomes = [invoke.outcome(client.work) for _ in range(7)]

    assert outcomes == [FAILED] * 4 + [OPEN] * 3
    assert client.executions == 4


@pytest.mark.tck("CircuitBreakerTest.testCircuitReClose")
def test_circuit_closes_again_after_enough_successes(invoke: Invoke, clock: Clock) -> None:
    """Once the delay is over calls are let through, and success_threshold of them close the circuit."""

    class Client(Service):
        @circuit_breaker(success_threshold=2, request_volume_threshold=4, failure_ratio=0.75, delay=1)
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            if self.executions < 5:
                raise TestException

    client = Client()
    before = [invoke.outcome(client.work) for _ in range(4)]
    clock.sleep(0.5)
    after = [invoke.outcome(client.work) for _ in range(3)]

    assert before == [FAILED] * 4
    assert after == [OK] * 3
    assert client.executions == 7


class _Choosy(Service):
    """A service that succeeds in some executions only."""

    async def choose(self, successes: Collection[int]) -> None:
        self.executions += 1
        if self.executions not in successes:
            raise TestException


@pytest.mark.parametrize(
    ("successes", "before", "after"),
    [
        pytest.param(
            {5},
            [FAILED, FAILED, FAILED, FAILED, OPEN],
            [OK, FAILED, FAILED, FAILED, FAILED, OPEN],
            marks=pytest.mark.tck("CircuitBreakerTest.testCircuitDefaultSuccessThreshold"),
            id="probe succeeds",
        ),
        pytest.param(
            {1, 5, 6},
            [OK, FAILED, FAILED, FAILED, OPEN],
            [OK, OK, FAILED, FAILED, FAILED, OPEN],
            marks=pytest.mark.tck("CircuitBreakerInitialSuccessTest.testCircuitInitialSuccessDefaultSuccessThreshold"),
            id="first call succeeds",
        ),
        pytest.param(
            {4, 5, 9},
            [FAILED, FAILED, FAILED, OK, OPEN],
            [OK, FAILED, FAILED, FAILED, OK, OPEN],
            marks=pytest.mark.tck("CircuitBreakerLateSuccessTest.testCircuitLateSuccessDefaultSuccessThreshold"),
            id="last call of the window succeeds",
        ),
    ],
)
def test_circuit_that_closes_begins_with_an_empty_window(
    successes: Collection[int], before: list[object], after: list[object], invoke: Invoke, clock: Clock
) -> None:
    """One success closes the circuit by default, and is not in the new window; four more results are needed to open it.

    A window that is full opens the circuit by its ratio alone, also when its last result is a success.
    """

    class Client(_Choosy):
        @circuit_breaker(success_threshold=1, request_volume_threshold=4, failure_ratio=0.75, delay=1000)
        @invoke.body
        async def work(self) -> None:
            await self.choose(successes)

    client = Client()
    outcomes = [invoke.outcome(client.work) for _ in range(5)]
    clock.sleep(2.0)
    later = [invoke.outcome(client.work) for _ in range(6)]

    assert outcomes == before
    assert later == after
    assert client.executions == 9


@pytest.mark.tck("CircuitBreakerTest.testCircuitHighSuccessThreshold")
def test_a_single_failure_opens_a_half_open_circuit(invoke: Invoke, clock: Clock) -> None:
    """Two of three needed successes count for nothing once the third probe fails."""

    class Client(_Choosy):
        @circuit_breaker(success_threshold=3, request_volume_threshold=4, failure_ratio=0.75, delay=1000)
        @invoke.body
        async def work(self) -> None:
            await self.choose({5, 6})

    client = Client()
    before = [invoke.outcome(client.work) for _ in range(5)]
    clock.sleep(2.0)
    after = [invoke.outcome(client.work) for _ in range(4)]

    assert before == [FAILED] * 4 + [OPEN]
    assert after == [OK, OK, FAILED, OPEN]
    assert client.executions == 7


@pytest.mark.tck("CircuitBreakerTest.testRollingWindowCircuitOpen")
def test_success_that_completes_the_window_may_open_the_circuit(invoke: Invoke) -> None:
    """Two failures of four reach a ratio of 0.5, also with a success at the end."""

    class Client(_Choosy):
        @circuit_breaker(success_threshold=2, request_volume_threshold=4, failure_ratio=0.5)
        @invoke.body
        async def work(self) -> None:
            await self.choose({1, 4})

    client = Client()
    outcomes = [invoke.outcome(client.work) for _ in range(5)]

    assert outcomes == [OK, FAILED, FAILED, OK, OPEN]
    assert client.executions == 4


@pytest.mark.tck("CircuitBreakerTest.testRollingWindowCircuitOpen2")
def test_window_slides_over_the_last_results(invoke: Invoke) -> None:
    """The fifth result pushes the first one out, and the ratio is that of the last four."""

    class Client(_Choosy):
        @circuit_breaker(success_threshold=2, request_volume_threshold=4, failure_ratio=0.5)
        @invoke.body
        async def work(self) -> None:
            await self.choose({1, 3, 4})

    client = Client()
    outcomes = [invoke.outcome(client.work) for _ in range(6)]

    assert outcomes == [OK, FAILED, OK, OK, FAILED, OPEN]
    assert client.executions == 5


def test_failure_that_left_the_window_counts_no_more(invoke: Invoke) -> None:
    """Two failures are too many only where they are among the last four results."""

    class Client(_Choosy):
        @circuit_breaker(success_threshold=2, request_volume_threshold=4, failure_ratio=0.5)
        @invoke.body
        async def work(self) -> None:
            await self.choose({2, 3, 4, 6})

    client = Client()
    outcomes = [invoke.outcome(client.work) for _ in range(6)]

    assert outcomes == [FAILED, OK, OK, OK, FAILED, OK]


# On classes


@pytest.mark.tck("CircuitBreakerTest.testClassLevelCircuitBase")
def test_circuit_breaker_of_a_class_holds_for_its_methods(invoke: Invoke) -> None:
    """A method without a decorator of its own has a circuit as its class says."""

    @circuit_breaker(success_threshold=2, request_volume_threshold=4, failure_ratio=0.75, delay=50_000)
    class Client(Service):
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            if self.executions < 5:
                raise TestException

    client = Client()
    outcomes = [invoke.outcome(client.work) for _ in range(7)]

    assert outcomes == [FAILED] * 4 + [OPEN] * 3
    assert client.executions == 4


@pytest.mark.tck("CircuitBreakerTest.testClassLevelCircuitOverride")
def test_circuit_breaker_of_a_method_replaces_that_of_its_class(invoke: Invoke) -> None:
    """The method's window of two counts; a ratio may be the integer 1."""

    @circuit_breaker(success_threshold=2, request_volume_threshold=4, failure_ratio=0.75, delay=50_000)
    class Client(Service):
        @circuit_breaker(success_threshold=2, request_volume_threshold=2, failure_ratio=1, delay=50_000)
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            if self.executions < 5:
                raise TestException

    client = Client()
    outcomes = [invoke.outcome(client.work) for _ in range(7)]

    assert outcomes == [FAILED] * 2 + [OPEN] * 5
    assert client.executions == 2


@pytest.mark.tck("CircuitBreakerTest.testClassLevelCircuitOverrideNoDelay")
def test_delay_of_a_method_replaces_that_of_its_class(invoke: Invoke, clock: Clock) -> None:
    """The method's delay of a millisecond is over soon; that of the class does not count."""

    @circuit_breaker(success_threshold=2, request_volume_threshold=4, failure_ratio=0.75, delay=50_000)
    class Client(Service):
        @circuit_breaker(success_threshold=2, request_volume_threshold=4, failure_ratio=0.75, delay=1)
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            if self.executions < 5:
                raise TestException

    client = Client()
    before = [invoke.outcome(client.work) for _ in range(4)]
    clock.sleep(0.5)
    after = [invoke.outcome(client.work) for _ in range(3)]

    assert before == [FAILED] * 4
    assert after == [OK] * 3
    assert client.executions == 7


# Around a time-out


@pytest.mark.tck("CircuitBreakerTimeoutTest.testTimeout")
def test_time_out_is_a_failure_of_the_circuit(invoke: Invoke) -> None:
    """The breaker is outside the time-out: two late calls open a window of two, although their bodies returned."""

    class Client(Service):
        @circuit_breaker(success_threshold=2, request_volume_threshold=2, failure_ratio=0.75, delay=50_000)
        @timeout(500)
        @invoke.body
        async def work(self) -> str:
            return await _late(invoke)

    client = Client()
    outcomes = [invoke.outcome(client.work) for _ in range(3)]

    assert outcomes == [TimeoutException, TimeoutException, OPEN]


@pytest.mark.tck("CircuitBreakerTimeoutTest.testTimeoutWithoutFailOn")
def test_time_out_that_fail_on_does_not_name_is_no_failure(invoke: Invoke) -> None:
    """A failure that fail_on leaves out counts as a success, and the circuit stays closed."""

    class Client(Service):
        @circuit_breaker(
            success_threshold=2,
            request_volume_threshold=2,
            failure_ratio=0.75,
            delay=50_000,
            fail_on=[BulkheadException],
        )
        @timeout(500)
        @invoke.body
        async def work(self) -> str:
            return await _late(invoke)

    client = Client()
    outcomes = [invoke.outcome(client.work) for _ in range(3)]

    assert outcomes == [TimeoutException] * 3


async def _late(invoke: Invoke) -> str:
    try:
        await invoke.sleep(1.0)
    except INTERRUPTION:
        pass
    return "OK"
