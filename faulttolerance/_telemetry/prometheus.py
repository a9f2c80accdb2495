"""The counts as Prometheus families, computed at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.utils import floatToGoString

from .._metrics.catalogue import BOUNDARIES, Metric, every_metric, labels
from .._metrics.counters import ledger

LIMITS = tuple(map(floatToGoString, (*BOUNDARIES, float("inf"))))
"""The values of the label ``le``."""

_FAMILIES: dict[str, Callable[..., Any]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


def exposed_name(metric: Metric) -> str:
    """Return the exposed name: ``ft_timeout_executionDuration_seconds`` for ``ft.timeout.executionDuration``."""
    name = metric.name.replace(".", "_")
    return f"{name}_seconds" if metric.unit == "seconds" else name


class Collector:
    """The collector that a ``CollectorRegistry`` calls at each scrape.

    Args:
        gives_way: Returns whether to export nothing, because another exporter exposes the same counts there.
    """

    def __init__(self, gives_way: Callable[[], bool]) -> None:
        self._gives_way = gives_way

    def describe(self) -> list[Family]:
        """Name every family there may be, so that the registry can select by name and find clashes."""
        return [_family(metric) for metric in every_metric()]

    def collect(self) -> Iterator[Family]:
        """Yield the families that have series now."""
        if self._gives_way():
            return
        reading = ledger.read()
        values = reading.by_metric()
        for metric in every_metric():
            family = _family(metric)
            for method, series, value in values.get(metric.name, ()):
                family.add_sample(exposed_name(metric), labels(method, series), value)
            for method, durations in reading.durations.items():
                if samples := durations.get(metric.name):
                    buckets = list(zip(LIMITS, map(float, accumulate(samples.counts)), strict=True))
                    family.add_metric([method], buckets=buckets, sum_value=sum(samples.sums))
            if family.samples:
                yield family


def _family(metric: Metric) -> Any:
    unit = "seconds" if metric.unit == "seconds" else ""
    return _FAMILIES[metric.kind](exposed_name(metric), metric.description, labels=("method",), unit=unit)


def is_exposed_by_opentelemetry(registry: CollectorRegistry) -> bool:
    """Return whether OpenTelemetry's reader for Prometheus is in *registry*, as it exposes the same families."""
    collectors = getattr(registry, "_collector_to_names", {})
    return any(type(collector).__module__.startswith("opentelemetry.") for collector in list(collectors))
