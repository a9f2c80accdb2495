"""Whether there is a next attempt, and when."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from faulttolerance._strategy.back_off import CustomBackOff, Exponential, fixed, ignore_error
from faulttolerance._strategy.retry import Predicates, Retry, Stop


def retry(
    max_retries: int = 3,
    max_duration: float = 180.0,
    delay: float = 0.0,
    jitter: float = 0.0,
    retry_on: tuple[type[BaseException], ...] = (Exception,),
    abort_on: tuple[type[BaseException], ...] = (),
    **others: Any,
) -> Retry:
    back_off = others.pop("back_off", fixed(delay))
    if predicate := others.pop("exception_predicate", None):
        others["predicates"] = Predicates(predicate, None, "@retry_when", ignore_error)
    return Retry(max_retries, max_duration, back_off, jitter, retry_on, abort_on, **others)


def after(
    retry: Retry,
    error: BaseException | None = None,
    attempt: int = 1,
    elapsed: float = 0.0,
    remaining: float | None = None,
    random: float = 0.5,
) -> float | Stop:
    return retry.after_failure(error or OSError(), attempt, elapsed, remaining, random)


def test_a_failure_is_retried_max_retries_times() -> None:
    """max_retries counts the attempts after the first."""
    decisions = [after(retry(max_retries=2), attempt=attempt) for attempt in (1, 2, 3)]

    assert decisions == [0.0, 0.0, Stop.MAX_RETRIES_REACHED]


def test_minus_1_is_no_limit() -> None:
    """max_retries=-1 retries for ever, 0 never."""
    assert after(retry(max_retries=-1), attempt=10**6) == 0.0
    assert after(retry(max_retries=0)) is Stop.MAX_RETRIES_REACHED


@pytest.mark.parametrize(
    ("retry_on", "abort_on", "expected"),
    [
        ((Exception,), (), 0.0),
        ((OSError,), (), 0.0),
        ((ValueError,), (), Stop.NOT_RETRYABLE),
        ((), (), Stop.NOT_RETRYABLE),
        ((ConnectionError,), (OSError,), Stop.NOT_RETRYABLE),
        ((OSError,), (ConnectionError,), Stop.NOT_RETRYABLE),
        ((OSError,), (ValueError,), 0.0),
    ],
)
def test_abort_on_goes_before_retry_on(
    retry_on: tuple[type[BaseException], ...], abort_on: tuple[type[BaseException], ...], expected: float | Stop
) -> None:
    """Specification, Retry usage: abort_on, then retry_on, then the failure is raised."""
    assert after(retry(retry_on=retry_on, abort_on=abort_on), ConnectionResetError()) == expected


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), GeneratorExit(), asyncio.CancelledError()])
def test_control_flow_is_never_retried(error: BaseException) -> None:
    """Neither a wide set nor a predicate makes an attempt out of Ctrl-C (rule R0)."""
    assert after(retry(retry_on=(BaseException,)), error) is Stop.NOT_RETRYABLE
    assert after(retry(exception_predicate=lambda _: True), error) is Stop.NOT_RETRYABLE


def test_a_failure_that_is_not_retryable_is_said_to_be_so_at_any_limit() -> None:
    """The kind of failure is looked at before every limit."""
    limited = retry(max_retries=0, max_duration=1.0, retry_on=(ValueError,))

    assert after(limited, elapsed=2.0, remaining=0.0) is Stop.NOT_RETRYABLE


def test_max_retries_goes_before_max_duration() -> None:
    """Where both limits are met, the metrics say maxRetriesReached."""
    assert after(retry(max_retries=0, max_duration=1.0), elapsed=5.0) is Stop.MAX_RETRIES_REACHED


@pytest.mark.parametrize(
    ("elapsed", "expected"),
    [(0.0, 0.0), (0.999, 0.0), (1.0, Stop.MAX_DURATION_REACHED), (1.5, Stop.MAX_DURATION_REACHED)],
)
def test_no_attempt_is_begun_at_max_duration_or_later(elapsed: float, expected: float | Stop) -> None:
    """A call that has used up max_duration is not retried, not even without a delay."""
    assert after(retry(max_retries=-1, max_duration=1.0), elapsed=elapsed) == expected


@pytest.mark.parametrize(("elapsed", "expected"), [(0.5, 0.25), (0.75, Stop.MAX_DURATION_REACHED)])
def test_a_delay_that_would_reach_max_duration_is_not_begun(elapsed: float, expected: float | Stop) -> None:
    """Rule R12: waiting for an attempt that is not allowed any more helps nobody (B16)."""
    assert after(retry(max_duration=1.0, delay=0.25), elapsed=elapsed) == expected


def test_max_duration_0_is_no_limit() -> None:
    """0 means no limit, not no time (B17)."""
    assert after(retry(max_duration=0.0, delay=5.0), elapsed=1e9) == 5.0


@pytest.mark.parametrize(
    ("remaining", "expected"), [(None, 0.25), (0.5, 0.25), (0.25, Stop.DEADLINE), (0.0, Stop.DEADLINE)]
)
def test_a_delay_that_would_reach_an_enclosing_deadline_is_not_begun(
    remaining: float | None, expected: float | Stop
) -> None:
    """Rule R12: the failure comes out at once instead of the outer time-out a little later."""
    assert after(retry(delay=0.25), remaining=remaining) == expected


def test_no_attempt_is_begun_after_an_enclosing_deadline() -> None:
    """Without a delay the deadline counts all the same."""
    assert after(retry(), remaining=-0.1) is Stop.DEADLINE
    assert after(retry(), remaining=0.1) == 0.0


def test_max_duration_goes_before_an_enclosing_deadline() -> None:
    """The guard's own limit is named where both are met."""
    assert after(retry(max_duration=1.0), elapsed=1.0, remaining=0.0) is Stop.MAX_DURATION_REACHED


