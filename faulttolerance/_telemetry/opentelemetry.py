"""The counts as instruments of OpenTelemetry.

All instruments but the histograms are observed: they are read when a reader collects, and cost nothing in between.
Histograms cannot be observed, so the samples since the last collection are recorded when the next collection starts,
each sample as the mean of its bucket: counts, buckets and sums are exact.

The API accepts samples one by one, at several microseconds each. If the SDK has the known structure, all equal samples
after the first are added at the place of the first. If any part of it differs, nothing is changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any
from weakref import ref

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation

from .._log import WARNING, log
from .._metrics.catalogue import BOUNDARIES, Metric, Series, every_metric, labels
from .._metrics.counters import NO_DURATIONS, Durations, Reading, ledger

_TOO_LARGE = 2**63
"""One such integer ends a whole export by OTLP; many keys reach it in nanoseconds."""


class Exporter:
    """The instruments on one meter provider: created once, they exist as long as the provider does."""

    def __init__(self, provider: MeterProvider) -> None:
        self.provider: Callable[[], object] = ref(provider)
        self.is_on = True
        """Whether the counts are exported; an instrument can be created only once and never be removed."""
        self._values: dict[str, list[tuple[str, Series, float]]] | None = None
        self._served: set[str] = set()
        self._recorded: dict[tuple[str, str], Durations] = {}
        self._inherited: dict[tuple[str, Series], float] = {}
        """What the parents of this process had observed of its counters."""
        meter = provider.get_meter("faulttolerance")
        self._kept: list[object] = [meter]
        """The meter and its instruments: a provider that moves them to another later may know them only weakly."""
        self._needs_view = False
        """Whether the API accepts no advice on boundaries, and no warning was logged yet."""
        self._histograms: dict[str, Any] = {}
        for metric in every_metric():
            if metric.kind == "histogram":
                self._histograms[metric.name] = self._histogram(meter, metric)
            else:
                is_gauge = metric.kind == "gauge"
                create = meter.create_observable_up_down_counter if is_gauge else meter.create_observable_counter
                observe = partial(self._observe, metric.name)
                self._kept.append(create(metric.name, [observe], metric.unit, metric.description))

    def reset(self) -> None:
        """Reset what was observed and recorded, after the counts were reset."""
        self._values, self._recorded, self._inherited = None, {}, {}

    def reset_after_fork(self) -> None:
        """Continue from the counts that the parent observed: a reader of differences would get a negative one.

        The SDK's own counts go on in the child of a fork, too, among them our histograms.
        """
        for name in [metric.name for metric in every_metric() if metric.kind == "counter"]:
            for method, series, value in (self._values or {}).get(name, ()):
                self._inherited[method, series] = self._inherited.get((method, series), 0) + value
        self._values, self._recorded = None, {}

    def _histogram(self, meter: Meter, metric: Metric) -> Any:
        try:
            return meter.create_histogram(
                metric.name, metric.unit, metric.description, explicit_bucket_boundaries_advisory=BOUNDARIES
            )
        except TypeError:
            self._needs_view = True
            return meter.create_histogram(metric.name, metric.unit, metric.description)

    def _observe(self, name: str, _: CallbackOptions) -> Iterable[Observation]:
        values = self._values_for(name) if self.is_on else ()
        before = self._inherited
        totals = ((method, series, value + before.get((method, series), 0)) for method, series, value in values)
        return [
            Observation(total if total < _TOO_LARGE else float(total), labels(method, series))
            for method, series, total in totals
        ]

    def _values_for(self, name: str) -> list[tuple[str, Series, float]]:
        """Return the values of the metric, read once per collection: a collection reads every instrument once."""
        values = self._values
        if values is None or name in self._served:
            reading = ledger.read()
            values = self._values = reading.by_metric()
            self._served = set()
            self._record(reading)
        self._served.add(name)
        return values.get(name, [])

    def _record(self, reading: Reading) -> None:
        if self._needs_view and reading.durations:
            self._needs_view = False
            log(WARNING, "the boundaries of histograms need opentelemetry-api 1.30, or a view that sets them")
        for key in [key for key in self._recorded if key[0] not in reading.durations]:
            del self._recorded[key]  # its counts were dropped, and start at 0 if the name returns
        for method, durations in reading.durations.items():
            for name, samples in durations.items():
                self._record_one(method, name, samples)

    def _record_one(self, method: str, name: str, now: Durations) -> None:
        before = self._recorded.get((method, name), NO_DURATIONS)
        self._recorded[method, name] = now
        if now.counts == before.counts:
            return
        histogram, attributes = self._histograms[name], {"method": method}
        for bucket, (count, earlier) in enumerate(zip(now.counts, before.counts, strict=True)):
            if count > earlier:
                mean = (now.sums[bucket] - before.sums[bucket]) / (count - earlier)
                histogram.record(mean, attributes)
                more = count - earlier - 1
                if more and not add_again(histogram, mean, attributes, more):
                    for _ in range(more):
                        histogram.record(mean, attributes)


def add_again(histogram: Any, value: float, attributes: Mapping[str, str], count: int) -> bool:
    """Add *value*, which was just recorded, *count* times more; if that is impossible, do nothing and return false."""
    try:
        aggregations = _aggregations(getattr(histogram, "_real_instrument", None) or histogram, attributes)
    except (AttributeError, ImportError, KeyError, TypeError):
        return False
    if not all(map(_is_known, aggregations)):  # all of them are checked before the first is changed
        return False
    for aggregation in aggregations:
        with aggregation._lock:
            _KNOWN[type(aggregation).__name__][1](aggregation, value, count)
    return True


def _is_known(aggregation: Any) -> bool:
    known = _KNOWN.get(type(aggregation).__name__)
    return known is not None and all(getattr(aggregation, name, None) is not None for name in ("_lock", *known[0]))


def _add_to_buckets(aggregation: Any, value: float, count: int) -> None:
    aggregation._value[bisect_left(aggregation._boundaries, value)] += count
    aggregation._sum += value * count


def _add_to_exponential_buckets(aggregation: Any, value: float, count: int) -> None:
    if value:
        buckets = aggregation._value_positive
        buckets.counts[aggregation._mapping.map_to_index(value) - buckets.index_base] += count  # a ring
    else:
        aggregation._zero_count += count
    aggregation._count += count
    aggregation._sum += value * count


_KNOWN: dict[str, tuple[tuple[str, ...], Callable[[Any, float, int], None]]] = {
    "_ExplicitBucketHistogramAggregation": (("_value", "_boundaries", "_sum"), _add_to_buckets),
    "_ExponentialBucketHistogramAggregation": (
        ("_value_positive", "_mapping", "_zero_count", "_count", "_sum"),
        _add_to_exponential_buckets,
    ),
    "_DropAggregation": ((), lambda *_: None),
}
"""The aggregations of the SDK by name, each with the attributes that the function beside them needs."""


def _aggregations(histogram: Any, attributes: Mapping[str, str]) -> list[Any]:
    """Return the aggregations of the samples with *attributes*, for each reader of the provider and each view."""
    from opentelemetry.sdk.metrics._internal import _view_instrument_match as matching

    matches = [
        match
        for storage in histogram._measurement_consumer._reader_storages.values()
        for match in storage._get_or_init_view_instrument_match(histogram)
    ]
    hashed = getattr(matching, "_hash_attributes", None)
    aggregations = []
    for match in matches:
        keys = match._view._attribute_keys
        kept = {name: value for name, value in attributes.items() if keys is None or name in keys}
        aggregations.append(match._attributes_aggregation[hashed(kept) if hashed else frozenset(kept.items())])
    return aggregations
