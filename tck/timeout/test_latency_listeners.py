"""Listeners to latencies: the attempts that they learn of, and the latency (rule X4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from faulttolerance import BulkheadException, sleep
from faulttolerance._call.attempt import compose
from faulttolerance._deadline import interruption
from faulttolerance._deadline.clock import clock
from faulttolerance._extensions.adaptive.listener import ListenedPolicies
from faulttolerance._strategy.back_off import fixed
from faulttolerance._strategy.bulkhead import Bulkhead
from faulttolerance._strategy.latencies import OTHERWISE, SUCCEEDED, TIMED_OUT, End
from faulttolerance._strategy.rate_limit import LimitValues, RateLimit
from faulttolerance._strategy.retry import Retry
from faulttolerance.exceptions import RefusedException
from faulttolerance.testing import virtual_time


class Heard(list[tuple[float, End]]):
    """The calls of a listener."""

    def record(self, elapsed: float, end: End) -> None:
        self.append((round(elapsed, 6), end))


def takes(seconds: float, failure: BaseException | None = None) -> Callable[[], None]:
    """Return a body that takes *seconds*."""

    def body() -> None:
        sleep(seconds)
        if failure is not None:
            raise failure

    return body


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (takes(0.2), (0.2, SUCCEEDED)),
        (takes(5.0), (1.0, TIMED_OUT)),
        (takes(0.3, OSError()), (0.3, OTHERWISE)),
        (takes(0.3, KeyboardInterrupt()), (0.3, OTHERWISE)),
        (takes(0.3, BulkheadException("of another guard")), (0.3, OTHERWISE)),
    ],
    ids=["success", "own time-out", "failure", "control flow", "refused by another guard"],
)
def test_each_attempt_that_had_a_permit_is_told_once(body: Callable[[], None], told: tuple[float, End]) -> None:
    """By rule X4: with the time from the permit to the end, and how it ended."""
    heard, permits = Heard(), Bulkhead(1, 0, "acme")
    policies = ListenedPolicies("acme", heard, bulkhead=permits, seconds=1.0, conclude=interruption.conclude)
    call = compose(body, policies)

    with virtual_time():
        try:
            call((), {})
        except BaseException:  # its class does not matter here
            pass

    assert heard == [told]
    assert not permits.held


def test_no_refusal_is_told() -> None:
    """By rule X4: a refusal of our own is never a sample."""
    heard, permits, rate = Heard(), Bulkhead(1, 0, "acme"), RateLimit("acme", LimitValues(1, 60.0, 0.0, "fixed"))
    permits.acquire("another attempt", 0)
    rate.admit(clock.monotonic())

    for policies in (
        ListenedPolicies("acme", heard, bulkhead=permits),
        ListenedPolicies("acme", heard, rate_limit=rate),
    ):
        call = compose(takes(0.0), policies)
        with pytest.raises(RefusedException):
            call((), {})

    assert heard == []


def test_each_attempt_of_a_call_is_told_by_itself() -> None:
    """By rule X4: the latency is that of the attempt; neither the call nor its delays are measured."""
    heard, outcomes = Heard(), [OSError(), OSError(), None]
    retry = Retry(3, 0.0, fixed(0.5), 0.0, (OSError,), ())

    def body() -> None:
        sleep(0.1)
        if (failure := outcomes.pop(0)) is not None:
            raise failure

    with virtual_time():
        compose(body, ListenedPolicies("acme", heard, bulkhead=Bulkhead(1, 0, "acme"), retry=retry))((), {})

    assert heard == [(0.1, OTHERWISE), (0.1, OTHERWISE), (0.1, SUCCEEDED)]
