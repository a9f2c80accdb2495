"""Hedges: their effect on the tail and on the load, by the samples of their delay and by their budget.

200 calls a second of 20 ms or so; one in twenty-five meets a slow replica: 50 ms and more, with a heavy tail.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, Protocol

from .kernel import Simulation, Timers, quantile
from .shipped import Hedging

__all__ = ["BUSY", "KINDS", "NONE", "OURS", "Tail", "busy", "healthy", "hung", "slowed"]

PATIENCE, RATE, WORKERS = 1.0, 200.0, 14


class Hedger(Protocol):
    """The rule that decides when a hedge is sent, and which samples it learns from."""

    def delay(self) -> float | None:
        """Return the seconds until the hedge of a call that begins now; ``None``: there will be none."""
        ...

    def take(self) -> bool:
        """Return whether the hedge may be sent, now that it is due."""
        ...

    def learn(self, winner: str, waited: float, since_hedge: float) -> None:
        """Record the end of a call: by its ``"primary"``, its ``"hedge"`` or not in time (``""``)."""


class After:
    """A hedge after a fixed number of seconds; infinity: none."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def delay(self) -> float | None:
        return None if self._seconds == math.inf else self._seconds

    def take(self) -> bool:
        return True

    def learn(self, winner: str, waited: float, since_hedge: float) -> None:
        pass


