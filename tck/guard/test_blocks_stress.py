"""Blocks of threads and tasks under one guard, with every kind of end: no permit may stay held (rule G2).

Would have caught: a permit, a probe's place or a deadline that is lost where a block is interrupted, cancelled, left by
`return` or `break`, refused, or held open by a generator that is dropped.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from faulttolerance import (
    CircuitBreakerOpenException,
    FaultToleranceException,
    Guard,
    Interrupted,
    TimeoutException,
    circuit_breakers,
    remaining,
    sleep,
)
from faulttolerance.policies import Bulkhead, CircuitBreaker, Retry, Timeout

pytestmark = [pytest.mark.stress, pytest.mark.timeout(120)]

THREADS = 64
TASKS = 10_000
WAVE = 40
EXPECTED = (FaultToleranceException, ConnectionError, asyncio.CancelledError)


def made(name: str) -> Guard:
    return Guard(
        name=name,
        retry=Retry(max_retries=1, delay=0, jitter=0),
        circuit_breaker=CircuitBreaker(request_volume_threshold=50, failure_ratio=1.0, delay=1),
        timeout=Timeout(20),
        bulkhead=Bulkhead(8, 10_000),
    )


def serves(guard: Guard) -> bool:
    """Return whether all permits are free again, and the circuit admits calls."""
    running: list[int] = []

    def nested(depth: int) -> None:
        with guard.attempt():
            running.append(depth)
            if depth < 8:
                nested(depth + 1)

    for _ in range(100):
        running.clear()
        try:
            with guard.attempt():
                pass  # it closes the circuit, which would let one of the nested ones through
            nested(1)
        except (CircuitBreakerOpenException, TimeoutException):  # a busy machine may take the 20 ms for itself
            sleep(0.005)
        else:
            break
    return running == list(range(1, 9))


def test_threads_lose_nothing() -> None:
    guard = made("threads in blocks")
    seen: Counter[str] = Counter()

    def held() -> Iterator[None]:
        for attempt in guard.attempts():
            with attempt:
                yield

    def work(number: int) -> None:
        draw = random.Random(number)
        for _ in range(60):
            kind = draw.choice(("serves", "fails", "late", "returns", "breaks", "held"))
            try:
                if kind == "held":
                    generator = held()
                    next(generator)
                    del generator
                else:
                    one(kind, draw)
                seen[kind] += 1
            except (FaultToleranceException, ConnectionError) as error:
                seen[type(error).__name__] += 1
            except Interrupted:
                seen["stray"] += 1
            if remaining() is not None:
                seen["left in the chain"] += 1

    def one(kind: str, draw: random.Random) -> None:
        for attempt in guard.attempts():
            with attempt:
                if kind == "fails":
                    raise ConnectionError
                if kind == "late":
                    sleep(draw.choice((0.01, 0.019, 0.02, 0.03)))
                if kind == "returns":
                    return
                if kind == "breaks":
                    break

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert (seen["stray"], seen["left in the chain"]) == (0, 0), seen
    assert seen["serves"], seen
    assert serves(guard), (seen, circuit_breakers.state(guard.name))
    guard.close()


def test_tasks_lose_nothing() -> None:
    guard = made("tasks in blocks")
    seen: Counter[str] = Counter()

    async def one(number: int) -> None:
        draw = random.Random(number)
        async for attempt in guard.attempts():
            async with attempt:
                await asyncio.sleep(draw.choice((0, 0, 0.001, 0.002, 0.03)))
                if draw.random() < 0.2:
                    raise ConnectionError
                if draw.random() < 0.2:
                    return

    async def main() -> None:
        draw = random.Random(0)
        for wave in range(TASKS // WAVE):
            tasks = [asyncio.create_task(one(wave * WAVE + number)) for number in range(WAVE)]
            for _ in range(5):
                await asyncio.sleep(0)
                for task in draw.sample(tasks, 3):
                    task.cancel()
            for error in await asyncio.gather(*tasks, return_exceptions=True):
                seen[type(error).__name__] += 1
                if not isinstance(error, (*EXPECTED, type(None))):
                    seen["stray"] += 1

    asyncio.run(main())

    assert seen["stray"] == 0, seen
    assert seen["CancelledError"], seen
    assert seen["NoneType"], seen
    assert serves(guard), (seen, circuit_breakers.state(guard.name))
    guard.close()
