"""The limit of a bulkhead that follows the durations of attempts, and its events (rules A1 to A4)."""

from __future__ import annotations

from ..._event import LimitChanged, sinks
from ..._log import WARNING, log
from ..._strategy.bulkhead import Bulkhead
from ..._strategy.latencies import OTHERWISE, SUCCEEDED, TIMED_OUT, End

__all__ = ["Limiter"]

_warned: set[str] = set()


class Limiter:
    """A receiver of the outcomes of attempts that adapts the limit of a bulkhead to them.

    Args:
        name: The guarded function.
        bulkhead: The bulkhead, whose limit adapts.
        detached: Whether an attempt that timed out may go on, and keeps its permit meanwhile.
    """

    __slots__ = ("_detached", "_name", "bulkhead")

    def __init__(self, name: str, bulkhead: Bulkhead, *, detached: bool) -> None:
        self._name = name
        self.bulkhead = bulkhead
        self._detached = detached

    def hear(self, elapsed: float, end: End) -> None:
        """Record an attempt that has just ended; see ``Listener``."""
        adaptive = self.bulkhead.adaptive
        if adaptive is None:  # a reload has switched it off meanwhile
            return
        lesson = self.bulkhead.learn(
            elapsed,
            is_success=end is SUCCEEDED,
            is_sample=end is not OTHERWISE,
            keeps_permit=end is TIMED_OUT and self._detached,
        )
        if lesson is None:
            return
        is_told = lesson.is_lowered and lesson.new != lesson.old
        if is_told and sinks.wanted[LimitChanged]() and sinks.is_heard(LimitChanged):
            sinks.tell(LimitChanged(self._name, lesson.old, lesson.new))
        if lesson.is_hopeless and self._name not in _warned:
            _warned.add(self._name)
            log(
                WARNING,
                "%s ran one call at a time for a minute, and single calls still take longer than the latency of its"
                " bulkhead, %g s, which may be too low: set at least twice the 90th percentile without load",
                self._name,
                adaptive.latency,
            )
