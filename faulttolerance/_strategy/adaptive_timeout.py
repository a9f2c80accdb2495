"""The limit of a time-out that follows the method's latencies (rules E1, E2)."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from .latencies import EVERY, OTHERWISE, End, Latencies

__all__ = ["LEAST", "AdaptiveTimeout"]

_QUANTILE: Final = 0.99
_TIMES: Final = 3.0
LEAST: Final = 0.01
"""Seconds that an attempt has in any case, unless the ceiling is lower."""

_SERIES: Final = tuple(LEAST * 1.1**step for step in range(200))
"""The limits that there are below the ceiling, up to 20 days: few lengths are few queues of deadlines."""


class AdaptiveTimeout:
    """Three times the 99th percentile of the attempts, rounded up in a series, and a ceiling that it begins with.

    An attempt that this limit has ended is a sample of the time it took, so that the limit grows where what is called
    has become slower: three times in 64 attempts. What were learnt from successes alone would end a part of them for
    ever.

    Args:
        ceiling: The longest limit, in seconds.
    """

    __slots__ = ("_latencies", "ceiling", "seconds")

    def __init__(self, ceiling: float) -> None:
        self.ceiling = ceiling
        self.seconds = ceiling
        """How long an attempt may take that begins now."""
        self._latencies = Latencies()

    @property
    def slowest(self) -> float | None:
        """The 99th percentile of the attempts, in seconds; ``None`` before there is one."""
        return self._latencies.quantile(_QUANTILE)

    def hear(self, elapsed: float, end: End) -> None:
        """Take note of an attempt that has ended; see ``Listener``."""
        if end is OTHERWISE:
            return
        fresh = self._latencies.fresh
        fresh.append(elapsed)
        if len(fresh) >= EVERY:
            self._adapt()

    def reconfigure(self, ceiling: float) -> None:
        """Take a new ceiling; what was learnt stays."""
        self.ceiling = ceiling
        self._adapt()

    def keep_only(self, ident: int) -> None:
        """Keep everything in the child of a fork."""
        self._latencies.keep_only(ident)

    def _adapt(self) -> None:
        slow, ceiling = self.slowest, -1.0
        while ceiling != self.ceiling:  # another thread, or a signal handler, may change it meanwhile
            ceiling = self.ceiling
            step = len(_SERIES) if slow is None else bisect_left(_SERIES, _TIMES * slow)
            self.seconds = min(ceiling, _SERIES[step]) if step < len(_SERIES) else ceiling
