"""Events of guarded calls, and the sinks that receive them."""

# No ``from __future__ import annotations``: every import would compile the annotations of a named tuple.

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias, get_args

from ._log import ERROR, log
from .exceptions import CircuitBreakerOpenException


class RetryScheduled(NamedTuple):
    """An attempt failed, and a retry follows."""

    method: str
    attempt: int
    """The number of the failed attempt; the first is 1."""
    delay: float
    """The seconds until the retry."""
    failure: BaseException


class TimedOut(NamedTuple):
    """An attempt reached its time-out; a ``deadline`` that ends a call is no event."""

    method: str
    attempt: int
    limit: float
    """In seconds."""


class Rejected(NamedTuple):
    """A policy refused an attempt."""

    method: str
    attempt: int
    policy: str
    """The annotation of the policy that refused the attempt, as ``CircuitBreaker``."""
    failure: BaseException


class StateChanged(NamedTuple):
    """A circuit breaker changed its state: ``closed``, ``open`` or ``half-open``."""

    method: str
    old: str
    new: str
    reason: str = ""
    """The reason why it opened, and the end of the delay."""


class LimitChanged(NamedTuple):
    """The limit of a bulkhead was lowered, because too many calls took too long (rule A2)."""

    method: str
    old: int
    """The number of calls that could run at once before."""
    new: int


class FallbackApplied(NamedTuple):
    """A fallback is called to replace a failure."""

    method: str
    failure: BaseException


class GaveUp(NamedTuple):
    """There is no further attempt, and the failure is final."""

    method: str
    attempts: int
    elapsed: float
    """The seconds since the call started."""
    reason: str
    failure: BaseException

    @property
    def is_news(self) -> bool:
        """Whether the event matters to operators.

        A failure that the policies do not retry is the application's answer and no sign of trouble. An open circuit was
        reported when it opened, so the refused calls need no further report.
        """
        return self.reason != "the failure is not to be retried" and not isinstance(
            self.failure, CircuitBreakerOpenException
        )


class Recovered(NamedTuple):
    """A call succeeded after retries."""

    method: str
    attempts: int


class HedgeSent(NamedTuple):
    """A further attempt has started while the first attempt, which takes long, still runs."""

    method: str
    hedge: int
    """The first hedge of a call is 1."""
    delay: float
    """The seconds since the first attempt started."""


class FleetLost(NamedTuple):
    """The fleet does not answer: from now on this process decides alone what is fleet-wide (rule F5)."""

    namespace: str
    reason: str
    """The reason, in the words of the error."""
    method: str = ""
    """Empty: the event concerns no single method."""


class FleetRegained(NamedTuple):
    """The fleet answers again: from now on its shared state decides."""

    namespace: str
    seconds: float
    """The seconds without an answer."""
    method: str = ""
    """Empty: the event concerns no single method."""


def error_type(failure: BaseException) -> str:
    """Return the class name of *failure* for log records and spans: ``acme.errors.Busy``; a built-in alone."""
    kind = type(failure)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class Degradation(NamedTuple):
    """A fallback answered in place of a guarded call; see ``degradations``."""

    method: str
    failure: BaseException
    """The failure that the fallback replaced."""
    by: str
    """The name of the method, function or class that answered."""


collecting: ContextVar[tuple[list[Degradation], ...]] = ContextVar("faulttolerance_degradations", default=())
"""The lists in which degradations are collected, the outermost first."""


class degradations:  # noqa: N801  # a context manager is called like a function
    """Collect each answer of a fallback, in this context and in the contexts that are copied from it.

    ``with degradations() as found:`` binds the list of these answers: of calls in this thread or task, and in tasks and
    threads that start with a copy of its context.

    >>> with degradations() as found:
    ...     pass
    >>> found
    []
    """

    __slots__ = ("_found",)

    def __enter__(self) -> list[Degradation]:
        self._found: list[Degradation] = []
        collecting.set((*collecting.get(), self._found))
        return self._found

    def __exit__(self, *failure: object) -> None:
        # Remove only this list: blocks in generators end in any order, and some frameworks leave a block in another
        # context.
        collecting.set(tuple(found for found in collecting.get() if found is not self._found))


