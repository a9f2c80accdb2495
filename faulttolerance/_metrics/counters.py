"""Lists to which calls append, their folding into counts when they are long or read, and the ledger of all counts.

The hot path appends one number, the duration of a call that succeeded at its first attempt. That one sample counts for
every series that such a call advances. All other calls append their series.
"""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from operator import add
from threading import RLock
from typing import Any, ClassVar, NamedTuple, TypeVar

from .._log import WARNING, log, log_guard_error
from .._platform.swap import Swap
from .._shown import escaped
from .catalogue import BOUNDARIES, Meter, Metric, Schema, Series

T = TypeVar("T")

FOLD = 1024
"""The number of entries at which a list is folded into the counts."""


MAX_DEPARTED_NAMES = 1_000
"""The number of names without a living guard that keep their counts; the counts of those gone longest are dropped."""


_DROPPED = (
    "more than %d guards with names of their own no longer exist: the counts of those that ended first are dropped,"
    " and a name that returns counts from 0; use few different names, or partition_by"
)


class Durations(NamedTuple):
    """Samples of a histogram by bucket: the buckets of ``BOUNDARIES``, and the bucket beyond them."""

    counts: tuple[int, ...]
    sums: tuple[float, ...]
    """The sum of the samples of each bucket, in seconds."""

    def plus(self, more: "Durations") -> "Durations":
        """Return the samples of both."""
        return Durations(tuple(map(add, self.counts, more.counts)), tuple(map(add, self.sums, more.sums)))


NO_DURATIONS = Durations((0,) * (len(BOUNDARIES) + 1), (0.0,) * (len(BOUNDARIES) + 1))

_NOTHING: Mapping[Any, Any] = {}


class Account:
    """The counts under one name of one guarded method of one class, or of one ``Guard``, under one ``Schema``."""

    __slots__ = (
        "_batches",
        "_counts",
        "_durations",
        "first_try_durations",
        "meter",
        "name",
        "others",
        "schema",
    )

    # Folding is short and rare: one lock serves all accounts, renewed in the child of a fork. It is reentrant: a signal
    # handler or a finalizer may count or read while its thread holds it, but must not fold in the middle of a fold.
    lock: ClassVar = RLock()
    is_folding: ClassVar = False

    def __init__(self, name: str, schema: Schema) -> None:
        # One label that cannot be encoded would end the whole scrape or export.
        self.name = name if name.isprintable() else escaped(name)
        self.schema = schema
        self.meter: Meter | None = None
        self.first_try_durations: list[float] = []
        self.others: list[tuple[tuple[Series, ...], Mapping[str, float]]] = []
        """All other entries: the series that each advances, and its samples by histogram."""
        # All guarded by the lock; replaced, never changed.
        self._batches: Mapping[tuple[Series, ...], list[None]] = _NOTHING
        self._counts: Mapping[Series, int] = _NOTHING  # the folded counts; a missing series counts 0
        self._durations: Mapping[str, Durations] = _NOTHING

    def fold(self) -> None:
        """Fold the appended entries into the counts, unless another thread does so already."""
        if self.lock.acquire(blocking=False):
            try:
                self._fold_locked()
            finally:
                self.lock.release()

    def read(self, counts: dict[Series, float], durations: dict[str, Durations], *, levels: bool = True) -> None:
        """Add the value of every series and histogram; without *levels*, only of those that never decrease."""
        with self.lock:
            self._fold_locked()
            counted, sampled = self._counts, self._durations
        for series in self.schema.series:
            counts[series] = counts.get(series, 0) + counted.get(series, 0)
        for name in self.schema.histograms:
            _add(durations, name, sampled.get(name, NO_DURATIONS))
        if self.meter is not None:
            try:
                self.meter.read(counts, levels=levels)
            except Exception as error:  # noqa: BLE001  # the other metrics must still be read
                log_guard_error(self.name, "some of its metrics are missing, for reading them failed", error)

    def batch(self, series: tuple[Series, ...]) -> list[None]:
        """Return the list whose entries each advance all of *series* by one."""
        series = tuple(series)  # a tuple with equality by contents
        with self.lock:
            if series not in self._batches:
                self._batches = {**self._batches, series: []}
            return self._batches[series]

    def reset_after_fork(self) -> None:
        """Reset all counts to 0 in the child of a fork."""
        self._counts = self._durations = _NOTHING
        self.first_try_durations.clear()
        self.others.clear()
        for batch in self._batches.values():
            batch.clear()

    def _fold_locked(self) -> None:
        if Account.is_folding:
            return
        Account.is_folding = True
        try:
            counts, durations = dict(self._counts), dict(self._durations)
            # A call's last entry is in a batch. Batches are taken first, so that the call's other entries come with it.
            advances = [(series, len(_taken(batch))) for series, batch in self._batches.items()]
            first_try, others = _taken(self.first_try_durations), _taken(self.others)
            if first_try:
                advances.append((self.schema.first_try, len(first_try)))
                ran, waited = _by_bucket(first_try), _in_first_bucket(len(first_try), 0.0)
                for name in self.schema.histograms:
                    _add(durations, name, waited if name in self.schema.waits else ran)
            # Most entries advance the same few tuples of series: each tuple is processed once.
            advances += Counter([series for series, _ in others]).items()
            for several, count in advances:
                for series in several:
                    counts[series] = counts.get(series, 0) + count
            samples: dict[str, list[float]] = {}
            for sampled in [sampled for _, sampled in others if sampled]:
                for name, sample in sampled.items():
                    samples.setdefault(name, []).append(sample)
            for name, few in samples.items():
                _add(durations, name, _by_bucket(few))
            self._counts, self._durations = counts, durations
        finally:
            Account.is_folding = False


