"""Blocks of generators end in any order, and leave nothing behind where others began or ended meanwhile (rule G2)."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from faulttolerance import Guard, criticality, deadline, degradations, fallback, remaining, timeout, uninterruptible
from faulttolerance.policies import Criticality, Timeout
from kit import Clock


def holding(block: Any) -> Iterator[None]:
    """Hold *block* from the first step to the last one."""
    with block:
        yield
        yield


def begun(block: Any) -> Iterator[None]:
    """Return a generator that has entered *block*."""
    steps = holding(block)
    next(steps)
    return steps


def end(steps: Iterator[None]) -> None:
    """Run a generator to its end, which leaves its block."""
    for _ in steps:
        pass


@fallback(lambda *_: None)
def degraded() -> None:
    raise OSError


# The level of criticality


def test_a_level_ends_with_its_block_though_the_block_around_it_ended_first() -> None:
    with criticality("critical"):
        steps = begun(criticality("best_effort"))
    while_it_runs = Criticality.current()
    end(steps)

    assert while_it_runs is Criticality.BEST_EFFORT
    assert Criticality.current() is Criticality.NORMAL


def test_a_level_ends_with_its_block_though_another_one_began_later() -> None:
    steps = begun(criticality("best_effort"))
    with criticality("critical"):
        end(steps)
        inside = Criticality.current()

    assert inside is Criticality.CRITICAL
    assert Criticality.current() is Criticality.NORMAL


def test_a_level_that_is_left_twice_ends_once_for_each_block() -> None:
    """One object may be entered again while a block of it lasts."""
    low = criticality("best_effort")
    first, second = begun(low), begun(low)
    end(first)
    between = Criticality.current()
    end(second)

    assert between is Criticality.BEST_EFFORT
    assert Criticality.current() is Criticality.NORMAL


# The lists of degradations


def test_degradations_end_with_their_block_though_the_block_around_them_ended_first() -> None:
    with degradations() as outer:
        steps = begun(degradations())
    degraded()
    end(steps)
    with degradations() as later:
        degraded()

    assert (len(outer), len(later)) == (0, 1)


def test_degradations_are_not_collected_behind_their_block_though_another_one_began_later() -> None:
    found: list[Any] = []

    def collecting() -> Iterator[None]:
        with degradations() as mine:
            found.append(mine)
            yield
            yield

    steps = collecting()
    next(steps)
    with degradations() as outer:
        end(steps)
        degraded()
    degraded()

    assert len(outer) == 1
    assert found == [[]]


# Deadlines


CROSSED: dict[str, Callable[[], Any]] = {
    "deadline": lambda: deadline("5s"),
    "uninterruptible": uninterruptible,
    "guard": Guard(Timeout("5s")).attempt,
}


def left_in(inner: Any, outer: Any) -> None:
    """Leave *inner*, which began later, within *outer*."""
    steps = begun(inner)
    with outer:
        end(steps)


def left_behind(inner: Any, outer: Any) -> None:
    """Leave *outer*, and then *inner*, which began in it."""
    with outer:
        steps = begun(inner)
    end(steps)


end_in_a_call = timeout("5s")(end)


def left_in_a_call(inner: Any, outer: Any) -> None:
    """Leave *inner* within a guarded call, and *outer* around that."""
    steps = begun(inner)
    with outer:
        end_in_a_call(steps)


@pytest.mark.parametrize("cross", [left_in, left_behind, left_in_a_call])
@pytest.mark.parametrize("outer", CROSSED)
@pytest.mark.parametrize("inner", CROSSED)
def test_blocks_that_cross_leave_nothing_on_the_thread(clock: Clock, inner: str, outer: str, cross: Any) -> None:
    """No deadline holds any more, and the collector finds no more objects, however often blocks cross."""
    kept = []
    for _ in range(3):
        for _ in range(50):
            cross(CROSSED[inner](), CROSSED[outer]())
        gc.collect()
        kept.append(len(gc.get_objects()))

    assert remaining() is None
    assert kept[2] - kept[1] < 25