Event: TypeAlias = (
    RetryScheduled
    | TimedOut
    | Rejected
    | StateChanged
    | LimitChanged
    | FallbackApplied
    | GaveUp
    | Recovered
    | HedgeSent
    | FleetLost
    | FleetRegained
)
Sink: TypeAlias = Callable[[Event], object]


class TracedCall(Protocol):
    """A call that remembers the answer of the tracer."""

    is_untraced: bool


Question: TypeAlias = Callable[[TracedCall | None], bool]


def nobody(call: TracedCall | None) -> bool:
    """Return that no sink wants an event of *call*."""
    return False


def _everybody(call: TracedCall | None) -> bool:
    return True


_being_notified: ContextVar[tuple[int, ...]] = ContextVar("faulttolerance_telling", default=())
"""The ids of the sinks that are being notified."""


class Sinks:
    """The receivers of events; they are called on the thread of the event, outside every lock."""

    def __init__(self) -> None:
        self.taps: tuple[Sink, ...] = ()
        """The sinks of tests, which are notified in addition to the application's sinks."""
        self._chosen: tuple[Sink, ...] | None = None
        self._default: tuple[Sink, ...] | None = None
        self.tracer: Sink | None = None
        """The sink that adds events to spans, and returns whether a span records."""
        self._renew_questions()
        self._failed: set[int] = set()
        self.find: Callable[[], tuple[Sink, ...]] = tuple
        """Returns the sinks to notify if the application set none; called at the first event."""

    def _renew_questions(self) -> None:
        self.wanted: dict[type[Event], Question] = {kind: partial(self._first_answer, kind) for kind in get_args(Event)}
        """A question for each kind of event, asked before one is created: ``if sinks.wanted[Rejected](call): ...``.

        Its argument is the call, which remembers that no span records there, or ``None``. The answer may change between
        two events.

        A sink may have a method ``interest(kind, others)``. It returns a function that answers for the sink and, by
        calling *others*, for the sinks behind it, and that raises nothing. A sink without it wants every event. A
        wrapper around all the questions would cost as much as one question.
        """

    def _first_answer(self, kind: type[Event], call: TracedCall | None) -> bool:
        """Replace the question about *kind* by that of the sinks, and return its answer for *call*."""
        wanted = self.wanted  # first: other sinks that are set meanwhile have questions of their own
        question: Question = nobody
        for sink in reversed((*self.get(), *self.taps)):
            try:
                question = sink.interest(kind, question)  # type: ignore[attr-defined]
            except Exception:  # noqa: BLE001  # application code; most sinks have no such attribute
                question = _everybody
        wanted[kind] = question
        return question(call)

    def set(self, chosen: Iterable[Sink] | None) -> None:
        """Notify *chosen* and no other sinks from now on; ``None`` means the sinks that ``find`` returns."""
        self._chosen = tuple(chosen) if chosen is not None else None
        self._failed = set()
        self.forget_default()

    def tap(self, taps: Iterable[Sink]) -> None:
        """Notify *taps* in addition to the other sinks, in place of earlier taps."""
        self.taps = tuple(taps)
        self._renew_questions()

    def forget_default(self) -> None:
        """Remove the default sinks, so that the next event calls ``find`` again."""
        self._default = None
        self._renew_questions()

    def get(self) -> tuple[Sink, ...]:
        """Return the sinks in use."""
        if self._chosen is not None:
            return self._chosen
        default = self._default
        if default is None:
            default = self._default = self.find()
        return default

    def send(self, event: Event, call: TracedCall | None = None) -> None:
        """Notify every sink of *event*, which belongs to *call*; a failing sink is logged once and changes nothing.

        A sink is not notified of guarded calls that it makes itself: it would make further calls without end.
        """
        being_notified = _being_notified.get()
        for sink in (*self.get(), *self.taps):
            if id(sink) in being_notified or (call is not None and call.is_untraced and sink is self.tracer):
                continue
            try:
                _being_notified.set((*being_notified, id(sink)))
                answer = sink(event)
                if call is not None and sink is self.tracer:
                    call.is_untraced = not answer
            except Exception as error:  # noqa: BLE001  # application code, may not change the call
                self._report(sink, error)
            finally:
                _being_notified.set(being_notified)

    def _report(self, sink: Sink, error: Exception) -> None:
        if id(sink) not in self._failed:
            self._failed.add(id(sink))
            log(ERROR, "an event sink failed: %r", sink, error=error)


sinks = Sinks()
