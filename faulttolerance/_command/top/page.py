"""What stands on a page of metrics: the series of this library, by names that do not depend on the exporter."""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

from prometheus_client.parser import text_string_to_metric_families

Sample: TypeAlias = tuple[str, frozenset[tuple[str, str]]]
"""A metric's name and its labels."""

_OURS = re.compile(r'\{?"?ft[_.](?![\w.]*_(?:bucket|sum|count|created)\b)')
_EXEMPLAR = re.compile(r'^([^{"\s]*(?:\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?\s+\S+(?:\s+[\d.e+-]+)?)\s+#\s.*')
"""A sample with one of OpenMetrics behind it, which older parsers take for its value."""
_ENDLESS = 1e30
"""No count is as high; sums of what is lower stay numbers."""
_START = "process_start_time_seconds"
_UNITS = {"total", "seconds", "nanoseconds"}


class Page(NamedTuple):
    """One answer of a process, or of several that answer together."""

    samples: dict[Sample, float]
    started: float | None = None
    """When the process began, in seconds since 1970, where the page tells."""


def page_of(text: str) -> Page:
    """Read *text*, in the classic format or in OpenMetrics; ``ValueError`` where it is neither."""
    lines = [line for line in text.splitlines() if line and not line.isspace()]
    said = [line for line in lines if not line.startswith("#")]
    ours = [_EXEMPLAR.sub(r"\1", line) for line in said if _OURS.match(line)]
    started = [line for line in said if line.startswith(_START)]
    samples: dict[Sample, float] = {}
    start = None
    # The first line, too: if it is none of a page of metrics, the others are not looked at.
    for family in text_string_to_metric_families("\n".join([*dict.fromkeys([*said[:1], *started, *ours]), ""])):
        for name, labels, value, *_ in family.samples:
            if name == _START and not labels:
                start = value
            elif name.startswith(("ft_", "ft.")) and abs(value) < _ENDLESS:
                samples[plain_name(name), frozenset(labels.items())] = value
    return Page(samples, start)


def plain_name(name: str) -> str:
    """Spell a metric without what depends on the exporter: capital letters, dots, and units at the end.

    >>> plain_name("ft.bulkhead.executionsRunning")
    'ft_bulkhead_executionsrunning'
    >>> plain_name("ft_circuitbreaker_state_nanoseconds_total")
    'ft_circuitbreaker_state'
    """
    return "_".join(part for part in name.lower().replace(".", "_").split("_") if part not in _UNITS)
