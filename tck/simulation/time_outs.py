"""Time-outs, fixed and adaptive: attempts that end wrongly, a backend that becomes slower, and waits in a hang.

A hundred calls a second, log-normal with a median of 20 ms and a p99 of 81 ms, under a time-out of at most a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, Protocol

from .kernel import Load, Simulation, quantile
from .shipped import AdaptiveTimeout

__all__ = ["FIXED", "KINDS", "OURS", "Lost", "healthy", "hung", "slowed"]

CEILING, RATE = 1.0, 100.0


class Limit(Protocol):
    """The limit of the duration of an attempt."""

    def seconds(self) -> float:
        """Return the limit of an attempt that begins now."""
        ...

    def learn(self, seconds: float, is_success: bool) -> None:
        """Record an attempt that is over."""


class Fixed:
    """A limit that is always the ceiling."""

    def seconds(self) -> float:
        return CEILING

    def learn(self, seconds: float, is_success: bool) -> None:
        pass


class OfSuccesses:
    """Twice the p99 of the newest 512 successes alone."""

    def __init__(self) -> None:
        self._samples: list[float] = []
        self._fresh, self._seconds = 0, CEILING

    def seconds(self) -> float:
        return self._seconds

    def learn(self, seconds: float, is_success: bool) -> None:
        if is_success:
            self._samples.append(seconds)
            self._fresh += 1
            if self._fresh == 64:
                self._fresh = 0
                del self._samples[:-512]
                self._seconds = min(CEILING, 2 * quantile(self._samples, 0.99))


class Attempt(NamedTuple):
    """An attempt that is over."""

    began: float
    seconds: float
    limit: float
    is_success: bool


class Slow:
    """Calls at a backend that becomes slower from the 60th second on."""

    def __init__(self, kind: str, seconds: float, slowness: Load, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.limit = KINDS[kind]()
        self.ends: list[Attempt] = []
        self._slowness = slowness
        self.simulation.arrivals(RATE, self._call)
        self.simulation.run(seconds)

    def _call(self) -> None:
        began, limit = self.simulation.now, self.limit.seconds()
        needed = 0.02 * self.simulation.chance.lognormvariate(0, 0.6) * self._slowness(began)
        took = min(needed, limit)

        def end() -> None:
            self.limit.learn(took, needed <= limit)
            self.ends.append(Attempt(began, took, limit, needed <= limit))

        self.simulation.after(took, end)

    def lost(self, begin: float, end: float) -> float:
        """Return the part of the attempts from *begin* to *end* that were ended."""
        span = [one.is_success for one in self.ends if begin <= one.began < end]
        return span.count(False) / len(span)


FIXED, OURS = "1000 ms", "**`@timeout(1000, adaptive=True)`**"
KINDS: dict[str, Callable[[], Limit]] = {
    FIXED: Fixed,
    "twice the p99 of successes alone": OfSuccesses,
    OURS: AdaptiveTimeout,
}


class Lost(NamedTuple):
    """Parts of the attempts that were ended."""

    first: float
    """In the first 3 s."""
    later: float
    """From 10 s on."""

    def __str__(self) -> str:
        return f"{self.first:.1%}, {self.later:.1%}"


@cache
def healthy(kind: str, seed: int) -> tuple[float, float]:
    """Return the median limit in seconds, and the part of the attempts that were ended wrongly."""
    run = Slow(kind, 300.0, lambda now: 1.0, seed)
    return quantile([one.limit for one in run.ends if one.began > 20], 0.5), run.lost(20.0, 290.0)


@cache
def slowed(kind: str, seed: int) -> Lost:
    """Simulate attempts that take ten times as long."""
    run = Slow(kind, 90.0, lambda now: 10.0 if now > 60 else 1.0, seed)
    return Lost(run.lost(60.0, 63.0), run.lost(70.0, 88.0))


@cache
def hung(kind: str, seed: int) -> tuple[int, float]:
    """Return the attempts that are held half a second into a hang, and the seconds until twenty were ended."""
    run = Slow(kind, 70.0, lambda now: math.inf if now > 60 else 1.0, seed)
    ended = sorted(one.began + one.seconds for one in run.ends if one.began > 60 and not one.is_success)
    held = max(
        sum(one.began <= moment < one.began + one.seconds for one in run.ends)
        for moment in (60.2, 60.3, 60.4, 60.5, 60.6, 60.7, 60.8)
    )
    return held, ended[19] - 60.0
