"""Limits of concurrency of other libraries, written anew after their sources, with their defaults.

A limit is told of each attempt that ended, or whose caller gave it up, and says how many may run.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Protocol

__all__ = ["Failsafe", "Fixed", "FrozenGradient", "Gradient2", "Limit", "NetflixAimd", "Pid"]


class Limit(Protocol):
    """A limit of the attempts that run at once."""

    def admits(self, running: int) -> bool:
        """Return whether one more attempt may run."""
        ...

    def observe(self, now: float, began: float, running: int, is_late: bool) -> None:
        """Record an attempt that is over; *running* counts itself, *is_late*: its caller had gone."""


class Fixed:
    """A limit that never changes."""

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def admits(self, running: int) -> bool:
        return running + 1 <= self.limit

    def observe(self, now: float, began: float, running: int, is_late: bool) -> None:
        pass


class NetflixAimd(Fixed):
    """A tenth less for each late answer, one more for each other (Netflix/concurrency-limits AIMDLimit)."""

    def __init__(self, target: float, limit: float = 20, most: int = 200) -> None:
        super().__init__(limit)
        self.target, self.most = target, most

    def observe(self, now: float, began: float, running: int, is_late: bool) -> None:
        if is_late or now - began > self.target:
            self.limit = int(self.limit * 0.9)
        elif running * 2 >= self.limit:
            self.limit += 1
        self.limit = min(self.most, max(1, self.limit))


class Gradient2(Fixed):
    """The mean of a second against the mean of a long time (Netflix/concurrency-limits Gradient2Limit), from 1 on."""

    def __init__(self) -> None:
        super().__init__(20.0)
        self._end = self._sum = self._long = 0.0
        self._count = self._most = self._warm = 0

    def observe(self, now: float, began: float, running: int, is_late: bool) -> None:
        self._sum += now - began
        self._count += 1
        self._most = max(self._most, running)
        if now > self._end:
            if self._count >= 10:
                self._update(self._sum / self._count)
            self._end = now + 1.0
            self._sum, self._count, self._most = 0.0, 0, 0

    def _update(self, mean: float) -> None:
        self._warm += 1
        self._long += (mean - self._long) * (1 / self._warm if self._warm <= 10 else 2 / 601)
        if self._long / mean > 2:
            self._long *= 0.95
        if self._most < self.limit / 2:
            return
        gradient = max(0.5, min(1.0, 1.5 * self._long / mean))
        self.limit += 0.2 * (self.limit * gradient + 4 - self.limit)
        self.limit = max(1.0, min(200.0, self.limit))


class FrozenGradient(Fixed):
    """A repair of Gradient2: its long mean stays while calls are refused, and its head room is a square root."""

    def __init__(self) -> None:
        super().__init__(10.0)
        self._end = self._sum = self._base = 0.0
        self._count = self._most = self._warm = 0
        self._refused = False

    def admits(self, running: int) -> bool:
        admitted = super().admits(running)
        self._refused = self._refused or not admitted
        return admitted

    def observe(self, now: float, began: float, running: int, is_late: bool) -> None:
        self._sum += now - began
        self._count += 1
        self._most = max(self._most, running)
        if now < self._end or self._count < 10:
            return
        mean = self._sum / self._count
        self._warm += 1
        if self._warm <= 10:
            self._base += (mean - self._base) / self._warm
        elif mean < self._base:
            self._base += (mean - self._base) * 0.1
        elif not self._refused:
            self._base += (mean - self._base) * 2 / 601
        part = max(0.5, min(1.0, 1.5 * self._base / mean))
        limit = min(self.limit, self._most) if part < 1 else self.limit
        if part < 1 or self._most * 2 >= limit:
            limit += 0.2 * (limit * (part - 1) + math.sqrt(limit))
        self.limit = max(1.0, min(200.0, limit))
        self._end, self._sum, self._count, self._most, self._refused = now + 1.0, 0.0, 0, 0, False


class _Correlation:
    """The correlation of two series over the newest fifty pairs."""

    def __init__(self) -> None:
        self._pairs: deque[tuple[float, float]] = deque(maxlen=50)

    def add(self, x: float, y: float) -> tuple[float, float]:
        """Return the coefficient, and the variation of the second series in parts of its mean."""
        self._pairs.append((x, y))
        n = len(self._pairs)
        if n < 10:
            return 0.0, 0.0
        mean_x, mean_y = (math.fsum(values) / n for values in zip(*self._pairs, strict=True))
        spread_x = math.sqrt(math.fsum((a - mean_x) ** 2 for a, _ in self._pairs) / n)
        spread_y = math.sqrt(math.fsum((b - mean_y) ** 2 for _, b in self._pairs) / n)
        if spread_x / mean_x < 0.01 or spread_y / mean_y < 0.01:
            return 0.0, spread_y / mean_y
        together = math.fsum((a - mean_x) * (b - mean_y) for a, b in self._pairs) / n
        return together / (spread_x * spread_y), spread_y / mean_y


class Failsafe(Fixed):
    """The p90 of at least a second against its own mean, and correlations (failsafe-go adaptivelimiter)."""

    def __init__(self) -> None:
        super().__init__(20.0)
        self._samples: list[float] = []
        self._medians: deque[float] = deque(maxlen=5)
        self._most = self._smoothed = self._based = 0
        self._next = self._smooth = self._base = 0.0
        self._throughput, self._latency = _Correlation(), _Correlation()

    def observe(self, now: float, began: float, running: int, is_late: bool) -> None:
        if not is_late:
            self._samples.append(now - began)
            self._most = max(self._most, running)
        if now <= self._next or len(self._samples) < 50:
            return
        ordered = sorted(self._samples)
        self._medians.append(ordered[int(len(ordered) * 0.9)])
        value = sorted(self._medians)[2] if len(self._medians) == 5 else self._medians[-1]
        self._smoothed += 1
        self._smooth += (value - self._smooth) / (self._smoothed if self._smoothed <= 10 else 3)
        self._update(self._smooth, running)
        self._next = now + min(max(2 * ordered[0], 1.0), 30.0)
        self._samples, self._most = [], 0

    def _update(self, latency: float, running: int) -> None:
        self._based += 1
        self._base += (latency - self._base) * (1 / self._based if self._based <= 10 else 2 / 11)
        queue = math.ceil(self.limit * (1 - self._base / latency))
        with_throughput, variation = self._throughput.add(self._most, self._most / latency)
        with_latency, _ = self._latency.add(self._most, latency)
        step = max(1.0, math.log10(max(1.0, self.limit)))
        is_worse = with_throughput < 0 or (with_latency > 0.5 and (with_throughput < 0.3 or variation < 0.2))
        limit = self.limit
        if queue > int(6 * step) or (running >= int(limit) and is_worse):
            limit -= step
        elif queue < int(3 * step):
            limit += step
        used = self._most * 5.0
        if limit > used:
            limit = self.limit - step if self.limit > used else used
        self.limit = max(1.0, min(200.0, limit))


class Pid(Fixed):
    """No limit: a PID controller of the p90 decides the part of the calls that are shed at random.

    Latencies are milliseconds, and the controller's output is divided by a thousand.
    """

    def __init__(self, gains: tuple[float, float, float], target: float, chance: Callable[[], float]) -> None:
        super().__init__(math.inf)
        self._gains, self._target, self._chance = gains, target * 1e3, chance
        self._integral = self._last = self._part = self._end = 0.0
        self._samples: list[float] = []

    def admits(self, running: int) -> bool:
        return self._chance() >= self._part

    def observe(self, now: float, began: float, running: int, is_late: bool) -> None:
        self._samples.append(now - began)
        if now < self._end or len(self._samples) < 5:
            return
        ordered = sorted(self._samples)
        error = ordered[int(len(ordered) * 0.9)] * 1e3 - self._target
        self._integral = max(0.0, min(100.0, self._integral + error * 0.25))
        p, i, d = self._gains
        output = p * error + i * self._integral + d * (error - self._last) / 0.25
        self._part = max(0.0, min(1.0, output / 1000))
        self._last, self._end, self._samples = error, now + 0.25, []
