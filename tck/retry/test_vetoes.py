"""Rule T7 through public names: vetoes of the application against a further attempt, in every way of calling."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from contextvars import ContextVar
from typing import Any

import pytest

from faulttolerance import (
    FaultToleranceDefinitionException,
    FaultToleranceException,
    Guard,
    Interrupted,
    fallback,
    guards,
    retry,
    veto_retries,
)
from faulttolerance.instrumentation import GaveUp, RetryScheduled, set_event_sinks
from faulttolerance.policies import Retry, RetryBudget, RetryWhen
from faulttolerance.testing import virtual_time
from kit.convention import Invoke

REASON = "the till is open"
THREE = Retry(max_retries=3, delay=0, jitter=0, retry_on=OSError)
BECAUSE = f"1 attempt in 0.000 s; no more, because {REASON}"

Veto = Callable[[Callable[[BaseException], Any]], Callable[[], object]]


@pytest.fixture
def veto() -> Iterator[Veto]:
    """Yield ``veto_retries`` for one test."""
    undo: list[Callable[[], object]] = []

    def veto(ask: Callable[[BaseException], Any]) -> Callable[[], object]:
        undo.append(veto_retries(ask))
        return undo[-1]

    yield veto
    for one in undo:
        one()


def fails(attempts: list[int]) -> None:
    attempts.append(1)
    raise OSError("down")


def test_the_failure_comes_out_at_once_and_says_why(invoke: Invoke, veto: Veto) -> None:
    """By rule T7: in every way of calling, in the caller's context; without a delay."""
    is_open = ContextVar("is_open", default=False)
    attempts: list[int] = []
    veto(lambda failure: REASON if is_open.get() else None)

    class Till:
        @retry(max_retries=2, delay=0, jitter=0, retry_on=OSError)
        @invoke.body
        async def pay(self) -> None:
            fails(attempts)

    is_open.set(True)
    with pytest.raises(OSError, match="down") as raised:
        invoke(Till().pay)
    is_open.set(False)
    with pytest.raises(OSError, match="down") as retried:
        invoke(Till().pay)

    assert [note.partition(": ")[2] for note in raised.value.__notes__] == [BECAUSE]
    assert "max_retries reached" in retried.value.__notes__[0]
    assert len(attempts) == 1 + 3


def test_blocks_are_not_repeated(veto: Veto) -> None:
    """A loop of a coroutine does not repeat them either."""
    veto(lambda failure: REASON)
    guard, attempts = Guard(retry=THREE), []

    def blocks() -> None:
        for attempt in guard.attempts():
            with attempt:
                fails(attempts)

    with pytest.raises(OSError, match="down") as raised:
        blocks()

    async def main() -> None:
        async for attempt in guard.attempts():
            async with attempt:
                fails(attempts)

    with pytest.raises(OSError, match="down"):
        asyncio.run(main())

    assert len(attempts) == 2
    assert REASON in raised.value.__notes__[0]


def test_nobody_is_asked_unless_another_attempt_would_follow(veto: Veto) -> None:
    """No veto is needed for a success, a failure that is not retried, the last attempt, or control flow."""
    asked: list[BaseException] = []
    veto(asked.append)
    guard, attempts = Guard(retry=Retry(max_retries=1, delay=0, jitter=0, retry_on=OSError)), []

    def interrupts() -> None:
        raise KeyboardInterrupt

    guard.call(int, "1")
    with pytest.raises(ValueError, match="invalid literal"):
        guard.call(int, "one")
    with pytest.raises(KeyboardInterrupt):
        guard.call(interrupts)
    assert not asked
    with pytest.raises(OSError, match="down"):
        guard.call(fails, attempts)

    assert len(asked) == 1  # and not after the second attempt, the last one


def test_a_veto_is_asked_before_the_budget_and_costs_nothing(veto: Veto) -> None:
    veto(lambda failure: REASON)
    guard = Guard(retry=THREE, retry_budget=RetryBudget(burst=5))
    with pytest.raises(OSError, match="down"):
        guard.call(fails, [])
    (conditions,) = [one.conditions for one in guards() if one.method is guard]

    assert conditions["RetryBudget"] == "5 of 5 tokens"


