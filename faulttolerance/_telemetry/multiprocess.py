"""Prometheus with several worker processes (``PROMETHEUS_MULTIPROC_DIR``).

Each process keeps its values in files, and one process answers the scrape for all. Values computed at a scrape would be
the counts of only that process. So the counts are written to values of those files at intervals.
"""

from __future__ import annotations

from functools import cache
from threading import RLock
from typing import Any

from prometheus_client import values

from .._log import ERROR, log
from .._metrics.catalogue import Metric, every_metric, labels
from .._metrics.counters import Reading, ledger
from .prometheus import LIMITS, exposed_name


@cache
def _metric(name: str) -> Metric:
    return next(metric for metric in every_metric() if metric.name == name)


def is_multiprocess() -> bool:
    """Return whether prometheus_client found the folder for several processes when it was imported."""
    return bool(getattr(values.ValueClass, "_multiprocess", False))


class MultiprocessExporter:
    """A writer of counts to the files of this process, on top of their previous values.

    A folder may be missing, or full, for a moment. That is logged, and the next write includes everything.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._values: dict[tuple[str, ...], Any] = {}  # guarded by _lock
        self._held: dict[tuple[str, ...], float] = {}  # guarded by _lock; the values from before
        self._taken: dict[tuple[str, ...], float] = {}  # guarded by _lock
        self._methods: set[str] = set()  # guarded by _lock; of the last reading
        self._failed: set[type[Exception]] = set()

    def write(self, *, levels: bool = True) -> None:
        """Write the counts since the last write, and the present *levels*, or that there are none any more."""
        try:
            with self._lock:
                self._write_locked(ledger.read(), levels)
        except Exception as error:  # noqa: BLE001  # of the disk, and of prometheus_client
            if type(error) not in self._failed:
                self._failed.add(type(error))
                log(
                    ERROR, "metrics were not written to the folder of prometheus_client; more tries follow", error=error
                )

    def _write_locked(self, reading: Reading, levels: bool) -> None:
        self._begin_again(self._methods - reading.counts.keys())
        self._methods = set(reading.counts)
        held = set()
        for method, counts in reading.counts.items():
            for series, count in counts.items():
                held.add(self._set(series[0], "", labels(method, series), count))
        for key, value in self._values.items():
            metric = _metric(key[0])
            if metric.kind == "gauge" and not (levels and key in held):
                value.set(metric.total == "min")  # a file forgets nothing: a value that changes no total
        for method, durations in reading.durations.items():
            for name, samples in durations.items():
                for limit, count in zip(LIMITS, samples.counts, strict=True):
                    self._set(name, "_bucket", {"method": method, "le": limit}, count)
                self._set(name, "_sum", {"method": method}, sum(samples.sums))

    def _begin_again(self, dropped: set[str]) -> None:
        """Continue the counts of *dropped* names from their present values, as a name that returns starts at 0."""
        for key in [key for key in self._taken if dropped and key[2] in dropped]:
            self._held[key] += self._taken.pop(key)

    def _set(self, name: str, suffix: str, labels: dict[str, str], total: float) -> tuple[str, ...]:
        """Write a value, and return the key of its series."""
        metric, key = _metric(name), (name, suffix, *labels.values())
        value = self._values.get(key)
        if value is None:
            exposed = exposed_name(metric)
            value = self._values[key] = values.ValueClass(
                metric.kind,
                exposed.removesuffix("_total"),
                exposed + suffix,
                tuple(labels),
                tuple(labels.values()),
                metric.description,
                multiprocess_mode=f"live{metric.total}" if metric.kind == "gauge" else "",  # of living processes
            )
        if metric.kind == "gauge":
            value.set(total)
        elif total > self._taken.get(key, 0):
            # The file may continue that of an earlier process with the same number. The value is set to the sum and not
            # increased, so that the step can be repeated when a write fails half-way.
            if key not in self._held:
                self._held[key] = value.get()
            value.set(self._held[key] + total)
            self._taken[key] = total
        return key

    def reset_after_fork(self) -> None:
        """Reset the written counts, in the child of a fork, or after the counts were reset."""
        self._lock = RLock()
        self._held = {}
        self._taken = {}
        self._methods = set()
