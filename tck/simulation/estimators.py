"""Estimators of a latency's quantile: their errors, and how soon they follow a shift."""

from __future__ import annotations

import math
import random
from bisect import insort
from collections.abc import Callable
from functools import cache
from statistics import fmean, pstdev
from typing import NamedTuple, Protocol

from .kernel import quantile
from .shipped import Quantile

__all__ = ["DRAWN", "KINDS", "OURS", "Error", "error", "samples_to_follow"]

Draw = Callable[[random.Random], float]


class Estimator(Protocol):
    """An estimator that takes samples and returns its quantile; ``None``: it does not know yet."""

    def add(self, sample: float, /) -> None: ...
    def value(self) -> float | None: ...


class PSquare:
    """Five markers that move along a parabola, and never forget (Jain and Chlamtac, 1985)."""

    def __init__(self, part: float) -> None:
        self._heights: list[float] = []
        self._places = [1.0, 2.0, 3.0, 4.0, 5.0]
        self._wanted = [1.0, 1 + 2 * part, 1 + 4 * part, 3 + 2 * part, 5.0]
        self._steps = (0.0, part / 2, part, (1 + part) / 2, 1.0)

    def add(self, sample: float) -> None:
        heights, places = self._heights, self._places
        if len(heights) < 5:
            insort(heights, sample)
            return
        heights[0], heights[4] = min(heights[0], sample), max(heights[4], sample)
        cell = max(marker for marker in range(4) if marker == 0 or heights[marker] <= sample)
        for marker in range(5):
            places[marker] += marker > cell
            self._wanted[marker] += self._steps[marker]
        for marker in (1, 2, 3):
            gap = self._wanted[marker] - places[marker]
            step = 1 if gap > 0 else -1
            if abs(gap) >= 1 and abs(places[marker + step] - places[marker]) > 1:
                self._move(marker, step)

    def _move(self, marker: int, step: int) -> None:
        (low, here, high), (left, at, right) = (
            values[marker - 1 : marker + 2] for values in (self._heights, self._places)
        )
        bent = (at - left + step) * (high - here) / (right - at) + (right - at - step) * (here - low) / (at - left)
        height = here + step / (right - left) * bent
        if not low < height < high:
            other = marker + step
            height = here + step * (self._heights[other] - here) / (self._places[other] - at)
        self._heights[marker] = height
        self._places[marker] += step

    def value(self) -> float | None:
        return self._heights[2] if len(self._heights) == 5 else None


class TwoHalves:
    """Two P², of which one begins anew after each 512 samples; the older one answers (forze)."""

    def __init__(self, part: float) -> None:
        self._part = part
        self._old, self._young, self._count = PSquare(part), PSquare(part), 0

    def add(self, sample: float) -> None:
        self._old.add(sample)
        self._young.add(sample)
        self._count += 1
        if self._count == 512:
            self._old, self._young, self._count = self._young, PSquare(self._part), 0

    def value(self) -> float | None:
        return self._old.value()


class Moving:
    """A number that each sample moves a little (failsafe-go's moving quantile; 0.01, age 512)."""

    def __init__(self, part: float) -> None:
        self._part, self._weight = part, 2 / 513
        self._value, self._mean, self._variance = math.nan, 0.0, 0.0

    def add(self, sample: float) -> None:
        if math.isnan(self._value):
            self._value = self._mean = sample
            return
        before = self._mean
        self._mean += (sample - before) * self._weight
        self._variance += ((sample - before) * (sample - self._mean) - self._variance) * self._weight
        step = math.sqrt(max(0.0, self._variance)) * 0.01
        if sample < self._value:
            self._value -= step / self._part
        elif sample > self._value:
            self._value += step / (1 - self._part)

    def value(self) -> float | None:
        return None if math.isnan(self._value) else self._value


class Sketch:
    """Bins that grow by a fiftieth, in two halves of 256 samples (DDSketch; Masson, Rim and Lee, 2019)."""

    def __init__(self, part: float) -> None:
        self._part, self._growth = part, 1.02 / 0.98
        self._old: dict[int, int] = {}
        self._new: dict[int, int] = {}
        self._count = 0
        self._value: float | None = None

    def add(self, sample: float) -> None:
        number = math.ceil(math.log(sample) / math.log(self._growth))
        self._new[number] = self._new.get(number, 0) + 1
        self._count += 1
        if self._count % 32 == 0:
            self._fold()

    def _fold(self) -> None:
        bins = {number: self._old.get(number, 0) + self._new.get(number, 0) for number in {*self._old, *self._new}}
        left, number = self._part * sum(bins.values()), 0
        for number in sorted(bins):
            left -= bins[number]
            if left < 0:
                break
        self._value = 2 * self._growth**number / (self._growth + 1)
        if self._count == 256:
            self._old, self._new, self._count = self._new, {}, 0

    def value(self) -> float | None:
        return self._value


OURS = "**the newest 512, sorted each 64th**"
KINDS: dict[str, Callable[[float], Estimator]] = {
    "P², two of 512 (forze)": TwoHalves,
    "moving quantile (failsafe-go)": Moving,
    "DDSketch, 2 %, two of 256": Sketch,
    OURS: Quantile,
}


def narrow(chance: random.Random) -> float:
    """Draw from a log-normal distribution."""
    return 0.02 * chance.lognormvariate(0, 0.5)


def cached(chance: random.Random) -> float:
    """Draw the latency of a cache: 93 % hits of about 2 ms, the rest 80 ms."""
    return chance.lognormvariate(0, 0.2) * (0.002 if chance.random() < 0.93 else 0.08)


def heavy(chance: random.Random) -> float:
    """Draw from a Pareto distribution."""
    return 0.01 * chance.paretovariate(1.5)


DRAWN: dict[str, Draw] = {"log-normal": narrow, "of a cache": cached, "Pareto 1.5": heavy}
PART = 0.95


class Error(NamedTuple):
    """The error of an estimate, in parts of the true value."""

    bias: float
    spread: float

    def __str__(self) -> str:
        return f"{self.bias:+.0%} / {self.spread:.0%}"


@cache
def _true(drawn: str) -> float:
    chance = random.Random(99)
    return quantile([DRAWN[drawn](chance) for _ in range(200_000)], PART)


@cache
def error(kind: str, drawn: str) -> Error:
    """Return the error of the estimates of a p95 over many samples."""
    errors = []
    for seed in range(4):
        chance, estimator = random.Random(seed), KINDS[kind](PART)
        for number in range(6000):
            estimator.add(DRAWN[drawn](chance))
            if number > 1500 and number % 50 == 0:
                errors.append((estimator.value() or 0.0) / _true(drawn) - 1)
    return Error(fmean(errors), pstdev(errors))


@cache
def samples_to_follow(kind: str) -> float:
    """Return how many samples an estimate needs to reach 90 % of a p95 that became three times as high."""
    counts = []
    for seed in range(5):
        chance, estimator = random.Random(seed), KINDS[kind](PART)
        for _ in range(3000):
            estimator.add(narrow(chance))
        count = 0
        while (estimator.value() or 0.0) < 0.9 * 3 * _true("log-normal"):
            estimator.add(3 * narrow(chance))
            count += 1
        counts.append(count)
    return fmean(counts)
