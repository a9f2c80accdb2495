"""The limit of a time-out that follows the latencies of the method (rules E1, E2)."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from .latencies import EVERY, OTHERWISE, End, Latencies

_QUANTILE: Final = 0.99
_TIMES: Final = 3.0
LEAST: Final = 0.01
"""The least limit in seconds, unless the ceiling is lower."""

_SERIES: Final = tuple(LEAST * 1.1**step for step in range(200))
"""The possible limits below the ceiling, up to 20 days: few lengths need few queues of deadlines."""


class AdaptiveTimeout:
    """A limit of three times the 99th percentile of the attempts, rounded up in a series, at most a ceiling.

    The limit begins at the ceiling. An attempt that this limit ended is a sample of the time that it took. So the
    limit grows when the callee has become slower: three times in 64 attempts. A limit learned from successes alone
    would end a part of the attempts for ever.

    Args:
        ceiling: The longest limit, in seconds.
    """

    def __init__(self, ceiling: float) -> None:
        self.ceiling = ceiling
        self.seconds = ceiling
        """The longest duration, in seconds, of an attempt that begins now."""
        self._latencies = Latencies()

    @property
    def slowest(self) -> float | None:
        """The 99th percentile of the attempts, in seconds; ``None`` before there is one."""
        return self._latencies.quantile(_QUANTILE)

    def record(self, elapsed: float, end: End) -> None:
        """Record the latency of an ended attempt; see ``Listener``."""
        if end == OTHERWISE:
            return
        fresh = self._latencies.fresh
        fresh.append(elapsed)
        if len(fresh) >= EVERY:
            self._adapt()

    def reconfigure(self, ceiling: float) -> None:
        """Replace the ceiling; the learned latencies stay."""
        self.ceiling = ceiling
        self._adapt()

    def reset_after_fork(self, ident: int) -> None:
        """Keep everything in the child of a fork."""
        self._latencies.reset_after_fork(ident)

    def _adapt(self) -> None:
        slow, ceiling = self.slowest, self.ceiling
        step = len(_SERIES) if slow is None else bisect_left(_SERIES, _TIMES * slow)
        self.seconds = min(ceiling, _SERIES[step]) if step < len(_SERIES) else ceiling
