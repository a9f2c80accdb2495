"""Threads, tasks and offloaded calls under one set of policies, with every kind of end: nothing may stay held.

Would have caught: a permit, a place in the queue or the place of a probe that is lost when a call is cancelled, times
out, is interrupted by an enclosing deadline or meets an open circuit at an awkward moment; a deadline that stays in a
chain; a circuit whose state is not what its verdicts, in their order, make of it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from faulttolerance import (
    BulkheadException,
    CircuitBreakerOpenException,
    Future,
    Guard,
    TimeoutException,
    asynchronous,
    bulkhead,
    circuit_breaker,
    circuit_breakers,
    completed_future,
    retry,
    sleep,
    timeout,
    uninterruptible,
)
from faulttolerance._call.state import State
from faulttolerance._deadline.queue import queues_of
from faulttolerance._deadline.threads.chain import this_thread
from faulttolerance._guard.declare import registry
from faulttolerance._strategy import circuit_breaker as strategy
from faulttolerance._strategy.verdict import FAILURE, NEUTRAL, Verdict
from faulttolerance.policies import Bulkhead, CircuitBreaker, Fallback, Retry, Timeout
from kit.crowd import Crowd

SECONDS = float(os.environ.get("STRESS_SECONDS", "12"))
THREADS = 64
TASKS = 10_000
LOOPS = 2
LIMIT = 16

pytestmark = [pytest.mark.stress, pytest.mark.timeout(SECONDS * 5 + 100)]


class BodyFailed(Exception):
    """The failure of a body by itself."""


class NotForTheCircuit(Exception):
    """An exception of a body that the circuit skips, and counts as a success."""


class CallsEnd(Exception):
    """An exception that the fallback lets through."""


# The circuit, watched and done again


class Step(NamedTuple):
    """One operation on the circuit, and the state after it."""

    name: str
    era: int
    me: object
    verdict: Verdict | None
    now: float
    admitted: bool
    state: str
    eras: int


class Watched:
    """Records every operation on every circuit that takes its lock, in the order in which they happen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: dict[int, list[Step]] = {}
        self._eras: dict[int, list[Any]] = {}
        admit, settle = strategy.CircuitBreaker.admit, strategy.CircuitBreaker.settle
        reconfigure = strategy.CircuitBreaker.reconfigure

        # Else an interruption would land in here, where the library expects none: between an operation and its record.
        def watched_admit(breaker: Any, me: Any, ident: int, now: float) -> Any:
            with uninterruptible(), breaker.lock:
                self._number(breaker, breaker.state)
                admitted = False
                try:
                    era = admit(breaker, me, ident, now)
                    admitted = True
                    return era
                finally:
                    self._write(breaker, "admit", -1, me, None, now, admitted)

        def watched_settle(breaker: Any, era: Any, me: Any, verdict: Verdict, now: float, failure: str = "") -> None:
            with uninterruptible(), breaker.lock:
                number = self._number(breaker, era)
                settle(breaker, era, me, verdict, now, failure)
                self._write(breaker, "settle", number, me, verdict, now, True)

        def watched_reconfigure(breaker: Any, values: Any, now: float) -> None:
            # By a first call of the other kind, say: it too finds out that the delay is over.
            with uninterruptible(), breaker.lock:
                self._number(breaker, breaker.state)
                reconfigure(breaker, values, now)
                self._write(breaker, "reconfigure", -1, None, None, now, True)

        monkeypatch.setattr(strategy.CircuitBreaker, "reconfigure", watched_reconfigure)
        monkeypatch.setattr(strategy.CircuitBreaker, "admit", watched_admit)
        monkeypatch.setattr(strategy.CircuitBreaker, "settle", watched_settle)

    def _number(self, breaker: Any, era: Any) -> int:
        eras = self._eras.setdefault(id(breaker), [])
        for number in range(len(eras) - 1, -1, -1):
            if eras[number] is era:
                return number
        eras.append(era)
        return len(eras) - 1

    def _write(self, breaker: Any, name: str, era: int, me: Any, verdict: Any, now: float, admitted: bool) -> None:
        self._number(breaker, breaker.state)
        self.steps.setdefault(id(breaker), []).append(
            Step(name, era, me, verdict, now, admitted, breaker.state.name, len(self._eras[id(breaker)]))
        )


