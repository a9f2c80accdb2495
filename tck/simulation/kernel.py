"""A discrete-event kernel and a backend: events happen in the order of their moments, and chance comes from a seed."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

__all__ = ["Backend", "Load", "Simulation", "Timers", "lognormal", "quantile"]

Load = Callable[[float], float]
"""Calls per second by the moment."""


class Timers(Protocol):
    """The timers of a backend: a simulation, or an event loop in virtual time."""

    chance: random.Random

    def after(self, delay: float, act: Callable[[], object]) -> None:
        """Schedule *act* in *delay* seconds."""


class Simulation:
    """Moments are seconds; two events at one moment happen in the order in which they were asked for."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.chance = random.Random(seed)
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._asked = 0

    def after(self, delay: float, act: Callable[[], object]) -> None:
        """Schedule *act* in *delay* seconds."""
        self._asked += 1
        heapq.heappush(self._events, (self.now + delay, self._asked, act))

    def arrivals(self, per_second: float | Load, arrive: Callable[[], object]) -> None:
        """Schedule *arrive* again and again, at random and with this rate on average."""

        def next_one() -> None:
            arrive()
            rate = per_second(self.now) if callable(per_second) else per_second
            self.after(self.chance.expovariate(rate), next_one)

        self.after(0.0, next_one)

    def run(self, until: float) -> None:
        """Run every event that is due by then."""
        while self._events and self._events[0][0] <= until:
            self.now, _, act = heapq.heappop(self._events)
            act()
        self.now = until


class Backend:
    """Workers behind one queue, first come first served, which also do a job for which no caller waits any more."""

    def __init__(self, timers: Timers, workers: int, service: Callable[[random.Random], float]) -> None:
        self.timers, self.workers, self.service = timers, workers, service
        self.slowness = 1.0
        """The factor of each duration that begins."""
        self.queue: deque[Callable[[], object]] = deque()
        self._busy = 0

    def submit(self, tell: Callable[[], object]) -> None:
        """Run one job as soon as a worker is free, and call *tell* when it is done."""
        if self._busy < self.workers:
            self._busy += 1
            self._work(tell)
        else:
            self.queue.append(tell)

    def _work(self, tell: Callable[[], object]) -> None:
        self.timers.after(self.service(self.timers.chance) * self.slowness, lambda: self._end(tell))

    def _end(self, tell: Callable[[], object]) -> None:
        if self.queue:
            self._work(self.queue.popleft())
        else:
            self._busy -= 1
        tell()


def lognormal(mean: float, sigma: float) -> Callable[[random.Random], float]:
    """Return a source of durations with a heavy tail."""
    return lambda chance: mean * chance.lognormvariate(-sigma * sigma / 2, sigma)


def quantile(values: Sequence[float], part: float) -> float:
    """Return the value that *part* of all are below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]
