"""The rules D and OR: deadlines of whole calls, in every way of calling."""

# ruff: noqa: PT012, SIM117  # a block that raises is what is tested

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from faulttolerance import (
    FaultToleranceDefinitionException,
    Future,
    Guard,
    Interrupted,
    TimeoutException,
    adaptive_throttle,
    asynchronous,
    bulkhead,
    circuit_breaker,
    circuit_breakers,
    completed_future,
    configure,
    deadline,
    explain,
    fallback,
    guards,
    rate_limit,
    reload,
    remaining,
    retry,
    sleep,
    timeout,
    uninterruptible,
)
from faulttolerance.policies import AdaptiveThrottle, CircuitBreaker, Deadline, Retry
from faulttolerance.testing import configured
from kit import Clock, Invoke, Service, key

_numbers = count()
Decorate = Callable[[Any], Any]
BREAKER = {"request_volume_threshold": 2, "failure_ratio": 1.0, "delay": 5000, "fail_on": OSError}


class Client(Service):
    """A client with the instructions for its body."""

    seconds = 0.0
    works = 0.0
    failure: BaseException | None = None
    when_ended: BaseException | None = None
    left: list[float | None]
    service: Callable[..., Any]


def client_of(invoke: Invoke, clock: Clock, *decorators: Decorate) -> tuple[Client, str]:
    """Return a client with a guarded service, and the name of the guard."""

    async def service(self: Client) -> str:
        self.executions += 1
        self.left.append(None if (left := remaining()) is None else round(left, 3))
        if self.works:
            clock.work(self.works)
        if self.seconds:
            try:
                await invoke.sleep(self.seconds)
            except (Interrupted, asyncio.CancelledError) as error:
                if self.when_ended is not None:
                    raise self.when_ended from error
                raise
        if self.failure is not None:
            raise self.failure
        return "served"

    name = f"Client{next(_numbers)}"
    service.__qualname__ = f"{name}.service"
    guarded = invoke.body(service)
    for decorate in decorators[::-1]:
        guarded = decorate(guarded)
    made: Any = type(name, (Client,), {"service": guarded, "__module__": __name__, "left": []})()
    return made, f"{key(type(made))}.service"


def counts(name: str) -> dict[str, float]:
    """Return the counts other than 0, by the metric and the values of its tags."""
    (guard,) = [one for one in guards() if one.name == name and any(one.counts.values())]
    return {
        " ".join([metric, *(value for _, value in tags)]): value
        for (metric, tags), value in guard.counts.items()
        if value and "state.total" not in metric
    }


# Whole calls


def test_a_deadline_bounds_all_attempts_and_their_delays(invoke: Invoke, clock: Clock) -> None:
    """By rule D1: a deadline that ended calls only between attempts would be none."""
    client, _ = client_of(
        invoke, clock, deadline(1000), retry(max_retries=9, delay=100, jitter=0), timeout(300), circuit_breaker
    )
    client.seconds = 5
    watch = clock.stopwatch()

    with pytest.raises(TimeoutException, match=r"service: deadline of 1 s passed(?m:$)"):
        invoke(client.service)

    assert watch.elapsed == pytest.approx(1.0)
    assert client.left == [0.3, 0.3, 0.2]


def test_the_deadline_ends_an_attempt_in_its_middle(invoke: Invoke, clock: Clock) -> None:
    """By rule D1: it needs no time-out; the failure of an attempt that was ended is the cause."""
    client, _ = client_of(invoke, clock, deadline(400))
    client.seconds, client.when_ended = 5, ConnectionError("lost")
    watch = clock.stopwatch()

    with pytest.raises(TimeoutException):
        invoke(client.service)

    assert watch.elapsed == pytest.approx(0.4)


def test_a_result_that_comes_late_is_discarded(invoke: Invoke, clock: Clock) -> None:
    """By rules D1, R2: a body that no interruption reached has no result any more."""
    client, _ = client_of(invoke, clock, deadline(400))
    client.works = 1

    assert invoke.outcome(client.service) is TimeoutException


