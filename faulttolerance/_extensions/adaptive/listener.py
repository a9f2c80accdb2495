"""The one place where attempts are measured, for the strategies that listen to latencies (rule X4)."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from ..._call.follow import CallRecord
from ..._call.settle import BULK, BoundPolicies
from ..._deadline.attempt_record import AttemptRecord
from ..._deadline.clock import clock
from ..._deadline.task import NO_DEADLINE
from ..._execution.environment import Attempt
from ..._execution.race import has_lost_as_first
from ..._metrics.counters import FOLD, Counters
from ..._strategy.adaptive_timeout import AdaptiveTimeout
from ..._strategy.latencies import OTHERWISE, SUCCEEDED, TIMED_OUT, Listener
from .limit_listener import Limiter

__all__ = ["AdaptivelyTimed", "ListenedPolicies"]

_AT_ONCE = 64
"""So many attempts that move nothing are counted together; nobody can tell when they are."""


class ListenedPolicies(BoundPolicies):
    """The policies of a function, attempts of which some strategies listen to.

    They are told when an attempt is over: of one that goes well at once in place of counting it, of each other one when
    it is settled. An attempt with a time-out or a bulkhead is measured in any case, and only such ones are listened to.

    Args:
        name: The function.
        listeners: What is told, beside *limiter*.
        limiter: What moves the limit of the bulkhead by latencies.
        values: What the policies give; see ``BoundPolicies``.
    """

    __slots__ = ("_durations", "_listeners")

    def __init__(self, name: str, *listeners: Listener, limiter: Limiter | None = None, **values: Any) -> None:
        super().__init__(name, **values)
        self._listeners = listeners if limiter is None else (*listeners, limiter)
        self._durations = _Told(self.counters, limiter, listeners)

    @property
    def first_try_durations(self) -> list[float]:
        """What counts and tells of the call whose duration is appended."""
        return self._durations

    def settle(self, record: AttemptRecord, failure: BaseException | None, call: CallRecord) -> BaseException | None:
        """Do the same, and tell of the attempt, unless we refused it, or it never had a permit."""
        failure = super().settle(record, failure, call)
        if not record.refused_by and (self.bulkhead is None or record.passed >= BULK):
            if failure is None:
                end = SUCCEEDED
            elif record.timed_out or (not isinstance(failure, Exception) and has_lost_as_first()):
                end = TIMED_OUT
            else:
                end = OTHERWISE
            elapsed = record.ended - (record.running_since or record.began)
            for listener in self._listeners:
                listener.hear(elapsed, end)
        return failure

    def end(self, record: AttemptRecord, failure: BaseException | None) -> BaseException | None:
        """Do the same, and note when that was."""
        record.ended = record.ended or clock.monotonic()
        return super().end(record, failure)


class AdaptivelyTimed(ListenedPolicies):
    """The same with a time-out that adapts: each attempt keeps the limit that it began with (rule E2)."""

    __slots__ = ("_time_limit",)

    def __init__(self, name: str, *, time_limit: AdaptiveTimeout, **values: Any) -> None:
        self._time_limit = time_limit
        super().__init__(name, time_limit, **values)

    seconds = property(attrgetter("_time_limit.seconds"), lambda policies, seconds: None)
    """The limit for an attempt that begins now; only the strategy moves it."""

    def limit_of(self, record: AttemptRecord) -> float:
        """Return the seconds after which the attempt *record* timed out."""
        return record.limit

    def job(self, record: AttemptRecord, *args: Any, **kwargs: Any) -> Attempt:
        """Do the same, and note the limit."""
        attempt = super().job(record, *args, **kwargs)
        record.limit = attempt.seconds
        return attempt

    def end(self, record: AttemptRecord, failure: BaseException | None) -> BaseException | None:
        """Do the same, having noted which limit the attempt had."""
        if not self.detached:
            due = record.entry[0] if record.entry is not None else (record.deadline or NO_DEADLINE).when
            record.limit = round(due - record.began, 9)
        return super().end(record, failure)


class _Told(list[float]):
    """Stands for the durations of calls that go well at once: counts each, tells who has to hear of it, keeps none."""

    __slots__ = ("_bulkhead", "_counted", "_counters", "_hear", "_held", "_others")

    def __init__(self, counters: Counters | None, limiter: Limiter | None, listeners: tuple[Listener, ...]) -> None:
        self._counters = counters
        self._counted: list[float] = [] if counters is None else counters.first_try_durations
        self._bulkhead = None if limiter is None else limiter.bulkhead
        self._held = {} if limiter is None else limiter.bulkhead.held
        self._hear, *others = (one.hear for one in (limiter, *listeners) if one is not None)
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
            or (others := len(self._held)) >= adaptive.quiet
        ):
            self._hear(seconds, SUCCEEDED)
        else:  # it moves no limit: a function more that said so would cost what all the rest does
            later = adaptive.later
            later.append(others)
            if len(later) >= _AT_ONCE:
                bulkhead.count()
        if self._others:
            for hear in self._others:
                hear(seconds, SUCCEEDED)

    def _fold(self) -> None:
        if self._counters is None:
            self._counted.clear()
        else:
            self._counters.fold()
