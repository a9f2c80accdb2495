"""What happened: counted for the metrics of the specification, and told to whoever listens.

The hot path appends one number, the duration of a call on which everything went well, and that one sample stands for
every series such a call advances. What goes otherwise is appended with its series. Both are folded into the counts when
there are many of them, and when somebody reads.
"""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import reduce
from threading import RLock
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from ._log import ERROR, log
from ._swap import Swap
from .exceptions import CircuitBreakerOpenException

__all__ = [
    "BOUNDARIES",
    "FOLD",
    "METRICS",
    "NO_DURATIONS",
    "Account",
    "Durations",
    "Event",
    "FallbackApplied",
    "GaveUp",
    "Ledger",
    "Metric",
    "Reading",
    "Recovered",
    "Rejected",
    "RetryScheduled",
    "Series",
    "Shape",
    "Sink",
    "Sinks",
    "StateChanged",
    "Tally",
    "TimedOut",
    "ledger",
    "sinks",
]

Series: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""A metric's name and its tags, without ``method``."""

BOUNDARIES = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Upper bounds of the histograms' buckets, in seconds, as the specification lists them."""

T = TypeVar("T")

FOLD = 1024
"""How many calls are kept apart before they are folded into the counts."""

WAITING_DURATION = "ft.bulkhead.waitingDuration"


class Metric(NamedTuple):
    """What the specification says of one metric."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: Literal["", "seconds", "nanoseconds"]
    tags: tuple[str, ...]
    """Beside ``method``, which every metric has."""
    description: str


METRICS = (
    Metric("ft.invocations.total", "counter", "", ("result", "fallback"), "The number of times the method was called"),
    Metric(
        "ft.retry.calls.total",
        "counter",
        "",
        ("retried", "retryResult"),
        "The number of times the retry logic was run. This will always be once per method call.",
    ),
    Metric("ft.retry.retries.total", "counter", "", (), "The number of times the method was retried"),
    Metric("ft.timeout.calls.total", "counter", "", ("timedOut",), "The number of times the timeout logic was run"),
    Metric("ft.timeout.executionDuration", "histogram", "seconds", (), "Histogram of execution times for the method"),
    Metric(
        "ft.circuitbreaker.calls.total",
        "counter",
        "",
        ("circuitBreakerResult",),
        "The number of times the circuit breaker logic was run",
    ),
    Metric(
        "ft.circuitbreaker.state.total",
        "counter",
        "nanoseconds",
        ("state",),
        "Amount of time the circuit breaker has spent in each state",
    ),
    Metric(
        "ft.circuitbreaker.opened.total",
        "counter",
        "",
        (),
        "Number of times the circuit breaker has moved from closed state to open state",
    ),
    Metric(
        "ft.bulkhead.calls.total", "counter", "", ("bulkheadResult",), "The number of times the bulkhead logic was run"
    ),
    Metric("ft.bulkhead.executionsRunning", "gauge", "", (), "Number of currently running executions"),
    Metric("ft.bulkhead.executionsWaiting", "gauge", "", (), "Number of executions currently waiting in the queue"),
    Metric(
        "ft.bulkhead.runningDuration",
        "histogram",
        "seconds",
        (),
        "Histogram of the time that method executions spent running",
    ),
    Metric(
        WAITING_DURATION,
        "histogram",
        "seconds",
        (),
        "Histogram of the time that method executions spent waiting in the queue",
    ),
    # Beyond the specification, after SmallRye.
    Metric(
        "ft.ratelimit.calls.total", "counter", "", ("rateLimitResult",), "The number of times the rate limit was run"
    ),
)
"""Every metric there is, in the order of the specification's table."""


# Counts


class Durations(NamedTuple):
    """Samples of a histogram by bucket: the buckets of ``BOUNDARIES``, and the one beyond."""

    counts: tuple[int, ...]
    sums: tuple[float, ...]
    """What the samples of each bucket come to, in seconds."""

    def __add__(self, other: object) -> "Durations":
        """Both together."""
        if not isinstance(other, Durations):
            return NotImplemented
        return Durations(
            tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)),
            tuple(a + b for a, b in zip(self.sums, other.sums, strict=True)),
        )


NO_DURATIONS = Durations((0,) * (len(BOUNDARIES) + 1), (0.0,) * (len(BOUNDARIES) + 1))


class Reading(NamedTuple):
    """All that was counted, at one moment, by the name of the method."""

    counts: dict[str, dict[Series, int]]
    """What only grows."""
    levels: dict[str, dict[Series, int]]
    """What goes up and down."""
    durations: dict[str, dict[str, Durations]]


