"""Events of guarded calls, and the sinks that receive them."""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import NamedTuple, Protocol, TypeAlias

from ._log import ERROR, log
from .exceptions import CircuitBreakerOpenException


class RetryScheduled(NamedTuple):
    """An attempt failed, and another one follows."""

    method: str
    attempt: int
    """The one that failed; the first is 1."""
    delay: float
    """Seconds until the next one."""
    failure: BaseException


class TimedOut(NamedTuple):
    """An attempt reached its deadline."""

    method: str
    attempt: int
    limit: float
    """In seconds."""


class Rejected(NamedTuple):
    """An attempt was not let in."""

    method: str
    attempt: int
    policy: str
    """The annotation of the one that refused it, as ``CircuitBreaker``."""
    failure: BaseException


class StateChanged(NamedTuple):
    """A circuit breaker moved from one state to another: ``closed``, ``open`` or ``half-open``."""

    method: str
    old: str
    new: str
    reason: str = ""
    """Why it opened, and until when."""


class LimitChanged(NamedTuple):
    """The limit of a bulkhead came down, because too many calls took too long (rule A2)."""

    method: str
    old: int
    """Calls that could run at once before."""
    new: int


class FallbackApplied(NamedTuple):
    """The fallback is asked to replace a failure."""

    method: str
    failure: BaseException


class GaveUp(NamedTuple):
    """There is no further attempt, and the failure is final."""

    method: str
    attempts: int
    elapsed: float
    """Seconds since the call began."""
    reason: str
    failure: BaseException

    @property
    def is_news(self) -> bool:
        """Whether operators should hear of it.

        A failure that is not to be retried is the application's answer and no sign of trouble; that a circuit is open
        was said when it opened, and need not be said again for every call.
        """
        return self.reason != "not retryable" and not isinstance(self.failure, CircuitBreakerOpenException)


class Recovered(NamedTuple):
    """A call succeeded after retries."""

    method: str
    attempts: int


class HedgeSent(NamedTuple):
    """Another attempt has begun beside the first one, which takes long."""

    method: str
    hedge: int
    """The first hedge of a call is 1."""
    delay: float
    """Seconds since the first attempt began."""


class FleetLost(NamedTuple):
    """The fleet does not answer: from now on this process decides alone what is fleet-wide (rule F5)."""

    namespace: str
    reason: str
    """Why, in words of the error that said so."""

    @property
    def method(self) -> str:
        """Empty: it has not happened to one method."""
        return ""


class FleetRegained(NamedTuple):
    """The fleet answers again: what it has holds from now on."""

    namespace: str
    seconds: float
    """How long it did not."""

    @property
    def method(self) -> str:
        """Empty: it has not happened to one method."""
        return ""


def error_type(failure: BaseException) -> str:
    """Name the class of *failure* as log records and spans do: ``acme.errors.Busy``, and a built-in one alone."""
    kind = type(failure)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class Degradation(NamedTuple):
    """A fallback answered in place of a guarded call; see ``degradations``."""

    method: str
    failure: BaseException
    """What the fallback was asked for."""
    by: str
    """What answered: the name of a method, a function or a class."""


collecting: ContextVar[tuple[list[Degradation], ...]] = ContextVar("faulttolerance_degradations", default=())
"""The lists in which degradations are collected, the outermost first."""


