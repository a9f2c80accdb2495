"""Deadlines: the goodput of ten workers behind one long queue, with and without a look at the time that is left.

Log-normal service of 50 ms on average (median 42, p90 90 ms); a caller gives up after a second, the wait included.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import NamedTuple

from .kernel import Simulation, lognormal
from .overload import CAPACITY, USUAL

__all__ = ["KINDS", "OURS", "goodput"]

WARM, SECONDS = 10.0, 40.0


class Looks(NamedTuple):
    """The treatment of deadlines by a service."""

    ends: bool
    """Whether a running call is ended at its deadline."""
    needs: float
    """A call with fewer seconds left is not begun."""


class Queue:
    """A queue of any length, served in order."""

    def __init__(self, looks: Looks, load: float, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.answered: list[float] = []
        """The moments of arrival of the calls that were answered in time."""
        self._looks, self._service = looks, lognormal(USUAL.mean, USUAL.sigma)
        self._waiting: deque[float] = deque()
        self._busy = 0
        self.simulation.arrivals(load * CAPACITY, self._arrive)
        self.simulation.run(SECONDS)

    def _arrive(self) -> None:
        self._waiting.append(self.simulation.now)
        self._serve()

    def _serve(self) -> None:
        while self._busy < USUAL.workers and self._waiting:
            came = self._waiting.popleft()
            left = came + USUAL.patience - self.simulation.now
            if left > self._looks.needs:
                self._begin(came, max(0.0, left))

    def _begin(self, came: float, left: float) -> None:
        self._busy += 1
        took = self._service(self.simulation.chance)
        self.simulation.after(min(took, left) if self._looks.ends else took, lambda: self._end(came))

    def _end(self, came: float) -> None:
        self._busy -= 1
        if self.simulation.now - came < USUAL.patience:
            self.answered.append(came)
        self._serve()


OURS = "**`deadline(1000)`: it is ended, and not begun when time is over**"
KINDS = {
    "nobody looks": Looks(ends=False, needs=-1e9),
    OURS: Looks(ends=True, needs=0.0),
    "and `remaining()` is asked for 90 ms first": Looks(ends=True, needs=0.09),
}


@cache
def goodput(kind: str, load: float, seed: int) -> float:
    """Return the calls per second that were answered in time, in capacities."""
    answered = Queue(KINDS[kind], load, seed).answered
    seconds = SECONDS - USUAL.patience - WARM
    return sum(WARM <= came < WARM + seconds for came in answered) / seconds / CAPACITY
