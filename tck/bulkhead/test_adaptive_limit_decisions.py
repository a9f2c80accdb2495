"""The adaptive limit: the formula of rule A1 written naively, and the mistakes of other limits."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import strategies as st

from faulttolerance._strategy.adaptive_limit import AdaptiveLimit
from kit.examples import holds

TARGET = 0.25


class Naive:
    """The formula, letter by letter."""

    def __init__(self, value: int, latency: float) -> None:
        self.value, self.latency, self.L, self.since = value, latency, float(value), float("-inf")
        self.begin()

    def begin(self) -> None:
        """Begin an epoch."""
        self.n = self.over = self.late = self.most = 0.0

    def end(self, began: float, ended: float, running: int, kind: str) -> None:
        """Count an attempt: a success, an own time-out, or any other end."""
        elapsed = ended - began
        over = elapsed > self.latency
        if began < self.since or (kind == "other" and not over):
            return
        self.n += 1
        self.most = max(self.most, running)
        if over:
            self.over += 1
            self.late += elapsed
            if self.over > 0.1 * max(20, self.n):
                part = min(max(self.latency * self.over / self.late, 0.5), 0.9)
                self.L = max(1.0, min(self.L, self.most) * part)
                self.since = ended
                self.begin()
                return
        elif kind == "success" and 2 * running >= self.L:
            self.L = min(self.value, self.L + 1 / self.L)
        if self.n >= 200:
            self.n, self.over, self.late = self.n / 2, self.over / 2, self.late / 2


def tell(limit: AdaptiveLimit, began: float, ended: float, running: int, kind: str = "success") -> bool:
    """Report an attempt to *limit*, and return whether that was lowered."""
    before = limit._since
    limit.end(began, ended, running, is_success=kind == "success", is_sample=kind != "other")
    return limit._since != before


def lower(limit: AdaptiveLimit, now: float, elapsed: float = 2 * TARGET, running: int | None = None) -> float:
    """Report just as many late attempts as lower the limit, all at one moment; return the moment of the next one."""
    while not tell(limit, now, now + elapsed, limit.limit if running is None else running):
        pass
    return now + elapsed


ENDS = st.tuples(
    st.sampled_from([0.0, 0.0, 0.001, 0.03, 0.2, 1.0, 90.0]),
    st.sampled_from([0.0, 0.01, 0.1, TARGET, 0.2500001, 0.26, 0.4, 1.0, 30.0]),
    st.integers(1, 60),
    st.sampled_from(["success", "success", "success", "time-out", "other"]),
    st.sampled_from([1, 1, 1, 2, 7, 40, 150]),
)


@holds(60, 250, st.lists(ENDS, max_size=60), st.sampled_from([1, 2, 3, 10, 50, 200]))
def test_it_moves_as_the_formula_does(ends: list[tuple[Any, ...]], value: int) -> None:
    """The two are equal after any sequence of ends (rule A1)."""
    limit, naive, now = AdaptiveLimit(value, TARGET), Naive(value, TARGET), 100.0
    for step, elapsed, running, kind, times in ends:
        now += step
        for _ in range(times):
            before = naive.since
            is_lowered = tell(limit, now - elapsed, now, running, kind)
            naive.end(now - elapsed, now, running, kind)

            assert limit.exact_limit == naive.L
            assert 1 <= limit.limit <= value
            assert not is_lowered or naive.since != before or naive.since == now


@pytest.mark.parametrize("seed", range(4))
def test_it_moves_as_the_formula_does_under_load(seed: int) -> None:
    """The two are equal over minutes of calls to a callee that is fast and slow by turns (rule A1)."""
    chance = random.Random(seed)
    limit, naive, now, slowness, moves = AdaptiveLimit(50, TARGET), Naive(50, TARGET), 100.0, 1.0, set()
    for number in range(6000):
        now += chance.expovariate(100)
        if number % 500 == 0:
            slowness = chance.choice([0.5, 1.0, 1.5, 4.0, 50.0])
        elapsed = slowness * 0.05 * chance.lognormvariate(-0.18, 0.6)
        kind = "success" if elapsed < 1.0 else chance.choice(["time-out", "other"])
        running = chance.randint(1, limit.limit)
        tell(limit, now - min(elapsed, 1.0), now, running, kind)
        naive.end(now - min(elapsed, 1.0), now, running, kind)
        moves.add(limit.limit)

        assert limit.exact_limit == naive.L
    assert len(moves) > 10


@pytest.mark.parametrize("seed", range(2))
def test_successes_that_change_no_limit_may_be_counted_later(seed: int) -> None:
    """They leave the limit as it is, one by one or many at once."""
    chance = random.Random(seed)
    limit, eager, now, later = AdaptiveLimit(20, TARGET), AdaptiveLimit(20, TARGET), 100.0, 0
    for _ in range(5000):
        now += 0.01
        elapsed = chance.choice([0.01, 0.1, 0.1, 0.1, 0.1, 0.2, 0.3 if now % 9 < 1 else 0.2])
        one = (now - elapsed, now, chance.randint(1, limit.limit))
        eager.end(*one)
        others = one[2] - 1
        if one[1] - one[0] <= TARGET and others < limit.quiet_below:
            limit.uncounted.append(others)
            later += 1
        else:
            limit.count()
            limit.end(*one)
        assert limit.exact_limit == eager.exact_limit
    assert later > 500


def test_a_burst_of_late_answers_is_one_decrease() -> None:
    """Fifty answers that are late together lower the limit once, and at most by half (rule A2, trap 11)."""
    limit = AdaptiveLimit(50, TARGET)

    lowered = [tell(limit, 10.0, 10.0 + 3 * TARGET, 50) for _ in range(50)]

    assert sum(lowered) == 1
    assert limit.limit == 25


def test_a_decrease_begins_from_the_permits_in_use() -> None:
    """An unused limit comes down at once, also while less than half of it is in use (trap 12)."""
    limit = AdaptiveLimit(200, TARGET)

    lower(limit, 10.0, 1.2 * TARGET, running=4)

    assert limit.exact_limit == pytest.approx(4 / 1.2)


def test_a_ceiling_may_be_any_number() -> None:
    """The ceiling may exceed every float."""
    limit = AdaptiveLimit(10**400, TARGET)
    assert limit.limit == 10**400
    lower(limit, 10.0, running=8)
    tell(limit, 20.0, 20.1, 8)

    assert limit.exact_limit == 4 + 1 / 4
    limit.reconfigure(10**401, TARGET)
    assert limit.limit == 4


def test_an_unused_limit_does_not_rise() -> None:
    """Successes while less than half of the limit is in use are no reason to raise it (trap 12)."""
    limit = AdaptiveLimit(40, TARGET)
    now = lower(limit, 10.0)
    for _ in range(1000):
        tell(limit, now, now + 0.01, 9)
    assert limit.limit == 20

    tell(limit, now, now + 0.01, 10)

    assert limit.exact_limit == 20 + 1 / 20


def test_a_limit_has_just_fallen_for_ten_seconds() -> None:
    """By rule H2: not at its beginning, and not by a clock that is no longer in use."""
    limit = AdaptiveLimit(40, TARGET)
    assert not limit.has_just_fallen(0.0)

    now = lower(limit, 100.0)

    assert [limit.has_just_fallen(now + after) for after in (0.0, 9.999, 10.0)] == [True, True, False]
    assert not limit.has_just_fallen(now - 50.0)


def test_a_slow_method_learns_too() -> None:
    """Three late calls lower the limit, however long the time between them (trap 13)."""
    limit = AdaptiveLimit(10, TARGET)

    lowered = [tell(limit, 3600.0 * hour, 3600.0 * hour + 1, 1) for hour in range(3)]

    assert lowered == [False, False, True]
    assert limit.limit == 1


def test_a_long_incident_is_no_baseline() -> None:
    """After an hour of late calls they are as late as in the first minute (trap 14)."""
    limit, now = AdaptiveLimit(50, TARGET), 0.0
    while now < 3600.0:
        now = lower(limit, now, 2 * TARGET)

    assert limit.limit == 1


def test_time_outs_lower_it() -> None:
    """Time-outs alone lower the limit; so do calls that others ended (trap 15)."""
    for kind in ("time-out", "other"):
        limit = AdaptiveLimit(10, TARGET)
        for _ in range(3):
            tell(limit, 0.0, 1.0, 10, kind)
        assert limit.limit == 5


def test_fast_failures_move_nothing() -> None:
    """They are the breaker's signal (rule A3)."""
    limit = AdaptiveLimit(10, TARGET)
    now = lower(limit, 0.0)
    for _ in range(500):
        tell(limit, now, now + 0.001, limit.limit, "other")

    assert limit.limit == 5


