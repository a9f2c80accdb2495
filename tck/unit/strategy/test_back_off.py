"""How delays grow and vary."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, strategies as st

from faulttolerance._strategy.back_off import LONGEST, CustomBackOff, exponential, fibonacci, fixed, varied

durations = st.floats(0, 1e6)
chances = st.floats(0, 1, exclude_max=True)


def test_a_fixed_delay_stays() -> None:
    """Without a back-off every delay is the same."""
    delay = fixed(0.4).begin()

    assert [delay(attempt, None) for attempt in (1, 2, 10**6)] == [0.4, 0.4, 0.4]


def test_an_exponential_delay_is_multiplied_up_to_its_maximum() -> None:
    """The first delay is the declared one; each further one is the factor times as long, the maximum at most."""
    delay = exponential(1.0, 2, maximum=10.0).begin()

    assert [delay(attempt, None) for attempt in range(1, 7)] == [1, 2, 4, 8, 10, 10]


def test_a_fibonacci_delay_grows_by_1_2_3_5_8() -> None:
    """As SmallRye's: the second delay is twice the first, the third three times."""
    delay = fibonacci(1.0, maximum=10.0).begin()

    assert [delay(attempt, None) for attempt in range(1, 8)] == [1, 2, 3, 5, 8, 10, 10]


@given(durations, st.integers(1, 10), durations, st.integers(1, 10**6))
@example(5e-324, 2, 0.0, 10**6)
@example(1e6, 10, 0.0, 10**6)
def test_no_delay_overflows(delay: float, factor: int, maximum: float, attempt: int) -> None:
    """After a million attempts a delay is still a finite number within its maximum (B14)."""
    for back_off in (exponential(delay, factor, maximum), fibonacci(delay, maximum)):
        seconds = back_off.delay(attempt)

        assert 0 <= seconds <= (maximum or LONGEST)


def test_a_factor_that_no_float_can_hold_leads_to_the_longest_delay_at_once() -> None:
    """It is a whole number, and files may name any."""
    back_off = exponential(1e-9, 10**400)

    assert [back_off.delay(attempt) for attempt in (1, 2, 3)] == [1e-9, LONGEST, LONGEST]


@pytest.mark.parametrize("maximum", [0.0, 60.0])
def test_no_delay_grows_out_of_nothing(maximum: float) -> None:
    """A delay of 0 stays 0 however often it is multiplied (B14)."""
    assert exponential(0.0, 2, maximum).delay(10**6) == 0
    assert fibonacci(0.0, maximum).delay(10**6) == 0


def test_a_maximum_below_the_first_delay_holds_for_it_too() -> None:
    """The maximum has no exceptions."""
    assert exponential(5.0, 2, maximum=3.0).delay(1) == 3
    assert fibonacci(5.0, maximum=3.0).delay(1) == 3


@given(durations, durations, chances, st.one_of(st.just(math.inf), durations))
@example(0.1, 0.3, math.nextafter(1, 0), 0.4)
def test_jitter_stays_within_its_range(delay: float, jitter: float, chance: float, maximum: float) -> None:
    """A delay lies within delay ± jitter, is never negative and never passes the maximum (B15)."""
    seconds = varied(delay, jitter, chance, maximum)

    assert 0 <= seconds <= maximum
    assert min(delay - jitter, maximum) <= seconds <= delay + jitter


def test_negative_delays_are_0() -> None:
    """Specification: with a delay of 0 and a jitter of 400 ms, half of the delays are 0."""
    delays = [varied(0.0, 0.4, chance / 100) for chance in range(100)]

    assert delays.count(0.0) == 51
    assert max(delays) == pytest.approx(0.392)


def test_jitter_does_not_vanish_at_the_maximum() -> None:
    """Callers that have all reached the maximum still wait for different times (B15)."""
    delays = {varied(60.0, 1.0, chance / 10, maximum=60.0) for chance in range(10)}

    assert len(delays) == 10
    assert min(delays) == 59
    assert max(delays) < 60


def test_no_jitter_is_no_error() -> None:
    """An empty range of chance gives the delay itself."""
    assert varied(0.0, 0.0, 0.7) == 0
    assert varied(2.0, 0.0, 0.7, maximum=1.0) == 1


def test_a_custom_back_off_is_made_anew_for_each_call() -> None:
    """The factory is called once per guarded call; its function sees every failure."""
    made: list[list[BaseException | None]] = []

    def factory():
        seen: list[BaseException | None] = []
        made.append(seen)

        def decide(failure):
            seen.append(failure)
            return float(len(seen))

        return decide

    back_off = CustomBackOff(factory)
    first, second = back_off.begin(), back_off.begin()
    failure = OSError()

    assert [first(1, failure), first(2, None), second(1, None)] == [1, 2, 1]
    assert made == [[failure, None], [None]]
