"""Metrics as a user reads them: at a scrape of Prometheus, or from a reader of OpenTelemetry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from faulttolerance import configure

__all__ = ["BOUNDARIES", "EXPORTERS", "Durations", "Meter", "OpenTelemetryMeter", "PrometheusMeter", "exporters"]

BOUNDARIES = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""As the specification lists them."""

Tags = frozenset[tuple[str, str]]


class Durations(NamedTuple):
    """A histogram as it was read: samples per bucket, and their sum in seconds."""

    buckets: tuple[int, ...]
    sum: float

    @property
    def count(self) -> int:
        """The number of samples."""
        return sum(self.buckets)

    def fits(self, *seconds: float) -> bool:
        """Return whether the samples are those expected: each a fifth off at most, and short ones below 0.2 s."""
        left = list(self.buckets)
        for one in sorted(seconds, reverse=True):
            first, last = bisect_left(BOUNDARIES, 0.8 * one), bisect_left(BOUNDARIES, max(1.2 * one, 0.2))
            found = next((index for index in range(last, first - 1, -1) if left[index]), None)
            if found is None:
                return False
            left[found] -= 1
        return not any(left)


class Meter(ABC):
    """Reads the metrics of one guarded method at a time; names and tags are the specification's."""

    def __init__(self) -> None:
        self.method = ""
        """The value of the tag ``method`` of all that is read."""

    def watch(self, method: Callable[..., Any], owner: type | None = None) -> None:
        """Read the metrics of *method* from now on."""
        place = f"{owner.__module__}.{owner.__qualname__}" if owner is not None else method.__module__
        self.method = f"{place}.{method.__name__ if owner is not None else method.__qualname__}"

    def value(self, name: str, **tags: str) -> int:
        """Return the value of a counter or a gauge; 0 where it does not exist, as the official kit reads."""
        return int(self.values().get((self.known_as(name), self._tags(tags)), 0))

    def exists(self, name: str, **tags: str) -> bool:
        """Return whether there is such a series, with *tags* among its tags."""
        series = [*self.values(), *self.histograms()]
        return any(found == self.known_as(name) and self._tags(tags) <= given for found, given in series)

    def durations(self, name: str) -> Durations:
        """Return the histogram; without samples where it does not exist."""
        none = Durations((0,) * (len(BOUNDARIES) + 1), 0.0)
        return self.histograms().get((self.known_as(name), self._tags({})), none)

    def _tags(self, tags: dict[str, str]) -> Tags:
        return frozenset({"method": self.method, **tags}.items())

    @abstractmethod
    def known_as(self, name: str) -> str:
        """Return the specification's *name* as this exporter spells it."""

    @abstractmethod
    def values(self) -> dict[tuple[str, Tags], float]:
        """Return every counter and gauge."""

    @abstractmethod
    def histograms(self) -> dict[tuple[str, Tags], Durations]:
        """Return every histogram."""

    @abstractmethod
    def unit(self, name: str) -> str:
        """Return the unit that is exported; KeyError where the metric is not."""


class PrometheusMeter(Meter):
    """Scrapes a registry of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = CollectorRegistry()
        configure(prometheus_registry=self.registry, meter_provider=None)

    def known_as(self, name: str) -> str:
        exposed = name.replace(".", "_")
        return f"{exposed}_seconds" if name.endswith("Duration") else exposed

    def values(self) -> dict[tuple[str, Tags], float]:
        found: dict[tuple[str, Tags], float] = {}
        for family in self.registry.collect():
            for sample in family.samples if family.type != "histogram" else ():
                series = sample.name, frozenset(sample.labels.items())
                assert series not in found, f"{series} is there twice"
                found[series] = sample.value
        return found

    def histograms(self) -> dict[tuple[str, Tags], Durations]:
        buckets: dict[tuple[str, Tags], list[float]] = {}
        sums: dict[tuple[str, Tags], float] = {}
        for family in self.registry.collect():
            for sample in family.samples if family.type == "histogram" else ():
                labels = {key: value for key, value in sample.labels.items() if key != "le"}
                series = family.name, frozenset(labels.items())
                if sample.name.endswith("_bucket"):
                    buckets.setdefault(series, []).append(sample.value)
                elif sample.name.endswith("_sum"):
                    sums[series] = sample.value
        return {
            series: Durations(tuple(int(b - a) for a, b in zip([0.0, *found[:-1]], found, strict=True)), sums[series])
            for series, found in buckets.items()
        }

    def unit(self, name: str) -> str:
        families = {family.name: family for family in self.registry.collect()}
        return str(families[self.known_as(name).removesuffix("_total")].unit)


class OpenTelemetryMeter(Meter):
    """Collects from a provider of its own; the SDK lower-cases the names of instruments."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False)
        configure(meter_provider=self.provider, prometheus_registry=None)

    def known_as(self, name: str) -> str:
        return name.lower()

    def metrics(self) -> dict[str, Any]:
        """Collect now; return each metric once, by name."""
        data = self.reader.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        found = [metric for scope in scopes for metric in scope.metrics]
        names = [metric.name.lower() for metric in found]
        assert len(set(names)) == len(names), f"a name is there twice: {names}"
        return dict(zip(names, found, strict=True))

    def values(self) -> dict[tuple[str, Tags], float]:
        found: dict[tuple[str, Tags], float] = {}
        for name, metric in self.metrics().items():
            for point in metric.data.data_points:
                if hasattr(point, "value"):
                    series = name, frozenset(point.attributes.items())
                    assert series not in found, f"{series} is there twice"
                    found[series] = point.value
        return found

    def histograms(self) -> dict[tuple[str, Tags], Durations]:
        found: dict[tuple[str, Tags], Durations] = {}
        for name, metric in self.metrics().items():
            for point in metric.data.data_points:
                if hasattr(point, "bucket_counts"):
                    assert tuple(point.explicit_bounds) == BOUNDARIES
                    series = name, frozenset(point.attributes.items())
                    found[series] = Durations(tuple(point.bucket_counts), point.sum)
        return found

    def unit(self, name: str) -> str:
        return str(self.metrics()[name.lower()].unit)


EXPORTERS: dict[str, type[Meter]] = {"prometheus": PrometheusMeter, "opentelemetry": OpenTelemetryMeter}


def exporters(**marks: pytest.MarkDecorator) -> pytest.MarkDecorator:
    """Run a test with these exporters, each under the mark of its own entry."""
    given = [pytest.param(exporter, marks=mark, id=exporter) for exporter, mark in marks.items()]
    return pytest.mark.parametrize("meter", given, indirect=True)
