"""What calls append is folded into counts when there is much of it, and when somebody reads.

The hot path appends one number, the duration of a call on which everything went well, and that one sample stands for
every series such a call advances. What goes otherwise is appended with its series.
"""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from threading import RLock
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from .catalogue import BOUNDARIES, WAITING_DURATION, Series

__all__ = ["FOLD", "NO_DURATIONS", "Account", "Counters", "Durations", "Schema"]

T = TypeVar("T")

FOLD = 1024
"""How many calls are kept apart before they are folded into the counts."""


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


class Schema(NamedTuple):
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
    """All that is counted under one name by one guarded method of one class, or one ``Guard``, under one ``Schema``."""

    __slots__ = (
        "_batches",
        "_counts",
        "_durations",
        "_folding",
        "counted",
        "first_try_durations",
        "meter",
        "name",
        "sampled",
        "schema",
    )

    # Folding is short and seldom: one lock for all, renewed in the child of a fork. Reentrant, and each account that is
    # being folded is marked: a signal handler or a finalizer may count, or read, while its thread is in here.
    lock: ClassVar = RLock()

    def __init__(self, name: str, schema: Schema) -> None:
        self.name = name
        self.schema = schema
        self.meter: Measures | None = None
        self.first_try_durations: list[float] = []
        self.counted: list[Sequence[Series]] | None = None
        self.sampled: list[tuple[Sequence[Series], Mapping[str, float]]] | None = None
        self._batches: tuple[tuple[Sequence[Series], list[None]], ...] = ()
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
        for series in self.schema.series:
            counts[series] = counts.get(series, 0) + counted.get(series, 0)
        for name in self.schema.durations:
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

    def batch(self, series: Sequence[Series]) -> list[None]:
        """The list whose entries each advance all of *series* by one."""
        with self.lock:
            found = next((batch for advanced, batch in self._batches if advanced == series), None)
            if found is None:
                found = []
                self._batches = (*self._batches, (series, found))
            return found

    def begin_anew(self) -> None:
        """Start again at 0 in the child of a fork."""
        self._folding = False
        self._counts = _NO_COUNTS
        self._durations = _NO_SAMPLES
        self.first_try_durations.clear()
        self.counted = self.sampled = None
        for _, batch in self._batches:
            batch.clear()

    def _fold_locked(self) -> None:
        if self._folding:
            return
        self._folding = True
        try:
            counts, durations = Counter(self._counts), dict(self._durations)
            samples: dict[str, list[float]] = {}
            smooth = _taken(self.first_try_durations)
            if smooth:
                counts.update(dict.fromkeys(self.schema.smooth, len(smooth)))
                found = _by_bucket(smooth)
                for name in self.schema.durations:
                    new = found if name != WAITING_DURATION else _by_bucket([0.0] * len(smooth))
                    durations[name] = durations.get(name, NO_DURATIONS) + new
            for advanced, batch in self._batches:
                counts.update(dict.fromkeys(advanced, len(_taken(batch))))
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


class Counters:
    """Where a guarded method counts. Everything that may still do so holds it: when it goes, the account is final."""

    __slots__ = ("_departed", "account")

    def __init__(self, account: Account, departed: deque[Account]) -> None:
        self.account = account
        self._departed = departed

    def __del__(self) -> None:
        # Runs wherever the collector runs, so it takes no lock.
        self._departed.append(self.account)

    @property
    def first_try_durations(self) -> list[float]:
        """Durations of calls on which everything went well: append one, then ``fold`` when there are ``FOLD``."""
        return self.account.first_try_durations

    def batch(self, series: Sequence[Series]) -> list[None]:
        """The cheapest way to count one thing often: append to what this returns, then ``fold`` as above."""
        return self.account.batch(series)

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
