"""Promises that hold in every run, whatever chance brings: ten thousand short runs over all strategies at once.

Each is a few dozen calls at one guard's strategies with values drawn at random: a gate, a bulkhead whose limit may move
and whose queue may have a longest wait, retries and hedges that share a budget. Bodies succeed, fail, time out or are
cancelled; callers give up while they wait.
"""

from __future__ import annotations

from typing import Final

import pytest

from faulttolerance._extensions.adaptive.listener import Limiter
from faulttolerance._strategy.bulkhead import Bulkhead, Waiter
from faulttolerance._strategy.latencies import OTHERWISE, SUCCEEDED, TIMED_OUT
from faulttolerance.exceptions import BulkheadException
from faulttolerance.policies import Criticality
from kit.budget import tokens_of
from simulation.kernel import Simulation
from simulation.shipped import Gated, adaptive_throttle, circuit_breaker, retry_budget

SEEDS: Final = 10_000
AT_ONCE: Final = 500
CALLS: Final = 24
ENDS: Final = {"ok": SUCCEEDED, "late": TIMED_OUT, "failed": OTHERWISE, "cancelled": OTHERWISE}


class Call:
    """A call, of which several attempts may run."""

    def __init__(self) -> None:
        self.ends = 0
        self.running = 0
        self.retries_left = 2


