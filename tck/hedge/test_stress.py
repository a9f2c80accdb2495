"""Hedged calls on loops and threads, cancelled at random: each ends once, nothing stays, and hedges are paid for.

Would have caught: a permit of a loser that was forgotten, a call that nobody wakes, a hedge that was sent although the
budget was spent, an attempt that runs on after its call was cancelled, a call that pool or loop keep.
"""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from collections import Counter
from concurrent.futures import CancelledError
from typing import Any

import pytest

from faulttolerance import asynchronous, bulkhead, hedge, sleep, timeout
from faulttolerance._execution.pool import pool
from faulttolerance._extensions.hedge.policy import Hedge
from faulttolerance._guard.declare import registry
from faulttolerance._policy import Bulkhead
from kit.budget import tokens_of

THREADS, CALLS, TASKS, LOOPS = 64, 25, 10_000, 2
BURST, RATIO = 10, 0.1

pytestmark = [pytest.mark.stress, pytest.mark.timeout(120)]


def strategy_of(function: Any, policy: type) -> Any:
    """Return the strategy of a guarded function."""
    (state,) = (state for state in registry.every_state() if state.name.endswith(function.__qualname__))
    return state.strategies.get(policy)


def eventually(is_so: Any) -> None:
    """Wait until a condition that comes true by itself holds."""
    until = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("detached", [False, True])
def test_tasks_that_are_cancelled_leave_nothing(detached: bool) -> None:
    """Ten thousand tasks on two loops: every one ends, permits are back, no task is left."""
    attempts: Counter[str] = Counter()

    @hedge(delay=1, quantile=0, max_hedges=2)
    @timeout("5s")
    @bulkhead(60, 10_000)
    async def load(chance: random.Random) -> str:
        attempts["begun"] += 1
        try:
            await asyncio.sleep(chance.choice((0, 0, 0.001, 0.004)))
            if chance.random() < 0.1:
                raise OSError
            attempts["ended"] += 1
        except asyncio.CancelledError:
            attempts["lost"] += 1
            raise
        return "loaded"

    call = asynchronous(load) if detached else load
    outcomes: Counter[str] = Counter()

    async def main(number: int) -> None:
        chance = random.Random(number)
        for _ in range(TASKS // LOOPS // 100):
            batch: list[asyncio.Future[str]] = [asyncio.ensure_future(call(chance)) for _ in range(100)]
            await asyncio.sleep(chance.choice((0, 0, 0.001, 0.003)))
            for task in chance.sample(batch, 30):
                task.cancel()
            ended = await asyncio.wait_for(asyncio.gather(*batch, return_exceptions=True), 60)
            outcomes.update(type(one).__name__ for one in ended)
        await asyncio.sleep(0.1)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    threads = [threading.Thread(target=asyncio.run, args=(main(number),), daemon=True) for number in range(LOOPS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    permits = strategy_of(load, Bulkhead)
    assert sum(outcomes.values()) == TASKS
    assert outcomes.keys() <= {"str", "OSError", "CancelledError"}
    assert (permits.held, len(permits.waiting)) == ({}, 0)
    primaries = TASKS  # some were cancelled before they began
    assert attempts["begun"] <= primaries + BURST + RATIO * outcomes["str"]


def test_calls_on_threads_that_are_cancelled_leave_nothing() -> None:
    """From 64 threads: each future ends once, losers give their permits back, and the pool has no call left."""
    begun: Counter[int] = Counter()

    @asynchronous
    @hedge(delay=2, quantile=0, max_hedges=2)
    @timeout("5s")
    @bulkhead(50, 10_000)
    def load(chance: random.Random) -> Any:
        begun[threading.get_ident()] += 1
        sleep(chance.choice((0.0, 0.0, 0.001, 0.01)))
        if chance.random() < 0.1:
            raise OSError
        return "loaded"

    outcomes: Counter[str] = Counter()

    def run(number: int) -> None:
        chance = random.Random(number)
        for _ in range(CALLS):
            future = load(chance)
            if chance.random() < 0.3:
                time.sleep(chance.choice((0.0, 0.001, 0.003)))
                future.cancel()
            try:
                outcomes[future.result(60)] += 1
            except (OSError, CancelledError) as error:
                outcomes[type(error).__name__] += 1

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)

    permits = strategy_of(load, Bulkhead)
    assert sum(outcomes.values()) == THREADS * CALLS
    assert outcomes.keys() <= {"loaded", "OSError", "CancelledError"}
    eventually(lambda: not permits.held and not len(permits.waiting))
    eventually(lambda: not pool.calls)
    assert sum(begun.values()) <= THREADS * CALLS + BURST + RATIO * outcomes["loaded"]
    assert tokens_of(strategy_of(load, Hedge).budget) <= BURST
    gc.collect()
