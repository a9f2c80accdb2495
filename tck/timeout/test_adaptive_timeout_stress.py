"""A time-out that adapts under many threads and tasks: the limit stays in its bounds, and nothing stays held."""

from __future__ import annotations

import asyncio
import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from faulttolerance import Guard, TimeoutException
from faulttolerance._guard.declare import registry
from faulttolerance.policies import Bulkhead, Timeout

pytestmark = pytest.mark.stress

THREADS, CALLS, TASKS = 64, 60, 10_000


def held(name: str) -> int:
    (state,) = [one for one in registry.every_state() if one.name == name]
    return len(state.strategies.get(Bulkhead).held)


def limit(name: str) -> float:
    (state,) = [one for one in registry.every_state() if one.name == name]
    seconds: float = state.strategies.get(Timeout).limit.seconds
    return seconds


def test_threads_move_one_limit() -> None:
    """By rules E1 and X5: each limit that is seen lies in its bounds, and every permit comes back."""
    name = "acme.stress.adaptive.threads"
    guard = Guard(name=name, timeout=Timeout(200, adaptive=True), bulkhead=Bulkhead(THREADS))

    def calls(number: int) -> list[float]:
        chance, seen = random.Random(number), []
        for _ in range(CALLS):
            try:
                guard.call(lambda: time.sleep(chance.choice([0.0, 0.0, 0.001, 0.03])) or 1 / chance.choice([0, 1, 1]))
            except (ZeroDivisionError, TimeoutException):
                pass
            seen.append(limit(name))
        return seen

    with ThreadPoolExecutor(THREADS) as pool:
        seen = [one for some in pool.map(calls, range(THREADS)) for one in some]

    assert all(0.01 <= one <= 0.2 for one in seen)
    assert held(name) == 0


def test_tasks_that_are_cancelled_leave_nothing() -> None:
    """By rules X4 and E2: at any end of an attempt, its permit and its deadline go back."""
    name = "acme.stress.adaptive.tasks"
    guard = Guard(name=name, timeout=Timeout(500, adaptive=True), bulkhead=Bulkhead(50, waiting_task_queue=TASKS))
    chance = random.Random(7)

    async def body() -> None:
        await asyncio.sleep(chance.choice([0.0, 0.0, 0.0, 0.01]))

    async def one() -> None:
        task = asyncio.ensure_future(guard.call_async(body))
        if chance.random() < 0.3:
            asyncio.get_running_loop().call_later(chance.random() / 20, task.cancel)
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()

    async def main() -> None:
        await asyncio.gather(*[one() for _ in range(TASKS)])

    asyncio.run(main())

    assert held(name) == 0
    assert 0.01 <= limit(name) <= 0.5