class Chaos:
    """A run, which raises as soon as a promise is broken."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        chance = self.chance = self.simulation.chance
        self.ratio, self.burst = chance.choice((0.0, 0.1, 0.2, 1.0)), chance.choice((1, 2, 10))
        self.budget = retry_budget(self.ratio, self.burst)
        self.tier = Criticality.NORMAL
        throttle = adaptive_throttle(chance.random, lambda: self.tier)
        self.gate = Gated(chance.choice((circuit_breaker(4), throttle)))
        self.bulkhead = Bulkhead(
            chance.randint(1, 4), chance.choice((0, 2, 6)), max_wait=chance.choice((0.0, 0.02)),
            latency=chance.choice((0.0, 0.03)), now=lambda: self.simulation.now,
        )  # fmt: skip
        self.limiter = Limiter("chaos", self.bulkhead, detached=False)
        self.failing, self.hedged_after = chance.choice((0.1, 0.5, 1.0)), chance.choice((0.0, 0.02))
        self.calls: list[Call] = []
        self.waited: dict[int, int] = {}
        """How often each attempt that waited has left the queue."""
        self.running = self.extras = self.attempts = 0
        self.earned = 0.0
        self._arrive()
        self.simulation.run(60.0)

    def _arrive(self) -> None:
        if len(self.calls) < CALLS:
            self.simulation.after(self.chance.expovariate(100.0), self._arrive)
            call = Call()
            self.calls.append(call)
            self._attempt(call)
            if self.hedged_after:
                self.simulation.after(self.hedged_after, lambda: self._hedge(call))

    def _hedge(self, call: Call) -> None:
        if not call.ends and self._take():
            self._attempt(call)

    def _take(self) -> bool:
        is_granted = self.budget.take()
        self.extras += is_granted
        assert 0 <= tokens_of(self.budget) <= self.burst
        assert self.extras <= self.burst + self.earned + 1e-6
        return is_granted

    def _attempt(self, call: Call, is_retry: bool = False) -> None:
        call.running += 1
        self.attempts += 1
        self.tier = self.chance.choice(list(Criticality))
        number, admission = self.attempts, self.gate.admit(self.simulation.now)
        if admission is None:
            self._end(call, "refused", is_retry)
            return
        waiter = Waiter(number, 1, lambda: self._go_on(call, waiter, admission, is_retry), self.tier)
        try:
            waits = self.bulkhead.enter(waiter)
        except BulkheadException:
            self.gate.refuse(admission, self.simulation.now)
            self._end(call, "refused", is_retry)
            return
        if waits is None:
            self._start(call, number, admission, is_retry)
            return
        self.waited[number] = 0
        if self.bulkhead.max_wait:
            self.simulation.after(self.bulkhead.max_wait, lambda: self.bulkhead.expire(waiter))
        if self.chance.random() < 0.3:
            give_up = self.chance.uniform(0.0, 0.05)
            self.simulation.after(give_up, lambda: self._give_up(call, waiter, admission, is_retry))

    def _go_on(self, call: Call, waiter: Waiter, admission: object, is_retry: bool) -> None:
        number = waiter.attempt_id
        assert isinstance(number, int)
        self.waited[number] += 1
        assert waiter.admitted != bool(waiter.reason)
        if waiter.admitted:
            self._start(call, number, admission, is_retry)
        else:
            self.gate.refuse(admission, self.simulation.now)
            self._end(call, "refused", is_retry)

    def _give_up(self, call: Call, waiter: Waiter, admission: object, is_retry: bool) -> None:
        number = waiter.attempt_id
        assert isinstance(number, int)
        if not self.waited[number]:
            self.waited[number] += 1
            self.bulkhead.release(number)
            self.gate.leave(admission, self.simulation.now)
            self._end(call, "cancelled", is_retry)

    def _start(self, call: Call, number: int, admission: object, is_retry: bool) -> None:
        self.running += 1
        assert self.running <= self.bulkhead.limit
        began, took = self.simulation.now, self.chance.expovariate(20.0)
        ends = ("failed" if self.chance.random() < self.failing else "ok", "late", "cancelled")
        end = self.chance.choices(ends, (8, 1, 1))[0]

        def finish() -> None:
            now = self.simulation.now
            assert self.bulkhead.running == self.running
            self.running -= 1
            self.bulkhead.release(number)
            self.limiter.record(now - began, ENDS[end])
            if end == "cancelled":
                self.gate.leave(admission, now)
            else:
                self.gate.settle(admission, now, end == "ok")
            self._end(call, end, is_retry)

        self.simulation.after(took, finish)

    def _end(self, call: Call, end: str, is_retry: bool) -> None:
        call.running -= 1
        if call.ends:
            return
        if end == "ok":
            call.ends += 1
            self.earned += 1.0 if is_retry else self.ratio
            self.budget.give_back() if is_retry else self.budget.succeed()
        elif end in ("failed", "late", "refused") and call.retries_left and self._take():
            call.retries_left -= 1
            call.running += 1  # it will run, after its delay
            self.simulation.after(self.chance.uniform(0.0, 0.05), lambda: self._again(call))
        elif not call.running:
            call.ends += 1

    def _again(self, call: Call) -> None:
        call.running -= 1
        if not call.ends:
            self._attempt(call, is_retry=True)


@pytest.mark.parametrize(
    "first", [pytest.param(first, marks=pytest.mark.stress if first else ()) for first in range(0, SEEDS, AT_ONCE)]
)
def test_each_run_keeps_all_promises(first: int) -> None:
    """No limit is exceeded, each call ends once, each waiter leaves once, no budget is overdrawn, nothing is left."""
    for seed in range(first, first + AT_ONCE):
        run = Chaos(seed)

        assert [call.ends for call in run.calls] == [1] * CALLS, seed
        assert set(run.waited.values()) <= {1}, seed
        assert (run.running, run.bulkhead.running, len(run.bulkhead.waiting)) == (0, 0, 0), seed


def test_the_runs_meet_every_kind_of_trouble() -> None:
    """In many runs calls wait, are refused, retried and hedged, circuits open and limits fall."""
    runs = [Chaos(seed) for seed in range(100)]

    assert sum(bool(run.waited) for run in runs) >= 50
    assert sum(run.extras >= 2 for run in runs) >= 50
    assert sum(run.attempts > CALLS for run in runs) >= 80
    assert sum(run.bulkhead.limit < run.bulkhead.adaptive.ceiling for run in runs if run.bulkhead.adaptive) >= 10