class NaiveCircuit:
    """The yardstick: plain lists, one rule of the specification or of R4 per branch."""

    def __init__(self, delay: float, volume: int, ratio: float, threshold: int) -> None:
        self.delay, self.volume, self.ratio, self.threshold = delay, volume, ratio, threshold
        self.state = "closed"
        self.era = 0
        self.opened = 0.0
        self.results: list[bool] = []
        self.probes: dict[object, float] = {}
        self.overdue: dict[object, float] = {}
        self.successes = 0

    def move(self, state: str, now: float) -> None:
        self.state, self.opened = state, now
        self.era += 1
        self.results, self.probes, self.overdue, self.successes = [], {}, {}, 0

    def catch_up(self, now: float) -> None:
        if self.state == "open" and now >= self.opened + self.delay:
            self.move("half-open", now)

    def admit(self, me: object, now: float) -> bool:
        self.catch_up(now)
        if self.state == "half-open":
            if self.successes + len(self.probes) >= self.threshold:
                self.overdue.update({one: at for one, at in self.probes.items() if now - at > self.delay})
                self.probes = {one: at for one, at in self.probes.items() if one not in self.overdue}
            if self.successes + len(self.probes) >= self.threshold:
                return False
            self.probes[me] = now
        return self.state != "open"

    def settle(self, era: int, me: object, verdict: Verdict | None, now: float) -> None:
        if era != self.era or self.state == "open":
            return
        if self.state == "closed":
            if verdict != NEUTRAL:
                self.results = [*self.results, verdict == FAILURE][-self.volume :]
                failures = sum(self.results)
                if len(self.results) == self.volume and failures and failures / self.volume >= self.ratio:
                    self.move("open", now)
            return
        admitted = self.probes.pop(me, self.overdue.pop(me, None))
        if admitted is None or verdict == NEUTRAL:
            return
        if verdict == FAILURE:
            self.move("open", now)
        else:
            self.successes += 1
            if self.successes >= self.threshold:
                self.move("closed", now)


def first_difference(steps: list[Step], circuit: NaiveCircuit) -> str:
    """Repeat all *steps* with the naive circuit; return the first difference, empty if there is none."""
    for number, step in enumerate(steps):
        admitted = True
        if step.name == "admit":
            admitted = circuit.admit(step.me, step.now)
        elif step.name == "reconfigure":
            circuit.catch_up(step.now)
        else:
            circuit.settle(step.era, step.me, step.verdict, step.now)
        if (admitted, circuit.state, circuit.era + 1) != (step.admitted, step.state, step.eras):
            return f"step {number}, {step}: the naive circuit is {circuit.state} in era {circuit.era}, {admitted=}"
    return ""


def still_held(state: State) -> dict[str, Any]:
    """Return all that the method still holds, by kind."""
    found: dict[str, Any] = {}
    permits = state.strategies.get(Bulkhead)
    if permits is not None:
        found["permits"] = dict(permits.held)
        found["waiting"] = list(permits.waiting)
        found["running"] = permits.running
    if state.circuit_breaker is not None:
        found["probes"] = dict(getattr(state.circuit_breaker.state, "probes", {}))
    return {name: value for name, value in found.items() if value}


