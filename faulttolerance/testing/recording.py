"""Records of calls, attempt by attempt, and of events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .._deadline.threads.roles import CALLER, register
from .._event import Event, FallbackApplied, GaveUp, Rejected, RetryScheduled, Sink, TimedOut, sinks
from .._guard.resolve.transaction import overridden
from .record import RecordedAttempt, RecordedCall, call_under_way
from .reusable_context import ReusableContext
from .target import Target, TargetWrapper, target_of

if TYPE_CHECKING:
    from .._execution.caller_thread import GuardedCall
    from .._execution.environment import Environment


_tapping = threading.Lock()


@contextmanager
def _tapped(sink: Sink) -> Iterator[None]:
    """Send events to *sink*, too, within the block."""
    with _tapping:
        sinks.tap((*sinks.taps, sink))
    try:
        yield
    finally:
        with _tapping:
            sinks.tap(other for other in sinks.taps if other is not sink)


def captured_events() -> ReusableContext[list[Event]]:
    """Collect the events of guards within a block, in the order in which they happen, beside all other sinks.

    Unlike ``set_event_sinks`` it replaces no other sink, and nothing replaces it.

    >>> from faulttolerance import fallback
    >>> @fallback(lambda *_: 0)
    ... def fetch():
    ...     raise ConnectionError
    >>> with captured_events() as events:
    ...     fetch()
    0
    >>> events
    [FallbackApplied(method='...fetch', failure=ConnectionError())]
    """

    @contextmanager
    def capturing() -> Iterator[list[Event]]:
        events: list[Event] = []
        with _tapped(lambda event: events.append(event)):  # another object each time
            yield events

    return ReusableContext("captured_events", capturing)


def recorded(target: Any) -> ReusableContext[list[RecordedCall]]:
    """Record the calls of a target within a block: each call with its attempts, delays, refusals and outcome.

    The list has the calls in the order in which they began, on any thread and in any task. Each ``RecordedCall`` is
    updated until its call is over. Where several guards stand above one another, each has a call of its own.

    Args:
        target: A guarded function or method, a method of an object, for its class, a class with its subclasses, or a
            ``Guard``.

    Raises:
        FaultToleranceDefinitionException: The target is not guarded.

    >>> from faulttolerance import retry
    >>> @retry(max_retries=1, delay=0, jitter=0, retry_on=ConnectionError)
    ... def fetch(moods=[ConnectionError(), None]):
    ...     if mood := moods.pop(0):
    ...         raise mood
    >>> with recorded(fetch) as calls:
    ...     fetch()
    >>> calls[0].attempts[0].failure
    ConnectionError()
    """
    named = target_of("testing.recorded", target)

    @contextmanager
    def recording() -> Iterator[list[RecordedCall]]:
        recorder = _Recorder(named)
        with _tapped(recorder.record_event), overridden(recorder):
            yield recorder.calls

    return ReusableContext("recorded", recording)


class _Recorder(TargetWrapper):
    """A recorder of the calls of one target."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.calls: list[RecordedCall] = []

    def record_event(self, event: Event) -> None:
        """Record *event* on the call that is under way in this context."""
        call = call_under_way(self, event.method)
        if call is None:
            return
        if isinstance(event, RetryScheduled):
            call._mark_failed(event.attempt, event.failure, delay=event.delay)
        elif isinstance(event, TimedOut):
            call._mark_timed_out(event.attempt)
        elif isinstance(event, Rejected):
            call._add_refusal(event.attempt, event.policy, event.failure)
        elif isinstance(event, GaveUp):
            call._mark_failed(event.attempts, event.failure)
            call.stop = event.reason
        elif isinstance(event, FallbackApplied):
            call.fallback = True

    def around_attempt(
        self, function: Callable[..., Any], name: str, environment: Environment | None, is_awaited: bool
    ) -> Callable[..., Any]:
        """Return *function* with a record of each attempt."""

        def begin() -> RecordedAttempt:
            call = call_under_way(self, name)
            return call._start_attempt() if call is not None else RecordedAttempt(1)

        @register(CALLER)
        def attempt(*args: Any, **kwargs: Any) -> Any:
            with begin() as record:
                record.result = function(*args, **kwargs)
            return record.result

        @register(CALLER)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with begin() as record:
                record.result = await function(*args, **kwargs)
            return record.result

        return awaited if is_awaited else attempt

    def around_call(self, call: GuardedCall, name: str, environment: Environment | None, own: int) -> GuardedCall:
        """Return *call* with a record of each call."""

        def begin(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> RecordedCall:
            record = RecordedCall(name, args[own:], dict(kwargs), self)
            self.calls.append(record)
            return record

        def recording(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
            with begin(args, kwargs) as record:
                record.result = call(args, kwargs)
            return record.result

        async def recording_awaited(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
            with begin(args, kwargs) as record:
                record.result = await call(args, kwargs)
            return record.result

        return recording if environment is None else recording_awaited
