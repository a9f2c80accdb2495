"""Whether an attempt ended too late, decided from numbers; each environment asks the same function."""

from __future__ import annotations

import time
from typing import Any

import pytest

from faulttolerance import Future, TimeoutException, asynchronous, completed_future, retry, timeout
from faulttolerance._deadline.clock import clock
from faulttolerance._strategy.verdict import deadline_outcome


class Halt(BaseException):
    """Control flow of an application."""


def concluded(error: BaseException | None, ended: float, **facts: bool) -> BaseException | None:
    """Return the outcome of an attempt whose deadline is at 10.0."""
    return deadline_outcome(error, ended, 10.0, lambda: "too late", lambda: "it slept", **facts)


@pytest.mark.parametrize("error", [None, ValueError(), Halt()])
def test_an_attempt_that_ends_before_the_deadline_keeps_its_outcome(error: BaseException | None) -> None:
    """R2: also a moment before."""
    assert concluded(error, 9.999) is error


@pytest.mark.parametrize("error", [None, ValueError()])
@pytest.mark.parametrize("ended", [10.0, 11.0])
def test_an_attempt_that_ends_at_the_deadline_or_later_has_timed_out(error: BaseException | None, ended: float) -> None:
    """R2: the result is discarded, a failure is the cause; the note says how late, and why."""
    late = concluded(error, ended)

    assert isinstance(late, TimeoutException)
    assert late.__cause__ is error
    assert late.__notes__ == [f"it ended {ended - 10:.3f} s after its deadline; it was not interrupted: it slept"]


def test_control_flow_passes_however_late() -> None:
    """R0: it is meant to end more than this call."""
    halt = Halt()

    assert concluded(halt, 99.0) is halt
    assert concluded(halt, 99.0, was_interrupted=True) is halt


def test_interruption_by_the_deadline_itself_is_a_time_out_at_any_time_of_the_clock() -> None:
    """R2: the clock that is asked may stand still, or be behind the one that interrupted."""
    interruption = Halt()

    late = concluded(interruption, 9.0, is_own=True, was_interrupted=True)

    assert isinstance(late, TimeoutException)
    assert late.__cause__ is interruption
    assert late.__notes__ == ["it ended 0.000 s after its deadline"]


@pytest.mark.parametrize("error", [None, ValueError()])
def test_an_attempt_that_was_interrupted_and_went_on_has_timed_out(error: BaseException | None) -> None:
    """R2: an attempt that swallows the interruption gains no time."""
    late = concluded(error, 9.999, was_interrupted=True)

    assert isinstance(late, TimeoutException)
    assert late.__notes__ == ["it ended 0.000 s after its deadline; it was interrupted and went on"]


class _Never:
    def cancel(self) -> None:
        pass


@pytest.mark.parametrize("kind", [Halt, ConnectionError, None])
def test_attempt_on_a_thread_whose_end_is_seen_before_its_timer_rings_is_judged_alike(
    kind: type[BaseException] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R0: control flow that comes late is not retried there, either, where no caller went on without the body."""
    monkeypatch.setattr(clock, "call_at", lambda when, callback: _Never())
    attempts: list[int] = []

    # Where other threads keep the watchdog awake, it would end the body in time, and there would be nothing to judge.
    @retry(max_retries=2, jitter=0)
    @timeout(20, interrupt=False)
    @asynchronous
    def service() -> Future[Any]:
        attempts.append(1)
        until = clock.monotonic() + 0.03
        while clock.monotonic() < until:
            time.sleep(0.001)
        if kind is not None:
            raise kind("late")
        return completed_future("served")

    with pytest.raises(BaseException) as raised:
        service().result(20)

    assert (raised.type, len(attempts)) == ((Halt, 1) if kind is Halt else (TimeoutException, 3))
