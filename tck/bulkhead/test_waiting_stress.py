"""Threads and tasks that wait for permits in one queue: each is woken once, none is lost, no limit is passed.

Would have caught: a wake-up that is lost between the look at the queue and the sleep; a permit that stays with a waiter
that has left; a waiter that is woken twice; a queue that a closed loop keeps filled.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections import Counter
from typing import Any

import pytest

from faulttolerance import BulkheadException, Guard, RateLimitException, TimeoutException, criticality, sleep
from faulttolerance._guard.declare import registry
from faulttolerance._strategy import rate_limit
from faulttolerance.policies import Bulkhead, Criticality, RateLimit, Timeout
from kit.crowd import Crowd, press
from kit.wakes import Wakes

SECONDS = float(os.environ.get("STRESS_SECONDS", "12")) / 4
LIMIT = 8

pytestmark = [pytest.mark.stress, pytest.mark.timeout(SECONDS * 10 + 100)]


def test_threads_and_tasks_that_wait_are_each_woken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By rule Q1, rule Q2, rule Q3, rule K1: 64 threads and 10,000 tasks, ended at random."""
    wakes = Wakes(monkeypatch)
    guard = Guard(bulkhead=Bulkhead(LIMIT, 200, max_wait=40), name="stress")
    outer = Guard(timeout=Timeout(15), name="outer")
    crowd, ends, wrong = Crowd(), Counter[str](), list[str]()
    until = time.monotonic() + SECONDS

    def body(seconds: float) -> None:
        with crowd:
            sleep(seconds)

    async def body_async(seconds: float) -> None:
        with crowd:
            await asyncio.sleep(seconds)

    def thread(dice: random.Random) -> None:
        while time.monotonic() < until:
            try:
                with criticality(dice.choice(list(Criticality))):
                    call = guard.call if dice.random() < 0.7 else lambda *args: outer.call(guard.call, *args)
                    call(body, dice.random() * 0.01)
                ends["served"] += 1
            except BulkheadException as refusal:
                ends[refusal.reason] += 1
            except TimeoutException:
                ends["interrupted"] += 1
            except BaseException as error:
                wrong.append(repr(error))

    async def task(dice: random.Random) -> None:
        try:
            with criticality(dice.choice(list(Criticality))):
                await guard.call_async(body_async, dice.random() * 0.01)
            ends["served"] += 1
        except BulkheadException as refusal:
            ends[refusal.reason] += 1
        except asyncio.CancelledError:
            ends["cancelled"] += 1

    press(SECONDS, thread, task)
    (state,) = [one for one in registry.every_state() if one.name == "stress"]
    permits = state.strategies.get(Bulkhead)
    try:
        assert wrong == []
        assert (dict(permits.held), list(permits.waiting), permits.running) == ({}, [], 0)
        assert crowd.inside == 0
        assert crowd.most == LIMIT
        assert wakes.most == 1
        assert wakes.is_each_refused_told
        assert min(ends[end] for end in ("served", "waited", "displaced", "interrupted", "cancelled")) > 0, ends
    finally:
        guard.close()
        outer.close()


def test_a_loop_that_was_closed_holds_up_nobody() -> None:
    """By rule Q2, rule Q3: tasks that wait in it are refused in their time by arriving or leaving calls (B34)."""
    guard = Guard(bulkhead=Bulkhead(1, 5, max_wait=200), name="closed")
    started, go = threading.Event(), threading.Event()

    def hold() -> None:
        started.set()
        go.wait(10)

    holder = threading.Thread(target=guard.call, args=(hold,))
    holder.start()
    started.wait(10)
    loop = asyncio.new_event_loop()
    left = [loop.create_task(guard.call_async(asyncio.sleep, 0)) for _ in range(3)]
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    with pytest.raises(BulkheadException):
        guard.call(lambda: None)
    go.set()
    holder.join()

    assert guard.call(lambda: "served") == "served"
    (state,) = [one for one in registry.every_state() if one.name == "closed"]
    assert not list(state.strategies.get(Bulkhead).waiting)
    for one in left:
        one._log_destroy_pending = False  # type: ignore[attr-defined]
    guard.close()


def test_threads_and_tasks_that_wait_for_their_turn_stay_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """By rule RL1: 64 threads and 10,000 tasks, interrupted and cancelled at random; nobody waits for ever."""
    guard = Guard(rate_limit=RateLimit(400, window=0.5, type="rolling", max_wait=300), name="line")
    ends, wrong, moments = Counter[str](), list[str](), list[int]()
    until = time.monotonic() + SECONDS
    record = rate_limit._Rolling.record

    def watched(window: Any, now: int, since: int) -> None:
        moments.append(now)
        record(window, now, since)

    monkeypatch.setattr(rate_limit._Rolling, "record", watched)

    def body() -> None: ...

    async def body_async() -> None:
        body()

    def thread(dice: random.Random) -> None:
        while time.monotonic() < until:
            try:
                if dice.random() < 0.3:
                    Guard(timeout=Timeout(dice.random() * 200 + 1)).call(guard.call, body)
                else:
                    guard.call(body)
                ends["served"] += 1
            except (RateLimitException, TimeoutException) as error:
                ends[type(error).__name__] += 1
                sleep(0.002)
            except BaseException as error:
                wrong.append(repr(error))

    async def task(_: random.Random) -> None:
        try:
            await guard.call_async(body_async)
            ends["served"] += 1
        except (RateLimitException, asyncio.CancelledError) as error:
            ends[type(error).__name__] += 1

    press(SECONDS, thread, task)
    (state,) = [one for one in registry.every_state() if one.name == "line"]
    limit = state.strategies.get(RateLimit)

    assert wrong == []
    assert list(limit.waiting) == []
    assert min(ends[end] for end in ("served", "RateLimitException", "CancelledError")) > 0, ends
    assert all(late - early >= 500_000_000 for early, late in zip(moments, moments[400:], strict=False))
    guard.close()
