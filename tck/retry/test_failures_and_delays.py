"""Rules R1 and R12: the failure that comes out, its note, and the delays that begin."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import faulttolerance
from faulttolerance import (
    CircuitBreakerOpenException,
    Guard,
    TimeoutException,
    circuit_breaker,
    exponential_backoff,
    fallback,
    retry,
    timeout,
)
from faulttolerance.policies import Timeout
from kit import Clock, Invoke

Notes = list[str]


def failure_of(invoke: Invoke, method: Callable[..., Any], *args: Any) -> Any:
    """Return the exception that a call raises."""
    with pytest.raises(Exception) as raised:
        invoke(method, *args)
    return raised.value


def notes_of(error: BaseException) -> Notes:
    return list(getattr(error, "__notes__", []))


# R1


def test_failure_that_comes_out_is_that_of_the_last_attempt(invoke: Invoke) -> None:
    """R1: the very object, with the traceback to where it was raised, no cause or context put on it."""
    raised: list[OSError] = []

    @retry(max_retries=2, jitter=0)
    @invoke.body
    async def service() -> None:
        raised.append(OSError(len(raised)))
        raise raised[-1]

    error = failure_of(invoke, service)

    assert error is raised[2]
    assert error.args == (2,)
    assert "raise raised[-1]" in "".join(traceback.format_exception(error))
    assert error.__cause__ is None
    assert error.__context__ is None


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"max_retries": 2, "jitter": 0}, ["3 attempts in 0.000 s", "max_retries"]),
        (
            {"max_retries": -1, "jitter": 0, "delay": 400, "max_duration": 1000},
            ["3 attempts in 0.800 s", "max_duration"],
        ),
        ({"max_retries": 5, "jitter": 0, "delay": 100, "abort_on": KeyError}, ["2 attempts in 0.100 s", "not to be"]),
    ],
)
def test_note_has_the_number_of_attempts_their_duration_and_the_reason_of_the_end(
    invoke: Invoke, parameters: dict[str, Any], words: list[str]
) -> None:
    """R1: PEP 678, one note of ours."""
    attempts = []

    @retry(**parameters)
    @invoke.body
    async def service() -> None:
        attempts.append(None)
        raise KeyError if "abort_on" in parameters and len(attempts) == 2 else OSError

    (note,) = notes_of(failure_of(invoke, service))

    for word in words:
        assert word in note


def test_single_attempt_leaves_no_note(invoke: Invoke) -> None:
    """R1: the failure is as the body raised it."""

    @retry(max_retries=0)
    @invoke.body
    async def once() -> None:
        raise OSError

    @retry(abort_on=OSError)
    @invoke.body
    async def aborted() -> None:
        raise OSError

    assert notes_of(failure_of(invoke, once)) == []
    assert notes_of(failure_of(invoke, aborted)) == []


def test_note_on_a_shared_failure_is_replaced(invoke: Invoke) -> None:
    """R1: an exception object that is raised again and again has one note of ours, and keeps those of others."""
    shared = OSError("shared")
    shared.add_note("of the application")

    @retry(max_retries=1, jitter=0)
    @invoke.body
    async def service() -> None:
        raise shared

    for _ in range(20):
        failure_of(invoke, service)

    assert notes_of(shared)[0] == "of the application"
    assert len(notes_of(shared)) == 2


def test_unlimited_retries_end_with_success(invoke: Invoke) -> None:
    """R1: ``max_retries=-1`` has no limit, ``max_duration=0`` none either."""
    attempts = []

    @retry(max_retries=-1, max_duration=0, jitter=0, delay=1000)
    @invoke.body
    async def service() -> int:
        attempts.append(None)
        if len(attempts) < 1000:
            raise OSError
        return len(attempts)

    assert invoke(service) == 1000


def test_delays_never_overflow(invoke: Invoke, clock: Clock) -> None:
    """R10, B14: exponential back-off for ever stays at its maximum."""
    attempts = []

    @retry(max_retries=-1, max_duration=0, jitter=0, delay=1)
    @exponential_backoff(factor=10, max_delay=1000)
    @invoke.body
    async def service() -> int:
        attempts.append(clock.monotonic())
        if len(attempts) < 1200:
            raise OSError
        return len(attempts)

    assert invoke(service) == 1200
    assert attempts[-1] - attempts[-2] == pytest.approx(1, abs=0.001)


def test_concurrent_calls_count_their_attempts_apart(clock: Clock) -> None:
    """R1, B19: no call sees the attempts of another one."""
    attempts = {1: 0, 2: 0, 3: 0}

    @retry(max_retries=2, delay=100, jitter=50)
    async def service(number: int) -> None:
        attempts[number] += 1
        raise OSError(number)

    async def main() -> list[Any]:
        return await asyncio.gather(*(service(number) for number in attempts), return_exceptions=True)

    errors = clock.run(main())

    assert attempts == {1: 3, 2: 3, 3: 3}
    assert [error.args for error in errors] == [(1,), (2,), (3,)]
    assert all("3 attempts" in notes_of(error)[0] for error in errors)


def test_failure_of_the_fallback_has_no_note_of_the_retries(invoke: Invoke) -> None:
    """R1: the failure comes out as it is."""

    def instead(context: Any) -> Any:
        raise KeyError

    @fallback(instead)
    @retry(max_retries=1, jitter=0)
    @invoke.body
    async def service() -> None:
        raise OSError

    error = failure_of(invoke, service)

    assert type(error) is KeyError
    assert notes_of(error) == []


def test_open_circuit_is_a_failure_that_is_retried(invoke: Invoke) -> None:
    """R1, R4: a refusal is an attempt like any other."""
    attempts = []

    @retry(max_retries=3, jitter=0)
    @circuit_breaker(request_volume_threshold=2, failure_ratio=1.0)
    @invoke.body
    async def service() -> None:
        attempts.append(None)
        raise OSError

    error = failure_of(invoke, service)

    assert type(error) is CircuitBreakerOpenException
    assert len(attempts) == 2
    assert "4 attempts" in notes_of(error)[0]


# R12


def test_delay_that_would_reach_max_duration_is_not_begun(invoke: Invoke, clock: Clock) -> None:
    """R12, B16: the failure comes out at once, and not after the delay."""
    began = clock.monotonic()

    @retry(max_retries=-1, delay=600, max_duration=1000, jitter=0)
    @invoke.body
    async def service() -> None:
        raise OSError

    error = failure_of(invoke, service)

    assert clock.monotonic() - began == pytest.approx(0.6, abs=0.01)
    assert "max_duration" in notes_of(error)[0]


def test_delay_that_would_reach_an_enclosing_deadline_is_not_begun(invoke: Invoke, clock: Clock) -> None:
    """R12: the failure comes out at once, with a note, also after a single attempt."""
    if invoke.convention == "offloaded":
        pytest.skip("its caller is free at once: the deadline of a thread encloses no call that leaves the thread")
    attempts = []

    @retry(max_retries=5, delay=2000, jitter=0)
    @invoke.body
    async def inner() -> None:
        attempts.append(None)
        raise OSError

    outer = Guard(timeout=Timeout(1000))
    began = clock.monotonic()
    with pytest.raises(OSError) as raised:
        clock.run(outer.call_async(inner)) if invoke.is_on_loop else outer.call(inner)

    assert type(raised.value) is OSError
    assert len(attempts) == 1
    assert clock.monotonic() - began < 0.1
    assert "enclosing deadline" in notes_of(raised.value)[0]


def test_attempt_s_own_deadline_does_not_bound_the_delay(invoke: Invoke, clock: Clock) -> None:
    """R12: a time-out is per attempt; a delay longer than it is begun."""
    attempts = []

    @retry(max_retries=1, delay=5000, jitter=0)
    @timeout(1000)
    @invoke.body
    async def service() -> str:
        attempts.append(clock.monotonic())
        if len(attempts) == 1:
            await invoke.sleep(30)
        return "served"

    assert invoke(service) == "served"
    assert attempts[1] - attempts[0] == pytest.approx(6, abs=0.01)


def test_loop_goes_on_during_a_delay(clock: Clock) -> None:
    """R12, B20: an asynchronous call waits without blocking its loop."""
    beats = []

    @retry(max_retries=1, delay=1000, jitter=0)
    async def service() -> None:
        raise OSError

    async def heart() -> None:
        while True:
            beats.append(clock.monotonic())
            await asyncio.sleep(0.1)

    async def main() -> None:
        beating = asyncio.ensure_future(heart())
        with pytest.raises(OSError):
            await service()
        beating.cancel()

    clock.run(main())

    assert len(beats) >= 10


def test_other_tasks_get_their_turn_between_retries_without_a_delay() -> None:
    """A body that fails without waiting for anything starves nobody; the first retry follows at once."""
    order = []

    @retry(max_retries=3, delay=0, jitter=0)
    async def service() -> None:
        order.append("attempt")
        raise OSError

    async def other() -> None:
        for _ in range(3):
            order.append("other")
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(service(), other(), return_exceptions=True)

    asyncio.run(both())

    assert order == ["attempt", "attempt", "other", "attempt", "other", "attempt", "other"]


def test_synchronous_delay_on_a_loop_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """R12: at WARNING, once per guard; it blocks everything else on that loop."""

    @retry(max_retries=2, delay=1, jitter=0)
    def service() -> None:
        raise OSError

    async def main() -> None:
        for _ in range(2):
            with pytest.raises(OSError):
                service()

    with caplog.at_level(logging.WARNING, "faulttolerance"):
        with pytest.raises(OSError):
            service()
        before = [record for record in caplog.records if "event loop" in record.message]
        asyncio.run(main())
    said = [record for record in caplog.records if "event loop" in record.message]

    assert before == []
    assert [record.levelname for record in said] == ["WARNING"]
    assert "on_a_loop_is_reported_once.<locals>.service" in said[0].message


def test_time_out_ends_when_it_is_due_in_every_convention(invoke: Invoke, clock: Clock) -> None:
    """R2, R3: neither before nor after, and the next attempt has its whole time."""
    ends = []

    @retry(max_retries=1, jitter=0)
    @timeout(1500)
    @invoke.body
    async def service() -> None:
        try:
            await invoke.sleep(60)
        finally:
            ends.append(clock.monotonic())

    began = clock.monotonic()

    assert type(failure_of(invoke, service)) is TimeoutException
    assert clock.monotonic() - began == pytest.approx(3, abs=0.01)


def test_a_traceback_shows_few_lines_of_the_library(invoke: Invoke) -> None:
    """R1: it shows the lines that lead to the body, and no line of a fallback where there is none."""

    @retry(max_retries=1, delay=0)
    @invoke.body
    async def service() -> None:
        raise OSError

    failure_of(invoke, service)  # the first call finds its way
    frames = traceback.extract_tb(failure_of(invoke, service).__traceback__)

    library = Path(faulttolerance.__file__).parent
    places = [(Path(frame.filename), frame.name) for frame in frames]
    ours = [(file.name, name) for file, name in places if library in file.parents and file.parent.name != "testing"]
    if ("layer.py", "asking") in ours:  # from the first `deadline` of a process on, calls ask once for one
        ours.remove(("layer.py", "asking"))
    assert len(ours) <= {"blocking": 4, "asyncio": 3, "offloaded": 7, "task": 7}[invoke.convention], ours
    assert places[-1][1] == "service"