def test_calls_in_time_are_left_alone(invoke: Invoke, clock: Clock) -> None:
    client, name = client_of(invoke, clock, deadline("0.4s"), retry(max_retries=1, delay=0, jitter=0))
    client.seconds = 0.3

    assert [invoke(client.service) for _ in range(3)] == ["served"] * 3

    assert client.left == [0.4] * 3
    assert counts(name)["ft.deadline.calls.total false"] == 3


def test_no_retry_begins_whose_delay_reaches_the_deadline(invoke: Invoke, clock: Clock) -> None:
    """By rules D2, R12: the failure comes out at once, with a note, and the deadline was not exceeded."""
    client, name = client_of(invoke, clock, deadline(1000), retry(max_retries=9, delay=400, jitter=0))
    client.failure = ConnectionError("no")
    watch = clock.stopwatch()

    with pytest.raises(ConnectionError) as raised:
        invoke(client.service)

    assert client.executions == 3
    assert watch.elapsed == pytest.approx(0.8)
    assert "because an enclosing deadline would pass" in raised.value.__notes__[0]
    assert counts(name)["ft.deadline.calls.total false"] == 1


def test_no_retry_begins_when_nothing_is_left(invoke: Invoke, clock: Clock) -> None:
    """By rule D2: no delay is needed for that; the attempt before could not be interrupted."""
    client, _ = client_of(invoke, clock, deadline(400), retry(max_retries=9, delay=0, jitter=0))
    client.works, client.failure = 1, ConnectionError("no")

    assert invoke.outcome(client.service) is TimeoutException

    assert client.executions == 1


@pytest.mark.parametrize(
    "gate", [circuit_breaker(**BREAKER), rate_limit(1, window="1h"), bulkhead(1)], ids=["breaker", "rate", "bulkhead"]
)
def test_nobody_is_asked_where_no_time_is_left(gate: Decorate) -> None:
    """By rule D2: the call fails with ``TimeoutException``, and takes nothing."""
    from faulttolerance.testing import virtual_time

    ran = []

    @deadline(1000)
    @gate
    def guarded() -> str:
        ran.append(remaining())
        return "served"

    with virtual_time() as time, pytest.raises(TimeoutException, match=r"deadline of 0\.1 s passed"):
        with deadline(100):
            time.advance(0.2)
            with pytest.raises(TimeoutException, match="guarded: no time is left"):
                guarded()
            assert not ran

    assert guarded() == "served"


@pytest.mark.parametrize(
    "policy",
    [
        circuit_breaker(**BREAKER),
        rate_limit(1, window="1h"),
        bulkhead(1),
        retry(),
        timeout(9000),
        fallback(lambda _: ""),
    ],
    ids=["breaker", "rate", "bulkhead", "retry", "timeout", "fallback"],
)
@pytest.mark.parametrize("is_awaited", [False, True], ids=["blocking", "asyncio"])
def test_no_guard_begins_a_call_in_a_block_without_time_left(policy: Decorate, is_awaited: bool) -> None:
    """By rule D2: a guard that has no deadline of its own, and was called before there was any, begins none either."""
    from faulttolerance.testing import virtual_time

    ran = []

    @policy
    def guarded() -> str:
        ran.append(remaining())
        return "served"

    @policy
    async def guarded_async() -> str:
        return guarded.__wrapped__()

    async def late() -> None:
        async with deadline(100):
            time.advance(0.2)
            with pytest.raises(TimeoutException, match="guarded_async: no time is left"):
                await guarded_async()

    def late_here() -> None:
        with deadline(100):
            time.advance(0.2)
            with pytest.raises(TimeoutException, match="guarded: no time is left"):
                guarded()

    with virtual_time() as time, pytest.raises(TimeoutException, match=r"deadline of 0\.1 s passed"):
        time.run(late()) if is_awaited else late_here()

    assert not ran
    assert (asyncio.run(guarded_async()) if is_awaited else guarded()) == "served"


