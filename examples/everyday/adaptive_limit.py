"""A price service bears five calls at once, and nobody has written that down: the limit finds it by what calls take."""

from __future__ import annotations

import asyncio

from faulttolerance import BulkheadException, bulkhead, guards
from faulttolerance.testing import virtual_time

free_at = [0.0] * 5  # when each of the service's workers has done what it was asked for


@bulkhead(50, 1, latency=100)
async def price(item: int) -> str:
    now = asyncio.get_running_loop().time()
    worker = free_at.index(min(free_at))
    free_at[worker] = max(now, free_at[worker]) + 0.02
    await asyncio.sleep(free_at[worker] - now)
    return f"the price of {item}"


async def rush(seconds: float) -> tuple[list[float], int]:
    """Ask twice as often as the service can answer; give what the answers took, and how many calls were refused."""
    took: list[float] = []
    refused = 0
    clock = asyncio.get_running_loop().time

    async def ask(item: int) -> None:
        nonlocal refused
        began = clock()
        try:
            await price(item)
            took.append(clock() - began)
        except BulkheadException:
            refused += 1

    async with asyncio.TaskGroup() as group:
        for item in range(int(seconds * 500)):
            group.create_task(ask(item))
            await asyncio.sleep(0.002)
    return sorted(took), refused


async def main() -> tuple[list[float], int]:
    await rush(1.0)  # it takes a moment to find out
    return await rush(4.0)


with virtual_time() as clock:
    answers, refusals = clock.run(main())

(guard,) = guards()
print(f"{len(answers)} answers, {refusals} refusals; {guard.conditions['Bulkhead']}")
print(f"nine in ten answers came within {answers[len(answers) * 9 // 10] * 1000:.0f} ms")
assert answers[len(answers) * 9 // 10] <= 0.13, "no queue grows in front of the service"
assert len(answers) / 4.0 >= 225, "and its five workers are busy all the time: 250 calls a second"
