"""State for each key: who has one, and which goes."""

from __future__ import annotations

import random

import pytest

from faulttolerance._strategy.bulkhead import Bulkhead
from faulttolerance._strategy.circuit_breaker import CircuitBreaker
from faulttolerance._strategy.partitions import Partition, Partitions
from faulttolerance._strategy.rate_limit import RateLimit
from faulttolerance._strategy.verdict import FAILURE, SUCCESS


def breaker() -> CircuitBreaker:
    return CircuitBreaker("x", 5.0, 2, 1.0, 1, now=0.0)


@pytest.mark.parametrize("seed", range(30))
def test_decides_as_the_rule_says_naively(seed: int) -> None:
    """By rule N2: of those that are idle, the one that was used least recently goes; else nobody gets in."""
    chance, partitions = random.Random(seed), Partitions(4)
    used: list[int] = []  # the model: keys, the one used least recently first
    busy: set[int] = set()
    for now in range(500):
        key = chance.randrange(9)
        if key in used and chance.random() < 0.5:
            permits = partitions.by_key[key].strategies[0]
            if key in busy:
                busy.discard(key)
                permits.release("me")
            else:
                busy.add(key)
                permits.acquire("me", 1)
        partition, gone = partitions.place(key, lambda: Partition((Bulkhead(1, 1), None)), float(now))
        if key not in used and len(used) == 4:
            idle = [one for one in used if one not in busy]
            if not idle:
                assert (partition, gone) == (None, [])
                continue
            used.remove(idle[0])
            assert len(gone) == 1
        assert partition is not None
        partitions.by_key.move_to_end(key)
        used = [one for one in used if one != key] + [key]

        assert list(partitions.by_key) == used
        assert len(partitions) == len(used) <= 4


def test_a_lower_limit_is_reached_as_keys_become_idle() -> None:
    """By rule N2: a reload ends nothing; the next key that comes takes the place of several."""
    partitions = Partitions(4)
    for key in range(4):
        partitions.place(key, lambda: Partition((Bulkhead(1, 1),)), 0.0)
    partitions.limit = 2

    assert len(partitions.place("new", lambda: Partition(()), 0.0)[1]) == 3
    assert list(partitions.by_key) == [3, "new"]


def test_looking_in_vain_is_not_repeated_at_once_where_there_are_many() -> None:
    """By rule N2: a flood of keys that find no place does not look at all others each time; a reset lets it look."""
    partitions, looks = Partitions(100), []

    class Busy:
        def is_idle(self, now: float) -> bool:
            looks.append(now)
            return False

    for key in range(100):
        partitions.place(key, lambda: Partition((Busy(),)), 0.0)
    for _ in range(50):
        assert partitions.place("new", lambda: Partition(()), 0.0) == (None, [])
    assert len(looks) == 100
    partitions.place("new", lambda: Partition(()), 0.01)
    assert len(looks) == 200
    partitions.look_again()
    partitions.place("new", lambda: Partition(()), 0.01)
    assert len(looks) == 300


def test_a_circuit_is_idle_while_it_is_closed_without_a_failure() -> None:
    """By rule N2: neither an open circuit, nor a failure that still counts, nor what was forced is forgotten."""
    fresh, failing, forced = breaker(), breaker(), breaker()
    fresh.settle(fresh.state, "me", SUCCESS, 0.0)
    failing.settle(failing.state, "me", FAILURE, 0.0)
    forced.force_closed(0.0)

    assert [one.is_idle(0.0) for one in (fresh, failing, forced)] == [True, False, False]
    for _ in range(2):
        failing.settle(failing.state, "me", FAILURE, 0.0)
    assert not failing.is_idle(1.0)
    failing.reset(2.0)
    assert failing.is_idle(2.0)


@pytest.mark.parametrize("kind", ["fixed", "rolling", "smooth"])
def test_a_rate_limit_is_idle_once_its_window_is_empty(kind: str) -> None:
    """By rule N2: as long as a call counts, or the spacing holds, it is not forgotten."""
    limit = RateLimit("x", 1, 1.0, 0.0, kind)  # type: ignore[arg-type]
    spaced = RateLimit("x", 10, 0.5, 3.0, kind)  # type: ignore[arg-type]
    limit.admit(10.0)
    spaced.admit(10.0)

    assert [limit.is_idle(moment) for moment in (10.0, 10.9, 11.0)] == [False, False, True]
    assert [spaced.is_idle(moment) for moment in (12.9, 20.0)] == [False, True]


def test_what_a_circuit_counted_that_went_is_counted_on() -> None:
    """By rule N3: openings and times never fall."""
    shared, gone = breaker(), breaker()
    for _ in range(2):
        gone.settle(gone.state, "me", FAILURE, 1.0)
    gone.reset(3.0)
    shared.count_on(gone, 4.0)

    assert shared.opened_total == 1
    assert [shared.time_in(state, 4.0) for state in ("closed", "open")] == [4.0 + 2.0, 2.0]  # type: ignore[arg-type]
