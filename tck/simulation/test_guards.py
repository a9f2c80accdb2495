"""The scenarios through real guards, as tasks in virtual time; the margins are half as wide again.

Where there are four guards they stand for four replicas. They call coroutines that wait for the same backends
as in the simulation, whose events are timers of the loop here.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from faulttolerance import Guard, TimeoutException
from faulttolerance.exceptions import BulkheadException
from faulttolerance.policies import AdaptiveThrottle, Bulkhead, Hedge, Retry, RetryBudget, Timeout
from faulttolerance.testing import VirtualClock, virtual_time
from simulation import hedges, time_outs
from simulation.kernel import Backend, Load, lognormal, quantile
from simulation.overload import CAPACITY, LATENCY, USUAL

pytestmark = pytest.mark.stress

Body = Callable[[], Awaitable[object]]


class End(NamedTuple):
    """A call that is over."""

    began: float
    seconds: float
    failure: type[Exception] | None


class Scene:
    """Calls at guards, as tasks of a loop in virtual time; moments count from its beginning."""

    def __init__(self, clock: VirtualClock, seed: int) -> None:
        self.chance = random.Random(seed)
        self.ends: list[End] = []
        self._clock, self._began = clock, clock.monotonic()

    @property
    def now(self) -> float:
        """The present moment."""
        return self._clock.monotonic() - self._began

    def after(self, delay: float, act: Callable[[], object]) -> None:
        """Schedule *act* in *delay* seconds."""
        asyncio.get_running_loop().call_later(delay, act)

    async def play(self, guards: list[Guard], body: Body, load: Load, seconds: float) -> None:
        """Start calls for this number of seconds, and wait for the last one."""
        async with asyncio.TaskGroup() as calls:
            while self.now < seconds:
                calls.create_task(self._call(self.chance.choice(guards), body))
                await asyncio.sleep(self.chance.expovariate(load(self.now)))

    async def _call(self, guard: Guard, body: Body) -> None:
        began, failure = self.now, None
        try:
            await guard.call_async(body)
        except Exception as error:
            failure = type(error)
        self.ends.append(End(began, self.now - began, failure))

    def between(self, begin: float, end: float) -> list[End]:
        """Return the calls that came from *begin* to *end*."""
        return [one for one in self.ends if begin <= one.began < end]

    def part(self, begin: float, end: float, failure: type[Exception] | None = None) -> float:
        """Return the part of these calls that ended with *failure*."""
        span = self.between(begin, end)
        return sum(one.failure is failure for one in span) / len(span)


def behind(scene: Scene, backend: Backend) -> Body:
    """Return a body that waits for the backend, which also works for callers that have gone."""

    async def body() -> None:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def tell() -> None:
            if not answer.done():
                answer.set_result(None)

        backend.submit(tell)
        await answer

    return body


def usual(scene: Scene) -> Backend:
    return Backend(scene, USUAL.workers, lognormal(USUAL.mean, USUAL.sigma))


def four(make: Callable[[], Guard]) -> list[Guard]:
    return [make() for _ in range(4)]


def limited() -> Guard:
    return Guard(timeout=Timeout(1000), bulkhead=Bulkhead(200, 1, latency=LATENCY * 1000))


@pytest.mark.parametrize("load", [0.9, 2.0])
def test_a_limit_that_adapts(load: float) -> None:
    """By rule A1, rule A2: targets G1."""
    with virtual_time() as clock:
        scene = Scene(clock, 3)
        clock.run(scene.play(four(limited), behind(scene, usual(scene)), lambda now: load * CAPACITY, 21.0))
    served = [one.seconds for one in scene.between(6.0, 20.0) if one.failure is None]

    if load < 1:
        assert scene.part(6.0, 20.0, BulkheadException) <= 0.003
    else:
        assert len(served) / 14.0 / CAPACITY >= 0.97
        assert quantile(served, 0.99) <= 1.75 * LATENCY


@pytest.mark.parametrize("load", [1.2, 2.0])
def test_calls_wait_under_a_limit_that_adapts(load: float) -> None:
    """By rule Q1: in the usual queue, which has no longest wait, callers wait no longer than the target allows."""
    with virtual_time() as clock:
        scene = Scene(clock, 3)
        guards = four(lambda: Guard(bulkhead=Bulkhead(200, latency=LATENCY * 1000)))
        clock.run(scene.play(guards, behind(scene, usual(scene)), lambda now: load * CAPACITY, 21.0))
    served = [one.seconds for one in scene.between(6.0, 20.0) if one.failure is None]

    assert len(served) / 14.0 / CAPACITY >= 0.97
    assert quantile(served, 0.5) <= LATENCY
    assert quantile(served, 0.99) <= 2 * LATENCY


def test_a_limit_after_a_hang() -> None:
    """By rule A1: target G2, a hang of 10 s."""
    with virtual_time() as clock:
        scene = Scene(clock, 3)
        backend = usual(scene)

        def slow(times: float) -> None:
            backend.slowness = times
            backend.queue.clear()

        async def main() -> None:
            scene.after(5.0, lambda: slow(100.0))
            scene.after(15.0, lambda: slow(1.0))
            await scene.play(four(limited), behind(scene, backend), lambda now: 0.6 * CAPACITY, 26.0)

        clock.run(main())

    assert scene.part(22.5, 25.0) >= 0.95


def test_a_throttle() -> None:
    """By rule AT2, rule AT3: target G4, one after the other: 30/s taken of 100/s, then nothing, then all."""
    sent, accepted, tokens = Counter[int](), Counter[int](), [0.0, 0.0]
    with virtual_time() as clock:
        scene = Scene(clock, 3)

        async def body() -> None:
            now = scene.now
            capacity = 2000.0 if now < 10 or now > 70 else 30.0 if now < 50 else 0.0
            most = max(1.0, capacity / 10) if capacity else 0.0
            tokens[:] = min(most, tokens[0] + (now - tokens[1]) * capacity), now
            sent[int(now)] += 1
            await asyncio.sleep(0.01)
            if tokens[0] < 1:
                raise ConnectionError
            tokens[0] -= 1
            accepted[int(now)] += 1

        clock.run(scene.play([Guard(adaptive_throttle=AdaptiveThrottle())], body, lambda now: 100.0, 90.0))

    assert sum(accepted[second] for second in range(30, 50)) / 20 >= 27
    assert sum(sent[second] for second in range(30, 50)) / 20 <= 67.5
    assert sum(sent[second] for second in range(60, 70)) / 10 <= 3
    assert scene.part(85.0, 90.0) >= 0.95


@pytest.mark.parametrize("failing", [0.2, 1.0])
def test_a_retry_budget(failing: float) -> None:
    """Target G5: a fifth of the attempts fails from the tenth second on, or all do."""
    attempts = Counter[int]()
    with virtual_time() as clock:
        scene = Scene(clock, 3)

        async def body() -> None:
            attempts[int(scene.now) // 10] += 1
            fails = scene.now > 10.0 and scene.chance.random() < failing
            await asyncio.sleep(0.002 if fails else 0.05)
            if fails:
                raise ConnectionError

        guard = Guard(retry=Retry(max_retries=3, delay=100, jitter=50), retry_budget=RetryBudget())
        clock.run(scene.play([guard], body, lambda now: 100.0, 40.0))

    if failing < 1:
        assert scene.part(10.0, 39.0) >= 0.997
    else:
        assert all(attempts[ten] / len(scene.between(10 * ten, 10 * ten + 10)) <= 1.045 for ten in (1, 2, 3))


def test_a_hedge() -> None:
    """By rule H1, rule H2: target G6; from the 25th second on everything hangs."""
    attempts = Counter[bool]()
    with virtual_time() as clock:
        scene = Scene(clock, 3)

        async def body() -> None:
            attempts[scene.now > 25.0] += scene.now > 10.0
            await asyncio.sleep(math.inf if scene.now > 25.0 else hedges.durations(scene.chance))

        guard = Guard(hedge=Hedge(), timeout=Timeout(1000))
        clock.run(scene.play([guard], body, lambda now: hedges.RATE, 30.0))
    took, alone = [one.seconds for one in scene.between(10.0, 24.0)], hedges.healthy(hedges.NONE, 1)

    assert quantile(took, 0.99) <= 0.49 * alone.p99
    assert quantile(took, 0.999) <= 0.18 * alone.p999
    assert attempts[False] / len(scene.between(10.0, 25.0)) <= 1.065
    assert attempts[True] / len(scene.between(25.0, 30.0)) <= 1.025


@pytest.mark.parametrize("slowness", [10.0, math.inf])
def test_a_time_out_that_adapts(slowness: float) -> None:
    """By rule E1: target G7; from the 15th second on all attempts take ten times as long, or for ever."""
    with virtual_time() as clock:
        scene = Scene(clock, 3)

        async def body() -> None:
            took = 0.02 * scene.chance.lognormvariate(0, 0.6)
            await asyncio.sleep(took * slowness if scene.now >= 15.0 else took)

        seconds = 28.0 if slowness < math.inf else 17.0
        guard = Guard(timeout=Timeout(1000, adaptive=True))
        clock.run(scene.play([guard], body, lambda now: time_outs.RATE, seconds))
    ended = sorted(one.began + one.seconds for one in scene.between(15.0, seconds) if one.failure)

    assert scene.part(5.0, 15.0, TimeoutException) <= 0.00075
    if slowness < math.inf:
        assert scene.part(15.0, 18.0, TimeoutException) <= 0.13
        assert scene.part(23.0, 27.0, TimeoutException) <= 0.02
    else:
        assert ended[19] - 15.0 <= 0.645


@pytest.mark.parametrize("is_guarded", [True, False])
def test_a_storm(is_guarded: bool) -> None:
    """By rule A2: target G8; without a limit and a budget hardly a call succeeds long after the spike."""

    def replica() -> Guard:
        retry, timeout = Retry(max_retries=3, delay=100, jitter=100), Timeout(1000)
        if not is_guarded:
            return Guard(retry=retry, timeout=timeout)
        bulkhead = Bulkhead(60, 1, latency=LATENCY * 1000)
        return Guard(retry=retry, timeout=timeout, bulkhead=bulkhead, retry_budget=RetryBudget())

    with virtual_time() as clock:
        scene = Scene(clock, 3)
        calm = 10.0 if is_guarded else 8.0  # fewer seconds suffice, of which each costs more
        load = lambda now: CAPACITY * (3.0 if 5 < now < calm else 0.7)  # noqa: E731
        clock.run(scene.play(four(replica), behind(scene, usual(scene)), load, calm + 8.0))

    if is_guarded:
        assert scene.part(13.0, 18.0) >= 0.99
    else:
        assert scene.part(10.0, 14.0) <= 0.01
