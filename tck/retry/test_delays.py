"""Growth of delays, and their variation by chance (rule T5)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from faulttolerance import FaultToleranceDefinitionException, explain, exponential_backoff, fibonacci_backoff, retry
from faulttolerance.policies import ExponentialBackoff, Retry
from faulttolerance.testing import configured, virtual_time
from kit import Clock, Invoke

Decorate = Callable[[Any], Any]
NOTHING: Decorate = lambda function: function  # noqa: E731


def delays_of(invoke: Invoke, clock: Clock, *decorators: Decorate) -> list[float]:
    """Return the seconds between the attempts of a call that always fails."""
    began: list[float] = []

    @invoke.body
    async def service() -> None:
        began.append(clock.monotonic())
        raise ConnectionError

    guarded = service
    for decorator in decorators:
        guarded = decorator(guarded)
    with pytest.raises(ConnectionError):
        invoke(guarded)
    return [round(later - sooner, 6) for sooner, later in pairwise(began)]


def test_a_factor_may_be_a_fraction(invoke: Invoke, clock: Clock) -> None:
    """Rule T5: each delay is the factor times as long as the one before."""
    delays = delays_of(
        invoke, clock, retry(max_retries=4, delay=100, jitter=0), exponential_backoff(factor=1.5, max_delay=300)
    )

    assert delays == [0.1, 0.15, 0.225, 0.3]


@pytest.mark.parametrize(
    ("delay", "expected"), [(100, [0.25, 0.25, 0.4, 0.8]), (0, [0.25, 0.5, 1.0, 2.0]), (1000, [1.0, 2.0, 4.0, 8.0])]
)
def test_no_delay_is_shorter_than_min_delay(invoke: Invoke, clock: Clock, delay: float, expected: list[float]) -> None:
    """Rule T5: a shorter one is lengthened; where ``delay`` is 0, growth begins with ``min_delay``."""
    delays = delays_of(invoke, clock, exponential_backoff(min_delay=250), retry(max_retries=4, delay=delay, jitter=0))

    assert delays == expected


def test_jitter_stays_between_min_delay_and_max_delay(invoke: Invoke, clock: Clock) -> None:
    """Rule T5: both limits hold for the real delay."""
    delays = delays_of(
        invoke,
        clock,
        exponential_backoff(min_delay=timedelta(milliseconds=90), max_delay=110),
        retry(max_retries=60, delay=100, jitter=500),
    )

    assert min(delays) >= 0.09
    assert max(delays) <= 0.11
    assert len(set(delays)) > 5


@pytest.mark.parametrize("growth", [exponential_backoff(factor=2, max_delay=500), fibonacci_backoff(max_delay=500)])
def test_full_jitter_is_drawn_from_nothing_to_the_delay(invoke: Invoke, clock: Clock, growth: Decorate) -> None:
    """Rule T5: "full" of AWS, ``random_between(0, min(cap, base * 2 ** attempt))``."""
    delays = delays_of(invoke, clock, growth, retry(max_retries=40, delay=100, jitter_kind="full"))

    assert delays[0] <= 0.1
    assert delays[1] <= 0.2
    assert 0.4 < max(delays[2:]) <= 0.5
    assert min(delays[2:]) < 0.1


def test_full_jitter_of_a_delay_that_stays(invoke: Invoke, clock: Clock) -> None:
    """Rule T5: without a back-off the delay is drawn from 0 to ``delay``, and ``jitter`` is left alone."""
    delays = delays_of(invoke, clock, retry(max_retries=40, delay=100, jitter=5000, jitter_kind="full"))

    assert 0.08 < max(delays) <= 0.1
    assert min(delays) < 0.02


def test_decorrelated_jitter_is_at_most_three_times_the_last_delay(invoke: Invoke, clock: Clock) -> None:
    """Rule T5: "decorrelated" of AWS, ``random_between(base, last * 3)``, never past ``max_delay``."""
    delays = delays_of(
        invoke, clock, exponential_backoff(max_delay=2000), retry(max_retries=60, delay=100, jitter_kind="decorrelated")
    )

    for last, delay in pairwise([0.1, *delays]):
        assert 0.1 <= delay <= min(3 * last, 2.0) + 1e-6
    assert max(delays) > 1
    assert max(map(delays.count, delays)) < 5  # also near the maximum, callers wait for different times


@pytest.mark.parametrize(("delay", "longest"), [(100, 60.0), (90_000, 90.0)])
def test_decorrelated_jitter_has_a_ceiling_without_a_back_off(
    invoke: Invoke, clock: Clock, delay: int, longest: float
) -> None:
    """Rule T5: the formula needs a ceiling: a minute, or ``delay``."""
    delays = delays_of(invoke, clock, retry(max_retries=40, delay=delay, max_duration=0, jitter_kind="decorrelated"))

    assert max(delays) <= longest + 1e-6
    assert max(delays) > longest / 2


def test_calls_do_not_share_their_random_delays() -> None:
    """Rule T5: a decorrelated delay begins anew in each call."""
    with virtual_time() as clock:
        first_delays = []

        @retry(max_retries=3, delay=100, max_duration=0, jitter_kind="decorrelated")
        def service(began: list[float]) -> None:
            began.append(clock.monotonic())
            raise ConnectionError

        for _ in range(20):
            began: list[float] = []
            with pytest.raises(ConnectionError):
                service(began)
            first_delays.append(began[1] - began[0])

    assert max(first_delays) <= 0.3 + 1e-6


@pytest.mark.parametrize(
    ("decorate", "words"),
    [
        (lambda: exponential_backoff(factor=0.5), "@ExponentialBackoff(factor) is 0.5; allowed: a number >= 1"),
        (lambda: exponential_backoff(factor=float("nan")), "@ExponentialBackoff(factor) is nan"),
        (lambda: exponential_backoff(min_delay=-1), "@ExponentialBackoff(min_delay) is -1"),
        (
            lambda: exponential_backoff(min_delay=2000, max_delay=1000),
            "@ExponentialBackoff(min_delay) is 2 s while max_delay is 1 s; allowed: at most max_delay",
        ),
        (
            lambda: retry(jitter_kind="equal"),
            "@Retry(jitter_kind) is 'equal'; allowed: one of 'added', 'full', 'decorrelated'",
        ),
        (lambda: retry(jitter_kind=None), "@Retry(jitter_kind) is None"),
    ],
)
def test_contradictory_delays_are_refused(decorate: Callable[[], Decorate], words: str) -> None:
    """Rule T5: the decorator raises the error, with the parameter, the value and the allowed values."""
    with pytest.raises(FaultToleranceDefinitionException) as refused:
        decorate()(lambda: None)

    assert words in str(refused.value)


def test_min_delay_has_no_upper_limit_where_there_is_no_max_delay() -> None:
    """Rule T5: a ``max_delay`` of 0 is no limit."""
    assert ExponentialBackoff(min_delay="90s", max_delay=0).min_delay == timedelta(seconds=90)


def test_delays_are_configured_like_anything_else(clock: Clock) -> None:
    """Rule T5: factor, least delay and kind of jitter have keys, checked as in code."""

    @retry(max_retries=2, jitter=0)
    @exponential_backoff
    def service() -> None:
        raise ConnectionError

    keys = {"ExponentialBackoff/factor": "2.5", "ExponentialBackoff/minDelay": "1s", "Retry/jitterKind": "FULL"}
    with configured(keys):
        told = explain(service)
    with configured({"Retry/jitterKind": "some"}), pytest.raises(FaultToleranceDefinitionException) as refused:
        service()

    assert "factor = 2.5" in told
    assert "minDelay = 1s" in told
    assert "jitterKind = full" in told
    assert "Retry/jitterKind is 'some'; allowed: one of added, full, decorrelated" in str(refused.value)


def test_a_kind_of_jitter_is_a_word_in_letters_of_any_case() -> None:
    """Rule T5: the configuration spells it so, too, and its ``repr`` can be typed."""
    assert Retry(jitter_kind="Full") == Retry(jitter_kind="full")
    assert "jitter_kind='full'" in repr(Retry(jitter_kind="FULL"))