def test_no_detached_call_on_a_loop_begins_in_a_block_without_time_left() -> None:
    """By rule D2: the task of an ``@asynchronous async def`` would run before the loop could cancel it."""
    from faulttolerance.testing import virtual_time

    ran = []

    @asynchronous
    @retry
    async def guarded() -> str:
        ran.append(1)
        return "served"

    async def late() -> None:
        async with deadline(100):
            time.advance(0.2)
            with pytest.raises(TimeoutException, match="guarded: no time is left"):
                await asyncio.shield(asyncio.ensure_future(guarded()))

    with virtual_time() as time, pytest.raises(TimeoutException, match=r"deadline of 0\.1 s passed"):
        time.run(late())

    assert not ran


def test_an_offloaded_call_without_time_left_asks_no_policy() -> None:
    """By rule D2: it takes no permit of a rate limit, which a call with time left may need."""
    from faulttolerance.testing import virtual_time

    @asynchronous
    @rate_limit(1, window="1h")
    def guarded() -> Future[str]:
        return completed_future("served")

    async def late() -> None:
        async with deadline(100):
            time.advance(0.2)
            with pytest.raises(TimeoutException, match="an enclosing deadline of this call passed"):
                guarded().result(20)

    with virtual_time() as time, pytest.raises(TimeoutException, match=r"deadline of 0\.1 s passed"):
        time.run(late())

    assert guarded().result(20) == "served"


def test_no_guard_begins_a_call_in_a_call_without_time_left() -> None:
    """By rule D2: a call under the deadline of a guard has no time left either."""
    from faulttolerance.testing import virtual_time

    ran = []

    @retry
    def inner() -> None:
        ran.append(1)

    @deadline(100)
    def outer() -> None:
        time.advance(0.2)
        with pytest.raises(TimeoutException, match="inner: no time is left"):
            inner()

    with virtual_time() as time, pytest.raises(TimeoutException, match=r"outer: deadline of 0\.1 s passed"):
        outer()

    assert not ran


@pytest.mark.parametrize("policy", [retry, deadline(1000)], ids=["retry", "deadline"])
def test_an_uninterruptible_block_calls_guards_without_time_left(policy: Decorate) -> None:
    """By rules D2, R2b: a guarded call could else clean up nothing; a deadline of its own is no reason to refuse."""
    from faulttolerance.testing import virtual_time

    ran = []

    @policy
    def cleanup() -> None:
        with deadline(1000):
            ran.append(1)

    with virtual_time() as time, pytest.raises(TimeoutException):
        with deadline(100):
            time.advance(0.2)
            with uninterruptible():
                cleanup()

    assert ran


def test_a_time_out_around_it_is_no_deadline_of_the_next_call() -> None:
    """By rule D2: a time-out ends its own attempt, late where it could not interrupt it, and refuses nothing inside."""
    from faulttolerance.testing import virtual_time

    ran = []

    @retry
    def inner() -> None:
        ran.append(1)

    @timeout(100)
    def outer() -> None:
        time.advance(0.2)
        inner()

    with virtual_time() as time, deadline(1000), pytest.raises(TimeoutException):
        outer()

    assert ran


@pytest.mark.outside
def test_no_block_of_a_guard_begins_without_time_left() -> None:
    """By rule D2: the block's body is not run, and the breaker is not asked."""
    from faulttolerance.testing import virtual_time

    guard, ran = Guard(circuit_breaker=CircuitBreaker(), name="late-block"), []

    with virtual_time() as time, pytest.raises(TimeoutException, match=r"deadline of 0\.1 s passed"):
        with deadline(100):
            time.advance(0.2)
            with pytest.raises(TimeoutException, match="late-block: no time is left"):
                with guard.attempt():
                    ran.append(1)

    guard.close()
    assert not ran


def test_an_attempt_that_the_deadline_ends_is_nobodys_failure(invoke: Invoke, clock: Clock) -> None:
    """By rule D3: neutral to the breaker, no time-out, not retried."""
    client, name = client_of(
        invoke, clock, deadline(400), retry(max_retries=3, delay=0), circuit_breaker(**BREAKER), timeout(3000)
    )
    client.seconds = 5

    assert [invoke.outcome(client.service) for _ in range(4)] == [TimeoutException] * 4

    assert client.executions == 4
    assert circuit_breakers.state(name) == "closed"
    assert counts(name) == {
        "ft.invocations.total exceptionThrown notDefined": 4,
        "ft.deadline.calls.total true": 4,
        "ft.retry.calls.total false exceptionNotRetryable": 4,
        "ft.timeout.calls.total false": 4,
    }