class Shape(NamedTuple):
    """Which series a guarded method has under one set of policies; methods with the same policies share it."""

    series: tuple[Series, ...]
    """Every counter that exists from the beginning."""
    smooth: tuple[Series, ...]
    """Those that a call advances by one each when its first attempt succeeds and nothing was refused."""
    durations: tuple[str, ...]
    """The histograms that such a call adds its duration to, or 0 for ``ft.bulkhead.waitingDuration``."""


class Measures(Protocol):
    """Series that are kept elsewhere: they are looked at when somebody reads."""

    def totals(self) -> Mapping[Series, int]:
        """Those that only grow."""
        ...

    def levels(self) -> Mapping[Series, int]:
        """Those that go up and down."""
        ...


_NO_COUNTS: Mapping[Series, int] = {}
_NO_SAMPLES: Mapping[str, Durations] = {}


class Account:
    """All that is counted under one name by one guarded method of one class, or one ``Guard``, under one ``Shape``."""

    __slots__ = (
        "_counts",
        "_durations",
        "_folding",
        "_strokes",
        "counted",
        "meter",
        "name",
        "sampled",
        "shape",
        "smooth_calls",
    )

    # Folding is short and seldom: one lock for all, renewed in the child of a fork. Reentrant, and each account that is
    # being folded is marked: a signal handler or a finalizer may count, or read, while its thread is in here.
    lock: ClassVar = RLock()

    def __init__(self, name: str, shape: Shape) -> None:
        self.name = name
        self.shape = shape
        self.meter: Measures | None = None
        self.smooth_calls: list[float] = []
        self.counted: list[Sequence[Series]] | None = None
        self.sampled: list[tuple[Sequence[Series], Mapping[str, float]]] | None = None
        self._strokes: tuple[tuple[Sequence[Series], list[None]], ...] = ()
        # All guarded by the lock. What was folded until now; what is not there is 0.
        self._counts = _NO_COUNTS
        self._durations = _NO_SAMPLES
        self._folding = False

    def fold(self) -> None:
        """Take what was appended into the counts, unless somebody does so already."""
        if self.lock.acquire(blocking=False):
            try:
                self._fold_locked()
            finally:
                self.lock.release()

    def read(self, counts: dict[Series, int], durations: dict[str, Durations]) -> None:
        """Add the value of every series, and of every histogram, to *counts* and *durations*."""
        with self.lock:
            self._fold_locked()
            counted, sampled = self._counts, self._durations
        for series in self.shape.series:
            counts[series] = counts.get(series, 0) + counted.get(series, 0)
        for name in self.shape.durations:
            durations[name] = durations.get(name, NO_DURATIONS) + sampled.get(name, NO_DURATIONS)
        if self.meter is not None:
            for series, count in self.meter.totals().items():
                counts[series] = counts.get(series, 0) + count

    def open_lists(self) -> None:
        """Make the lists for what does not go smoothly; most methods seldom need them."""
        with self.lock:
            if self.counted is None:
                self.counted = []
                self.sampled = []

    def strokes(self, series: Sequence[Series]) -> list[None]:
        """The list whose entries each advance all of *series* by one."""
        with self.lock:
            found = next((strokes for advanced, strokes in self._strokes if advanced == series), None)
            if found is None:
                found = []
                self._strokes = (*self._strokes, (series, found))
            return found

    def begin_anew(self) -> None:
        """Start again at 0 in the child of a fork."""
        self._folding = False
        self._counts = _NO_COUNTS
        self._durations = _NO_SAMPLES
        self.smooth_calls.clear()
        self.counted = self.sampled = None
        for _, strokes in self._strokes:
            strokes.clear()

    def _fold_locked(self) -> None:
        if self._folding:
            return
        self._folding = True
        try:
            counts, durations = Counter(self._counts), dict(self._durations)
            samples: dict[str, list[float]] = {}
            smooth = _taken(self.smooth_calls)
            if smooth:
                counts.update(dict.fromkeys(self.shape.smooth, len(smooth)))
                found = _by_bucket(smooth)
                for name in self.shape.durations:
                    new = found if name != WAITING_DURATION else _by_bucket([0.0] * len(smooth))
                    durations[name] = durations.get(name, NO_DURATIONS) + new
            for advanced, strokes in self._strokes:
                counts.update(dict.fromkeys(advanced, len(_taken(strokes))))
            counted = _taken(self.counted or [])
            for advanced, sampled in _taken(self.sampled or []):
                counted.append(advanced)
                for name, sample in sampled.items():
                    samples.setdefault(name, []).append(sample)
            # Most of them advance the same few tuples of series: counted by identity, each is gone through once.
            distinct = dict(zip(map(id, counted), counted, strict=True))
            for key, times in Counter(map(id, counted)).items():
                for series in distinct[key]:
                    counts[series] += times
            for name, few in samples.items():
                durations[name] = durations.get(name, NO_DURATIONS) + _by_bucket(few)
            self._counts, self._durations = counts, durations
        finally:
            self._folding = False


