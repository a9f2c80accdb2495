"""Deadlines of calls and blocks, in threads, tasks and offloaded calls, with every kind of end (rules D1, D4, R11).

Would have caught: a deadline that is left in a chain or rules what outlives it, a permit that is lost where one passes,
a call that nobody ends, an interruption that reaches another call.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from typing import Any

import pytest

from faulttolerance import (
    FaultToleranceException,
    Interrupted,
    asynchronous,
    bulkhead,
    deadline,
    remaining,
    retry,
    sleep,
)
from faulttolerance._guard.declare import registry
from faulttolerance.policies import Bulkhead

pytestmark = [pytest.mark.stress, pytest.mark.timeout(120)]

THREADS = 64
TASKS = 10_000
WAVE = 500
LIMIT = deadline(20)


@LIMIT
@retry(max_retries=2, delay=1, jitter=0, retry_on=ConnectionError)
@bulkhead(8)
def call(draw: random.Random) -> None:
    work(draw.random())


@LIMIT
@retry(max_retries=2, delay=1, jitter=0, retry_on=ConnectionError)
@bulkhead(8, waiting_task_queue=50)
async def call_in_task(draw: random.Random) -> None:
    await asyncio.sleep(draw.choice((0, 0.001, 0.019, 0.02, 0.05)))
    if draw.random() < 0.2:
        raise ConnectionError


@LIMIT
@retry(max_retries=2, delay=1, jitter=0, retry_on=ConnectionError)
@bulkhead(8, waiting_task_queue=50)
@asynchronous
def call_on_pool(number: float) -> Any:
    work(number)


def work(number: float) -> None:
    """End at once, in time, at the deadline, late, or by a failure."""
    if number < 0.4:
        sleep((0.001, 0.019, 0.02, 0.05)[int(number * 10)])
    elif number < 0.6:
        raise ConnectionError


def permits() -> int:
    """Return the number of permits held or waited for; bodies that are about to be interrupted get some time."""
    for _ in range(400):
        strategies = [state.strategies.get(Bulkhead) for state in registry.every_state()]
        held = sum(len(one.held) + len(one.waiting) for one in strategies if one is not None)
        if not held:
            break
        threading.Event().wait(0.01)
    return held


def test_threads_lose_nothing() -> None:
    seen: Counter[str] = Counter()

    def one(draw: random.Random, kind: str) -> None:
        if kind == "guard":
            call(draw)
        elif kind == "block":
            with LIMIT, LIMIT:
                work(draw.random())
        elif kind == "pool":
            call_on_pool(draw.random()).result()
        else:
            with deadline(10):
                future = call_on_pool(draw.random())
                if kind == "left":
                    future.cancel()
                sleep(draw.choice((0, 0.009, 0.02)))

    def run(number: int) -> None:
        draw = random.Random(number)
        for _ in range(40):
            kind = draw.choice(("guard", "block", "pool", "outlives", "left"))
            try:
                one(draw, kind)
                seen["served"] += 1
            except (FaultToleranceException, ConnectionError) as error:
                seen[type(error).__name__] += 1
            except Interrupted:
                seen["stray"] += 1
            if remaining() is not None:
                seen["left in the chain"] += 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert (seen["stray"], seen["left in the chain"]) == (0, 0), seen
    assert sum(seen.values()) == THREADS * 40
    assert seen["served"], seen
    assert seen["TimeoutException"], seen
    assert permits() == 0
    assert not LIMIT._entered  # type: ignore[attr-defined]


def test_tasks_lose_nothing() -> None:
    seen: Counter[str] = Counter()

    async def one(draw: random.Random) -> None:
        try:
            if draw.random() < 0.5:
                await call_in_task(draw)
            else:
                with LIMIT:
                    async with LIMIT:
                        await asyncio.sleep(draw.choice((0, 0.001, 0.019, 0.02, 0.05)))
            seen["served"] += 1
        except (FaultToleranceException, ConnectionError) as error:
            seen[type(error).__name__] += 1
        if remaining() is not None:
            seen["left in the chain"] += 1

    async def main() -> None:
        draw = random.Random(7)
        for _ in range(TASKS // WAVE):
            tasks = [asyncio.create_task(one(draw)) for _ in range(WAVE)]
            await asyncio.sleep(draw.choice((0, 0.01, 0.02)))
            for task in draw.sample(tasks, WAVE // 3):
                task.cancel()
            await asyncio.wait(tasks)
            seen["cancelled"] += sum(task.cancelled() for task in tasks)

    asyncio.run(main())

    assert seen["left in the chain"] == 0
    assert sum(seen.values()) == TASKS, seen
    assert seen["served"], seen
    assert seen["TimeoutException"], seen
    assert permits() == 0
    assert not LIMIT._entered  # type: ignore[attr-defined]