def test_an_exception_of_an_interrupted_body_is_nobodys_failure(invoke: Invoke, clock: Clock) -> None:
    """By rule D3: a driver may raise an error of its own when it is interrupted."""
    client, name = client_of(invoke, clock, deadline(400), retry(max_retries=3, delay=0), circuit_breaker(**BREAKER))
    client.seconds, client.when_ended = 5, ConnectionError("lost")

    assert [invoke.outcome(client.service) for _ in range(4)] == [TimeoutException] * 4

    assert circuit_breakers.state(name) == "closed"
    assert client.executions == 4
    assert not any("circuitbreaker.calls" in one for one in counts(name))


def test_it_is_neutral_to_the_throttle(invoke: Invoke, clock: Clock) -> None:
    """By rule D3."""
    client, name = client_of(invoke, clock, deadline(400), adaptive_throttle(min_requests=1))
    client.seconds = 5

    assert [invoke.outcome(client.service) for _ in range(30)] == [TimeoutException] * 30

    assert "ft.throttle.calls.total failed" not in counts(name)
    assert client.executions == 30


def test_time_outs_inside_are_clipped(invoke: Invoke, clock: Clock) -> None:
    """By rule D3: ``remaining()`` tells the nearer end."""
    client, _ = client_of(invoke, clock, deadline(400), timeout(3000))

    invoke(client.service)

    assert client.left == [0.4]


def test_the_fallback_still_answers(invoke: Invoke, clock: Clock) -> None:
    """By rules D3, OR2: it stands outside the deadline, and has all the time that the caller has."""
    seen = []

    def instead(context: Any) -> str:
        seen.append((type(context.failure), remaining()))
        return "instead"

    client, name = client_of(invoke, clock, deadline(400), fallback(instead), retry(max_retries=3, delay=0))
    client.seconds = 5

    assert invoke(client.service) == "instead"

    assert seen == [(TimeoutException, None)]
    assert counts(name)["ft.invocations.total valueReturned applied"] == 1


def test_a_fallback_applies_by_its_own_sets(invoke: Invoke, clock: Clock) -> None:
    """By rule D3."""
    client, _ = client_of(invoke, clock, fallback(lambda context: "instead", apply_on=ConnectionError), deadline(400))
    client.seconds = 5

    assert invoke.outcome(client.service) is TimeoutException


def test_a_permit_comes_back_when_the_deadline_passes(invoke: Invoke, clock: Clock, held: Any) -> None:
    """By rules D1, R11: nothing is lost."""
    client, _ = client_of(invoke, clock, deadline(400), bulkhead(1, waiting_task_queue=3), circuit_breaker(**BREAKER))
    client.seconds = 5

    assert [invoke.outcome(client.service) for _ in range(3)] == [TimeoutException] * 3

    assert held() == []


def test_a_wait_for_a_permit_ends_at_the_deadline(invoke: Invoke, clock: Clock, held: Any) -> None:
    """By rules D1, D2: the wait in a queue is part of the call."""
    client, _ = client_of(invoke, clock, deadline(400), bulkhead(1, waiting_task_queue=3, max_wait="1h"))
    client.seconds = 0.3
    found: list[Any] = []
    began = clock.monotonic()

    if invoke.convention == "blocking":
        calls = [clock.start(client.service) for _ in range(3)]
        found = [type(call.exception()) for call in calls]
    else:

        async def main() -> None:
            made = [client.service() for _ in range(3)]
            found.extend(await asyncio.gather(*map(_awaited, made), return_exceptions=True))

        clock.run(main())
        found = [type(None) if one == "served" else type(one) for one in found]

    assert sorted(kind.__name__ for kind in found) == ["NoneType", "TimeoutException", "TimeoutException"]
    assert clock.monotonic() - began == pytest.approx(0.4)
    assert held() == []


async def _awaited(call: Any) -> Any:
    return await call


