"""Threads and tasks under a moving limit: it is never passed, no permit is lost, each waiter is woken once.

Would have caught: a limit that is read twice where it counts; a rise that leaves a waiter asleep; a permit that
is lost where a limit falls below what runs.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from bisect import bisect_right
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from faulttolerance import BulkheadException, Guard, TimeoutException, sleep
from faulttolerance._guard.declare import registry
from faulttolerance._strategy import bulkhead as strategy
from faulttolerance.policies import Bulkhead, Timeout
from kit.crowd import Crowd, press
from kit.wakes import Wakes

SECONDS = float(os.environ.get("STRESS_SECONDS", "12")) / 4
CEILING = 16

pytestmark = [pytest.mark.stress, pytest.mark.timeout(SECONDS * 10 + 100)]


class History:
    """Each limit with the moment of its beginning; a rise is recorded before it, a fall after it."""

    def __init__(self, limit: int) -> None:
        self.moments, self.limits = [0.0], [limit]

    def note(self, limit: int) -> None:
        self.limits.append(limit)  # first: who looks meanwhile finds one more
        self.moments.append(time.monotonic())

    def highest_since(self, moment: float) -> int:
        return max(self.limits[bisect_right(self.moments, moment) - 1 :])


def test_a_limit_that_moves_is_never_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By rules A1 and Q2: 64 threads and 10,000 tasks, ended at random, of which many are late."""
    wakes = Wakes(monkeypatch)
    history = History(CEILING)
    move = strategy.Bulkhead._move_locked

    def noted(bulkhead: Any, others: Any, limit: int) -> None:
        if limit > bulkhead.limit:
            history.note(limit)
        move(bulkhead, others, limit)
        history.note(limit)

    monkeypatch.setattr(strategy.Bulkhead, "_move_locked", noted)
    guard = Guard(bulkhead=Bulkhead(CEILING, 100, max_wait=40, latency=8), name="stress")
    outer = Guard(timeout=Timeout(15), name="outer")
    crowd, ends, wrong = Crowd(), Counter[str](), list[str]()
    began = time.monotonic()
    until = began + SECONDS

    def duration(dice: random.Random) -> float:
        return dice.random() * (0.02 if int((time.monotonic() - began) * 4) % 2 else 0.002)  # slow and fast by turns

    def look(asked: float) -> None:
        inside = crowd.inside
        if inside > history.highest_since(asked):
            wrong.append(f"{inside} run, of {history.highest_since(asked)}")

    def body(asked: float, seconds: float) -> None:
        with crowd:
            look(asked)
            sleep(seconds)

    async def body_async(asked: float, seconds: float) -> None:
        with crowd:
            look(asked)
            await asyncio.sleep(seconds)

    def thread(dice: random.Random) -> None:
        while time.monotonic() < until:
            try:
                call = guard.call if dice.random() < 0.7 else lambda *args: outer.call(guard.call, *args)
                call(body, time.monotonic(), duration(dice))
                ends["served"] += 1
            except BulkheadException as refusal:
                ends[refusal.reason] += 1
            except TimeoutException:
                ends["interrupted"] += 1
            except BaseException as error:
                wrong.append(repr(error))

    async def task(dice: random.Random) -> None:
        try:
            await guard.call_async(body_async, time.monotonic(), duration(dice))
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
        assert wakes.most == 1
        assert wakes.is_each_refused_told
        assert min(history.limits) < CEILING // 2, "it fell"
        assert any(later > before for before, later in pairwise(history.limits)), "and rose"
        assert permits.limit == permits.adaptive.limit <= CEILING
        assert min(ends[end] for end in ("served", "interrupted", "cancelled")) > 0, ends
    finally:
        guard.close()
        outer.close()
