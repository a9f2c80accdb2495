"""Policies that are only observed, under many threads and tasks: nothing is refused, and nothing stays held."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from faulttolerance import Guard, guards
from faulttolerance._guard.declare import registry
from faulttolerance.policies import Bulkhead, CircuitBreaker, RateLimit, Timeout
from faulttolerance.testing import configured

pytestmark = pytest.mark.stress

THREADS, CALLS, TASKS = 64, 100, 10_000


def observed(name: str) -> tuple[Guard, Any]:
    """Return a guard that would refuse most calls, and a block that lets it observe them."""
    guard = Guard(
        name=name,
        circuit_breaker=CircuitBreaker(request_volume_threshold=10),
        rate_limit=RateLimit(50, window=1),
        timeout=Timeout(1),
        bulkhead=Bulkhead(2),
    )
    kinds = ("CircuitBreaker", "RateLimit", "Timeout", "Bulkhead")
    return guard, configured({f"{name}/{kind}/mode": "observe" for kind in kinds})


def of_calls(name: str) -> float:
    (guard,) = [one for one in guards() if one.name == name]
    return sum(count for (metric, _), count in guard.counts.items() if metric == "ft.invocations.total")


def held(name: str) -> int:
    (state,) = [one for one in registry.every_state() if one.name == name]
    return len(state.strategies.get(Bulkhead).held)


def test_threads_go_through_observed_policies() -> None:
    """By rule X7: each call is made and counted once."""
    guard, observing = observed("acme.stress.threads")

    def calls(number: int) -> int:
        chance, done = random.Random(number), 0
        for _ in range(CALLS):
            try:
                guard.call(lambda: 1 / chance.choice([0, 1, 1, 1]))
            except ZeroDivisionError:
                pass
            done += 1
        return done

    with observing:
        with ThreadPoolExecutor(THREADS) as pool:
            done = list(pool.map(calls, range(THREADS)))

        assert sum(done) == of_calls("acme.stress.threads") == THREADS * CALLS
        assert held("acme.stress.threads") == 0


def test_tasks_go_through_observed_policies_and_are_cancelled() -> None:
    """By rule X7, and R0: a cancelled task leaves nothing behind."""
    guard, observing = observed("acme.stress.tasks")
    chance = random.Random(7)

    async def body() -> None:
        await asyncio.sleep(chance.random() / 50)

    async def main() -> int:
        tasks = [asyncio.ensure_future(guard.call_async(body)) for _ in range(TASKS)]
        await asyncio.sleep(0.005)
        for task in chance.sample(tasks, TASKS // 3):
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(end) for end in ends} <= {type(None), asyncio.CancelledError}
        return sum(end is None for end in ends)

    with observing:
        assert asyncio.run(main()) > 0
        assert held("acme.stress.tasks") == 0
