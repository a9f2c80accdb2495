"""The latencies of one method: one estimator and its listeners, for all adaptive strategies (rules X4, X5).

The newest 512 samples give every quantile. They are as exact as any sketch, and old samples drop out by themselves. The
quantiles are computed once in 64 samples, so a sample costs less than in a structure that counts each sample in its
place.
"""

from __future__ import annotations

import threading
from array import array
from typing import Final, Literal, Protocol, TypeAlias

SIZE: Final = 512
"""The number of samples that count, the newest ones."""
EVERY: Final = 64
"""The number of samples after which the quantiles are computed anew."""


End: TypeAlias = Literal["succeeded", "timed out", "otherwise"]
"""The end of an attempt, as far as its latency is concerned."""

SUCCEEDED: Final[End] = "succeeded"
TIMED_OUT: Final[End] = "timed out"
"""Ended by its own time-out, or by a hedge that was faster: a sample of the time that it took until then."""
OTHERWISE: Final[End] = "otherwise"
"""Ended by a failure, a cancellation or an outer deadline: no sample of a latency, however long it took."""


class Listener(Protocol):
    """A strategy that is notified when an attempt has ended."""

    def record(self, elapsed: float, end: End) -> object:
        """Record an attempt that has just ended and released its permit.

        Refusals by policies, and attempts that control flow ended before they had a permit, are not recorded. The
        method must not raise; it holds a lock for a short time at most.

        Args:
            elapsed: Seconds from the permit to the end.
            end: How the attempt ended.
        """
        ...


class Latencies:
    """The newest 512 samples, in seconds; any thread may add a sample while others add or read."""

    __slots__ = ("_found", "_lock", "_samples", "add", "fresh")

    def __init__(self) -> None:
        self.fresh: list[float] = []
        """The samples that no quantile includes yet; a caller that adds the last of ``EVERY`` calls ``quantile``."""
        self.add = self.fresh.append
        """Add a sample; no function of Python runs."""
        self._samples = array("d")  # guarded by _lock: the newest last
        self._found: dict[float, float] = {}  # guarded by _lock: the quantiles of these; replaced with them
        # Reentrant: a signal handler or a finalizer may call a guarded function while its thread holds the lock.
        self._lock = threading.RLock()

    def quantile(self, q: float) -> float | None:
        """Return the *q*-quantile (0 to 1), as it was after the latest 64th sample; ``None`` before the first."""
        if len(self.fresh) < EVERY and (found := self._found.get(q)) is not None:
            return found
        with self._lock:
            self._fold_locked()
            samples, known = self._samples, self._found
            if samples and q not in known:
                known[q] = sorted(samples)[min(len(samples) - 1, int(len(samples) * q))]
            return known.get(q)

    def reset_after_fork(self, ident: int) -> None:
        """Keep the samples in the child of a fork; replace the lock, which another thread may have held then."""
        self._lock = threading.RLock()

    def _fold_locked(self) -> None:
        fresh = self.fresh
        while len(fresh) >= EVERY:
            # No call from here to the second line, nor in the last line: no signal handler comes between.
            taken = fresh[:EVERY]
            del fresh[:EVERY]
            run = array("d", sorted(taken))  # runs are sorted faster than single samples
            self._samples, self._found = self._samples[EVERY - SIZE :] + run, {}