def test_a_fallback_answers_and_hooks_hear_the_reason(veto: Veto) -> None:
    heard: list[Any] = []
    set_event_sinks([heard.append])
    veto(lambda failure: REASON)

    @fallback(lambda context: "cached")
    @retry(max_retries=2, retry_on=OSError)
    def load() -> str:
        raise OSError("down")

    assert load() == "cached"
    assert [one.reason for one in heard if isinstance(one, GaveUp)] == [REASON]
    assert not [one for one in heard if isinstance(one, RetryScheduled)]


def test_a_refused_result_is_not_retried_either(veto: Veto) -> None:
    seen: list[BaseException] = []
    veto(lambda failure: seen.append(failure) or REASON)  # type: ignore[func-returns-value]
    guard = Guard(retry=THREE, retry_when=RetryWhen(result=lambda result: result == 3))

    with pytest.raises(FaultToleranceException, match="refused by retry_when"):
        guard.call(len, "abc")

    assert [one.result for one in seen if isinstance(one, FaultToleranceException)] == [3]


def test_the_guard_around_may_try_again(veto: Veto) -> None:
    """The veto is asked anew for the guard around, after its attempt has left the block."""
    depth: list[int] = []
    veto(lambda failure: REASON if depth else None)
    inner, outer, attempts = Guard(name="inner", retry=THREE), Guard(name="outer", retry=THREE), []

    def transaction() -> None:
        depth.append(1)
        try:
            inner.call(fails, attempts)
        finally:
            depth.pop()

    with closing(inner), closing(outer), pytest.raises(OSError, match="down") as raised:
        outer.call(transaction)  # what is raised leads to the guards, whose names others may want

    assert len(attempts) == 4
    assert REASON in raised.value.__notes__[0]
    assert "4 attempts of outer" in raised.value.__notes__[1]


def test_of_several_the_first_reason_counts_and_each_can_be_taken_back(veto: Veto) -> None:
    veto(lambda failure: None)
    undo = veto(lambda failure: REASON)
    veto(lambda failure: "the shop is closed")

    def reason() -> str:
        with pytest.raises(OSError, match="down") as raised:
            Guard(retry=THREE).call(fails, [])
        return str(raised.value.__notes__[0]).partition("because ")[2]

    assert reason() == REASON
    undo()
    undo()
    assert reason() == "the shop is closed"


@pytest.mark.parametrize("said", [True, 3, b"why"])
def test_a_veto_function_that_fails_forbids_nothing_and_is_logged_once(
    said: object, veto: Veto, caplog: pytest.LogCaptureFixture
) -> None:
    def ask(failure: BaseException) -> object:
        if said is True:
            raise ZeroDivisionError
        return said

    veto(ask)
    attempts: list[int] = []
    with caplog.at_level(logging.WARNING), virtual_time():
        for _ in range(2):
            with suppress(OSError):
                Guard(retry=THREE).call(fails, attempts)

    assert len(attempts) == 8
    assert len([record for record in caplog.records if "the veto function" in record.getMessage()]) == 1


def test_control_flow_of_a_veto_function_comes_out(veto: Veto) -> None:
    """By rule R0."""

    def ask(failure: BaseException) -> str:
        raise Interrupted

    veto(ask)
    with pytest.raises(Interrupted):
        Guard(retry=THREE).call(fails, [])


async def awaited(failure: BaseException) -> str:
    return REASON


@pytest.mark.parametrize("wrong", [None, REASON, awaited])
def test_a_veto_function_that_cannot_answer_at_once_is_refused(wrong: Any) -> None:
    """By rules R9 and O4."""
    with pytest.raises(
        FaultToleranceDefinitionException, match=r"veto_retries\(ask\) is .*allowed: a synchronous function"
    ):
        veto_retries(wrong)