class degradations:  # noqa: N801  # a context manager is called like a function
    """Collect, in this context and in what it starts, each answer that a fallback gave.

    ``with degradations() as found:`` gives the list to which they are added: of calls of this thread or task, and of
    tasks and threads that are started with a copy of its context.

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
        # Only this list: blocks of generators end in any order, and some frameworks leave in another context.
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

Question: TypeAlias = Callable[[], bool]


def _question(sink: Sink, kind: type[Event], others: Question) -> Question:
    try:
        return sink.interest(kind, others)  # type: ignore[attr-defined, no-any-return]
    except Exception:  # noqa: BLE001  # the application's; most sinks have no such attribute
        return lambda: True


class _Wanted(dict[type[Event], Question]):
    """Whether anybody is to be told of events of a kind; the answer may change from one event to the next."""

    def __init__(self, sinks: "Sinks", but: Sink | None = None) -> None:
        super().__init__()
        self._sinks = sinks
        self._but = but

    def __missing__(self, kind: type[Event]) -> Question:
        question: Question = bool
        for sink in reversed((*self._sinks.get(), *self._sinks.taps)):
            if sink is not self._but:
                question = _question(sink, kind, question)
        self[kind] = question
        return question


_telling: ContextVar[tuple[int, ...]] = ContextVar("faulttolerance_telling", default=())
"""The sinks that are being told, by their ids."""


class Asking(Protocol):
    """A call that remembers what was asked of the tracer."""

    is_untraced: bool


class Sinks:
    """The receivers of events, called on the thread on which these happen and outside every lock."""

    def __init__(self) -> None:
        self.taps: tuple[Sink, ...] = ()
        """Those of tests, which are told besides, whatever the application sets."""
        self._chosen: tuple[Sink, ...] | None = None
        self._default: tuple[Sink, ...] | None = None
        self.tracer: Sink | None = None
        """The sink that adds events to spans."""
        self.is_traced: Question = bool
        """Whether *tracer* finds a span here that records. The answer takes long, and stays the same for a call."""
        self._ask_anew()
        self._failed: set[int] = set()
        self.find: Callable[[], tuple[Sink, ...]] = tuple
        """Gives those that are told where the application set none; asked at the first event."""

    def _ask_anew(self) -> None:
        self.wanted = _Wanted(self)
        """By kind of event, what is asked before one is made: ``if sinks.wanted[Rejected](): ...``.

        A sink may have ``interest(kind, others)``, which gives a question that is answered for those behind it, too, by
        asking *others*, and that raises nothing; without, it wants everything. A function around all questions would
        cost as much as one of them. Where the answer is yes, ``is_heard`` is asked, too.
        """
        self._wanted_elsewhere = _Wanted(self, self.tracer)

    def is_heard(self, kind: type[Event], call: Asking | None = None) -> bool:
        """Return whether an event of *kind* reaches more than a tracer without a span that records.

        The tracer is asked once for each *call* in which no span records.
        """
        if self._wanted_elsewhere[kind]():
            return True
        if call is None:
            return self.is_traced()
        if not call.is_untraced:
            call.is_untraced = not self.is_traced()
        return not call.is_untraced

    def set(self, chosen: Iterable[Sink] | None) -> None:
        """Tell *chosen* and no others; ``None``: those that ``find`` gives."""
        self._chosen = tuple(chosen) if chosen is not None else None
        self._failed = set()
        self.forget_default()

    def tap(self, taps: Iterable[Sink]) -> None:
        """Tell *taps* besides, and no others of tests."""
        self.taps = tuple(taps)
        self._ask_anew()

    def forget_default(self) -> None:
        """Ask ``find`` again at the next event."""
        self._default = None
        self._ask_anew()

    def get(self) -> tuple[Sink, ...]:
        """Give the sinks that are told now."""
        if self._chosen is not None:
            return self._chosen
        default = self._default
        if default is None:
            default = self._default = self.find()
        return default

    def tell(self, event: Event, call: Asking | None = None) -> None:
        """Tell every sink of *event*, which belongs to *call*; one that raises is logged once and changes nothing.

        A sink that makes guarded calls is not told of them: it would make more, without end.
        """
        telling = _telling.get()
        for sink in (*self.get(), *self.taps):
            if id(sink) in telling or (call is not None and call.is_untraced and sink is self.tracer):
                continue
            try:
                _telling.set((*telling, id(sink)))
                sink(event)
            except Exception as error:  # noqa: BLE001  # it is the application's, and changes nothing
                self._report(sink, error)
            finally:
                _telling.set(telling)

    def _report(self, sink: Sink, error: Exception) -> None:
        if id(sink) not in self._failed:
            self._failed.add(id(sink))
            log(ERROR, "an event sink failed: %r", sink, error=error)


sinks = Sinks()
