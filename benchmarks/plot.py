"""The picture in the documentation: one bar per contender, on a logarithmic scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import log10
from typing import NamedTuple

__all__ = ["Panel", "svg"]

_WIDTH, _NAMES, _BAR, _GAP = 860, 250, 18, 6
_LOW, _HIGH = 50.0, 400_000.0


class Panel(NamedTuple):
    """A heading, and nanoseconds by name; names in *ours* stand out."""

    title: str
    figures: Mapping[str, float]
    ours: frozenset[str]


def svg(panels: Sequence[Panel], caption: str) -> str:
    """The panels below one another."""
    parts: list[str] = []
    y = 24
    for panel in panels:
        parts.append(f'<text x="8" y="{y}" class="title">{escape(panel.title)}</text>')
        y += 12
        top, rows = y, sorted(panel.figures.items(), key=lambda pair: pair[1])
        bottom = top + len(rows) * (_BAR + _GAP)
        for power in range(2, 6):
            x = _x(10.0**power)
            parts.append(f'<line x1="{x:.0f}" y1="{top}" x2="{x:.0f}" y2="{bottom}" class="grid"/>')
            parts.append(f'<text x="{x:.0f}" y="{bottom + 12}" class="tick">{_time(10.0**power)}</text>')
        for name, spent in rows:
            kind = "ours" if name in panel.ours else "peer"
            width = max(2.0, _x(spent) - _NAMES)
            parts.append(f'<text x="{_NAMES - 6}" y="{y + 13}" class="name {kind}-name">{escape(name)}</text>')
            parts.append(f'<rect x="{_NAMES}" y="{y}" width="{width:.1f}" height="{_BAR}" class="{kind}"/>')
            parts.append(f'<text x="{_NAMES + width + 5:.1f}" y="{y + 13}" class="value">{_time(spent)}</text>')
            y += _BAR + _GAP
        y += 44
    parts.append(f'<text x="8" y="{y - 12}" class="caption">{escape(caption)}</text>')
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" role="img">
<title>What a guarded call costs</title>
<style>
text {{ font: 12px sans-serif; fill: #24292f }} .title {{ font-weight: bold; font-size: 14px }}
.name {{ text-anchor: end }} .ours-name {{ font-weight: bold }} .tick {{ text-anchor: middle; fill: #6e7781 }}
.caption {{ fill: #6e7781 }} .grid {{ stroke: #d0d7de }} .ours {{ fill: #1a7f37 }} .peer {{ fill: #8c959f }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #dde4ea }} .tick, .caption {{ fill: #9198a1 }} .grid {{ stroke: #30363d }}
.ours {{ fill: #3fb950 }} .peer {{ fill: #6e7681 }} }}
</style>
{chr(10).join(parts)}
</svg>
"""


def _x(spent: float) -> float:
    part = log10(max(spent, _LOW) / _LOW) / log10(_HIGH / _LOW)
    return _NAMES + part * (_WIDTH - _NAMES - 70)


def _time(ns: float) -> str:
    return f"{ns / 1e3:,.1f} µs" if ns >= 1e4 else f"{ns / 1e3:.2f} µs" if ns >= 1e3 else f"{ns:.0f} ns"
