"""The retry budget's tokens (rule B1), against a naive model of the rule."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest
from hypothesis import strategies as st

from faulttolerance._strategy.retry_budget import RetryBudget
from kit.budget import tokens_of
from kit.examples import holds


class Naive:
    """A naive model of the rule, in fractions."""

    def __init__(self, ratio: str, burst: int) -> None:
        self.ratio, self.burst, self.tokens = Fraction(ratio), Fraction(burst), Fraction(burst)

    def take(self) -> bool:
        """Pay 1 for a retry or a hedge; return False where less is left."""
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True

    def give(self, amount: Fraction) -> None:
        """Add *amount*, up to the burst."""
        self.tokens = min(self.burst, self.tokens + amount)

    def renew(self, ratio: str, burst: int) -> None:
        """Set new values; a smaller burst cuts the tokens."""
        self.ratio, self.burst, self.tokens = Fraction(ratio), Fraction(burst), min(Fraction(burst), self.tokens)


RATIOS = st.sampled_from(["0", "0.05", "0.1", "0.2", "0.3", "0.999", "1"])
BURSTS = st.sampled_from([1, 2, 3, 10, 500])
MOVES = st.one_of(
    st.tuples(st.sampled_from(["take", "take", "give_back", "succeed"]), st.integers(1, 12)),
    st.tuples(st.just("renew"), st.tuples(RATIOS, BURSTS)),
)


@holds(40, 300, st.lists(MOVES, max_size=60), RATIOS, BURSTS)
def test_it_counts_as_the_rule_does(moves: list[tuple[str, object]], ratio: str, burst: int) -> None:
    """By rule B1, exactly, after any sequence."""
    budget, naive = RetryBudget(float(ratio), burst), Naive(ratio, burst)
    for move, given_ in moves:
        if isinstance(given_, tuple):
            budget.renew(float(given_[0]), given_[1])
            naive.renew(*given_)
        for _ in range(given_ if isinstance(given_, int) else 0):
            if move == "take":
                assert budget.take() == naive.take()
            elif move == "give_back":
                budget.give_back()
                naive.give(Fraction(1))
            else:
                budget.succeed()
                naive.give(naive.ratio)
        assert (Fraction(str(tokens_of(budget))), budget._burst / 10**9) == (naive.tokens, naive.burst)
        assert bool(budget.missing) == (naive.tokens < naive.burst) != budget.is_idle(0.0)


def test_as_many_tenths_as_it_takes_make_one() -> None:
    """By rule B1: ten calls that go well at a ratio of 0.1 pay for a retry, and nine do not."""
    budget = RetryBudget(0.1, 1)
    assert budget.take()
    for _ in range(9):
        budget.succeed()
    assert not budget.take()
    budget.succeed()
    assert budget.take()


def test_a_full_one_is_not_written_to() -> None:
    """By rule B1: a healthy call reads one attribute; to write would need the lock."""
    budget = RetryBudget(0.2, 10)
    budget._lock = None  # type: ignore[assignment]
    budget.succeed()
    assert not budget.missing


@pytest.mark.parametrize(
    ("taken", "successes", "words", "is_impaired"),
    [
        (0, 0, "10 of 10 tokens", False),
        (3, 2, "7.4 of 10 tokens", False),
        (10, 0, "0 of 10 tokens", True),
        (10, 4, "0.8 of 10 tokens", True),
        (10, 5, "1 of 10 tokens", False),
    ],
)
def test_its_condition_is_shown(taken: int, successes: int, words: str, is_impaired: bool) -> None:
    """By rule X10: in tenths of tokens, and never more than there are; impaired where it refuses."""
    budget = RetryBudget(0.2, 10)
    for _ in range(taken):
        assert budget.take()
    for _ in range(successes):
        budget.succeed()
    assert budget.condition(0.0)[:3] == (words, is_impaired, False)


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_key_may_be_forgotten_that_loses_nothing(is_shared: bool) -> None:
    """By rule N2: a budget that others share stays as it is."""
    budget = RetryBudget(0.2, 1, is_shared=is_shared)
    assert budget.is_idle(0.0)
    assert budget.take()
    assert budget.is_idle(0.0) == is_shared


def test_it_rounds_down() -> None:
    """By rule X10: 0.99 of a token makes no retry, and is not shown as one."""
    budget = RetryBudget(0.99, 1)
    assert budget.take()
    budget.succeed()
    assert budget.condition(0.0).words == "0.9 of 1 tokens"


def test_its_condition_is_shown_for_any_burst() -> None:
    """By rule X10, also where no float is as large."""
    budget = RetryBudget(0.2, 10**400)
    assert budget.take()
    assert budget.condition(0.0).words == f"{10**400 - 1} of {10**400} tokens"


def test_it_counts_exactly_under_threads() -> None:
    """By rules B1 and X3, never below 0, never above burst, and nothing lost or made up, under 64 threads."""
    budget, threads, calls, burst = RetryBudget(0.2, 40), 64, 300, 40
    before = sys.getswitchinterval()

    def use(number: int) -> int:
        chance, kept = random.Random(number), 0
        for _ in range(calls):
            if budget.take():
                kept += 1
            assert 0 <= tokens_of(budget) <= burst
            if kept and chance.random() < 0.9:
                budget.give_back()
                kept -= 1
            assert budget.missing >= 0
        return kept

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(threads) as pool:
            kept = sum(pool.map(use, range(threads)))
    finally:
        sys.setswitchinterval(before)
    assert tokens_of(budget) == burst - kept


def test_a_fork_keeps_the_tokens_and_frees_the_lock() -> None:
    """The child of a fork goes on with as many, though another thread was in the middle of it."""
    budget = RetryBudget(0.2, 10)
    assert budget.take()
    with ThreadPoolExecutor(1) as other:
        other.submit(budget._lock.acquire).result()
        budget.reset_after_fork(0)
        assert budget.take()
    assert tokens_of(budget) == 8
