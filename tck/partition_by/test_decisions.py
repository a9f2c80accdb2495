"""State for each key: the keys that have one, and the key that goes."""

from __future__ import annotations

import random
from collections.abc import Hashable
from typing import Any

import pytest

from faulttolerance._extensions.partition_by.strategy import Partition, Partitions
from faulttolerance._strategy.bulkhead import Bulkhead
from faulttolerance._strategy.circuit_breaker import CLOSED, OPEN, CircuitBreaker, CircuitValues
from faulttolerance._strategy.rate_limit import LimitValues, RateLimit
from faulttolerance._strategy.verdict import FAILURE, SUCCESS
from kit.tiers import seeds


def breaker() -> CircuitBreaker:
    return CircuitBreaker("x", CircuitValues(5.0, 2, 1.0, 1), now=0.0)


def place(partitions: Partitions, key: Hashable, *strategies: Any, now: float = 0.0) -> Partition | None:
    """Place a call that is over at once."""
    placed, _ = partitions.place(key, lambda: strategies, now)
    return placed[0] if placed is not None else None


def keys(partitions: Partitions) -> list[Hashable]:
    return [partition.key for partition in partitions]


class Busy:
    """A strategy that always holds something."""

    looks = 0

    def is_idle(self, now: float) -> bool:
        Busy.looks += 1
        return False


class Row:
    """A key with the hash and the equality that its object has now, as those of a row of a database."""

    def __init__(self, number: int) -> None:
        self.number: int | None = number

    def _loaded(self) -> int:
        if self.number is None:
            raise LookupError("detached")
        return self.number

    def __hash__(self) -> int:
        return hash(self._loaded())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Row) and self._loaded() == other._loaded()


@seeds(8, 30)
def test_decides_as_the_rule_says_naively(seed: int) -> None:
    """By rule N2: of the idle keys the least recently used one goes; without an idle key no new key gets in."""
    chance, partitions = random.Random(seed), Partitions(4)
    used: list[int] = []  # the model: keys, the one used least recently first
    busy: dict[int, object] = {}
    for now in range(500):
        key = chance.randrange(9)
        if key in used and chance.random() < 0.5:
            partition = partitions.find(key)
            assert partition is not None
            if key in busy:
                del busy[key]
                partition.strategies[0].release("me")
            elif chance.random() < 0.5:
                busy[key] = partition.pin  # a call that holds nothing else
            else:
                busy[key] = partition.strategies[0].acquire("me", 1)
        placed = place(partitions, key, Bulkhead(1, 1), None, now=float(now))
        if key not in used and len(used) == 4:
            idle = [one for one in used if one not in busy]
            if not idle:
                assert placed is None
                continue
            used.remove(idle[0])
        assert placed is not None
        assert partitions.use(key) is placed
        used = [one for one in used if one != key] + [key]

        assert keys(partitions) == used
        assert len(partitions) == len(used) <= 4


def test_a_lower_limit_is_reached_as_keys_become_idle() -> None:
    """By rule N2: a reload removes no key; the next new key takes the place of several."""
    partitions = Partitions(4)
    for key in range(4):
        place(partitions, key, Bulkhead(1, 1))
    partitions.limit = 2

    assert len(partitions.place("new", tuple, 0.0)[1]) == 3
    assert keys(partitions) == [3, "new"]


@pytest.mark.parametrize("limit", [100, 10_000])
def test_a_key_that_finds_no_place_looks_at_few_others(limit: int) -> None:
    """By rule N3: this holds for any number of keys; now and then it looks at a thousand."""
    partitions = Partitions(limit)
    for key in range(limit):
        place(partitions, key, Busy())
    Busy.looks = 0
    assert place(partitions, "new") is None
    assert limit == 100 or Busy.looks == 1024
    Busy.looks = 0
    for _ in range(100):
        assert place(partitions, "new") is None
    assert Busy.looks <= 20 * 100
    Busy.looks = 0
    place(partitions, "new", now=0.2)
    assert Busy.looks >= 100