def test_the_same_policy_as_a_value() -> None:
    """By rule G1: a ``Guard`` takes it for calls, and advises the right form for blocks."""
    guard = Guard(deadline=Deadline("20ms"), retry=Retry(retry_on=ConnectionError))

    with pytest.raises(TimeoutException, match=r"test_calls:\d+: deadline of 0.02 s passed"):
        guard.call(sleep, 5)
    with pytest.raises(FaultToleranceDefinitionException, match=r"bounds whole calls; allowed: `with deadline"):
        guard.attempts()
    with pytest.raises(FaultToleranceDefinitionException, match="bounds whole calls"):
        guard.attempt()


def test_it_is_configured_like_every_policy(invoke: Invoke, clock: Clock) -> None:
    """By rules C2, X1: by ``Deadline/value``, with a unit; 0 is none; later the declared value holds again."""
    client, _ = client_of(invoke, clock, deadline(1000), retry(max_retries=1, delay=0, jitter=0))
    value = key(type(client), "service", "Deadline", "value")

    for text in ("2s", "0", "PT0.5S"):
        with configured({value: text}):
            invoke(client.service)
    with configured({key(type(client), "service", "Deadline", "enabled"): "false"}):
        invoke(client.service)
    reload()
    invoke(client.service)

    assert client.left == [2.0, None, 0.5, None, 1.0]


def test_an_observed_deadline_ends_nothing(invoke: Invoke, clock: Clock) -> None:
    """By rule X7: it counts each call once that it would have ended, and is no deadline for the calls inside."""
    client, name = client_of(invoke, clock, deadline(400), retry(max_retries=3, delay=300, jitter=0), timeout(2000))
    client.seconds = 1
    with configured({key(type(client), "service", "Deadline", "mode"): "observe"}):
        assert invoke(client.service) == "served"
        client.seconds = 0.1
        assert invoke(client.service) == "served"

        assert client.left == [2.0, 2.0]
        assert counts(name)["ft.observed.total Deadline"] == 1
        assert counts(name)["ft.deadline.calls.total false"] == 2
        assert "ft.deadline.calls.total true" not in counts(name)


# The order


def test_the_deadline_counts_calls_and_the_breaker_attempts(invoke: Invoke, clock: Clock) -> None:
    """By rule OR1: three attempts of a call are one count of the deadline."""
    client, name = client_of(
        invoke, clock, circuit_breaker, timeout(100), deadline(5000), retry(max_retries=2, delay=0, jitter=0)
    )
    client.failure = ConnectionError("no")

    assert invoke.outcome(client.service) is ConnectionError

    found = counts(name)
    assert found["ft.deadline.calls.total false"] == found["ft.invocations.total exceptionThrown notDefined"] == 1
    assert found["ft.circuitbreaker.calls.total failure"] == found["ft.timeout.calls.total false"] == 3


def test_breaker_and_throttle_exclude_each_other() -> None:
    """By rule OR3: the error names the second one."""
    with pytest.raises(FaultToleranceDefinitionException, match="AdaptiveThrottle"):
        Guard(circuit_breaker=CircuitBreaker(), adaptive_throttle=AdaptiveThrottle())


def test_the_order_is_one_table() -> None:
    """By rule OR4: the order of the decorators does not matter."""

    @bulkhead(3)
    @retry(retry_on=ConnectionError)
    @circuit_breaker
    @deadline(1000)
    @timeout(100)
    @fallback(lambda context: None)
    @rate_limit(3)
    def guarded() -> None: ...

    shown = [line.split()[0] for line in str(explain(guarded)).splitlines() if line[:2] == "  " and line[2].isalpha()]

    assert shown == ["Fallback", "Deadline", "Retry", "CircuitBreaker", "RateLimit", "Timeout", "Bulkhead"]


# Blocks


