"""A storm of retries: the recovery of a service that was pushed over by a spike of five seconds.

Four replicas in front of one backend at 0.7 of its capacity, then three times the capacity for 5 s, then 0.7 again. An
attempt times out after a second, the backend works on it all the same, and three retries follow within 200 ms each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from .budgets import Budget, Shipped, Unlimited, Window
from .kernel import Backend, Simulation, lognormal
from .limits import Fixed, Limit
from .overload import CAPACITY, USUAL
from .shipped import AdaptiveLimit, Gated, adaptive_throttle, circuit_breaker

__all__ = ["ALONE", "KINDS", "OURS", "RECOMMENDED", "Aftermath", "Storm", "aftermath"]

REPLICAS, SPIKE, CALM, SECONDS = 4, 60.0, 65.0, 180.0


class Policies:
    """The policies of one replica; a missing policy lets all calls pass."""

    retries = 3
    deadline = math.inf

    def __init__(self, limit: Limit | None = None, budget: Budget | None = None, gate: Gated | None = None) -> None:
        self.limit: Limit = Fixed(math.inf) if limit is None else limit
        self.budget: Budget = Unlimited() if budget is None else budget
        self.gate = gate
        self.running = 0

    def delay(self, number: int, chance: float) -> float:
        """Return the pause after attempt *number*."""
        return 0.2 * chance


class Recommended(Policies):
    """The policies of ``recommended()``."""

    retries = 2
    deadline = 3.0

    def __init__(self) -> None:
        super().__init__(budget=Shipped(), gate=Gated(circuit_breaker()))

    def delay(self, number: int, chance: float) -> float:
        return 0.1 * 2.0 ** (number - 1) * chance


class Storm:
    """Calls at four replicas, and their ends: the beginning of a call, and whether it succeeded."""

    def __init__(self, kind: str, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.backend = Backend(self.simulation, USUAL.workers, lognormal(USUAL.mean, USUAL.sigma))
        self.ends: list[tuple[float, bool]] = []
        self._replicas = [(KINDS | FURTHER)[kind](self.simulation) for _ in range(REPLICAS)]
        self.simulation.arrivals(lambda now: CAPACITY * (3.0 if SPIKE < now < CALM else 0.7), self._arrive)
        self.simulation.run(SECONDS)

    def _arrive(self) -> None:
        replica = self._replicas[self.simulation.chance.randrange(REPLICAS)]
        replica.budget.call(self.simulation.now)
        self._attempt(replica, self.simulation.now, 1)

    def _attempt(self, replica: Policies, called: float, number: int) -> None:
        simulation, gate, began = self.simulation, replica.gate, self.simulation.now
        admission: object | None = None
        if gate is not None:
            admission = gate.admit(began)
            if admission is None:
                self._end(replica, called, number, is_success=False)
                return
        if not replica.limit.admits(replica.running):
            if gate is not None:
                gate.refuse(admission, began)
            self._end(replica, called, number, is_success=False)
            return
        replica.running += 1
        is_open = True

        def settle(is_success: bool) -> None:
            nonlocal is_open
            if not is_open:
                return
            is_open = False
            replica.limit.observe(simulation.now, began, replica.running, not is_success)
            replica.running -= 1
            if gate is not None:
                gate.settle(admission, simulation.now, is_success)
            self._end(replica, called, number, is_success)

        self.backend.submit(lambda: settle(True))
        simulation.after(USUAL.patience, lambda: settle(False))

    def _end(self, replica: Policies, called: float, number: int, is_success: bool) -> None:
        replica.budget.end(number, is_success)
        if is_success or number > replica.retries or not replica.budget.take(self.simulation.now):
            self.ends.append((called, is_success))
            return
        delay = replica.delay(number, self.simulation.chance.random())
        if self.simulation.now + delay >= called + replica.deadline:
            self.ends.append((called, False))
        else:
            self.simulation.after(delay, lambda: self._attempt(replica, called, number + 1))

    def succeeding(self, begin: float, end: float) -> float:
        """Return the part that succeeded of the calls that came from *begin* to *end*."""
        span = [is_success for began, is_success in self.ends if begin <= began < end]
        return span.count(True) / max(1, len(span))


ALONE = "time-out and three retries"
OURS = "**+ `bulkhead(60, latency=250)` and `retry_budget()`**"
KINDS: dict[str, Callable[[Simulation], Policies]] = {
    ALONE: lambda simulation: Policies(),
    "+ `bulkhead(60)`": lambda simulation: Policies(limit=Fixed(60)),
    "+ a budget as Finagle's, 1 a second": lambda simulation: Policies(budget=Window(0.2, 1)),
    "+ `retry_budget()`": lambda simulation: Policies(budget=Shipped()),
    "+ `circuit_breaker()`": lambda simulation: Policies(gate=Gated(circuit_breaker())),
    "+ `adaptive_throttle()` and `retry_budget()`": lambda simulation: Policies(
        budget=Shipped(), gate=Gated(adaptive_throttle(simulation.chance.random))
    ),
    "+ `bulkhead(60, latency=250)`": lambda simulation: Policies(limit=AdaptiveLimit(simulation, 60, 0.25)),
    OURS: lambda simulation: Policies(limit=AdaptiveLimit(simulation, 60, 0.25), budget=Shipped()),
}


RECOMMENDED = "`recommended()`"
FURTHER: dict[str, Callable[[Simulation], Policies]] = {RECOMMENDED: lambda simulation: Recommended()}
"""Kinds that the page has in its text, and not in its table."""


class Aftermath(NamedTuple):
    """The effects of a spike."""

    during: float
    """The part of the calls that succeed during it."""
    after: float
    """The part of the calls that come in the 20 s after it."""
    recovered: float
    """Seconds until 99 % of the calls of five seconds succeed again; endless: not in 105 s."""

    def __str__(self) -> str:
        recovered = "never" if self.recovered == math.inf else f"{self.recovered:.0f} s"
        return f"{self.during:.0%} | {self.after:.0%} | {recovered}"


@cache
def aftermath(kind: str, seed: int) -> Aftermath:
    """Simulate the storm."""
    run = Storm(kind, seed)
    starts = range(int(CALM), int(CALM) + 105)
    recovered = next((one - CALM for one in starts if run.succeeding(one, one + 5) >= 0.99), math.inf)
    return Aftermath(run.succeeding(SPIKE, CALM), run.succeeding(CALM, CALM + 20), recovered)
