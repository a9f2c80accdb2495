"""Blocks of ``on_deadline`` that end at about their deadline, on many threads and in many tasks (rule S1).

Would have caught: a call that comes once its block was left, or twice; a block that waits for a call which never comes;
a block that stays on the books of its thread or its deadline.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from typing import Any

import pytest

from faulttolerance import Interrupted, TimeoutException, asynchronous, on_deadline, sleep, timeout
from faulttolerance._deadline.threads.chain import this_thread
from faulttolerance._deadline.threads.watchdog import watchdog

SECONDS = 4.0
THREADS = 64
TASKS = 10_000

pytestmark = [pytest.mark.stress, pytest.mark.timeout(180)]


class Resource:
    """Something that may only be cancelled while it is in use, and once for each use."""

    def __init__(self) -> None:
        self.in_use = False
        self.calls = 0
        self.wrong = 0

    def cancel(self) -> None:
        """Cancel it, which takes a moment."""
        for _ in range(3):
            self.wrong += not self.in_use
        self.calls += 1
        if random.random() < 0.1:
            time.sleep(0.001)
        self.wrong += not self.in_use

    def use(self, block: Any, rest: Any) -> None:
        """Use it for a moment."""
        self.in_use = True
        try:
            self.calls = 0
            with block:
                rest()
        finally:
            self.wrong += self.calls > 1
            self.in_use = False


def test_threads_that_end_at_about_their_deadlines() -> None:
    """Interrupted or not, nested or not, with a block of their own each time or the same again."""
    resources: list[Resource] = []
    left: list[object] = []
    outcomes: set[str] = set()

    def work(seed: int) -> None:
        chance, resource = random.Random(seed), Resource()
        resources.append(resource)
        kept = on_deadline(resource.cancel)

        def rest() -> None:
            seconds = chance.uniform(0.0, 0.006)
            if chance.random() < 0.5:
                sleep(seconds)
            else:
                time.sleep(seconds)

        def body() -> None:
            block = kept if chance.random() < 0.5 else on_deadline(resource.cancel)
            resource.use(block, rest)

        guarded = [timeout(3, interrupt=interrupt)(body) for interrupt in (True, False)]
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            try:
                chance.choice(guarded)()
                outcomes.add("in time")
            except TimeoutException:
                outcomes.add("late")
        left.extend(this_thread.deadlines.callbacks)
        left.extend(kept._entered)

    threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert not any(thread.is_alive() for thread in threads)
    assert sum(resource.wrong for resource in resources) == 0
    assert outcomes == {"in time", "late"}
    assert not left
    assert len(watchdog.timers.callbacks) < 100


def test_tasks_that_are_cancelled_at_about_their_deadlines() -> None:
    """In their caller's task or in their own, and cancelled from outside by chance."""
    wrong: list[str] = []

    async def body(chance: random.Random) -> None:
        state = {"in_use": True, "calls": 0}

        def cancel() -> None:
            state["calls"] += 1
            if not state["in_use"]:
                wrong.append("called outside")

        try:
            with on_deadline(cancel):
                await asyncio.sleep(chance.uniform(0.0, 0.06))
        finally:
            state["in_use"] = False
            if state["calls"] > 1:
                wrong.append("called twice")

    guarded = [timeout(30)(body), asynchronous(timeout(30)(body))]

    async def call(seed: int) -> None:
        chance = random.Random(seed)
        await asyncio.sleep(chance.uniform(0.0, 2.0))
        task = asyncio.ensure_future(chance.choice(guarded)(chance))
        if chance.random() < 0.3:
            asyncio.get_running_loop().call_later(chance.uniform(0.0, 0.06), task.cancel)
        try:
            await task
        except (TimeoutException, asyncio.CancelledError, Interrupted):
            pass

    async def main() -> None:
        await asyncio.gather(*map(call, range(TASKS)))

    asyncio.run(main())

    assert not wrong
