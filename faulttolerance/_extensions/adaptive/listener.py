"""The only place that measures attempts, for the strategies that listen to latencies (rules A1 to A4, X4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from ..._call.bound_policies import BY_BULKHEAD, BoundPolicies
from ..._call.continuation import CallRecord
from ..._deadline.attempt_record import AttemptRecord
from ..._deadline.clock import clock
from ..._event import LimitChanged, sinks
from ..._execution.caller_thread import Arguments
from ..._execution.race import has_lost_as_first
from ..._log import WARNING, log
from ..._metrics.counters import FOLD, Counters
from ..._strategy.adaptive_timeout import AdaptiveTimeout
from ..._strategy.bulkhead import Bulkhead
from ..._strategy.latencies import OTHERWISE, SUCCEEDED, TIMED_OUT, End, Listener

_AT_ONCE = 64
"""The number of attempts without effect on a limit that are counted together; the moment of counting is irrelevant."""

_warned: set[str] = set()


class Limiter(NamedTuple):
    """A receiver of the outcomes of attempts that adapts the limit of a bulkhead to them.

    Args:
        name: The guarded function.
        bulkhead: The bulkhead, whose limit adapts.
        detached: Whether an attempt that timed out may go on, and keeps its permit meanwhile.
    """

    name: str
    bulkhead: Bulkhead
    detached: bool

    def record(self, elapsed: float, end: End) -> None:
        """Record an attempt that has just ended; see ``Listener``."""
        adaptive = self.bulkhead.adaptive
        if adaptive is None:  # a reload has switched it off meanwhile
            return
        change = self.bulkhead.adapt(
            elapsed,
            is_success=end == SUCCEEDED,
            is_sample=end != OTHERWISE,
            keeps_permit=end == TIMED_OUT and self.detached,
        )
        if change is None:
            return
        if change.new < change.old and sinks.wanted[LimitChanged](None):
            sinks.send(LimitChanged(self.name, change.old, change.new))
        if change.is_target_unreachable and self.name not in _warned:
            _warned.add(self.name)
            log(
                WARNING,
                "%s ran one call at a time for a minute, and single calls still take longer than the latency of its"
                " bulkhead, %g s, which may be too low: set at least twice the 90th percentile without load",
                self.name,
                adaptive.latency,
            )


class ListenedPolicies(BoundPolicies):
    """The policies of a function whose attempts some strategies listen to.

    The strategies are notified when an attempt ends: for a successful first attempt in place of counting it, for any
    other attempt when it is settled. An attempt with a time-out or a bulkhead is measured in any case, and only such
    attempts have listeners.

    Args:
        name: The function.
        listeners: The strategies to notify, beside *limiter*.
        limiter: The adapter of the bulkhead's limit to latencies.
        values: The values of the policies; see ``BoundPolicies``.
    """

    __slots__ = ("_durations", "_listeners")

    def __init__(self, name: str, *listeners: Listener, limiter: Limiter | None = None, **values: Any) -> None:
        super().__init__(name, **values)
        self._listeners = listeners if limiter is None else (*listeners, limiter)
        self._durations = _Told(self.counters, limiter, listeners)

    @property
    def first_try_durations(self) -> list[float]:
        """A list that counts and reports the call whose duration is appended."""
        return self._durations

    def end_attempt(
        self,
        record: AttemptRecord,
        failure: BaseException | None,
        call: CallRecord,
        args: Arguments,
        kwargs: Mapping[str, Any],
    ) -> BaseException | None:
        """End the attempt and notify the listeners of it, unless we refused it or it never had a permit."""
        failure = super().end_attempt(record, failure, call, args, kwargs)
        if not record.refused_by and (self.bulkhead is None or record.admitted_by >= BY_BULKHEAD):
            if failure is None:
                end = SUCCEEDED
            elif record.timed_out or (not isinstance(failure, Exception) and has_lost_as_first(self.name)):
                end = TIMED_OUT
            else:
                end = OTHERWISE
            elapsed = record.ended - (record.running_since or record.began)
            for listener in self._listeners:
                listener.record(elapsed, end)
        return failure

    def release(self, record: AttemptRecord, failure: BaseException | None) -> BaseException | None:
        """Record the moment of the end, and end the attempt."""
        record.ended = record.ended or clock.monotonic()
        return super().release(record, failure)


class AdaptivelyTimed(ListenedPolicies):
    """Listened policies with an adaptive time-out; messages name its present limit (rule E2)."""

    __slots__ = ("_time_limit",)

    def __init__(self, name: str, *, time_limit: AdaptiveTimeout, **values: Any) -> None:
        self._time_limit = time_limit
        super().__init__(name, time_limit, **values)

    seconds = property(  # pyright: ignore[reportAssignmentType]
        attrgetter("_time_limit.seconds"), lambda policies, seconds: None
    )
    """The limit for an attempt that starts now; only the strategy changes it."""


class _Told(list[float]):
    """A list of durations of calls that succeed at once: it counts each call, notifies the listeners and keeps none."""

    __slots__ = ("_bulkhead", "_counted", "_fold", "_held", "_others", "_record")

    def __init__(self, counters: Counters | None, limiter: Limiter | None, listeners: tuple[Listener, ...]) -> None:
        self._counted: list[float] = [] if counters is None else counters.first_try_durations
        self._fold: Callable[[], object] = self._counted.clear if counters is None else counters.fold
        self._bulkhead = None if limiter is None else limiter.bulkhead
        self._held = {} if limiter is None else limiter.bulkhead.held
        self._record, *others = (one.record for one in (limiter, *listeners) if one is not None)
        self._others = tuple(others)

    def append(self, seconds: float, /) -> None:
        counted, bulkhead = self._counted, self._bulkhead
        counted.append(seconds)
        if len(counted) >= FOLD:
            self._fold()
        if (
            bulkhead is None
            or (adaptive := bulkhead.adaptive) is None
            or seconds > adaptive.latency
            or (others := len(self._held)) >= adaptive.quiet_below
        ):
            self._record(seconds, SUCCEEDED)
        else:  # no effect on a limit: a further function call would cost as much as all the rest
            uncounted = adaptive.uncounted
            uncounted.append(others)
            if len(uncounted) >= _AT_ONCE:
                bulkhead.count()
        if self._others:
            for record in self._others:
                record(seconds, SUCCEEDED)