class Average(After):
    """A hedge after the average of winning primaries, at first at once (resilience4j)."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self._samples: list[float] = []

    def learn(self, winner: str, waited: float, since_hedge: float) -> None:
        if winner == "primary":
            self._samples = [*self._samples[-511:], waited]
            if len(self._samples) % 64 == 0 or len(self._samples) < 64:
                self._seconds = math.fsum(self._samples) / len(self._samples)


class Winners(After):
    """A hedge after the p95 of the winners: of primaries alone, or of all (failsafe-go)."""

    def __init__(self, learns_from_hedges: bool) -> None:
        super().__init__(math.inf)
        self._learns_from_hedges = learns_from_hedges
        self._samples: list[float] = []
        self._fresh = 0

    def learn(self, winner: str, waited: float, since_hedge: float) -> None:
        if winner == "primary" or (winner == "hedge" and self._learns_from_hedges):
            self._samples.append(waited if winner == "primary" else since_hedge)
            self._fresh += 1
            if self._fresh == 64:
                self._fresh = 0
                del self._samples[:-512]
                self._seconds = quantile(self._samples, 0.95)


class Replicas:
    """Workers behind one queue; an attempt whose caller has gone leaves the queue, if they *drop* it, but no worker."""

    def __init__(
        self, timers: Timers, workers: float, draw: Callable[[random.Random], float], drop: bool = True
    ) -> None:
        self.timers, self.workers, self.draw, self.drop = timers, workers, draw, drop
        self.slowness = 1.0
        self._busy = 0
        self._queue: dict[int, Callable[[], object]] = {}
        self._number = 0

    def start(self, tell: Callable[[], object]) -> int:
        """Begin an attempt, now or when a worker is free; return its number."""
        self._number += 1
        if self._busy < self.workers:
            self._work(tell)
        else:
            self._queue[self._number] = tell
        return self._number

    def cancel(self, number: int) -> None:
        """Remove an attempt from the queue, if it waits there and the workers drop it."""
        if self.drop:
            self._queue.pop(number, None)

    def _work(self, tell: Callable[[], object]) -> None:
        self._busy += 1
        self.timers.after(self.draw(self.timers.chance) * self.slowness, lambda: self._end(tell))

    def _end(self, tell: Callable[[], object]) -> None:
        self._busy -= 1
        if self._queue:
            self._work(self._queue.pop(next(iter(self._queue))))
        tell()


class Ended(NamedTuple):
    """A call that is over; the duration of one that was given up ends then."""

    began: float
    seconds: float
    is_hedged: bool


class Tail(NamedTuple):
    """The latencies and the hedges of the calls in a span of time."""

    p99: float
    p999: float
    extra: float
    """Hedges per call."""

    def __str__(self) -> str:
        return f"{self.p99 * 1e3:.0f} / {self.p999 * 1e3:.0f} ms, +{self.extra:.1%}"


class Hedged:
    """Calls at replicas, each ended by its first success."""

    def __init__(
        self, hedger: Hedger, seconds: float, seed: int, per_second: float = RATE, workers: float = math.inf,
        slow: float = 1.0, most: float = math.inf, drop: bool = True,
    ) -> None:  # fmt: skip
        """*slow* is the factor of all durations from the 60th second on; no attempt takes longer than *most*."""
        self.simulation = Simulation(seed)
        self.hedger, self.seconds = hedger, seconds
        self.replicas = Replicas(self.simulation, workers, lambda chance: min(most, durations(chance)), drop)
        self.ends: list[Ended] = []
        self.simulation.after(60.0, lambda: setattr(self.replicas, "slowness", slow))
        self.simulation.arrivals(per_second, self._call)
        self.simulation.run(seconds)

    def _call(self) -> None:
        simulation, hedger = self.simulation, self.hedger
        began, hedged_at, is_over = simulation.now, math.inf, False

        def end(winner: str) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                now = simulation.now
                hedger.learn(winner, now - began, now - hedged_at)
                for number in attempts:
                    self.replicas.cancel(number)
                self.ends.append(Ended(began, now - began, hedged_at < math.inf))

        def hedge() -> None:
            nonlocal hedged_at
            if not is_over and hedger.take():
                hedged_at = simulation.now
                attempts.append(self.replicas.start(lambda: end("hedge")))

        attempts = [self.replicas.start(lambda: end("primary"))]
        simulation.after(PATIENCE, lambda: end(""))
        delay = hedger.delay()
        if delay is not None:
            simulation.after(delay, hedge)

    def tail(self, begin: float, end: float) -> Tail:
        """Return the tail of the calls that came from *begin* to *end*."""
        span = [one for one in self.ends if begin <= one.began < min(end, self.seconds - PATIENCE)]
        took = [one.seconds for one in span]
        return Tail(quantile(took, 0.99), quantile(took, 0.999), sum(one.is_hedged for one in span) / len(span))


def durations(chance: random.Random) -> float:
    """Draw the duration of an attempt."""
    if chance.random() < 0.04:
        return 0.05 * chance.paretovariate(1.1)
    return 0.02 * chance.lognormvariate(0, 0.35)


NONE, OURS = "none", "**`@hedge()`**"
KINDS: dict[str, Callable[[], Hedger]] = {
    NONE: lambda: After(math.inf),
    "after 50 ms": lambda: After(0.05),
    "after 10 ms: too early": lambda: After(0.01),
    "after the average of winning primaries (resilience4j)": Average,
    "after the p95 of winning primaries": lambda: Winners(learns_from_hedges=False),
    "after the p95 of whoever wins (failsafe-go)": lambda: Winners(learns_from_hedges=True),
    "`@hedge()` without a budget": lambda: Hedging(has_budget=False),
    OURS: lambda: Hedging(has_budget=True),
}
BUSY = [NONE, "after 10 ms: too early", OURS]
"""The kinds that are simulated where hedges have to queue."""


@cache
def healthy(kind: str, seed: int) -> Tail:
    """Simulate healthy replicas."""
    return Hedged(KINDS[kind](), 90.0, seed).tail(20.0, 90.0)


@cache
def slowed(kind: str, seed: int) -> Tail:
    """Return the first 10 s in which all attempts are eight times as slow."""
    return Hedged(KINDS[kind](), 72.0, seed, slow=8.0).tail(60.0, 70.0)


@cache
def hung(kind: str, seed: int) -> Tail:
    """Return the first 10 s of a hang."""
    return Hedged(KINDS[kind](), 72.0, seed, slow=1e6).tail(60.0, 70.0)


@cache
def busy(kind: str, per_second: float, seed: int, drop: bool = True) -> Tail:
    """Simulate fourteen workers and attempts of at most half a second: 400 a second are 80 % of the capacity."""
    return Hedged(KINDS[kind](), 60.0, seed, per_second, WORKERS, most=0.5, drop=drop).tail(15.0, 60.0)
