"""How the queue of a bulkhead serves an overload (target G3), by simulation of the strategy that is shipped.

A bulkhead of ten over a backend of 200 calls per second: log-normal service, 50 ms on average. A caller gives up after
500 ms, waiting included; a body is interrupted then, and its permit is free.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from functools import cache
from typing import NamedTuple

import pytest

from faulttolerance import Bulkhead, Criticality, Guard, Timeout, TimeoutException
from faulttolerance._strategy import bulkhead as strategy
from faulttolerance._strategy.bulkhead import Waiter
from faulttolerance.exceptions import BulkheadException
from faulttolerance.testing import VirtualClock, virtual_time

from .kernel import Simulation, lognormal, quantile

PERMITS, MEAN, PATIENCE = 10, 0.05, 0.5
CAPACITY = PERMITS / MEAN
WARM, SECONDS = 5.0, 25.0
MAX_WAIT = 0.2


class End(NamedTuple):
    """How one call ended."""

    began: float
    tier: int
    end: str
    seconds: float


class Overload:
    """Calls at a bulkhead; each ends once, and no more run than may."""

    def __init__(self, load: float, seed: int, tiers: bool, max_wait: float, queue: int) -> None:
        self.simulation = Simulation(seed)
        self.bulkhead = strategy.Bulkhead(PERMITS, queue, max_wait=max_wait, now=lambda: self.simulation.now)
        self.ends: dict[int, End] = {}
        self.woken: dict[int, int] = {}
        self.running = 0
        self._tiers = tiers
        self._service = lognormal(MEAN, 0.6)
        self._number = 0
        self.simulation.arrivals(load * CAPACITY, self._arrive)
        self.simulation.run(SECONDS)

    def _arrive(self) -> None:
        self._number += 1
        me, now = self._number, self.simulation.now
        tier = self.simulation.chance.choice(list(Criticality)) if self._tiers else Criticality.NORMAL
        waiter = Waiter(me, 1, lambda: self._go_on(waiter, now), tier)
        try:
            waits = self.bulkhead.enter(waiter)
        except BulkheadException as refusal:
            self._end(waiter, now, refusal.reason)
            return
        if waits is None:
            self._start(waiter, now)
            return
        if self.bulkhead.max_wait:
            self.simulation.after(self.bulkhead.max_wait, lambda: self.bulkhead.expire(waiter))
        self.simulation.after(PATIENCE, lambda: self._give_up(waiter, now))

    def _go_on(self, waiter: Waiter, began: float) -> None:
        me = waiter.attempt_id
        assert isinstance(me, int)
        self.woken[me] = self.woken.get(me, 0) + 1
        if waiter.admitted:
            self._start(waiter, began)
        else:
            self._end(waiter, began, waiter.reason)

    def _start(self, waiter: Waiter, began: float) -> None:
        self.running += 1
        assert self.running <= PERMITS
        left = max(0.0, began + PATIENCE - self.simulation.now)
        seconds = self._service(self.simulation.chance)
        self.simulation.after(min(seconds, left), lambda: self._finish(waiter, began, in_time=seconds <= left))

    def _finish(self, waiter: Waiter, began: float, in_time: bool) -> None:
        self.running -= 1
        self._end(waiter, began, "served" if in_time else "late")
        self.bulkhead.release(waiter.attempt_id)

    def _give_up(self, waiter: Waiter, began: float) -> None:
        if not waiter.admitted and not waiter.reason:
            self.bulkhead.release(waiter.attempt_id)
            self._end(waiter, began, "late")

    def _end(self, waiter: Waiter, began: float, end: str) -> None:
        me = waiter.attempt_id
        assert isinstance(me, int)
        assert me not in self.ends
        self.ends[me] = End(began, waiter.tier, end, self.simulation.now - began)

    @property
    def counted(self) -> list[End]:
        """The ends of the calls that came when the system was warm, and had the time to end."""
        return [end for end in self.ends.values() if WARM <= end.began < SECONDS - 1]

    @property
    def served(self) -> list[float]:
        """How long those took that were served."""
        return [end.seconds for end in self.counted if end.end == "served"]

    @property
    def goodput(self) -> float:
        """Calls that were served per second, in capacities."""
        return len(self.served) / (SECONDS - 1 - WARM) / CAPACITY

    def part_served(self, tier: Criticality) -> float:
        """The part of the calls of *tier* that were served."""
        ends = [end.end for end in self.counted if end.tier == tier]
        return ends.count("served") / len(ends)


@cache
def overload(load: float, seed: int, tiers: bool = False, max_wait: float = MAX_WAIT, queue: int = 100) -> Overload:
    """Simulate once for all tests."""
    return Overload(load, seed, tiers, max_wait, queue)


SEEDS = (3, 5, 8)


@pytest.mark.parametrize("load", [1.2, 2.0, 3.0])
def test_an_overloaded_queue_serves_those_that_still_listen(load: float) -> None:
    """By rule Q3: nearly all of the capacity goes to calls that are served in time, and quickly."""
    seen = [overload(load, seed) for seed in SEEDS]
    served = [seconds for one in seen for seconds in one.served]

    assert min(one.goodput for one in seen) >= 0.97
    assert quantile(served, 0.5) <= 0.060
    assert quantile(served, 0.99) <= 0.230


def test_a_long_queue_in_order_of_arrival_serves_those_that_are_about_to_give_up() -> None:
    """Why there is rule Q3: the same overload with a queue of 1000, first in, first out."""
    seen = overload(3.0, 3, max_wait=0.0, queue=1000)

    assert seen.goodput <= 0.4
    assert quantile(seen.served, 0.5) >= 0.4


@pytest.mark.parametrize("seed", SEEDS)
def test_the_calls_that_matter_most_are_served_in_an_overload(seed: int) -> None:
    """By rule K1: of four tiers with a quarter of the calls each, the upper two fill the capacity."""
    seen = overload(2.0, seed, tiers=True)

    assert seen.part_served(Criticality.CRITICAL) >= 0.99
    assert seen.part_served(Criticality.BEST_EFFORT) <= 0.02
    assert seen.part_served(Criticality.NORMAL) > seen.part_served(Criticality.DEGRADED)
    assert seen.goodput >= 0.97


@pytest.mark.parametrize("tiers", [False, True])
def test_no_call_waits_longer_than_it_may_and_each_is_woken_once(tiers: bool) -> None:
    """By rule Q1, rule Q2: whatever becomes of it, a waiter hears of it once, and in time."""
    seen = overload(3.0, 3, tiers)
    ends = {end.end for end in seen.counted}

    assert max(end.seconds for end in seen.counted if end.end in ("waited", "displaced")) <= MAX_WAIT + 1e-9
    assert set(seen.woken.values()) == {1}
    assert {"served", "waited"} <= ends
    assert seen.bulkhead.running == seen.running


@pytest.mark.parametrize("load", [1.2, 3.0])
def test_a_real_guard_does_as_the_simulation(load: float) -> None:
    """By rule Q3: tasks in virtual time, with timers and deadlines; half the margin's distance again is allowed."""
    seconds, served, ends = 14.0, list[float](), Counter[str]()
    guard = Guard(timeout=Timeout(PATIENCE * 1000), bulkhead=Bulkhead(PERMITS, 100, max_wait=MAX_WAIT * 1000))
    chance, service = random.Random(3), lognormal(MEAN, 0.6)

    async def call(clock: VirtualClock, is_counted: bool) -> None:
        began = clock.monotonic()
        try:
            await guard.call_async(asyncio.sleep, service(chance))
            end = "served"
        except BulkheadException as refusal:
            end = refusal.reason
        except TimeoutException:
            end = "late"
        if is_counted:
            ends[end] += 1
            served.extend([clock.monotonic() - began] if end == "served" else [])

    async def main(clock: VirtualClock) -> None:
        async with asyncio.TaskGroup() as calls:
            began = clock.monotonic()
            while (now := clock.monotonic() - began) < seconds:
                calls.create_task(call(clock, 3.0 <= now < seconds - 1))
                await asyncio.sleep(chance.expovariate(load * CAPACITY))

    with virtual_time() as clock:
        clock.run(main(clock))

    assert len(served) / (seconds - 4.0) / CAPACITY >= 0.955
    assert quantile(served, 0.5) <= 0.070
    assert quantile(served, 0.99) <= 0.250
    assert set(ends) <= {"served", "waited", "displaced", "full", "late"}