def _add(durations: dict[str, Durations], name: str, more: Durations) -> None:
    durations[name] = durations.get(name, NO_DURATIONS).plus(more)


def _taken(calls: list[T]) -> list[T]:
    """Remove and return the present contents of *calls*, to which other threads append meanwhile.

    Nothing is called between the copy and the deletion, so no interruption comes there and nothing is counted twice.
    """
    count = len(calls)
    taken = calls[:count]
    del calls[:count]
    return taken


def _by_bucket(samples: list[float]) -> Durations:
    """Return *samples* by bucket; they are sorted, which is cheaper than a look-up of each sample's bucket."""
    total = sum(samples)
    # Most samples are so short that even their sum is in the first bucket: a third of the time that ``max`` takes.
    if total <= BOUNDARIES[0] or max(samples) <= BOUNDARIES[0]:
        return _in_first_bucket(len(samples), total)
    samples.sort()
    ends = [bisect_right(samples, bound) for bound in BOUNDARIES] + [len(samples)]
    begins = [0, *ends[:-1]]
    return Durations(
        tuple(end - begin for begin, end in zip(begins, ends, strict=True)),
        tuple(float(sum(samples[begin:end])) for begin, end in zip(begins, ends, strict=True)),
    )


def _in_first_bucket(count: int, total: float) -> Durations:
    return Durations((count, *NO_DURATIONS.counts[1:]), (total, *NO_DURATIONS.sums[1:]))


class Counters:
    """The counters of a guarded method, held by all code that may still count; the account is final when they go."""

    __slots__ = ("_departed", "account", "first_try_durations")

    def __init__(self, account: Account, departed: deque[Account]) -> None:
        self.account = account
        self.first_try_durations = account.first_try_durations
        """Durations of calls that succeeded at once; their caller calls ``fold`` when there are ``FOLD``."""
        self._departed = departed

    def __del__(self) -> None:
        # Takes no lock, as the collector runs anywhere. Also runs after a signal's handler raised in ``__init__``.
        if hasattr(self, "_departed"):
            self._departed.append(self.account)

    def batch(self, series: tuple[Series, ...]) -> list[None]:
        """Return a list for frequent counts: each entry advances all of *series*; the caller must ``fold`` likewise."""
        return self.account.batch(series)

    def fold(self) -> None:
        """Fold the appended entries into the counts."""
        self.account.fold()

    def add(self, series: tuple[Series, ...], samples: Mapping[str, float] = _NOTHING) -> None:
        """Advance each of *series* by one, and add one sample to each histogram in *samples*."""
        others = self.account.others
        others.append((series, samples))
        if len(others) >= FOLD:
            self.fold()


