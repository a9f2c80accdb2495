"""The series of this library on a page of metrics, under names that do not depend on the exporter."""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

from prometheus_client.parser import text_string_to_metric_families

Sample: TypeAlias = tuple[str, frozenset[tuple[str, str]]]
"""The name of a metric, and its labels."""

_OURS = re.compile(r'\{?"?ft[_.](?![\w.]*_(?:bucket|sum|count|created)\b)')
_EXEMPLAR = re.compile(r'^([^{"\s]*(?:\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?\s+\S+(?:\s+[\d.e+-]+)?)\s+#\s.*')
"""A sample with an exemplar of OpenMetrics behind it, which older parsers take for its value."""
_ENDLESS = 1e30
"""No count is this high, and sums of lower values stay finite."""
_START = "process_start_time_seconds"
_UNITS = {"total", "seconds", "nanoseconds"}


class Exposition(NamedTuple):
    """One answer of a process, or of several processes that answer together."""

    samples: dict[Sample, float]
    started: float | None = None
    """The start of the process in seconds since 1970; ``None`` if the page does not contain it."""


def parse_exposition(text: str) -> Exposition:
    """Parse *text*, in the classic format or in OpenMetrics; raise ``ValueError`` if it is neither."""
    lines = [line for line in text.splitlines() if line and not line.isspace()]
    sample_lines = [line for line in lines if not line.startswith("#")]
    ours = [_EXEMPLAR.sub(r"\1", line) for line in sample_lines if _OURS.match(line)]
    started = [line for line in sample_lines if line.startswith(_START)]
    samples: dict[Sample, float] = {}
    start = None
    # The first line is parsed too: it fails on a page that is no page of metrics. Lines of other series are skipped.
    for family in text_string_to_metric_families("\n".join([*dict.fromkeys([*sample_lines[:1], *started, *ours]), ""])):
        for name, labels, value, *_ in family.samples:
            if name == _START and not labels:
                start = value
            elif name.startswith(("ft_", "ft.")) and abs(value) < _ENDLESS:
                samples[plain_name(name), frozenset(labels.items())] = value
    return Exposition(samples, start)


def plain_name(name: str) -> str:
    """Return the name of a metric without the exporter's additions: capital letters, dots, and units at the end.

    >>> plain_name("ft.bulkhead.executionsRunning")
    'ft_bulkhead_executionsrunning'
    >>> plain_name("ft_circuitbreaker_state_nanoseconds_total")
    'ft_circuitbreaker_state'
    """
    return "_".join(part for part in name.lower().replace(".", "_").split("_") if part not in _UNITS)
