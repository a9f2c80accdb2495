"""Prometheus with several worker processes (``PROMETHEUS_MULTIPROC_DIR``).

Each process keeps its values in files, and one process answers the scrape for all. Values computed at a scrape would be
the counts of only that process. So the counts are written to values of those files at intervals.
"""

from __future__ import annotations

from functools import cache
from threading import RLock
from typing import Any

from prometheus_client import values

from .._log import log_guard_error
from .._metrics.catalogue import Metric, Series, every_metric, labels
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

    A folder may be missing for a moment. That is logged, and the next write includes everything.
    """

    def __init__(self) -> None:
        self._values: dict[tuple[str, Series], Any] = {}
        self._levels: dict[tuple[str, Series], Any] = {}  # the values of gauges
        self.reset()

    def reset(self) -> None:
        """Reset the written counts, in the child of a fork, or after the counts were reset."""
        self._lock = RLock()  # for all attributes
        self._last: dict[str, dict[Any, Any]] = {}  # what was written, by method, and counter or histogram

    reset_after_fork = reset

    def write(self, *, levels: bool = True) -> None:
        """Write the counts since the last write, and the present *levels*, or that there are none any more."""
        try:
            with self._lock:
                self._write_locked(ledger.read(), levels)
        except Exception as error:  # noqa: BLE001  # of the disk, and of prometheus_client
            log_guard_error("metrics", "not written to the folder of prometheus_client; more tries follow", error)

    def _write_locked(self, reading: Reading, levels: bool) -> None:
        for dropped in self._last.keys() - reading.counts.keys():  # a name that returns counts from 0
            del self._last[dropped]
        for method, counts in reading.counts.items():
            last = self._last.setdefault(method, {})
            for series, count in counts.items():
                self._write_one(last, method, series, "", count)
            for name, samples in reading.durations.get(method, {}).items():
                if samples != last.get(name):
                    for limit, count in zip(LIMITS, samples.counts, strict=True):
                        self._write_one(last, method, (name, (("le", limit),)), "_bucket", count)
                    self._write_one(last, method, (name, ()), "_sum", sum(samples.sums))
                    last[name] = samples
        for (method, series), value in self._levels.items():
            if not (levels and series in reading.counts.get(method, ())):
                value.set(_metric(series[0]).total == "min")  # a file forgets nothing: a value that changes no total

    def _write_one(self, last: dict[Any, Any], method: str, series: Series, suffix: str, total: float) -> None:
        """Write a level, or the growth of a count since the *last* write: the file may be an earlier process's."""
        growth = total - last.get(series, 0)
        if series in last and growth <= 0:  # a fall would count as a restart
            return
        metric, key = _metric(series[0]), (method, series)
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
            value.inc(growth)
            last[series] = total