def _taken(calls: list[T]) -> list[T]:
    """Take what is there out of *calls*, to which others append meanwhile.

    Nothing is called between copying and deleting, so that no interruption lands there and nothing is counted twice.
    """
    count = len(calls)
    taken = calls[:count]
    del calls[:count]
    return taken


def _by_bucket(samples: list[float]) -> Durations:
    """Sorted once, the samples of a bucket stand together: cheaper than looking up the bucket of each."""
    if max(samples) <= BOUNDARIES[0]:
        beyond = len(BOUNDARIES)
        return Durations((len(samples), *(0,) * beyond), (sum(samples), *(0.0,) * beyond))
    samples.sort()
    ends = [bisect_right(samples, bound) for bound in BOUNDARIES] + [len(samples)]
    begins = [0, *ends[:-1]]
    return Durations(
        tuple(end - begin for begin, end in zip(begins, ends, strict=True)),
        tuple(float(sum(samples[begin:end])) for begin, end in zip(begins, ends, strict=True)),
    )


class Tally:
    """Where a guarded method counts. Everything that may still do so holds it: when it goes, the account is final."""

    __slots__ = ("_departed", "account")

    def __init__(self, account: Account, departed: deque[Account]) -> None:
        self.account = account
        self._departed = departed

    def __del__(self) -> None:
        # Runs wherever the collector runs, so it takes no lock.
        self._departed.append(self.account)

    @property
    def smooth_calls(self) -> list[float]:
        """Durations of calls on which everything went well: append one, then ``fold`` when there are ``FOLD``."""
        return self.account.smooth_calls

    def strokes(self, series: Sequence[Series]) -> list[None]:
        """The cheapest way to count one thing often: append to what this returns, then ``fold`` as above."""
        return self.account.strokes(series)

    def fold(self) -> None:
        """Take what was appended into the counts."""
        self.account.fold()

    def add(self, series: Sequence[Series], samples: Mapping[str, float] | None = None) -> None:
        """Advance each of *series* by one, and add one sample to each histogram that is named."""
        account = self.account
        if account.sampled is None:
            account.open_lists()
        calls: Any = account.counted
        if samples:
            calls = account.sampled
            calls.append((series, samples))
        else:
            calls.append(series)
        if len(calls) >= FOLD:
            self.fold()