def soon(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Return whether *condition* becomes true within *seconds*."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= until:
            return False
        threading.Event().wait(0.01)
    return True


# One guard, threads and tasks


def test_threads_and_tasks_leave_nothing_behind_in_one_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """R5, R10, R11, R0, R4: 64 threads and 10,000 tasks of two loops share one guard with all policies.

    When they are gone, a lone caller gets through again.
    """
    watched = Watched(monkeypatch)
    outer = Guard(timeout=Timeout(15))
    guard = Guard(
        fallback=Fallback(_instead),
        retry=Retry(max_retries=2, delay=0, jitter=1),
        circuit_breaker=CircuitBreaker(
            request_volume_threshold=20, failure_ratio=0.4, delay=15, success_threshold=3, skip_on=NotForTheCircuit
        ),
        timeout=Timeout(20),
        bulkhead=Bulkhead(LIMIT, 4000),
        name="stress",
    )
    crowd, outcomes, wrong = Crowd(), Counter[str](), list[str]()
    until = time.monotonic() + SECONDS / 2
    began = threading.Barrier(THREADS + LOOPS)

    def body(kind: str, seconds: float) -> str:
        with crowd:
            sleep(seconds)
        return _end(kind)

    async def body_async(kind: str, seconds: float) -> str:
        with crowd:
            await asyncio.sleep(seconds)
        return _end(kind)

    def thread(seed: int) -> None:
        dice = random.Random(seed)
        began.wait()
        while time.monotonic() < until:
            kind, seconds = _drawn(dice, slow=0.04)
            try:
                if dice.random() < 0.2:
                    outer.call(guard.call, body, kind, seconds)
                else:
                    guard.call(body, kind, seconds)
                outcomes["returned"] += 1
            except (CallsEnd, TimeoutException) as error:
                outcomes[type(error).__name__] += 1
            except BaseException as error:
                wrong.append(f"thread: {error!r}")
            if this_thread.deadlines.innermost is not None:
                wrong.append("a deadline is left in the chain of a thread")
                return

    async def task(dice: random.Random) -> None:
        kind, seconds = _drawn(dice, slow=0.04)
        try:
            await guard.call_async(body_async, kind, seconds)
            outcomes["returned"] += 1
        except (CallsEnd, asyncio.CancelledError) as error:
            outcomes[type(error).__name__] += 1
        except BaseException as error:
            wrong.append(f"task: {error!r}")

    async def tasks(seed: int) -> None:
        dice = random.Random(seed)
        began.wait()
        left = TASKS // LOOPS
        running: set[asyncio.Task[None]] = set()
        while left:
            burst = min(left, 500)
            left -= burst
            fresh = [asyncio.create_task(task(dice)) for _ in range(burst)]
            running.update(fresh)
            await asyncio.sleep(dice.random() * SECONDS / 40)
            for one in fresh:
                if dice.random() < 0.2:
                    one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if any(queue.pending for queue in queues_of(asyncio.get_running_loop()).values()):
            wrong.append("a deadline is left on a loop")

    def gets_through() -> bool:
        try:
            return guard.call(body, "returns", 0.0) is not None
        except CallsEnd:
            return False

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)  # else threads that are refused leave no attempt the time to end
    try:
        threads = [threading.Thread(target=thread, args=(seed,), daemon=True) for seed in range(THREADS)]
        threads += [
            threading.Thread(target=asyncio.run, args=(tasks(seed),), daemon=True)
            for seed in range(THREADS, THREADS + LOOPS)
        ]
        for one in threads:
            one.start()
        for one in threads:
            one.join(SECONDS * 4 + 60)
        hanging = [one.name for one in threads if one.is_alive()]
        recovers = soon(gets_through)
        (state,) = [one for one in registry.every_state() if one.name == "stress"]
        (steps,) = watched.steps.values()
        left = still_held(state)
        circuit = NaiveCircuit(0.015, 20, 0.4, 3)
        difference = first_difference(steps, circuit)

        assert wrong == []
        assert hanging == []
        assert left == {}
        assert crowd.inside == 0
        assert crowd.most <= LIMIT
        assert difference == ""
        assert state.circuit_breaker is not None
        assert state.circuit_breaker.state.name == circuit.state
        assert circuit.era > 10, "the circuit hardly moved: the run proves little"
        assert recovers
        assert outcomes["CallsEnd"]
        assert outcomes["CancelledError"]
        assert outcomes["TimeoutException"]
    finally:
        sys.setswitchinterval(interval)
        guard.close()


def _drawn(dice: random.Random, slow: float = 0.008) -> tuple[str, float]:
    kind = dice.choices(["returns", "fails", "is skipped", "is slow"], [60, 20, 5, 15])[0]
    return kind, slow if kind == "is slow" else dice.random() * 0.002


def _end(kind: str) -> str:
    if kind == "fails":
        raise BodyFailed
    if kind == "is skipped":
        raise NotForTheCircuit
    return "served"


def _instead(context: Any) -> Any:
    if isinstance(context.failure, (BodyFailed, NotForTheCircuit)):
        return "instead"
    raise CallsEnd from None


# Offloaded calls and tasks of their own, cancelled at any point


class Service:
    """The guarded methods of the test below, for the two kinds of ``@asynchronous``."""

    crowd = Crowd()

    @asynchronous
    @retry(max_retries=2, delay=0, jitter=1)
    @circuit_breaker(request_volume_threshold=20, failure_ratio=0.4, delay=3, success_threshold=2)
    @timeout(20)
    @bulkhead(LIMIT, waiting_task_queue=1000)
    def offloaded(self, kind: str, seconds: float) -> Future[str]:
        with self.crowd:
            sleep(seconds)
        return completed_future(_end(kind))

    @asynchronous
    @retry(max_retries=2, delay=0, jitter=1)
    @circuit_breaker(request_volume_threshold=20, failure_ratio=0.4, delay=3, success_threshold=2)
    @timeout(20)
    @bulkhead(LIMIT, waiting_task_queue=1000)
    async def task(self, kind: str, seconds: float) -> str:
        with self.crowd:
            await asyncio.sleep(seconds)
        return _end(kind)


EXPECTED = (
    BodyFailed,
    NotForTheCircuit,
    BulkheadException,
    CircuitBreakerOpenException,
    TimeoutException,
    asyncio.CancelledError,
    concurrent.futures.CancelledError,
)