@pytest.mark.parametrize("error", [None, ConnectionError("lost")], ids=["interrupted", "raised by the clean-up"])
def test_a_block_is_outside_of_all(invoke: Invoke, clock: Clock, error: Exception | None) -> None:
    """By rule OR2 and rule R0, no fallback inside replaces the failure of a block that ended."""
    asked = []
    client, _ = client_of(invoke, clock, fallback(asked.append), retry(delay=0, retry_on=TimeoutException))
    client.seconds, client.when_ended = 5, error

    async def main() -> None:
        async with deadline(400):
            await client.service()

    def blocking() -> None:
        with deadline(400):
            made = client.service()
            if invoke.convention == "offloaded":
                made.result()

    with pytest.raises(TimeoutException, match=r"deadline of 0\.4 s"):
        clock.run(main()) if invoke.is_on_loop else blocking()

    assert not asked
    assert client.executions == 1


def test_in_a_clean_up_without_time_left_a_guard_is_a_guard() -> None:
    """By rules D2, R2b: an uninterruptible block calls guards, whose fallbacks answer and whose circuits judge."""
    from faulttolerance.testing import virtual_time

    @fallback(lambda context: "spare")
    @circuit_breaker(request_volume_threshold=1)
    def cleanup() -> str:
        raise ConnectionError

    answers = []
    with virtual_time() as time, pytest.raises(TimeoutException):
        with deadline(100):
            time.advance(0.2)
            with uninterruptible():
                answers.append(cleanup())

    assert answers == ["spare"]
    [guard] = [one for one in guards() if one.method is cleanup]
    assert circuit_breakers.state(guard.name) == "open"


@pytest.mark.parametrize("value", [-1, "soon", None, True, float("nan"), [1]])
def test_a_value_that_is_no_duration_is_refused(value: Any) -> None:
    """By rules R9, X1: where it is written, before anything is decorated or entered, and as a value."""
    with pytest.raises(
        FaultToleranceDefinitionException,
        match=r"deadline\(value\) is .*allowed: a duration >= 0.*\(at tck\.deadline\.test_calls:\d+\)",
    ):
        deadline(value)
    with pytest.raises(FaultToleranceDefinitionException, match=r"@Deadline\(value\) is .*allowed: a duration >= 0"):
        Deadline(value)


def test_a_wrong_configuration_is_refused() -> None:
    """By rule R9: it changes nothing."""

    @deadline(1000)
    def guarded() -> float | None:
        return remaining()

    guarded()
    with pytest.raises(FaultToleranceDefinitionException, match=r"Deadline/value is 'soon'.*allowed: a duration"):
        configure(properties={"Deadline/value": "soon"})

    assert guarded() == pytest.approx(1.0, abs=0.5)


def test_a_deadline_needs_a_value() -> None:
    """By rule P7: a function below it is no duration."""
    with pytest.raises(FaultToleranceDefinitionException, match="is used without arguments"):

        @deadline  # type: ignore[arg-type]
        def forgotten() -> None: ...

    with pytest.raises(TypeError):
        deadline()  # type: ignore[call-arg]
    with pytest.raises(FaultToleranceDefinitionException, match="is present twice"):
        deadline(1)(deadline(2)(lambda: None))
    with pytest.raises(FaultToleranceDefinitionException, match="generator function"):

        @deadline(1)
        def stream() -> Iterator[int]:
            yield 1


def test_a_class_is_decorated_and_may_have_one_for_its_blocks(clock: Clock) -> None:
    """By rule P1."""

    @deadline(400)
    class Shop:
        briefly = deadline(100)

        def slow(self) -> None:
            sleep(5)

        def brief(self) -> float | None:
            with self.briefly:
                return remaining()

    with pytest.raises(TimeoutException, match=r"Shop\.slow: deadline of 0\.4 s passed"):
        Shop().slow()
    assert Shop().brief() == pytest.approx(0.1)


# Travelling


def test_a_duration_travels_between_services(clock: Clock) -> None:
    """By rule D5: the receiver's deadline is the time that the caller has left, whatever their clocks say."""

    def receive(headers: dict[str, str]) -> float | None:
        with deadline(int(headers["X-Request-Timeout-Ms"])):
            clock.sleep(0.3)
            return remaining()

    with deadline(1000):
        clock.sleep(0.2)
        headers = {"X-Request-Timeout-Ms": str(int((remaining() or 0.0) * 1000))}

    assert receive(headers) == pytest.approx(0.5, abs=0.01)


# Signals