class Reading(NamedTuple):
    """All counts at one moment, by the name of the method."""

    counts: dict[str, dict[Series, float]]
    durations: dict[str, dict[str, Durations]]

    def by_metric(self) -> dict[str, list[tuple[str, Series, float]]]:
        """Return every method, series and value, by the name of the metric, a counter or a gauge."""
        found: dict[str, list[tuple[str, Series, float]]] = {}
        for method, counts in self.counts.items():
            for series, value in counts.items():
                found.setdefault(series[0], []).append((method, series, value))
        return found

    def take(self, account: Account, *, levels: bool = True) -> None:
        """Add the counts of *account*; without *levels*, only those that never decrease."""
        name = account.name
        account.read(self.counts.setdefault(name, {}), self.durations.setdefault(name, {}), levels=levels)


class Ledger:
    """All accounts, and the final counts of closed accounts: a reading contains each of them exactly once."""

    def __init__(self) -> None:
        self._lock = RLock()  # for merging departed accounts; never held while user code runs
        self._accounts: dict[Account, None] = {}
        self._departed: deque[Account] = deque()
        self._final = Reading({}, {})  # guarded by _lock
        self._has_dropped = False  # whether counts were dropped
        self._has_logged = False
        self.of_process: list[tuple[Metric, Callable[[], Iterable[tuple[tuple[str, ...], float]]]]] = []
        """Metrics of the whole process, each with a function that returns its values by the values of its tags."""
        self._is_read = False  # guarded by _lock; a signal handler may come in while its thread holds it

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever guarded."""
        return not self._accounts and not self._final.counts

    def new(self, name: str, schema: Schema) -> Counters:
        """Create an account, which is read after ``enter``; it is final when nothing holds its counters any more."""
        if len(self._departed) >= FOLD // 8 and not self._is_read and self._lock.acquire(blocking=False):
            try:
                self._merge_locked()
            finally:
                self._lock.release()
        return Counters(Account(name, schema), self._departed)

    def enter(self, counters: Counters, swap: Swap) -> None:
        """Add the account of *counters* to the accounts that are read, together with the other stores of *swap*."""
        swap.item(self._accounts, counters.account, None)

    def read(self) -> Reading:
        """Return all counts until now; the counts of equal names are added up."""
        with self._lock:
            is_nested, self._is_read = self._is_read, True
            try:
                if not is_nested:
                    self._merge_locked()
                reading = Reading(
                    {name: dict(counts) for name, counts in self._final.counts.items()},
                    {name: dict(durations) for name, durations in self._final.durations.items()},
                )
                for account in list(self._accounts):
                    reading.take(account)
            finally:
                self._is_read &= is_nested
        if self._has_dropped and not self._has_logged:  # outside the lock, as handlers are the application's
            self._has_logged = True
            log(WARNING, _DROPPED, MAX_DEPARTED_NAMES)
        if reading.counts:
            reading.counts[""] = {
                metric.series(tags): value for metric, read in self.of_process for tags, value in read()
            }
        return reading

    def clear(self) -> None:
        """Remove every account."""
        with self._lock:
            self._accounts.clear()
            self._final = Reading({}, {})

    def reset_after_fork(self) -> None:
        """Reset all counts to 0 in the child of a fork, where a thread that held the lock does not exist."""
        self._lock, self._is_read = RLock(), False
        Account.lock, Account.is_folding = RLock(), False
        self._final = Reading({}, {})
        for account in self._accounts:
            account.reset_after_fork()

    def _merge_locked(self) -> None:
        final = self._final
        while self._departed and not Account.is_folding:  # within a fold, the last counts of an account would be lost
            account = self._departed.popleft()
            if account in self._accounts:
                del self._accounts[account]
                final.counts[account.name] = final.counts.pop(account.name, {})  # the latest name is the last
                final.take(account, levels=False)
        if len(final.counts) > MAX_DEPARTED_NAMES:
            living = {account.name for account in self._accounts}
            for name in [name for name in final.counts if name not in living][:-MAX_DEPARTED_NAMES]:
                del final.counts[name], final.durations[name]
                self._has_dropped = True


ledger = Ledger()