@pytest.mark.parametrize("kind_of_call", ["offloaded", "task"])
def test_asynchronous_calls_that_are_cancelled_anywhere_leave_nothing_behind(
    kind_of_call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R3, R5, R7b, R0: a permit is kept until the body really ends, and then it is back."""
    watched = Watched(monkeypatch)
    Service.crowd = Crowd()
    service = Service()
    method = getattr(service, kind_of_call)
    wrong: list[str] = []
    ends: Counter[str] = Counter()
    until = time.monotonic() + SECONDS / 4

    def look(error: BaseException | None) -> None:
        ends[type(error).__name__] += 1
        if error is not None and not isinstance(error, EXPECTED):
            wrong.append(repr(error))

    def offloading(seed: int) -> None:
        dice = random.Random(seed)
        while time.monotonic() < until:
            futures = [method(*_drawn(dice, 0.03)) for _ in range(20)]
            for future in futures:
                if dice.random() < 0.4:
                    future.cancel(dice.random() < 0.7)
                    sleep(dice.random() * 0.001)
            for future in futures:
                try:
                    look(future.exception(30))
                except concurrent.futures.CancelledError as error:
                    look(error)
                except TimeoutError:
                    wrong.append("a future never ended")

    async def tasks(seed: int) -> None:
        dice = random.Random(seed)
        while time.monotonic() < until:
            calls = [method(*_drawn(dice, 0.03)) for _ in range(40)]
            await asyncio.sleep(dice.random() * 0.002)
            for call in calls:
                if dice.random() < 0.4:
                    call.cancel()
            for end in await asyncio.gather(*calls, return_exceptions=True):
                look(end if isinstance(end, BaseException) else None)
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)
        if any(queue.pending for queue in queues_of(asyncio.get_running_loop()).values()):
            wrong.append("a deadline is left on a loop")

    def looping(seed: int) -> None:
        asyncio.run(tasks(seed))

    work = offloading if kind_of_call == "offloaded" else looping
    threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(SECONDS * 4 + 60)
    name = f"{Service.__module__}.Service.{kind_of_call}"
    (state,) = [one for one in registry.every_state() if one.name == name]
    soon(lambda: not still_held(state))
    (steps,) = watched.steps.values()
    circuit = NaiveCircuit(0.003, 20, 0.4, 2)

    assert wrong == []
    assert not any(one.is_alive() for one in threads)
    assert still_held(state) == {}
    assert Service.crowd.inside == 0
    assert Service.crowd.most <= LIMIT
    assert first_difference(steps, circuit) == ""
    assert circuit_breakers.state(name) in {circuit.state, "half-open"}
    assert ends["NoneType"]
    assert ends["CancelledError"]


# An enclosing deadline


class Inner:
    """A guarded call that is over almost at once."""

    @retry(max_retries=1, jitter=0)
    @circuit_breaker(request_volume_threshold=1_000_000)
    @timeout(1000)
    @bulkhead(1)
    def call(self, turns: int) -> None:
        for _ in range(turns):
            pass


def test_an_enclosing_deadline_that_lands_in_an_inner_guard_loses_nothing() -> None:
    """R11: thousands of tiny real deadlines pass at about the way in and the way out of an inner call."""
    wrong: list[str] = []
    ended: Counter[str] = Counter()
    until = time.monotonic() + SECONDS / 4

    def attack(seed: int) -> None:
        own = type(f"Inner{seed}", (Inner,), {})
        inner, dice = own(), random.Random(seed)
        inner.call(1)
        (state,) = [one for one in registry.every_state() if one.name.endswith(f".Inner{seed}.call")]

        def calls() -> None:
            while True:
                for turns in range(0, 2000, 50):
                    inner.call(turns)

        while time.monotonic() < until and not wrong:
            try:
                Guard(timeout=Timeout(0.05 + dice.random() * 0.5)).call(calls)
            except TimeoutException:
                ended["timed out"] += 1
            except BaseException as error:
                wrong.append(f"stray {error!r}")
            if held := still_held(state):
                wrong.append(f"{held} after {ended}")
            if this_thread.deadlines.innermost is not None:
                wrong.append("a deadline is left in the chain")

    threads = [threading.Thread(target=attack, args=(seed,), daemon=True) for seed in range(2)]
    for one in threads:
        one.start()
    attack(len(threads))  # on the main thread a deadline comes as a signal
    for one in threads:
        one.join(SECONDS + 60)

    assert wrong == []
    assert not any(one.is_alive() for one in threads)
    assert ended["timed out"] > SECONDS