def test_jitter_varies_the_delay() -> None:
    """The random number decides where between delay - jitter and delay + jitter the delay lies."""
    varying = retry(delay=1.0, jitter=0.5)

    assert [after(varying, random=chance) for chance in (0.0, 0.5, 0.75)] == [0.5, 1.0, 1.25]


def test_the_back_off_is_asked_with_the_number_of_attempts() -> None:
    """The delay grows from attempt to attempt."""
    growing = retry(back_off=Exponential(1.0, 2, maximum=3.0))

    assert [after(growing, attempt=attempt) for attempt in (1, 2, 3)] == [1.0, 2.0, 3.0]


@given(st.integers(1, 10**6), st.floats(0, 1, exclude_max=True), st.floats(0, 100))
def test_jitter_never_passes_the_maximum_of_the_back_off(attempt: int, chance: float, jitter: float) -> None:
    """The stated maximum holds for the real delay (B15)."""
    decision = after(
        retry(max_retries=-1, jitter=jitter, back_off=Exponential(1.0, 2, maximum=60.0)), attempt=attempt, random=chance
    )

    assert isinstance(decision, float)
    assert 0 <= decision <= 60


@pytest.mark.parametrize("seconds", [-1, -0.001, math.nan, math.inf])
def test_a_custom_back_off_stops_with_a_value_that_is_no_delay(seconds: float) -> None:
    """A negative number says that this failure is not worth another attempt."""
    assert after(retry(back_off=CustomBackOff(lambda: lambda _: seconds))) is Stop.NOT_RETRYABLE


def test_a_custom_back_off_has_no_jitter() -> None:
    """The application's function decides alone."""
    custom = retry(jitter=5.0, back_off=CustomBackOff(lambda: lambda _: 2))

    assert after(custom, random=0.9) == 2


def test_a_custom_back_off_remembers_within_one_call() -> None:
    """Each failure of a call is passed to the function that ``begin`` returned for that call."""
    failures = [OSError(1), OSError(2)]
    seen = []

    def factory():
        memory = []

        def decide(failure):
            seen.append(failure)
            memory.append(failure)
            return len(memory)

        return decide

    custom = retry(back_off=CustomBackOff(factory))
    delays = custom.back_off.begin()
    decisions = [
        custom.after_failure(failure, attempt, 0.0, None, 0.5, delays) for attempt, failure in enumerate(failures, 1)
    ]

    assert decisions == [1, 2]
    assert seen == failures


def test_a_predicate_replaces_both_sets() -> None:
    """retry_when(exception=) alone decides."""
    asked = retry(retry_on=(ValueError,), abort_on=(OSError,), exception_predicate=lambda error: error.args == (7,))

    assert after(asked, OSError(7)) == 0.0
    assert after(asked, ValueError(8)) is Stop.NOT_RETRYABLE


def test_a_refused_result_is_retried_like_a_failure() -> None:
    """retry_when(result=): every limit holds for it too, but no set is asked about the error that stands for it."""
    impatient = retry(max_retries=1, max_duration=1.0, delay=0.5, retry_on=(), abort_on=(Exception,))
    refusal = RuntimeError("refused")

    decisions = [
        impatient.after_failure(refusal, attempt, elapsed, remaining, 0.5, is_rejection=True)
        for attempt, elapsed, remaining in [(1, 0.0, None), (2, 0.0, None), (1, 0.5, None), (1, 0.0, 0.4)]
    ]

    assert decisions == [0.5, Stop.MAX_RETRIES_REACHED, Stop.MAX_DURATION_REACHED, Stop.DEADLINE]
