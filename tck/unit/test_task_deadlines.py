"""Deadlines of coroutines leave nothing behind."""

from __future__ import annotations

import asyncio

from faulttolerance import asynchronous, timeout
from faulttolerance._runtime.task_deadlines import rings_of


def test_calls_of_one_length_are_watched_by_one_timer() -> None:
    """However many attempts there are, a loop has one ring per length of a time-out, and none of them stays in it."""

    @timeout(5000)
    async def inline() -> None: ...

    @asynchronous
    @timeout(5000)
    async def apart() -> None: ...

    async def main() -> tuple[int, int]:
        for _ in range(50):
            await inline()
            await apart()
        rings = rings_of(asyncio.get_running_loop())
        return len(rings), sum(len(ring.pending) for ring in rings.values())

    assert asyncio.run(main()) == (1, 0)
