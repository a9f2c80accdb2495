"""Records of calls, attempt by attempt and how they ended, and of events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, Self, TypeAlias

from .._deadline.clock import clock
from .._deadline.threads.roles import CALLER, register
from .._event import Event, FallbackApplied, GaveUp, Rejected, RetryScheduled, Sink, TimedOut, sinks
from .._execution.caller_thread import GuardedCall
from .._execution.environment import Environment
from .._guard.resolve.transaction import overridden
from .._shown import shown
from ..exceptions import FaultToleranceException
from .reusable_context import ReusableContext
from .target import Target, TargetWrapper, target_of

Outcome: TypeAlias = Literal["running", "returned", "not accepted", "raised", "timed out", "refused", "cancelled"]

_CANCELLATIONS = frozenset({"CancelledError", "Cancelled", "GeneratorExit", "GreenletExit", "Interrupted"})
"""The classes that end a call from outside: of asyncio, trio, Python, gevent and this library."""


class _Recorded:
    """A process that may be under way, and ends once, with the block that it manages."""

    def __init__(self) -> None:
        self.began = clock.monotonic()
        """The start, in seconds of the library's clock."""
        self.seconds: float | None = None
        """The duration in seconds; ``None`` while it runs."""
        self.result: Any = None
        """The returned value."""
        self.failure: BaseException | None = None
        """The raised exception, or the exception that stands for it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, failure: BaseException | None, trace: object) -> None:
        self.seconds = clock.monotonic() - self.began
        if self.failure is None:
            self.failure = failure

    @property
    def outcome(self) -> Outcome:
        """The outcome."""
        if self.failure is None:
            return "returned" if self.seconds is not None else "running"
        if isinstance(self.failure, Exception):
            return "raised"
        return "cancelled" if _CANCELLATIONS & {one.__name__ for one in type(self.failure).__mro__} else "raised"

    def _describe_end(self) -> str:
        words = {"returned": f"returned {shown(self.result)}", "raised": f"raised {shown(self.failure)}"}
        return words.get(self.outcome, self.outcome)


class RecordedAttempt(_Recorded):
    """One attempt of a recorded call."""

    def __init__(self, number: int, hedge: int = 0) -> None:
        super().__init__()
        self.number = number
        """The first attempt is 1; a hedge has the number of the attempt beside which it was sent."""
        self.hedge = hedge
        """The first hedge beside an attempt is 1; 0 for the attempt itself."""
        self.delay: float | None = None
        """The seconds to wait before the next attempt; ``None``: there is none."""
        self.refused_by = ""
        """The annotation of the policy that did not admit the attempt, as ``"Bulkhead"``."""
        self.is_late = False
        """Whether the attempt reached its time-out."""
        self.is_accepted = True
        """Whether ``retry_when`` accepted its result."""

    @property
    def outcome(self) -> Outcome:
        """The outcome of the attempt; a refused attempt never began."""
        if self.refused_by or self.is_late:
            return "refused" if self.refused_by else "timed out"
        return super().outcome if self.is_accepted else "not accepted"

    def __repr__(self) -> str:
        end = f"refused by {self.refused_by}" if self.refused_by else self._describe_end()
        if not self.is_accepted:
            end = f"returned {shown(self.result)}, which was not accepted"
        name = f"{self.number}" if not self.hedge else f"{self.number} (hedge {self.hedge})"
        return f"{name} {end}" + ("" if self.delay is None else f", then {self.delay:.3g} s")


class RecordedCall(_Recorded):
    """One call of a recorded target.

    Args:
        name: The name of the guard, as in metrics.
        args: The positional arguments of the call, without the object on which it was called.
        kwargs: The keyword arguments of the call.
        recorder: The recorder of the call.
    """

    def __init__(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], recorder: _Recorder) -> None:
        super().__init__()
        self._recorder = recorder
        self.name = name
        self.args = args
        self.kwargs = kwargs
        self.stop = ""
        """The reason why no attempt followed, as ``"max_retries reached"``.

        It is empty where nothing was retried, or the call succeeded.
        """
        self.fallback = False
        """Whether a fallback was called."""
        self._attempts: list[RecordedAttempt] = []
        self._number = 1

    @property
    def attempts(self) -> tuple[RecordedAttempt, ...]:
        """The attempts that began or were refused, in that order; hedges, too."""
        return tuple(self._attempts)

    @property
    def delays(self) -> tuple[float, ...]:
        """The seconds to wait between attempts, also where they passed at once."""
        return tuple(attempt.delay for attempt in self._attempts if attempt.delay is not None)

    @property
    def refusals(self) -> tuple[str, ...]:
        """The annotations of the policies that did not admit an attempt, one for each such attempt."""
        return tuple(attempt.refused_by for attempt in self._attempts if attempt.refused_by)

    def __repr__(self) -> str:
        arguments = [*map(shown, self.args), *(f"{name}={shown(value)}" for name, value in self.kwargs.items())]
        steps = "; ".join(map(repr, self._attempts)) or "no attempt"
        stop = f", because {self.stop}" if self.stop else ""
        by = ", after a fallback was called" if self.fallback else ""
        return f"<{self.name}({', '.join(arguments)}): {steps}; {self._describe_end()}{by}{stop}>"

    # Updates by the recorder

    def __enter__(self) -> Self:
        _under_way.set((*_under_way.get(), self))
        return self

    def __exit__(self, kind: object, failure: BaseException | None, trace: object) -> None:
        # Not by a token: a block may be left in another context than entered.
        _under_way.set(tuple(call for call in _under_way.get() if call is not self))
        super().__exit__(kind, failure, trace)
        self._recorder.end_with_calls()

    def _start_attempt(self) -> RecordedAttempt:
        beside = sum(attempt.number == self._number and not attempt.refused_by for attempt in self._attempts)
        attempt = RecordedAttempt(self._number, beside)
        self._attempts.append(attempt)
        return attempt

    def _add_refusal(self, number: int, policy: str, failure: BaseException) -> None:
        attempt = RecordedAttempt(number)
        attempt.refused_by, attempt.seconds, attempt.failure = policy, 0.0, failure
        self._attempts.append(attempt)

    def _mark_timed_out(self, number: int) -> None:
        attempts = self._of(number)
        unfinished = [attempt for attempt in attempts if attempt.outcome in ("running", "cancelled")]
        for attempt in (unfinished or attempts)[:1]:
            attempt.is_late = True

    def _mark_failed(self, number: int, failure: BaseException, delay: float | None = None) -> None:
        for attempt in self._of(number)[-1:]:
            attempt.delay = delay
            if attempt.failure is None and type(failure) is FaultToleranceException:
                attempt.is_accepted = False
            if attempt.failure is None or not isinstance(attempt.failure, Exception):
                attempt.failure = failure
        if delay is not None:
            self._number = number + 1

    def _of(self, number: int) -> list[RecordedAttempt]:
        return [attempt for attempt in self._attempts if attempt.number == number]


def _call_under_way(recorder: object, name: str) -> RecordedCall | None:
    """Return the innermost call of *name* in this context that *recorder* records."""
    calls = (call for call in reversed(_under_way.get()) if call._recorder is recorder and call.name == name)
    return next(calls, None)


_under_way: ContextVar[tuple[RecordedCall, ...]] = ContextVar("faulttolerance_recorded", default=())
"""The calls that are recorded in this context, the outermost first."""


_tapping = threading.Lock()


def _tap(sink: Sink) -> None:
    """Send events to *sink*, too."""
    with _tapping:
        sinks.tap((*sinks.taps, sink))


def _untap(sink: Sink) -> None:
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
        sink = events.append
        _tap(sink)
        try:
            yield events
        finally:
            _untap(sink)

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
        _tap(recorder.sink)
        try:
            with overridden(recorder):
                yield recorder.calls
        finally:
            recorder.is_over = True
            recorder.end_with_calls()

    return ReusableContext("recorded", recording)


class _Recorder(TargetWrapper):
    """A recorder of the calls of one target."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.calls: list[RecordedCall] = []
        self.sink: Sink = self.record_event
        self.is_over = False
        """Whether the block was left."""

    def end_with_calls(self) -> None:
        """Record no more events, if the block and all its calls are over."""
        if self.is_over and all(call.seconds is not None for call in self.calls):
            _untap(self.sink)

    def record_event(self, event: Event) -> None:
        """Record *event* on the call that is under way in this context."""
        call = _call_under_way(self, event.method)
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

        def begin(*args: Any, **kwargs: Any) -> RecordedAttempt:
            call = _call_under_way(self, name)
            return call._start_attempt() if call is not None else RecordedAttempt(1)

        return _recording(function, begin, is_awaited)

    def around_call(self, call: GuardedCall, name: str, environment: Environment | None, own: int) -> GuardedCall:
        """Return *call* with a record of each call."""

        def begin(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> RecordedCall:
            record = RecordedCall(name, args[own:], dict(kwargs), self)
            self.calls.append(record)
            return record

        return _recording(call, begin, environment is not None)


def _recording(function: Callable[..., Any], begin: Callable[..., _Recorded], is_awaited: bool) -> Callable[..., Any]:
    """Return *function* with a record of each call, which *begin* creates from its arguments."""

    @register(CALLER)
    def called(*args: Any, **kwargs: Any) -> Any:
        with begin(*args, **kwargs) as record:
            record.result = function(*args, **kwargs)
        return record.result

    @register(CALLER)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        with begin(*args, **kwargs) as record:
            record.result = await function(*args, **kwargs)
        return record.result

    return awaited if is_awaited else called
