"""The limit of a bulkhead that follows the durations of attempts, and its events (rules A1 to A4)."""

from __future__ import annotations

from ..._event import LimitChanged, sinks
from ..._log import WARNING, log
from ..._strategy.bulkhead import Bulkhead
from ..._strategy.latencies import OTHERWISE, SUCCEEDED, TIMED_OUT, End

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

    def record(self, elapsed: float, end: End) -> None:
        """Record an attempt that has just ended; see ``Listener``."""
        adaptive = self.bulkhead.adaptive
        if adaptive is None:  # a reload has switched it off meanwhile
            return
        change = self.bulkhead.adapt(
            elapsed,
            is_success=end is SUCCEEDED,
            is_sample=end is not OTHERWISE,
            keeps_permit=end is TIMED_OUT and self._detached,
        )
        if change is None:
            return
        is_told = change.is_lowered and change.new != change.old
        if is_told and sinks.wanted[LimitChanged](None):
            sinks.send(LimitChanged(self._name, change.old, change.new))
        if change.is_target_unreachable and self._name not in _warned:
            _warned.add(self._name)
            log(
                WARNING,
                "%s ran one call at a time for a minute, and single calls still take longer than the latency of its"
                " bulkhead, %g s, which may be too low: set at least twice the 90th percentile without load",
                self._name,
                adaptive.latency,
            )
