"""Replicas of a service in front of one backend, each with a limit of its own: under load, over time, and in a fleet.

The backend does 200 calls a second: ten workers, log-normal service of 50 ms on average (median 42, p90 90, p99 169).
A caller gives up after a second; the backend works on the call all the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from .kernel import Backend, Load, Simulation, lognormal, quantile
from .limits import Failsafe, Fixed, FrozenGradient, Gradient2, Limit, NetflixAimd, Pid
from .shipped import AdaptiveLimit

__all__ = ["CAPACITY", "KINDS", "OURS", "Place", "Seen", "Swept", "fleet", "hang", "loaded", "long_overload", "slower"]

LATENCY = 0.25
"""The target that most limits are given."""


class Place(NamedTuple):
    """A backend, and how long a caller waits."""

    workers: int = 10
    mean: float = 0.05
    sigma: float = 0.6
    patience: float = 1.0

    @property
    def capacity(self) -> float:
        """Calls per second."""
        return self.workers / self.mean

    @property
    def name(self) -> str:
        """The name in a table."""
        return f"{self.workers}, {self.mean * 1e3:g} ms, {self.sigma}"


USUAL = Place()
CAPACITY = USUAL.capacity

Make = Callable[[Simulation], Limit]


class Seen(NamedTuple):
    """The outcomes of the calls that came in a span of time."""

    goodput: float
    """Calls per second that were answered in time, in capacities."""
    median: float
    p90: float
    p99: float
    """Seconds of the answers in time."""
    refused: float
    """The part of the calls that were refused."""

    def __str__(self) -> str:
        times = f", {self.median * 1e3:.0f}/{self.p99 * 1e3:.0f} ms" if self.goodput >= 0.005 else ""
        return f"{self.goodput:.2f}{times}, {self.refused:.0%}"


class Overload:
    """Calls at *count* replicas; each ends once, and starts only if the limit of its replica admits it."""

    def __init__(
        self, make: Make, load: float | Load, seconds: float, seed: int, count: int = 4, place: Place = USUAL,
        slow: tuple[float, float, float] = (0.0, 0.0, 1.0),
    ) -> None:  # fmt: skip
        """*load* is in capacities; *slow*: from when to when the backend is slower, and by which factor."""
        self.simulation = simulation = Simulation(seed)
        self.place, self.seconds = place, seconds
        self.backend = Backend(simulation, place.workers, lognormal(place.mean, place.sigma))
        self.limits = [make(simulation) for _ in range(count)]
        self.running = [0] * count
        self.ends: list[tuple[float, str, float]] = []
        begin, end, factor = slow
        if factor != 1.0:
            simulation.after(begin, lambda: setattr(self.backend, "slowness", factor))
            simulation.after(end, self._recover)
        rate = (lambda now: load(now) * place.capacity) if callable(load) else load * place.capacity
        simulation.arrivals(rate, self._arrive)
        simulation.run(seconds)

    def _recover(self) -> None:
        self.backend.slowness = 1.0
        self.backend.queue.clear()

    def _arrive(self) -> None:
        simulation, began = self.simulation, self.simulation.now
        replica = simulation.chance.randrange(len(self.limits))
        limit = self.limits[replica]
        if not limit.admits(self.running[replica]):
            self.ends.append((began, "refused", 0.0))
            return
        self.running[replica] += 1
        is_open = True

        def end(is_late: bool) -> None:
            nonlocal is_open
            if is_open:
                is_open = False
                running = self.running[replica]
                self.running[replica] -= 1
                limit.observe(simulation.now, began, running, is_late)
                self.ends.append((began, "late" if is_late else "ok", simulation.now - began))

        self.backend.submit(lambda: end(False))
        simulation.after(self.place.patience, lambda: end(True))

    def seen(self, begin: float, end: float | None = None) -> Seen:
        """Return the outcomes of the calls that came from *begin* to *end*, except those that may still wait."""
        end = self.seconds if end is None else end
        if end > self.seconds - self.place.patience:
            end = self.seconds - self.place.patience
        span = [one for one in self.ends if begin <= one[0] < end]
        served = [seconds for _, what, seconds in span if what == "ok"] or [math.nan]
        goodput = sum(what == "ok" for _, what, _ in span) / (end - begin) / self.place.capacity
        refused = sum(what == "refused" for _, what, _ in span) / max(1, len(span))
        median, p90, p99 = (quantile(served, part) for part in (0.5, 0.9, 0.99))
        return Seen(goodput, median, p90, p99, refused)


OURS = "**`bulkhead(…, latency=250)`**"
KINDS: dict[str, Make] = {
    "none": lambda simulation: Fixed(math.inf),
    "10 per replica": lambda simulation: Fixed(10),
    "60 per replica": lambda simulation: Fixed(60),
    "AIMD of Netflix, 250 ms": lambda simulation: NetflixAimd(LATENCY),
    "Gradient2 of Netflix, from 1 on": lambda simulation: Gradient2(),
    "the same, its long mean frozen while it refuses": lambda simulation: FrozenGradient(),
    "limiter of failsafe-go": lambda simulation: Failsafe(),
    "PID, gains 1, 0, 0": lambda simulation: Pid((1, 0, 0), LATENCY, simulation.chance.random),
    "PID, gains 1, 5, 0": lambda simulation: Pid((1, 5, 0), LATENCY, simulation.chance.random),
    "PID, gains 5, 5, 0.5": lambda simulation: Pid((5, 5, 0.5), LATENCY, simulation.chance.random),
    OURS: lambda simulation: AdaptiveLimit(simulation, 200, LATENCY),
    "`bulkhead(…, latency=30)`: below the median": lambda simulation: AdaptiveLimit(simulation, 200, 0.03),
}


@cache
def loaded(kind: str, load: float, seed: int) -> Seen:
    """Return the steady state under *load*."""
    return Overload(KINDS[kind], load, 46.0, seed).seen(15.0)


@cache
def long_overload(kind: str) -> Seen:
    """Return the last minute of 400 s at twice the capacity."""
    return Overload(KINDS[kind], lambda now: 0.6 if now < 30 else 2.0, 431.0, 1).seen(370.0)


@cache
def fleet(kind: str) -> tuple[Seen, Seen]:
    """Return the first 45 s at twice the capacity with fifty replicas, and the time after 150 s."""
    run = Overload(KINDS[kind], lambda now: 0.6 if now < 60 else 2.0, 240.0, 1, count=50)
    return run.seen(65.0, 110.0), run.seen(210.0)


@cache
def slower(kind: str) -> Seen:
    """Return the steady state of a backend that is 2.5 times as slow, so that a load of 0.3 becomes 0.75."""
    run = Overload(KINDS[kind], 0.3, 200.0, 1, slow=(60.0, math.inf, 2.5))
    return run.seen(120.0)


@cache
def hang(kind: str) -> float:
    """Return the seconds from the end of a hang of 20 s until nineteen in twenty calls are served again."""
    run = Overload(KINDS[kind], 0.6, 120.0, 1, slow=(40.0, 60.0, 100.0))
    return next((after for after in range(56) if run.seen(60.0 + after, 63.0 + after).goodput >= 0.95 * 0.6), math.inf)


class Swept(NamedTuple):
    """The worst results of several seeds."""

    goodput: float
    p90: float
    """At twice the capacity; in parts of the target."""
    refused: float
    """The part that is refused at 0.8 of the capacity."""

    def __str__(self) -> str:
        return f"{self.goodput:.2f}, {self.p90:.2f}, {self.refused:.1%}"


PLACES = [
    Place(2, 0.05, 0.6), Place(10, 0.005, 0.6), Place(10, 0.05, 0.3), Place(10, 0.05, 1.0),
    Place(50, 0.05, 0.6), Place(50, 0.2, 1.0, 4.0),
]  # fmt: skip
"""Backends that differ in size, speed and tail."""


@cache
def swept(place: Place, times: float, seeds: int) -> Swept:
    """Simulate a target of so many *times* the p90 without load, over some thousands of calls."""
    target = times * place.mean * math.exp(1.2816 * place.sigma - place.sigma**2 / 2)
    calls = 8000 / place.capacity
    warm = max(10.0, calls / 4)
    seconds = warm + max(8.0, calls) + place.patience

    def run(load: float, seed: int) -> Seen:
        return Overload(
            lambda simulation: AdaptiveLimit(simulation, 200, target), load, seconds, seed, place=place
        ).seen(warm)

    over, under = ([run(load, seed) for seed in range(seeds)] for load in (2.0, 0.8))
    return Swept(
        min(one.goodput for one in over), max(one.p90 for one in over) / target, max(one.refused for one in under)
    )
