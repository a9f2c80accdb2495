"""Prometheus with several worker processes (``PROMETHEUS_MULTIPROC_DIR``).

There each process keeps its values in files, and one of them answers the scrape for all: what is computed at a scrape
would be the counts of that one process. So the counts are taken over into values of those files from time to time.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any

from prometheus_client import values

from .._log import ERROR, log
from .._metrics.catalogue import METRICS
from .._metrics.ledger import Reading
from .prometheus import LIMITS, exposed_name

__all__ = ["MultiprocessExporter", "is_multiprocess"]

_BY_NAME = {metric.name: metric for metric in METRICS}
_LIVE_SUM = "livesum"
"""Levels of the processes that live, added up."""


def is_multiprocess() -> bool:
    """Whether prometheus_client found the folder for several processes when it was imported."""
    return bool(getattr(values.ValueClass, "_multiprocess", False))


class MultiprocessExporter:
    """Takes counts over into the files of this process, on top of what they held before.

    A folder may be away, or full, for a moment: that is logged, and the next time everything is taken over.

    Args:
        read: Gives the counts.
    """

    def __init__(self, read: Callable[[], Reading]) -> None:
        self._read = read
        self._lock = RLock()
        self._values: dict[tuple[str, ...], Any] = {}  # guarded by _lock
        self._held: dict[tuple[str, ...], float] = {}  # guarded by _lock; what was there before
        self._taken: dict[tuple[str, ...], float] = {}  # guarded by _lock
        self._failed: set[type[Exception]] = set()

    def fold(self) -> None:
        """Take over what came since the last time."""
        try:
            with self._lock:
                self._fold_locked(self._read())
        except Exception as error:  # noqa: BLE001  # of the disk, and of prometheus_client
            if type(error) not in self._failed:
                self._failed.add(type(error))
                log(
                    ERROR, "metrics were not written to the folder of prometheus_client; more tries follow", error=error
                )

    def _fold_locked(self, reading: Reading) -> None:
        for method, counts in reading.counts.items():
            for (name, tags), count in counts.items():
                labels = (("method", method), *tags)
                if _BY_NAME[name].kind == "gauge":
                    self._value("gauge", name, "", labels).set(count)
                else:
                    self._advance("counter", name, "", labels, count)
        for method, durations in reading.durations.items():
            for name, found in durations.items():
                labels = (("method", method),)
                for limit, count in zip(LIMITS, found.counts, strict=True):
                    self._advance("histogram", name, "_bucket", (*labels, ("le", limit)), count)
                self._advance("histogram", name, "_sum", labels, sum(found.sums))

    def begin_anew(self) -> None:
        """Take over everything from 0 on, in the child of a fork, or after the counts were forgotten."""
        self._lock = RLock()
        self._held = {}
        self._taken = {}

    def _advance(self, kind: str, name: str, suffix: str, labels: tuple[tuple[str, str], ...], total: float) -> None:
        value = self._value(kind, name, suffix, labels)
        key = (name, suffix, *(text for _, text in labels))
        if total > self._taken.get(key, 0):
            # A file may go on from a process of the same number that ran before. Set to the sum and not increased:
            # where writing fails half-way, it can be done again.
            if key not in self._held:
                self._held[key] = value.get()
            value.set(self._held[key] + total)
            self._taken[key] = total

    def _value(self, kind: str, name: str, suffix: str, labels: tuple[tuple[str, str], ...]) -> Any:
        key = (name, suffix, *(text for _, text in labels))
        found = self._values.get(key)
        if found is None:
            metric = _BY_NAME[name]
            exposed = exposed_name(metric)
            family = exposed.removesuffix("_total")
            sample = exposed + suffix
            found = self._values[key] = values.ValueClass(
                kind,
                family,
                sample,
                tuple(label for label, _ in labels),
                tuple(text for _, text in labels),
                metric.description,
                multiprocess_mode=_LIVE_SUM if kind == "gauge" else "",
            )
        return found