class Ledger:
    """Every account there is, and what is left of those that are closed: each is read exactly once per reading."""

    def __init__(self) -> None:
        self._lock = RLock()  # over the merging of what departed; never held where user code runs
        self._accounts: dict[Account, None] = {}
        self._departed: deque[Account] = deque()
        self._final_counts: dict[str, dict[Series, int]] = {}  # guarded by _lock
        self._final_durations: dict[str, dict[str, Durations]] = {}  # guarded by _lock

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever guarded."""
        return not self._accounts and not self._final_counts

    def new(self, name: str, shape: Shape) -> Tally:
        """A new account, read once it is entered; it is final when nothing holds the tally any more."""
        if len(self._departed) >= FOLD // 8 and self._lock.acquire(blocking=False):
            try:
                self._merge_locked()
            finally:
                self._lock.release()
        return Tally(Account(name, shape), self._departed)

    def enter(self, tally: Tally, swap: Swap) -> None:
        """Let the account of *tally* be read from now on, together with the other stores of *swap*."""
        swap.item(self._accounts, tally.account, None)

    def read(self) -> Reading:
        """What was counted until now; equal names add up."""
        with self._lock:
            self._merge_locked()
            accounts = list(self._accounts)
            reading = Reading(
                {name: dict(counts) for name, counts in list(self._final_counts.items())},
                {},
                {name: dict(durations) for name, durations in list(self._final_durations.items())},
            )
            for account in accounts:
                account.read(
                    reading.counts.setdefault(account.name, {}), reading.durations.setdefault(account.name, {})
                )
                if account.meter is not None and (measured := account.meter.levels()):
                    levels = reading.levels.setdefault(account.name, {})
                    for series, level in measured.items():
                        levels[series] = levels.get(series, 0) + level
            return reading

    def clear(self) -> None:
        """Forget every account."""
        with self._lock:
            self._accounts.clear()
            self._final_counts.clear()
            self._final_durations.clear()

    def begin_anew(self) -> None:
        """Start again at 0 in the child of a fork, where a thread that held the lock does not exist."""
        self._lock = RLock()
        Account.lock = RLock()
        self._final_counts.clear()
        self._final_durations.clear()
        for account in self._accounts:
            account.begin_anew()

    def _merge_locked(self) -> None:
        for _ in range(len(self._departed)):
            account = self._departed.popleft()
            if account in self._accounts:
                del self._accounts[account]
                account.read(
                    self._final_counts.setdefault(account.name, {}), self._final_durations.setdefault(account.name, {})
                )


ledger = Ledger()


# Events


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
    policy: Literal["CircuitBreaker", "RateLimit", "Bulkhead"]
    failure: BaseException


class StateChanged(NamedTuple):
    """A circuit breaker moved from one state to another: ``closed``, ``open`` or ``half-open``."""

    method: str
    old: str
    new: str
    reason: str = ""
    """Why it opened, and until when."""


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
        """Whether somebody should hear of it.

        A failure that is not to be retried is the application's answer and no sign of trouble; that a circuit is open
        was said when it opened, and need not be said again for every call.
        """
        return self.reason != "not retryable" and not isinstance(self.failure, CircuitBreakerOpenException)


class Recovered(NamedTuple):
    """A call succeeded after retries."""

    method: str
    attempts: int


Event: TypeAlias = RetryScheduled | TimedOut | Rejected | StateChanged | FallbackApplied | GaveUp | Recovered
Sink: TypeAlias = Callable[[Event], object]


Question: TypeAlias = Callable[[], bool]


def _always() -> bool:
    return True


def _either(first: Question, second: Question) -> Question:
    def ask() -> bool:
        try:
            return first() or second()
        except Exception:  # noqa: BLE001  # the application's: whoever fails to answer is told
            return True

    return ask


def _question(sink: Sink, kind: type[Event]) -> Question:
    try:
        return sink.interest(kind)  # type: ignore[attr-defined, no-any-return]
    except Exception:  # noqa: BLE001  # as above; most sinks have no such attribute
        return _always


class _Wanted(dict[type[Event], Question]):
    """Whether anybody is to be told of events of a kind; the answer may change from one event to the next."""

    def __init__(self, sinks: "Sinks") -> None:
        super().__init__()
        self._sinks = sinks

    def __missing__(self, kind: type[Event]) -> Question:
        questions = [_question(sink, kind) for sink in self._sinks.get()]
        question = self[kind] = reduce(_either, questions[1:] or [bool], questions[0]) if questions else bool
        return question


_telling: ContextVar[tuple[int, ...]] = ContextVar("faulttolerance_telling", default=())
"""The sinks that are being told, by their ids."""


class Sinks:
    """Who is told of events, on the thread on which they happen and outside every lock."""

    def __init__(self) -> None:
        self._given: tuple[Sink, ...] | None = None
        self._found: tuple[Sink, ...] | None = None
        self.wanted = _Wanted(self)
        """By kind of event, what is asked before one is made: ``if sinks.wanted[Rejected](): ...``.

        A sink may have ``interest(kind)``, which gives its question; without, it wants everything.
        """
        self._failed: set[int] = set()
        self.find: Callable[[], tuple[Sink, ...]] = tuple
        """Gives those that are told where the application set none; asked at the first event."""

    def set(self, given: Iterable[Sink] | None) -> None:
        """Tell these and no others; ``None``: those that ``find`` gives."""
        self._given = tuple(given) if given is not None else None
        self._found = None
        self._failed = set()
        self.wanted = _Wanted(self)

    def forget_found(self) -> None:
        """Ask ``find`` again at the next event."""
        self._found = None
        self.wanted = _Wanted(self)

    def get(self) -> tuple[Sink, ...]:
        """Who is told."""
        if self._given is not None:
            return self._given
        found = self._found
        if found is None:
            found = self._found = self.find()
        return found

    def tell(self, event: Event) -> None:
        """Tell each of them; one that raises is logged once and changes nothing.

        A sink that makes guarded calls is not told of them: it would make more, without end.
        """
        telling = _telling.get()
        for sink in self.get():
            if id(sink) in telling:
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
