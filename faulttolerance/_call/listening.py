"""The one place where attempts are measured, for the strategies that listen to latencies (rule X4)."""

from __future__ import annotations

from typing import Any

from .._metrics.counters import FOLD, Counters
from .._runtime.clock import clock
from .._runtime.environment import AttemptRecord
from .._strategy.latencies import OTHERWISE, SUCCEEDED, TIMED_OUT, Listener
from .bound import BULK, BoundPolicies

__all__ = ["ListenedPolicies"]


class ListenedPolicies(BoundPolicies):
    """The policies of a function, attempts of which some strategies listen to.

    They are told when an attempt is over: of one that goes well at once in place of counting it, of each other one when
    it is settled. An attempt with a time-out or a bulkhead is measured in any case, and only such ones are listened to.

    Args:
        name: The function.
        limiter: What moves the limit of the bulkhead by latencies.
        values: What the policies give; see ``BoundPolicies``.
    """

    __slots__ = ("_durations", "_listeners")

    def __init__(self, name: str, *, limiter: Listener | None = None, **values: Any) -> None:
        super().__init__(name, **values)
        self._listeners = () if limiter is None else (limiter,)
        self._durations = _Told(self.counters, self._listeners)

    @property
    def first_try_durations(self) -> list[float]:
        """What counts and tells of the call whose duration is appended."""
        return self._durations

    def settle(self, record: AttemptRecord, failure: BaseException | None, number: int) -> BaseException | None:
        """Do the same, and tell of the attempt, unless we refused it, or it never had a permit."""
        failure = super().settle(record, failure, number)
        if not record.refused_by and (self.bulkhead is None or record.passed >= BULK):
            end = TIMED_OUT if record.timed_out else SUCCEEDED if failure is None else OTHERWISE
            elapsed = record.ended - (record.running_since or record.began)
            for listener in self._listeners:
                listener.hear(elapsed, end)
        return failure

    def end(self, record: AttemptRecord, failure: BaseException | None) -> BaseException | None:
        """Do the same, and note when that was."""
        record.ended = record.ended or clock.monotonic()
        return super().end(record, failure)


class _Told(list[float]):
    """Stands for the durations of calls that go well at once: passes each on, and keeps none."""

    __slots__ = ("_counters", "_listeners")

    def __init__(self, counters: Counters | None, listeners: tuple[Listener, ...]) -> None:
        self._counters = counters
        self._listeners = listeners

    def append(self, seconds: float, /) -> None:
        if (counters := self._counters) is not None:
            durations = counters.first_try_durations
            durations.append(seconds)
            if len(durations) >= FOLD:
                counters.fold()
        for listener in self._listeners:
            listener.hear(seconds, SUCCEEDED)
