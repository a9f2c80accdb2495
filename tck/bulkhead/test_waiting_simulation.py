"""The service of a bulkhead's queue in an overload (target G3), by simulation of the shipped strategy."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from faulttolerance import Guard, TimeoutException
from faulttolerance.exceptions import BulkheadException
from faulttolerance.policies import Bulkhead, Criticality, Timeout
from faulttolerance.testing import VirtualClock, virtual_time
from simulation.kernel import lognormal, quantile
from simulation.queues import CAPACITY, LONG, MEAN, OURS, PATIENCE, PERMITS, queued

pytestmark = pytest.mark.stress

MAX_WAIT = 0.2
SEEDS = (3, 5, 8)


@pytest.mark.parametrize("load", [1.2, 2.0, 3.0])
def test_an_overloaded_queue_serves_callers_that_still_listen(load: float) -> None:
    """By rule Q3: nearly all of the capacity goes to calls that are served in time, and quickly."""
    seen = [queued(OURS, load, seed) for seed in SEEDS]
    served = [seconds for one in seen for seconds in one.served]

    assert min(one.goodput for one in seen) >= 0.97
    assert quantile(served, 0.5) <= 0.060
    assert quantile(served, 0.99) <= 0.230


def test_a_long_queue_in_order_of_arrival_serves_callers_that_are_about_to_give_up() -> None:
    """Rule Q3 has this reason: the same overload with a queue of 1000, first in, first out."""
    seen = queued(LONG, 3.0, 3)

    assert seen.goodput <= 0.4
    assert quantile(seen.served, 0.5) >= 0.4


@pytest.mark.parametrize("seed", SEEDS)
def test_the_calls_that_matter_most_are_served_in_an_overload(seed: int) -> None:
    """By rule K1: of four tiers with a quarter of the calls each, the upper two fill the capacity."""
    seen = queued(OURS, 2.0, seed, tiers=True)

    assert seen.part_served(Criticality.CRITICAL) >= 0.99
    assert seen.part_served(Criticality.BEST_EFFORT) <= 0.02
    assert seen.part_served(Criticality.NORMAL) > seen.part_served(Criticality.DEGRADED)
    assert seen.goodput >= 0.97


@pytest.mark.parametrize("tiers", [False, True])
def test_no_call_waits_longer_than_it_may_and_each_is_woken_once(tiers: bool) -> None:
    """By rule Q1, rule Q2: each waiter is woken in time, whatever its end."""
    seen = queued(OURS, 3.0, 3, tiers)
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