def test_healthy_traffic_is_never_refused_to_measure() -> None:
    """A limit at its ceiling stays there for as long as calls are in time (trap 16)."""
    limit = AdaptiveLimit(10, TARGET)
    for moment in range(100_000):
        tell(limit, float(moment), moment + 0.2, 10)
        assert limit.limit == 10


def test_it_comes_back_from_the_bottom() -> None:
    """It never falls below 1, and a series of calls in time opens it to its ceiling (trap 17)."""
    limit, now = AdaptiveLimit(10, TARGET), 0.0
    for _ in range(30):
        now = lower(limit, now, 100 * TARGET)
    assert limit.limit == 1

    for _ in range(55):
        tell(limit, now, now + 0.01, limit.limit)

    assert limit.limit == 10


def test_new_values_keep_the_lowered_limit() -> None:
    """A higher ceiling leaves the limit where it is, a lower one clamps it (trap 33)."""
    limit = AdaptiveLimit(50, TARGET)
    lower(limit, 10.0)
    assert limit.limit == 25

    limit.reconfigure(100, 2 * TARGET)
    assert limit.limit == 25
    limit.reconfigure(8, TARGET)
    assert limit.exact_limit == 8.0


def test_a_wrong_target_is_found_out() -> None:
    """A late call that ran alone reports it after a minute at 1; a call in time starts that minute anew (rule A4)."""
    limit, now = AdaptiveLimit(4, TARGET), 0.0
    while limit.limit > 1:
        now = lower(limit, now)

    def is_target_unreachable(moment: float, running: int = 1) -> bool:
        tell(limit, moment - 1.0, moment, running)
        return limit.is_target_unreachable(moment - 1.0, moment, running)

    assert not is_target_unreachable(now + 59.0)
    assert not is_target_unreachable(now + 61.0, running=2)
    assert is_target_unreachable(now + 61.0)
    assert not limit.is_target_unreachable(now + 61.0, now + 61.1, 1)
    tell(limit, now + 62.0, now + 62.1, 1)
    lower(limit, now + 63.0, running=1)
    assert not is_target_unreachable(now + 66.0)
    assert is_target_unreachable(now + 130.0)
