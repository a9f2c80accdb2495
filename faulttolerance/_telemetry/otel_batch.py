"""Many equal samples for a histogram of OpenTelemetry's SDK, at the price of one.

The API accepts samples one by one, at several microseconds each. If the SDK has the known structure, all samples after
the first are added at the place of the first. If any part of it differs, nothing is changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any


def add_again(histogram: Any, value: float, attributes: Mapping[str, str], count: int) -> bool:
    """Add *value*, which was just recorded, *count* times more; if that is impossible, do nothing and return false."""
    try:
        aggregations = _aggregations(getattr(histogram, "_real_instrument", None) or histogram, attributes)
        # All of them are checked before the first is changed.
        buckets = [bisect_left(aggregation._boundaries, value) for aggregation in aggregations]
        if not all(map(_is_known, aggregations)):
            return False
    except (AttributeError, ImportError, KeyError, TypeError):
        return False
    for aggregation, bucket in zip(aggregations, buckets, strict=True):
        with aggregation._lock:
            aggregation._value[bucket] += count
            aggregation._sum += value * count
    return True


def _is_known(aggregation: Any) -> bool:
    is_whole = aggregation._value is not None and hasattr(aggregation, "_lock") and hasattr(aggregation, "_sum")
    return is_whole and type(aggregation).__name__ == "_ExplicitBucketHistogramAggregation"


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
