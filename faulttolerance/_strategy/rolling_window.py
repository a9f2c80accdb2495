"""The results of a closed circuit that count: the last N, or those of the last seconds."""

from __future__ import annotations

import math
from collections import deque
from operator import attrgetter
from typing import ClassVar, Final

_NO_RESULTS = bytearray()
_SUCCESS, _FAILURE = b"\0", b"\1"


class RollingWindow:
    """The last *size* results, each a success or a failure; every step costs the same, whatever the size.

    It is not safe under threads: the circuit breaker's lock protects it.
    """

    __slots__ = ("_next", "_results", "failures", "is_full", "size")

    expires: ClassVar = 0.0
    """The seconds after which a result leaves; 0 where none leaves by the passing of time."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.failures = 0
        self.is_full = False
        """Whether *size* results were recorded; before that the circuit's state is not assessed."""
        # 1 is a failure; grows up to the size, then a ring. Nothing before the first result.
        self._results: bytearray = _NO_RESULTS
        self._next = 0  # where the next result goes: at the end, or on the oldest result once the ring is full

    results = property(attrgetter("size"))
    """The number of results once the window is full."""

    def record(self, failed: bool, now: float = 0.0) -> None:
        """Add a result; the oldest result leaves when the window is full."""
        # No call between two steps: at a call, a signal's handler may raise, or record results of its own.
        results, at = self._results, self._next
        if self.is_full:
            if results[at] != failed:
                self.failures += failed - results[at]
                results[at] = failed
        else:
            if results is _NO_RESULTS:
                results = self._results = _NO_RESULTS[:]
            results += _FAILURE if failed else _SUCCESS
            if failed:
                self.failures += 1
        at += 1
        if at < self.size:
            self._next = at
        else:
            self._next, self.is_full = 0, True

    def resize(self, size: int) -> None:
        """Change the length; the newest results stay."""
        self._results = (self._results[self._next :] + self._results[: self._next])[-size:]
        self._next = len(self._results) % size
        self.size = size
        self.failures = self._results.count(1)
        self.is_full = len(self._results) == self.size

    def held(self, now: float) -> tuple[int, int]:
        """Return the number of results, and of failures among them."""
        return len(self._results), self.failures


_GRAINS: Final = 1000
"""The number of moments at which results of a full window leave it."""


class TimeWindow:
    """The number of results of the last seconds, and of failures among them.

    Results that come within a grain of the window after another result leave together with it, so the memory is
    bounded, however many calls there are. Every step costs the same, except for the removal of old results.

    It is not safe under threads: the circuit breaker's lock protects it. The counts are differences of totals from the
    beginning, so that no interruption between two steps makes them wrong for longer than the window.

    Args:
        size: The number of results with which it is full.
        expires: The seconds after which a result leaves.
        grains: The number of grains of the window.
    """

    __slots__ = ("_entries", "_failed", "_grains", "_recorded", "expires", "failures", "results", "size")

    def __init__(self, size: int, expires: float, grains: int = _GRAINS) -> None:
        self.size = size
        self.expires = expires
        self._grains = grains
        self.results = 0
        """The number of results, as of the last one."""
        self.failures = 0
        self._recorded = 0
        self._failed = 0
        self._entries: deque[tuple[float, int, int]] = deque()  # a moment, and what was recorded and failed before

    @property
    def is_full(self) -> bool:
        """Whether there are at least *size* results; before that the circuit's state is not assessed."""
        return self.results >= self.size

    def record(self, failed: bool, now: float) -> None:
        """Add a result; results that are too old leave."""
        entries = self._entries
        if entries and now < entries[-1][0] - self.expires:
            entries.clear()  # by another clock: a virtual time is over
        if not entries or now - entries[-1][0] > self.expires / self._grains:
            entries.append((now, self._recorded, self._failed))
        self._recorded += 1
        self._failed += failed
        self.held(now)

    def succeed(self, moments: list[float]) -> None:
        """Add a success at each of *moments*, which mostly belong to the newest grain."""
        count = len(moments)
        if self._entries and abs(max(moments) - self._entries[-1][0]) <= self.expires / self._grains:
            self._recorded += count
        else:
            for moment in moments:
                self.record(False, moment)

    @property
    def next_expiry(self) -> float:
        """The moment up to which no result leaves."""
        return self._entries[0][0] + self.expires if self._entries else math.inf

    def resize(self, size: int, expires: float, now: float) -> None:
        """Change how many results are needed, and how long they count; younger results stay."""
        self.size = size
        self.expires = expires
        self.held(now)

    def held(self, now: float) -> tuple[int, int]:
        """Return the number of results at a moment, and of failures among them."""
        entries = self._entries
        while entries and entries[0][0] + self.expires < now:
            entries.popleft()
        _, recorded, failed = entries[0] if entries else (0.0, self._recorded, self._failed)
        self.results = self._recorded - recorded
        self.failures = self._failed - failed
        return self.results, self.failures
