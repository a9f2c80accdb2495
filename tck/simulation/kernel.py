"""A discrete-event kernel: events happen in the order of their moments, and chance comes from a seed."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence

__all__ = ["Simulation", "lognormal", "quantile"]


class Simulation:
    """Moments are seconds; two events at one moment happen in the order in which they were asked for."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.chance = random.Random(seed)
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._asked = 0

    def after(self, delay: float, act: Callable[[], object]) -> None:
        """Let *act* happen *delay* seconds from now."""
        self._asked += 1
        heapq.heappush(self._events, (self.now + delay, self._asked, act))

    def arrivals(self, per_second: float, arrive: Callable[[], object]) -> None:
        """Let *arrive* happen again and again, at random and so often on average."""

        def next_one() -> None:
            arrive()
            self.after(self.chance.expovariate(per_second), next_one)

        self.after(0.0, next_one)

    def run(self, until: float) -> None:
        """Let everything happen that is due by then."""
        while self._events and self._events[0][0] <= until:
            self.now, _, act = heapq.heappop(self._events)
            act()
        self.now = until


def lognormal(mean: float, sigma: float) -> Callable[[random.Random], float]:
    """Make a source of durations with a heavy tail."""
    return lambda chance: mean * chance.lognormvariate(-sigma * sigma / 2, sigma)


def quantile(values: Sequence[float], part: float) -> float:
    """Find the value that *part* of all is below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]
