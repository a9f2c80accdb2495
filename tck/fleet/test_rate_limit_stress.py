"""A rate limit of a fleet under many callers, of which some give up: no turn too many, no call left in the line."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from faulttolerance import Guard, RateLimitException, TimeoutException, configure
from faulttolerance._extensions.fleet.fleet_link import fleet_link
from faulttolerance._guard.declare import registry
from faulttolerance._policy import RateLimit as Policy
from faulttolerance.policies import FleetWide, RateLimit, Timeout
from faulttolerance.testing import reset
from kit.fleet import DistantFleet
from kit.waiting import wait_until

VALUE = 400
WINDOW = 0.1


@pytest.fixture
def fleet() -> Iterator[DistantFleet]:
    fleet = DistantFleet(poll=3600.0, patience=20.0)
    configure(fleet=fleet)
    wait_until(lambda: fleet_link.current.health.is_up and bool(fleet.asked))
    yield fleet
    reset()


def made(name: str, **values: Any) -> Guard:
    window = {"window": round(WINDOW * 1000), "window_unit": "millis"}
    return Guard(rate_limit=RateLimit(VALUE, type="rolling", **window, **values), fleet_wide=FleetWide(), name=name)


def waiting(name: str) -> int:
    """Return how many calls stand in the line of the guard *name*."""
    (state,) = [state for state in registry.every_state() if state.name == name]
    return len(state.strategies.get(Policy).waiting)


def expect_within_limit(moments: list[float], fleet: DistantFleet) -> None:
    """Check that no more calls passed than the limit allows, and that the server was asked for each."""
    moments.sort()
    # A call is told a moment after its turn was counted, on a busy machine a long one: so a sum, and not each window.
    seconds = moments[-1] - moments[0]
    assert len(moments) <= (seconds / WINDOW + 2) * VALUE
    assert len(moments) <= len(fleet.asked)


@pytest.mark.stress
def test_ten_thousand_tasks_of_which_some_are_cancelled_keep_the_limit(fleet: DistantFleet) -> None:
    """By rules F2 and RL1: each call ends, each turn was granted, and the line is empty."""
    guard, dice, through = made("tasks of a fleet", max_wait=60_000), random.Random(4), []

    async def one() -> None:
        through.append(time.monotonic())

    async def main() -> list[Any]:
        calls = []
        for number in range(10_000):
            call = asyncio.ensure_future(guard.call_async(one))
            calls.append(call)
            if dice.random() < 0.3:
                asyncio.get_running_loop().call_later(dice.random() * 2, call.cancel)
            if number % 500 == 0:
                await asyncio.sleep(0)
        return await asyncio.gather(*calls, return_exceptions=True)

    ends = asyncio.run(main())
    assert sum(end is None for end in ends) == len(through)
    assert {type(end).__name__ for end in ends} <= {"NoneType", "CancelledError"}
    assert waiting("tasks of a fleet") == 0
    assert fleet_link.current.health.is_up
    expect_within_limit(through, fleet)


@pytest.mark.stress
def test_threads_and_loops_of_which_some_are_interrupted_keep_the_limit(fleet: DistantFleet) -> None:
    """By rules F2 and RL1: 64 threads call, every fourth with a loop, while the server is slow for a while."""
    guard, through, is_over = made("threads of a fleet", max_wait=500), [], threading.Event()
    lock = threading.Lock()

    def note() -> None:
        with lock:
            through.append(time.monotonic())

    async def note_async() -> None:
        note()

    def work(number: int) -> int:
        dice, made = random.Random(number), 0
        while not is_over.is_set():
            outer = Guard(timeout=Timeout(dice.choice([2, 20, 200, 2000])))
            try:
                if number % 4:
                    outer.call(guard.call, note)
                else:
                    asyncio.run(outer.call_async(guard.call_async, note_async))
            except (RateLimitException, TimeoutException):
                pass
            made += 1
        return made

    with ThreadPoolExecutor(64) as threads:
        calls = [threads.submit(work, number) for number in range(64)]
        time.sleep(1)
        fleet.delay = 0.03
        time.sleep(1)
        fleet.delay = 0.0
        time.sleep(1)
        is_over.set()
        assert all(call.result() for call in calls)
    assert waiting("threads of a fleet") == 0
    assert fleet_link.current.health.is_up
    expect_within_limit(through, fleet)
