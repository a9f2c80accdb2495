"""A half-open circuit: the number of probes, late results, probes that hang, the verdict on failures (rule R4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from faulttolerance import CircuitBreakerOpenException, circuit_breaker, circuit_breakers
from kit import Barrier, Calls, Clock, Invoke, Service, key

Held = Callable[[], list[str]]


@pytest.fixture
def calls(invoke: Invoke, clock: Clock) -> Iterator[Calls]:
    """Yield many calls at once, which all end with the test."""
    started = Calls(invoke, clock)
    yield started
    started.end()


class Wanted(Service):
    """A service with an instruction for its body."""

    failure: BaseException | None = None


# R4


def test_no_more_probes_than_the_threshold_run_at_once(invoke: Invoke, clock: Clock, calls: Calls, held: Held) -> None:
    """R4, B1: of many calls at the end of the delay, as many pass as successes are needed."""

    class Client(Wanted):
        @circuit_breaker(request_volume_threshold=1, delay=1000, success_threshold=3)
        @invoke.body
        async def service(self, barrier: Barrier | None) -> None:
            if barrier is None:
                raise OSError
            if invoke.is_on_loop:
                await barrier.pass_through_async()
            else:
                barrier.pass_through()

    client = Client()
    assert invoke.outcome(client.service, None) is OSError
    clock.sleep(1)
    begun = [calls.start(client.service) for _ in range(12)]
    calls.eventually(lambda: sum(call.has_started for call in begun) == 3 and sum(call.is_over for call in begun) == 9)
    refused = [call.failure() for call in begun if call.is_over]
    for call in begun:
        call.release()
    results = [call.result() for call in begun if call.has_started]

    assert refused == [CircuitBreakerOpenException] * 9
    assert results == [None] * 3
    assert circuit_breakers.state(f"{key(Client)}.service") == "closed"
    assert held() == []


@pytest.mark.parametrize("verdict", ["success", "failure"])
def test_late_result_of_the_closed_period_does_not_touch_a_half_open_circuit(
    invoke: Invoke, clock: Clock, calls: Calls, verdict: str
) -> None:
    """R4, B4: a call is judged by the period that admitted it."""

    class Client(Service):
        @circuit_breaker(request_volume_threshold=2, failure_ratio=0.5, delay=1000)
        @invoke.body
        async def service(self, barrier: Barrier | None) -> None:
            if barrier is not None:
                if invoke.is_on_loop:
                    await barrier.pass_through_async()
                else:
                    barrier.pass_through()
            if barrier is None or verdict == "failure":
                raise OSError

    client = Client()
    name = f"{key(Client)}.service"
    late = calls.start_running(client.service)
    assert [invoke.outcome(client.service, None) for _ in range(2)] == [OSError, OSError]
    clock.sleep(1.5)
    before = circuit_breakers.state(name)
    late.release()
    failure = late.failure()

    assert before == "half-open"
    assert failure is (OSError if verdict == "failure" else type(None))
    assert circuit_breakers.state(name) == "half-open"


def test_probe_that_hangs_gives_its_place_up_after_the_delay(
    invoke: Invoke, clock: Clock, calls: Calls, held: Held
) -> None:
    """R4, B2: its verdict does not count any more."""

    class Client(Service):
        @circuit_breaker(request_volume_threshold=1, delay=1000)
        @invoke.body
        async def service(self, barrier: Barrier | None, fails: bool = False) -> str:
            if barrier is not None:
                if invoke.is_on_loop:
                    await barrier.pass_through_async()
                else:
                    barrier.pass_through()
                raise OSError
            if fails:
                raise OSError
            return "served"

    client = Client()
    name = f"{key(Client)}.service"
    assert invoke.outcome(client.service, None, True) is OSError
    clock.sleep(1.1)
    hanging = calls.start_running(client.service)
    wedged = invoke.outcome(client.service, None)
    clock.sleep(1.1)
    served = invoke(client.service, None)
    hanging.release()
    failure = hanging.failure()

    assert wedged is CircuitBreakerOpenException
    assert served == "served"
    assert failure is OSError
    assert circuit_breakers.state(name) == "closed"
    assert held() == []


@pytest.mark.parametrize(("kind", "state"), [(OSError, "closed"), (KeyError, "open"), (ValueError, "closed")])
def test_skipped_and_other_failures_are_judged_in_half_open_as_in_closed(
    invoke: Invoke, clock: Clock, kind: type[Exception], state: str
) -> None:
    """R4, B3: ``skip_on`` and failures outside ``fail_on`` are successes of a probe too."""

    class Client(Service):
        @circuit_breaker(fail_on=(KeyError, OSError), skip_on=OSError, request_volume_threshold=1, delay=1000)
        @invoke.body
        async def service(self, failure: type[Exception]) -> None:
            raise failure

    client = Client()
    invoke.outcome(client.service, KeyError)
    clock.sleep(1)
    invoke.outcome(client.service, kind)

    assert circuit_breakers.state(f"{key(Client)}.service") == state


# R5


# R6
