"""Offers calls to the service, in one of the four ways, in a process of its own.

    python -m examples.overload.client PORT CAPACITY WAY

Calls come whether or not earlier ones have been answered, as users do. Every half second, a line of JSON on the
standard output tells how many came, and how those ended that ended.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from bisect import bisect_right
from itertools import accumulate
from typing import NamedTuple

from . import ways

PATIENCE = 1.0
"""Seconds after which nobody waits for an answer any more."""
STEP = 0.5
"""Seconds between two lines."""

SCHEDULE = ((0.5, 1), (1.0, 1), (2.0, 2), (3.0, 4), (0.5, 3))
"""Parts of the capacity that are offered, each for so many seconds."""
LENGTH = sum(seconds for _, seconds in SCHEDULE)
_ENDS = list(accumulate(seconds for _, seconds in SCHEDULE))
RUSH, AFTER = 3, 4
"""The phases of the schedule that the promises are about."""


class Tick(NamedTuple):
    """What happened in one half second."""

    at: float
    """Seconds from the beginning to its end."""
    phase: int
    """Which one of the schedule it belongs to."""
    came: int
    good: int
    """Calls that ended with an answer within the patience of their callers."""
    late: int
    failed: int
    attempts: int
    open: int
    """Calls that are not over yet."""
    latencies: tuple[float, ...]
    """Seconds that the good ones took."""
    slowest: float
    """Seconds that the slowest call took that ended, however it did."""


def phase_at(seconds: float) -> int:
    """Which phase of the schedule it is so long after the beginning."""
    return bisect_right(_ENDS, seconds)


class Client:
    """One client, until the schedule is over."""

    def __init__(self, port: int, capacity: float, way: str) -> None:
        self._port = port
        self._capacity = capacity
        self._call = ways.WAYS[way]
        self._open: set[asyncio.Task[None]] = set()
        self._chance = random.Random(2)
        self._forget()

    def _forget(self) -> None:
        self._came = self._late = self._failed = 0
        self._good: list[float] = []
        self._slowest = 0.0

    async def run(self) -> None:
        """Offer calls, and tell what becomes of them."""
        begin = time.monotonic()
        telling = asyncio.create_task(self._tell(begin))
        due = 0.0
        while (phase := phase_at(due)) < len(SCHEDULE):
            due += self._chance.expovariate(SCHEDULE[phase][0] * self._capacity)
            await asyncio.sleep(max(0.0, begin + due - time.monotonic()))
            task = asyncio.create_task(self._one())
            self._open.add(task)
            task.add_done_callback(self._open.discard)
            self._came += 1
        await telling

    async def _one(self) -> None:
        began = time.monotonic()
        try:
            await self._call(self._port)
        except Exception:  # noqa: BLE001  # whatever it is: the user sees that something went wrong
            self._failed += 1
        else:
            took = time.monotonic() - began
            if took <= PATIENCE:
                self._good.append(took)
            else:
                self._late += 1
        self._slowest = max(self._slowest, time.monotonic() - began)

    async def _tell(self, begin: float) -> None:
        sent = 0
        for number in range(1, round(LENGTH / STEP) + 1):
            at = number * STEP
            await asyncio.sleep(max(0.0, begin + at - time.monotonic()))
            good, attempts = tuple(self._good), ways.attempts - sent
            sent = ways.attempts
            counts = (self._came, len(good), self._late, self._failed, attempts, len(self._open))
            tick = Tick(at, phase_at(at - STEP / 2), *counts, good, self._slowest)
            self._forget()
            print(json.dumps(tick._asdict()), flush=True)


async def measured(port: int, seconds: float) -> float:
    """Measure what the service can do: answers per second while more calls are open than there are workers."""
    answers = 0

    async def ask() -> None:
        nonlocal answers
        while True:
            await ways.fetch(port)
            answers += 1

    asking = [asyncio.create_task(ask()) for _ in range(15)]
    await asyncio.sleep(0.5)
    before, begin = answers, time.monotonic()
    await asyncio.sleep(seconds)
    found = (answers - before) / (time.monotonic() - begin)
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    return found


def main(port: str, capacity: str, way: str) -> None:
    client = Client(int(port), float(capacity), way)
    asyncio.run(client.run())


if __name__ == "__main__":
    main(*sys.argv[1:])
