"""Notes and warnings where a guard retries a guard that has retried inside (rule T6)."""

from __future__ import annotations

import asyncio
import logging
import pickle
from typing import Any

import pytest

from faulttolerance import Guard, coalesce, fallback, retry
from faulttolerance.policies import Retry
from faulttolerance.testing import virtual_time
from kit import Clock, Invoke


def notes_of(error: BaseException) -> list[str]:
    return [str(note) for note in getattr(error, "__notes__", [])]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "let only one of them retry" in one.getMessage()]


def nested(invoke: Invoke, failure: BaseException | None = None, delay: float = 0) -> Any:
    """Return a function that is retried twice around one that is retried twice."""

    @retry(max_retries=2, delay=delay, jitter=0)
    @invoke.body
    async def inner() -> None:
        raise failure or ConnectionError

    async def calls_on_a_loop() -> None:
        await inner()

    def calls() -> None:
        inner().result(10) if invoke.convention == "offloaded" else inner()

    body = calls_on_a_loop if invoke.is_on_loop else calls
    outer: Any = retry(max_retries=2, delay=delay, jitter=0)(body)
    outer.__name__ = "outer"
    return outer


def call(invoke: Invoke, clock: Clock, outer: Any) -> BaseException:
    with pytest.raises(ConnectionError) as raised:
        clock.run(outer()) if invoke.is_on_loop else outer()
    return raised.value


@pytest.mark.parametrize("delay", [0, 100])
def test_the_note_of_the_inner_guard_is_kept_and_that_of_the_outer_one_follows(
    invoke: Invoke, clock: Clock, delay: float
) -> None:
    """Rule T6: a reader sees nine attempts, and the guards that made them."""
    inner, outer = notes_of(call(invoke, clock, nested(invoke, delay=delay)))

    assert "faulttolerance: 3 attempts in" in inner
    assert "faulttolerance: 3 attempts of calls" in outer
    assert ", each up to 3 of inner, in" in outer
    assert outer.endswith("; no more, because max_retries reached")


def test_guards_as_values_are_called_by_their_names(clock: Clock) -> None:
    """Rule T6: three of them leave their notes one after the other."""

    def fail() -> None:
        raise ConnectionError

    inner, outer, outermost = (
        Guard(name=name, retry=Retry(max_retries=retries, jitter=0))
        for name, retries in (("inner", 2), ("outer", 2), ("outermost", 1))
    )
    try:
        with pytest.raises(ConnectionError) as raised:
            outermost.call(outer.call, lambda: inner.call(fail))  # type: ignore[call-overload]
    finally:
        for guard in (inner, outer, outermost):
            guard.close()

    first, second, third = notes_of(raised.value)
    assert "3 attempts in" in first
    assert "3 attempts of outer, each up to 3 of inner, in" in second
    assert "2 attempts of outermost, each up to 3 of outer, in" in third


def test_a_failure_that_is_raised_again_and_again_gets_no_more_notes(invoke: Invoke, clock: Clock) -> None:
    """Rules T6 and R1: it has one note of each guard, from whichever call."""
    shared = ConnectionError("shared")
    outer = nested(invoke, shared, delay=10)

    for _ in range(3):
        assert call(invoke, clock, outer) is shared

        assert len(notes_of(shared)) == 2
    assert "each up to 3 of inner" in notes_of(shared)[1]


def test_a_note_from_a_call_before_is_no_guard_inside(clock: Clock) -> None:
    """Rule T6: the same object passes one guard, and later another one."""
    shared = ConnectionError("shared")

    @retry(max_retries=1, delay=10, jitter=0)
    def one() -> None:
        raise shared

    @retry(max_retries=1, delay=10, jitter=0)
    def other() -> None:
        raise shared

    for function in (one, other, one):
        clock.sleep(1)
        with pytest.raises(ConnectionError):
            function()
        (note,) = notes_of(shared)
        assert "2 attempts in" in note


def test_a_note_from_a_call_that_has_just_ended_is_no_guard_inside(clock: Clock) -> None:
    """Rule T6: virtual time stands still between two calls; the first one began before the second one all the same."""
    shared = ConnectionError("shared")

    def fail() -> None:
        raise shared

    for function in [retry(max_retries=1, delay=10, jitter=0)(fail)] * 2:
        with pytest.raises(ConnectionError):
            function()
        with pytest.raises(ConnectionError):
            retry(max_retries=2, delay=10, jitter=0)(another_that_fails)(shared)
        (note,) = notes_of(shared)
        assert "3 attempts in" in note


