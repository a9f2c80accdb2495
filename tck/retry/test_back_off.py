"""Growth and variation of delays."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, strategies as st

from faulttolerance._strategy.back_off import (
    LONGEST,
    BackOff,
    CustomBackOff,
    Decorrelated,
    Exponential,
    Full,
    fibonacci,
    fixed,
    varied,
)

durations = st.floats(0, 1e6)
chances = st.floats(0, 1, exclude_max=True)


def test_a_fixed_delay_stays() -> None:
    """Without a back-off every delay is the same."""
    delay = fixed(0.4).begin()

    assert [delay(attempt, None) for attempt in (1, 2, 10**6)] == [0.4, 0.4, 0.4]


def test_an_exponential_delay_is_multiplied_up_to_its_maximum() -> None:
    """The first delay is the declared one; each further one is the factor times as long, the maximum at most."""
    delay = Exponential(1.0, 2, maximum=10.0).begin()

    assert [delay(attempt, None) for attempt in range(1, 7)] == [1, 2, 4, 8, 10, 10]


def test_a_fibonacci_delay_grows_by_1_2_3_5_8() -> None:
    """As SmallRye's: the second delay is twice the first, the third three times."""
    delay = fibonacci(1.0, maximum=10.0).begin()

    assert [delay(attempt, None) for attempt in range(1, 8)] == [1, 2, 3, 5, 8, 10, 10]


def test_an_exponential_delay_with_a_fraction_as_its_factor() -> None:
    """Rule T5: each delay is half as long again as the one before."""
    delay = Exponential(0.1, 1.5, maximum=0.4).begin()

    assert [delay(attempt, None) for attempt in range(1, 6)] == pytest.approx([0.1, 0.15, 0.225, 0.3375, 0.4])


@given(st.floats(1e-6, 10), st.floats(1, 4), st.floats(0, 50), st.floats(0, 100), st.integers(1, 200))
def test_an_exponential_delay_is_that_of_the_naive_formula(
    delay: float, factor: float, minimum: float, maximum: float, attempt: int
) -> None:
    """Rule T5: the delay is multiplied once per attempt, then brought between its limits."""
    maximum = max(minimum, maximum)
    grown = delay
    for _ in range(attempt - 1):
        grown *= factor
    expected = max(minimum, min(grown, maximum or LONGEST, LONGEST))

    assert Exponential(delay, factor, maximum, minimum).delay(attempt) == pytest.approx(expected, rel=1e-9)


def test_a_factor_close_to_1_costs_no_more_than_any_other() -> None:
    """Rule T5: the factor does not lead to a table of a million steps."""
    back_off = Exponential(1e-3, 1 + 1e-9, 60.0)

    assert back_off.delay(1) == 1e-3
    assert 1e-3 < back_off.delay(10**6) < 1.1e-3
    assert Exponential(1e-3, 3, 60.0).delay(10**9) == 60


@given(durations, chances, durations)
def test_full_jitter_is_drawn_from_the_least_delay_to_the_delay(delay: float, chance: float, minimum: float) -> None:
    """Rule T5: the draw is even, and never below the least delay."""
    drawn = Full(BackOff((delay,), minimum=minimum)).begin()

    assert drawn(1, None, 0.0) == minimum
    assert minimum <= drawn(1, None, chance) <= max(delay, minimum)
    assert Full(fixed(delay)).begin()(1, None, chance) == delay * chance


@given(st.floats(1e-3, 10), st.floats(1e-3, 100), st.lists(chances, max_size=50))
def test_decorrelated_delays_are_those_of_the_naive_formula(first: float, maximum: float, draws: list[float]) -> None:
    """Rule T5: each delay lies between the first delay and three times the last one, within the maximum."""
    delay = Decorrelated(first, maximum).begin()
    first = last = min(first, maximum)
    for attempt, chance in enumerate(draws, 1):
        upper = min(3 * last, maximum)
        last = first + (upper - first) * chance

        drawn = delay(attempt, None, chance)

        assert drawn == pytest.approx(last)
        assert drawn <= maximum


def test_a_decorrelated_delay_neither_overflows_nor_is_negative() -> None:
    """Rule T5: without a maximum the delay stays finite for ever; a delay of 0 stays 0 (B14)."""
    delay, nothing = Decorrelated(1.0).begin(), Decorrelated(0.0).begin()

    assert max(delay(attempt, None, 0.999) for attempt in range(1, 2000)) <= LONGEST
    assert nothing(7, None, 0.5) == 0
    assert Decorrelated(1e300).begin()(1, None, 0.5) <= LONGEST


@given(durations, st.integers(1, 10), durations, st.integers(1, 10**6))
@example(5e-324, 2, 0.0, 10**6)
@example(1e6, 10, 0.0, 10**6)
def test_no_delay_overflows(delay: float, factor: int, maximum: float, attempt: int) -> None:
    """After a million attempts a delay is still a finite number within its maximum (B14)."""
    for back_off in (Exponential(delay, factor, maximum), fibonacci(delay, maximum)):
        seconds = back_off.delay(attempt)

        assert 0 <= seconds <= (maximum or LONGEST)


@pytest.mark.parametrize("maximum", [0.0, 60.0])
def test_no_delay_grows_out_of_nothing(maximum: float) -> None:
    """A delay of 0 stays 0 however often it is multiplied (B14)."""
    assert Exponential(0.0, 2, maximum).delay(10**6) == 0
    assert fibonacci(0.0, maximum).delay(10**6) == 0


def test_a_maximum_below_the_first_delay_holds_for_it_too() -> None:
    """The maximum has no exceptions."""
    assert Exponential(5.0, 2, maximum=3.0).delay(1) == 3
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


def test_jitter_does_not_vanish_at_the_minimum() -> None:
    """Rule T5: as at the maximum, the rest of the range is used evenly."""
    delays = {varied(1.0, 5.0, chance / 10, maximum=2.0, minimum=0.9) for chance in range(10)}

    assert len(delays) == 10
    assert min(delays) == 0.9
    assert max(delays) < 2


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
