"""The outcome of calls whose results are never accepted (rule T4)."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from faulttolerance import (
    FaultToleranceDefinitionException,
    FaultToleranceException,
    fallback,
    instrumentation,
    retry,
    retry_when,
)
from faulttolerance.policies import RetryWhen
from faulttolerance.testing import configured
from kit import Invoke

SEES_RESULTS = pytest.mark.parametrize("invoke", ["blocking", "asyncio", "task"], indirect=True)
"""Offloaded, what a predicate is given is a future, whatever becomes of it."""


def pending(result: Any) -> bool:
    return bool(result == "pending")


@SEES_RESULTS
@pytest.mark.parametrize("max_retries", [0, 2])
def test_the_exception_has_the_last_result_and_a_note(invoke: Invoke, max_retries: int) -> None:
    """Rule T4: a single attempt has them, too, for nothing else says why a result was an error."""
    results = iter(range(9))

    @retry_when(result=lambda result: True)
    @retry(max_retries=max_retries, jitter=0)
    @invoke.body
    async def poll() -> int:
        return next(results)

    with pytest.raises(FaultToleranceException) as raised:
        invoke(poll)

    assert type(raised.value) is FaultToleranceException
    assert raised.value.result == max_retries
    (note,) = raised.value.__notes__
    assert f"{max_retries + 1} attempt" in note
    assert "max_retries reached" in note
    assert pickle.loads(pickle.dumps(raised.value)).result == max_retries


@SEES_RESULTS
@pytest.mark.parametrize(
    "limits", [{"max_retries": 2}, {"max_retries": 0}, {"max_retries": -1, "delay": 400, "max_duration": 1000}]
)
def test_the_last_result_is_given_where_that_is_asked_for(invoke: Invoke, limits: dict[str, Any]) -> None:
    """Rule T4: at every limit, and without a fallback."""
    attempts: list[None] = []

    @fallback(lambda context: "substitute")
    @retry_when(result=lambda result: True, give="result")
    @retry(**{"jitter": 0, **limits})
    @invoke.body
    async def poll() -> int:
        attempts.append(None)
        return len(attempts)

    assert invoke(poll) == len(attempts) == (3 if limits["max_retries"] else 1)


@SEES_RESULTS
def test_a_failure_comes_out_as_ever(invoke: Invoke) -> None:
    """Rule T4: ``give`` concerns results alone, also where an earlier attempt returned one."""
    outcomes = iter(["pending", "pending"])

    @retry_when(result=pending, give="result")
    @retry(max_retries=2, jitter=0)
    @invoke.body
    async def poll() -> str:
        try:
            return next(outcomes)
        except StopIteration:
            raise ConnectionError from None

    with pytest.raises(ConnectionError) as raised:
        invoke(poll)
    assert "1-2: result refused, 3: ConnectionError" in raised.value.__notes__[0]


@SEES_RESULTS
def test_a_call_that_gave_up_did_not_recover(invoke: Invoke) -> None:
    """Rule T4: events report a given result as any other end of the retries."""
    told: list[str] = []

    @retry_when(result=pending, give="result")
    @retry(max_retries=1, jitter=0)
    @invoke.body
    async def poll() -> str:
        return "pending"

    instrumentation.set_event_sinks([lambda event: told.append(type(event).__name__)])
    try:
        assert invoke(poll) == "pending"
    finally:
        instrumentation.set_event_sinks(None)

    assert told == ["RetryScheduled", "GaveUp"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"exception": bool, "give": "result"}, "@RetryWhen(give) is 'result', and no predicate refuses results"),
        ({"result": bool, "give": "both"}, "@RetryWhen(give) is 'both'; allowed: one of 'exception', 'result'"),
        ({"result": bool, "give": None}, "@RetryWhen(give) is None"),
    ],
)
def test_contradictory_values_are_refused(values: dict[str, Any], words: str) -> None:
    """Rule T4: by the decorator and by the value."""
    with pytest.raises(FaultToleranceDefinitionException) as refused:
        retry_when(**values)(lambda: None)
    assert words in str(refused.value)
    with pytest.raises(FaultToleranceDefinitionException):
        RetryWhen(**values)


def test_give_is_configured_like_anything_else() -> None:
    """Rule T4: the configuration names it by its word."""

    @retry_when(result=pending)
    @retry(max_retries=1, jitter=0)
    def poll() -> str:
        return "pending"

    with configured({"RetryWhen/give": "RESULT"}):
        assert poll() == "pending"
    with pytest.raises(FaultToleranceException):
        poll()