def another_that_fails(failure: BaseException) -> None:
    raise failure


def test_a_note_from_another_test_is_no_guard_inside(caplog: pytest.LogCaptureFixture) -> None:
    """Rule T6: each ``virtual_time()`` block has a time of its own, which may be behind that of the block before."""
    shared = ConnectionError("shared")

    @retry(max_retries=1, delay=10, jitter=0)
    def one() -> None:
        raise shared

    @retry(max_retries=1, delay=10, jitter=0)
    def other() -> None:
        raise shared

    for function in (one, other, one):
        with virtual_time() as clock:
            clock.sleep(60 if function is one else 0)
            with pytest.raises(ConnectionError):
                function()
        (note,) = notes_of(shared)
        assert "2 attempts in" in note
    assert warnings(caplog) == []


def test_callers_that_share_a_failure_leave_one_note(caplog: pytest.LogCaptureFixture) -> None:
    """Rule T6: retries of several callers stand beside one another, and none inside another one."""
    asked = []

    @coalesce
    async def load() -> None:
        await asyncio.sleep(1)
        asked.append(None)
        raise ConnectionError

    @retry(max_retries=1, delay=10, jitter=0)
    async def call(beginning: float) -> None:
        await load()

    async def late(beginning: float) -> BaseException | None:
        await asyncio.sleep(beginning)
        return (await asyncio.gather(call(beginning), return_exceptions=True))[0]

    async def main() -> list[BaseException | None]:
        return await asyncio.gather(*(late(number / 100) for number in range(20)))

    with virtual_time() as clock:
        failures = clock.run(main())

    assert len(asked) == 2
    assert [len(notes_of(failure)) for failure in failures if failure is not None] == [1] * 20
    assert warnings(caplog) == []


def test_names_that_end_alike_are_shown_in_full(clock: Clock) -> None:
    """Rule T6: the last part of ``Client.send`` and ``Server.send`` tells a reader nothing."""

    class Server:
        @retry(max_retries=1, jitter=0)
        def send(self) -> None:
            raise ConnectionError

    class Client:
        @retry(max_retries=1, jitter=0)
        def send(self) -> None:
            Server().send()

    with pytest.raises(ConnectionError) as raised:
        Client().send()

    assert f"2 attempts of {__name__}." in notes_of(raised.value)[1]
    assert "Client.send, each up to 2 of " in notes_of(raised.value)[1]


def test_without_a_limit_the_note_has_the_attempts_that_were_made(clock: Clock) -> None:
    """Rule T6: the note tells the number that was reached, without "up to"."""
    inner = retry(max_retries=-1, delay=400, max_duration=1000, jitter=0)(nothing_but_failures)

    @retry(max_retries=1, jitter=0)
    def outer() -> None:
        inner()

    with pytest.raises(ConnectionError) as raised:
        outer()
    assert "each up to 3 of nothing_but_failures" in notes_of(raised.value)[1]


def nothing_but_failures() -> None:
    raise ConnectionError


def test_a_retry_inside_a_retry_is_logged_once(invoke: Invoke, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """Rule T6: the first retry of a retried call logs at WARNING."""
    outer = nested(invoke)

    for _ in range(3):
        call(invoke, clock, outer)

    (warning,) = warnings(caplog)
    assert "inner inside it has retried: each of its attempts makes up to 3 attempts there" in warning
    assert [one.levelno for one in caplog.records if one.getMessage() == warning] == [logging.WARNING]


def test_no_warning_is_logged_where_only_a_single_guard_retries(
    invoke: Invoke, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Rule T6: neither for a guard that retries nothing nor for one that leaves retries to the guard around it."""

    @retry(max_retries=0)
    @invoke.body
    async def inner() -> None:
        raise ConnectionError

    @fallback(lambda context: "substitute")
    @retry(max_retries=2, jitter=0)
    @invoke.body
    async def outer() -> None:
        error = ConnectionError()
        error.add_note("of the application")
        raise error

    with pytest.raises(ConnectionError):
        invoke(inner)
    assert invoke(outer) == "substitute"

    assert warnings(caplog) == []


def test_a_note_is_plain_text_in_other_programs(clock: Clock) -> None:
    """Rule T6: it survives pickling as plain text."""
    error = call(Invoke("blocking", clock), clock, nested(Invoke("blocking", clock)))

    arrived = pickle.loads(pickle.dumps(error))

    assert notes_of(arrived) == notes_of(error)
    assert {type(note) for note in arrived.__notes__} == {str}
