"""Threads, tasks and offloaded calls that share results or have state for each key, ended at random: nothing stays.

Would have caught: a follower that nobody wakes, a flight without a leader that stays in the table, the result of
another key, a permit of a partition that was forgotten, more partitions than there may be.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from faulttolerance import (
    BulkheadException,
    Interrupted,
    TimeoutException,
    asynchronous,
    bulkhead,
    coalesce,
    partition_by,
    sleep,
    timeout,
)
from faulttolerance._extensions.coalesce.policy import Coalesce
from faulttolerance._extensions.partition_by.policy import PartitionBy
from faulttolerance._guard.declare import registry
from faulttolerance._policy import Bulkhead

THREADS, CALLS, TASKS, LOOPS, KEYS = 64, 40, 10_000, 2, 16

pytestmark = [pytest.mark.stress, pytest.mark.timeout(120)]

Outcomes = Counter[str]


def strategies_of(function: Callable[..., Any], policy: type) -> list[Any]:
    """Return the state that *policy* keeps for a guarded function, for each key."""
    states = [state for state in registry.every_state() if state.name.endswith(function.__qualname__)]
    return [strategy for state in states for kind, strategy in state.strategies.items() if kind is policy]


class counted:
    """Counts the bodies inside, however a block ends: a body that counts itself may be interrupted while it counts."""

    lock = threading.Lock()

    def __init__(self, inside: Counter[int], key: int) -> None:
        self.inside, self.key = inside, key

    def __enter__(self) -> None:
        with self.lock:
            self.inside[self.key] += 1

    def __exit__(self, *failure: object) -> None:
        with self.lock:
            self.inside[self.key] -= 1


def on_threads(work: Callable[[random.Random], None], seed: int) -> None:
    """Do *work* again and again, on many threads at once."""

    def run(number: int) -> None:
        chance = random.Random(seed * 1000 + number)
        for _ in range(CALLS):
            work(chance)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "somebody waits for ever"


def on_loops(call: Callable[[int], Coroutine[Any, Any, str]], outcomes: Outcomes, seed: int) -> None:
    """Make many tasks on several loops at once, and cancel some of them at random moments."""

    async def main(number: int) -> None:
        chance = random.Random(seed * 1000 + number)
        tasks: list[asyncio.Future[str]] = []
        for _ in range(TASKS // LOOPS // 100):
            batch = [asyncio.ensure_future(call(chance.randrange(KEYS))) for _ in range(100)]
            await asyncio.sleep(chance.choice((0, 0, 0.001)))
            for task in chance.sample(batch, 30):
                task.cancel()
            tasks += batch
        done = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
        outcomes.update(type(one).__name__ for one in done)

    threads = [threading.Thread(target=asyncio.run, args=(main(number),), daemon=True) for number in range(LOOPS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert not any(thread.is_alive() for thread in threads), "somebody waits for ever"


def test_no_follower_waits_for_ever() -> None:
    """Rule CO2: whichever call gives up, at any moment, each call ends with the result of its key or by its own end."""
    outcomes: Outcomes = Counter()

    @coalesce
    def load(key: int) -> str:
        sleep(0.001)
        return f"{key}"

    @coalesce
    async def load_async(key: int) -> str:
        await asyncio.sleep(0.001)
        return f"{key}"

    @asynchronous
    @coalesce
    def load_apart(key: int) -> Any:
        sleep(0.001)
        return f"{key}"

    def work(chance: random.Random) -> None:
        key = chance.randrange(KEYS)
        try:
            match chance.randrange(3):
                case 0:
                    assert load(key) == f"{key}"
                case 1:
                    assert timeout(chance.uniform(0.1, 2))(lambda: load(key))() == f"{key}"
                case 2:
                    future = load_apart(key)
                    if chance.random() < 0.3:
                        future.cancel()
                    else:
                        assert future.result(60) == f"{key}"  # pyright: ignore[reportCallIssue]
        except (TimeoutException, Interrupted) as error:
            outcomes[type(error).__name__] += 1

    on_threads(work, 1)
    on_loops(load_async, outcomes, 2)

    assert outcomes["str"] >= TASKS // 2
    assert outcomes["CancelledError"] >= TASKS // 5
    for function in (load, load_async, load_apart):
        assert [len(flights) for flights in strategies_of(function, Coalesce)] in ([0], [])


def test_a_call_that_comes_as_a_flight_ends_is_not_left_behind() -> None:
    """Rule CO1: where calls end as soon as they began, each still gets a result, and never two lead at once."""
    leading: list[int] = []
    most: list[int] = []

    @coalesce(key=lambda: 1)
    def load() -> int:
        leading.append(1)
        most.append(len(leading))
        leading.pop()
        return 7

    def work(chance: random.Random) -> None:
        assert load() == 7

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        on_threads(work, 3)
    finally:
        sys.setswitchinterval(interval)

    assert max(most) == 1
    assert [len(flights) for flights in strategies_of(load, Coalesce)] == [0]


def test_no_permit_of_any_key_is_lost() -> None:
    """By rule N2: under many keys that come and go, each has its own permits, and all come back."""
    outcomes: Outcomes = Counter()
    inside: Counter[int] = Counter()

    @partition_by("key", max_partitions=KEYS // 2)
    @bulkhead(2, 2)
    def work(key: int) -> str:
        with counted(inside, key):
            sleep(0.0005)
        return f"{key}"

    @partition_by("key", max_partitions=KEYS // 2)
    @bulkhead(2, 50)
    async def work_async(key: int) -> str:
        with counted(inside, key):
            await asyncio.sleep(0.0001)
        return f"{key}"

    def one(chance: random.Random) -> None:
        key = chance.randrange(KEYS)
        try:
            assert timeout(chance.uniform(0.1, 5))(lambda: work(key))() == f"{key}"
        except (TimeoutException, Interrupted, BulkheadException) as error:
            outcomes[type(error).__name__] += 1
        else:
            outcomes["str"] += 1

    on_threads(one, 3)
    on_loops(work_async, outcomes, 4)

    assert outcomes["str"] > 100
    assert not any(inside.values())
    for function in (work, work_async):
        (partitions,) = strategies_of(function, PartitionBy)
        assert len(partitions) <= KEYS // 2
        permits = strategies_of(function, Bulkhead)
        assert [(len(bulkhead.held), len(bulkhead.waiting)) for bulkhead in permits] == [(0, 0)] * len(permits)


def test_no_permit_of_a_key_is_given_twice_however_many_keys_come_and_go() -> None:
    """By rule N2: with a place for each key in use, nested calls included, no key goes during a call."""
    inside: Counter[int] = Counter()
    most: Counter[int] = Counter()
    lock = threading.Lock()

    @partition_by("key", max_partitions=4 * THREADS)
    @bulkhead(1)
    def work(key: int, inner: int = 0) -> None:
        with lock:
            inside[key] += 1
            most[key] = max(most[key], inside[key])
        if inner:
            one(inner)
        with lock:
            inside[key] -= 1

    def one(*args: int) -> None:
        try:
            work(*args)
        except BulkheadException:
            pass

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        on_threads(lambda chance: one(chance.randrange(8 * THREADS), chance.randrange(8 * THREADS)), 5)
    finally:
        sys.setswitchinterval(interval)

    assert max(most.values()) == 1
    assert not any(inside.values())
    (partitions,) = strategies_of(work, PartitionBy)
    assert len(partitions) == 4 * THREADS
    assert not partitions.shared
