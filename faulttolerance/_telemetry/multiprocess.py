"""Prometheus with several worker processes (``PROMETHEUS_MULTIPROC_DIR``).

Each process keeps its values in files, and one process answers the scrape for all. Values computed at a scrape would be
the counts of only that process. So the counts are written to values of those files at intervals.
"""

from __future__ import annotations

from functools import cache
from threading import RLock
from typing import Any, TypeAlias

from prometheus_client import values

from .._log import ERROR, log
from .._metrics.catalogue import Metric, Series, every_metric, labels
from .._metrics.counters import Reading, ledger
from .prometheus import LIMITS, exposed_name

_Key: TypeAlias = tuple[str, Series, str]
"""The method, the series, and the suffix of its exposed name."""


@cache
def _metric(name: str) -> Metric:
    return next(metric for metric in every_metric() if metric.name == name)


def is_multiprocess() -> bool:
    """Return whether prometheus_client found the folder for several processes when it was imported."""
    return bool(getattr(values.ValueClass, "_multiprocess", False))


class MultiprocessExporter:
    """A writer of counts to the files of this process, on top of their previous values.

    A folder may be missing for a moment. That is logged, and the next write includes everything.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        # All guarded by the lock.
        self._values: dict[_Key, Any] = {}
        self._levels: dict[_Key, Any] = {}  # the values of gauges
        self._before: dict[_Key, float] = {}  # the values from before
        self._last = Reading({}, {})  # written as a whole
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
        last = self._last
        if dropped := last.counts.keys() - reading.counts.keys():  # a name that returns counts from 0, on top of these
            self._before = {key: value for key, value in self._before.items() if key[0] not in dropped}
        for method, counts in reading.counts.items():
            known = last.counts.get(method, {})
            for series, count in counts.items():
                if count != known.get(series):
                    self._set(method, series, "", count)
        for (method, series, _), value in self._levels.items():
            if not (levels and series in reading.counts.get(method, ())):
                value.set(_metric(series[0]).total == "min")  # a file forgets nothing: a value that changes no total
        for method, durations in reading.durations.items():
            for name, samples in durations.items():
                if samples != last.durations.get(method, {}).get(name):
                    for limit, count in zip(LIMITS, samples.counts, strict=True):
                        self._set(method, (name, (("le", limit),)), "_bucket", count)
                    self._set(method, (name, ()), "_sum", sum(samples.sums))
        self._last = reading if levels else Reading({method: {} for method in reading.counts}, {})

    def _set(self, method: str, series: Series, suffix: str, total: float) -> None:
        metric, key = _metric(series[0]), (method, series, suffix)
        value = self._values.get(key)
        if value is None:
            exposed, tags = exposed_name(metric), labels(method, series)
            value = self._values[key] = values.ValueClass(
                metric.kind,
                exposed.removesuffix("_total"),
                exposed + suffix,
                tuple(tags),
                tuple(tags.values()),
                metric.description,
                multiprocess_mode=f"live{metric.total}" if metric.kind == "gauge" else "",  # of living processes
            )
        if metric.kind == "gauge":
            self._levels[key] = value
            value.set(total)
        else:
            # The file may continue that of an earlier process with the same number. The value is set to the sum and not
            # increased, so that the step can be repeated when a write fails half-way.
            now = value.get()
            value.set(max(now, self._before.setdefault(key, now) + total))  # a fall would count as a restart

    def reset(self) -> None:
        """Reset the written counts, in the child of a fork, or after the counts were reset."""
        self._lock = RLock()
        self._before = {}
        self._last = Reading({}, {})

    reset_after_fork = reset
