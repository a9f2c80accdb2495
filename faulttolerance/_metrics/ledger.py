"""Every account there is, read together."""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

from collections import deque
from collections.abc import Iterator
from threading import RLock
from typing import NamedTuple

from .._swap import Swap
from .catalogue import Metric, Series
from .counters import FOLD, Account, Counters, Durations
from .series import Schema


class Reading(NamedTuple):
    """All that was counted, at one moment, by the name of the method."""

    counts: dict[str, dict[Series, float]]
    durations: dict[str, dict[str, Durations]]

    def values(self, metric: Metric) -> Iterator[tuple[str, Series, float]]:
        """Give every method, series and value of *metric*, a counter or a gauge."""
        for method, counts in self.counts.items():
            for series, value in counts.items():
                if series[0] == metric.name:
                    yield method, series, value

    def take(self, account: Account, *, levels: bool = True) -> None:
        """Add what *account* counted; without *levels*, what only grows."""
        name = account.name
        account.read(self.counts.setdefault(name, {}), self.durations.setdefault(name, {}), levels=levels)


class Ledger:
    """Every account there is, and what is left of those that are closed: each is read exactly once per reading."""

    def __init__(self) -> None:
        self._lock = RLock()  # over the merging of what departed; never held where user code runs
        self._accounts: dict[Account, None] = {}
        self._departed: deque[Account] = deque()
        self._final = Reading({}, {})  # guarded by _lock
        self._is_read = False  # guarded by _lock; a signal handler may come in while its thread is in here

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever guarded."""
        return not self._accounts and not self._final.counts

    def new(self, name: str, schema: Schema) -> Counters:
        """Open an account, read once it is entered; it is final when nothing holds its counters any more."""
        if len(self._departed) >= FOLD // 8 and self._lock.acquire(blocking=False):
            try:
                self._merge_locked()
            finally:
                self._lock.release()
        return Counters(Account(name, schema), self._departed)

    def enter(self, counters: Counters, swap: Swap) -> None:
        """Let the account of *counters* be read from now on, together with the other stores of *swap*."""
        swap.item(self._accounts, counters.account, None)

    def read(self) -> Reading:
        """Read what was counted until now; equal names add up."""
        with self._lock:
            self._merge_locked()
            before, self._is_read = self._is_read, True
            try:
                reading = Reading(
                    {name: dict(counts) for name, counts in self._final.counts.items()},
                    {name: dict(durations) for name, durations in self._final.durations.items()},
                )
                for account in list(self._accounts):
                    reading.take(account)
                return reading
            finally:
                self._is_read = before

    def clear(self) -> None:
        """Forget every account."""
        with self._lock:
            self._accounts.clear()
            self._final = Reading({}, {})

    def begin_anew(self) -> None:
        """Start again at 0 in the child of a fork, where a thread that held the lock does not exist."""
        self._lock = RLock()
        Account.lock = RLock()
        self._final = Reading({}, {})
        self._is_read = False
        for account in self._accounts:
            account.begin_anew()

    def _merge_locked(self) -> None:
        for _ in range(0 if self._is_read else len(self._departed)):
            account = self._departed.popleft()
            if account in self._accounts:
                del self._accounts[account]
                self._final.take(account, levels=False)


ledger = Ledger()
