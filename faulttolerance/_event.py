"""What happened, counted: the series of the specification's chapter on metrics.

The hot path writes one number, the duration of a call on which everything went well, and that one sample stands for
every series such a call advances. Whatever goes otherwise is counted series by series, under a lock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping
from threading import Lock
from typing import TypeAlias

__all__ = ["BOUNDARIES", "DURATIONS", "FOLD", "Histogram", "Series", "Tally"]

Series: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""A metric's name and its tags, without ``method``."""

BOUNDARIES = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Upper bounds of the histograms' buckets, in seconds, as the specification lists them."""

DURATIONS = ("ft.timeout.executionDuration", "ft.bulkhead.runningDuration", "ft.bulkhead.waitingDuration")

FOLD = 1024
"""How many smooth calls are kept apart before they are folded into the counts."""


class Histogram:
    """Counts of samples per bucket, and their sum. Not safe by itself: its tally's lock covers it."""

    __slots__ = ("buckets", "sum")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDARIES) + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        """How many samples there were."""
        return sum(self.buckets)

    def observe(self, samples: Iterable[float]) -> None:
        """Add *samples*, in seconds."""
        for sample in samples:
            self.buckets[bisect_left(BOUNDARIES, sample)] += 1
            self.sum += sample


class Tally:
    """The counts of one guarded method.

    Args:
        series: Every series that exists for the method from registration on.
        smooth: The series that a call advances by one each when its first attempt succeeds and nothing was refused.
        durations: The histograms that such a call adds its duration to, or 0 for ``ft.bulkhead.waitingDuration``.
    """

    __slots__ = ("_counts", "_durations", "_lock", "_smooth", "smooth_calls")

    def __init__(self, series: Iterable[Series], smooth: Iterable[Series], durations: Iterable[str]) -> None:
        self._counts = dict.fromkeys(series, 0)
        self._smooth = tuple(smooth)
        self._durations = {name: Histogram() for name in durations}
        self._lock = Lock()
        self.smooth_calls: deque[float] = deque()
        """Durations of calls on which everything went well, not yet folded: append one, then ``fold`` when there are ``FOLD``."""

    def fold(self) -> None:
        """Take the smooth calls into the counts."""
        with self._lock:
            self._fold_locked()

    def add(self, series: Iterable[Series], samples: Mapping[str, float] | None = None) -> None:
        """Advance each of *series* by one, and add one sample to each histogram that is named."""
        with self._lock:
            for one in series:
                self._counts[one] += 1
            for name, sample in (samples or {}).items():
                self._durations[name].observe((sample,))

    def counts(self) -> dict[Series, int]:
        """The value of every series now."""
        with self._lock:
            self._fold_locked()
            return dict(self._counts)

    def durations(self) -> dict[str, tuple[tuple[int, ...], float]]:
        """For each histogram: samples per bucket of ``BOUNDARIES`` and beyond, and their sum in seconds."""
        with self._lock:
            self._fold_locked()
            return {name: (tuple(one.buckets), one.sum) for name, one in self._durations.items()}

    def clear(self) -> None:
        """Start again at 0."""
        with self._lock:
            self.smooth_calls.clear()
            self._counts = dict.fromkeys(self._counts, 0)
            self._durations = {name: Histogram() for name in self._durations}

    def renew_lock(self) -> None:
        """Take a new lock: in the child of a fork the old one may be held by a thread that does not exist."""
        self._lock = Lock()

    def _fold_locked(self) -> None:
        calls = self.smooth_calls
        samples = [calls.popleft() for _ in range(len(calls))]
        if not samples:
            return
        for series in self._smooth:
            self._counts[series] += len(samples)
        for name, histogram in self._durations.items():
            if name == "ft.bulkhead.waitingDuration":
                histogram.observe([0.0] * len(samples))
            else:
                histogram.observe(samples)