def test_the_one_idle_key_of_many_is_found() -> None:
    """By rule N2: a flood of keys passes all of them, though each new key looks at few."""
    partitions = Partitions(5_000)
    for key in range(5_000):
        place(partitions, key, *(() if key == 4_000 else (Busy(),)))

    found = [place(partitions, f"new {number}", Busy()) is not None for number in range(2_500)]

    assert sum(found) == 1


@pytest.mark.parametrize("limit", [64, 400, 1000])
def test_calls_that_run_for_long_hide_no_idle_key(limit: int) -> None:
    """By rule N2: a key in which a call runs is in use, however long ago that began."""
    partitions = Partitions(limit)
    running = [partitions.place(key, tuple, 0.0) for key in range(limit // 2)]
    for key in range(limit - limit // 2):
        place(partitions, f"idle {key}")

    found = [place(partitions, f"new {number}") is not None for number in range(1_000)]

    assert all(found)
    assert all(partitions.find(key) is placed[0] for key, (placed, _) in enumerate(running) if placed is not None)


def test_no_key_goes_while_a_call_runs_in_it() -> None:
    """By rule N2: this holds whatever the call holds and whichever keys come; after the call the key may go."""
    partitions = Partitions(2)
    placed, _ = partitions.place("busy", tuple, 0.0)
    for key in range(10):
        assert place(partitions, key) is not None
    assert placed is not None
    assert partitions.find("busy") is placed[0]
    del placed
    for key in range(2):
        place(partitions, key)

    assert partitions.find("busy") is None


def test_a_call_that_comes_while_its_key_is_about_to_go_keeps_it() -> None:
    """By rule N2: this holds even if no call ran in the key when it was looked at."""
    partitions, pins = Partitions(1), []

    class Wanted:
        def is_idle(self, now: float) -> bool:
            if not pins:
                pins.append(partitions.use("wanted").pin)
            return True

    place(partitions, "wanted", Wanted())

    assert place(partitions, "new") is None
    assert not partitions.use("wanted").is_gone
    pins[:] = [None]
    assert place(partitions, "new") is not None
    assert partitions.use("wanted").is_gone


@pytest.mark.parametrize("ends", [5, None])
def test_keys_whose_hash_changes_or_is_gone_harm_no_other_key(ends: int | None) -> None:
    """By rule N2: such keys are forgotten as others are, and other keys find their own state."""
    partitions = Partitions(3)
    rows = [Row(number) for number in range(3)]
    for row in rows:
        place(partitions, row)
    rows[0].number = ends

    for number in range(10, 20):
        place(partitions, number)
        assert partitions.use(number) is partitions.find(number) is not None
    assert keys(partitions) == [17, 18, 19]


def test_a_key_that_can_no_longer_be_compared_equals_none() -> None:
    """By rule N2: a fresh object for the same row has a state of its own, and is found again."""
    partitions, detached, fresh = Partitions(3), Row(1), Row(1)
    lost = place(partitions, detached)
    detached.number = None

    found = place(partitions, fresh)

    assert found is not None
    assert found is not lost
    assert partitions.use(fresh) is partitions.use(Row(1)) is found


def test_keys_of_one_hash_are_told_apart() -> None:
    """By rule N1: -1 and -2 have the same hash; when either goes, in any order, the others are found."""
    for goes, stays in ((-1, -2), (-2, -1)):
        partitions = Partitions(2)
        found = {key: place(partitions, key) for key in (-1, -2)}
        assert [partitions.use(key) for key in (goes, stays)] == [found[goes], found[stays]]
        place(partitions, "new")
        assert partitions.find(goes) is None
        assert partitions.use(stays) is found[stays]


def test_a_finalizer_that_needs_a_place_takes_none_that_was_just_given() -> None:
    """By rule N2: this holds even in a table with one place."""
    partitions = Partitions(1)
    inner: list[object] = []

    def make() -> tuple[object, ...]:
        inner.append(partitions.place("inner", tuple, 0.0)[0])
        return ()

    placed, _ = partitions.place("outer", make, 0.0)

    assert placed is not None
    assert partitions.find("outer") is placed[0]


def test_a_circuit_is_idle_while_it_is_closed_without_a_failure() -> None:
    """By rule N2: an open circuit, a failure that still counts and a forced state are not forgotten."""
    fresh, failing, forced = breaker(), breaker(), breaker()
    fresh.settle(fresh.state, "me", SUCCESS, 0.0)
    failing.settle(failing.state, "me", FAILURE, 0.0)
    forced.force(0.0, CLOSED)

    assert [one.is_idle(0.0) for one in (fresh, failing, forced)] == [True, False, False]
    for _ in range(2):
        failing.settle(failing.state, "me", FAILURE, 0.0)
    assert not failing.is_idle(1.0)
    failing.reset(2.0)
    assert failing.is_idle(2.0)


@pytest.mark.parametrize("kind", ["fixed", "rolling", "smooth"])
def test_a_rate_limit_is_idle_once_its_window_is_empty(kind: str) -> None:
    """By rule N2: a rate limit with a call that counts, or a spacing that holds, is not forgotten."""
    limit = RateLimit("x", LimitValues(1, 1.0, 0.0, kind))  # type: ignore[arg-type]
    spaced = RateLimit("x", LimitValues(10, 0.5, 3.0, kind))  # type: ignore[arg-type]
    limit.admit(10.0)
    spaced.admit(10.0)

    assert [limit.is_idle(moment) for moment in (10.0, 10.9, 11.0)] == [False, False, True]
    assert [spaced.is_idle(moment) for moment in (12.9, 20.0)] == [False, True]


def test_the_counts_of_a_circuit_that_went_are_continued() -> None:
    """By rule N3: openings and times never fall."""
    shared, gone = breaker(), breaker()
    for _ in range(2):
        gone.settle(gone.state, "me", FAILURE, 1.0)
    gone.reset(3.0)
    shared.continue_counts(gone, 4.0)

    assert shared.opened_total == 1
    assert [shared.time_in(state, 4.0) for state in ("closed", "open")] == [4.0 + 2.0, 2.0]  # type: ignore[arg-type]


def test_a_closed_circuit_that_was_unused_for_a_minute_is_forgotten() -> None:
    """By rule N2: it goes where no key is idle, the least recently used one first; a circuit forced open stays."""
    partitions, breakers = Partitions(3), [breaker() for _ in range(3)]
    for key, one in enumerate(breakers):
        place(partitions, key, one)
        one.settle(one.state, "me", FAILURE, 0.0)
    breakers[0].force(0.0, OPEN)
    breakers[1].settle(breakers[1].state, "me", SUCCESS, 30.0)

    assert [place(partitions, "a", Busy(), now=now) is not None for now in (59.0, 61.0, 61.0)] == [False, True, True]
    assert keys(partitions) == [0, 1, "a"]
    assert [place(partitions, "b", Busy(), now=now) is not None for now in (89.0, 91.0)] == [False, True]
    assert keys(partitions) == [0, "a", "b"]
    assert place(partitions, "c", now=1e6) is None
    assert partitions.shared == 3


def test_a_circuit_that_has_opened_is_forgotten_a_minute_after_its_delay() -> None:
    """By rule N2: it goes where no key is idle, also half-open, a minute after its last probe."""
    for is_probed, last_use in ((False, 5.0), (True, 30.0)):
        opened = CircuitBreaker("x", CircuitValues(5.0, 2, 1.0, 2), now=0.0)
        for _ in range(2):
            opened.settle(opened.state, "me", FAILURE, 0.0)
        if is_probed:
            opened.settle(opened.admit("me", 1, 20.0), "me", SUCCESS, 30.0)
        partitions = Partitions(1)
        place(partitions, "old", opened)

        moments = (last_use - 1.0, last_use + 59.0, last_use + 60.0)
        assert [place(partitions, "new", now=now) is not None for now in moments] == [False, False, True]


def test_a_limit_that_was_lowered_once_does_not_keep_its_place() -> None:
    """By rule N2: it goes a minute after its limit was lowered, where no other key is idle."""
    lowered = Bulkhead(4, 1, latency=0.1)
    assert lowered.adaptive is not None
    for moment in range(30):
        lowered.adaptive.end(float(moment), moment + 10.0, 4)
    partitions = Partitions(1)
    place(partitions, "old", lowered)

    assert not lowered.is_idle(1e6)
    assert [place(partitions, "new", now=now) is not None for now in (40.0, 200.0)] == [False, True]
