"""Lines over time or load, as a picture that every browser shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

__all__ = ["Panel", "svg"]

_WIDTH, _LEFT, _RIGHT, _HEIGHT = 900, 60, 610, 190
_LETTER = 7.5
"""The width of a letter in the widest of the usual fonts."""
_COLOURS = {"ours": "#1a7f37", 0: "#8c959f", 1: "#cf222e", 2: "#0969da", 3: "#bf8700"}


class Panel(NamedTuple):
    """Several lines in one diagram.

    Attributes:
        title: The title.
        across: The name of the horizontal axis.
        lines: Points by the name of their line, the later ones on top.
        most: The highest value; the lowest is 0.
        ours: The name of the line that stands out.
    """

    title: str
    across: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    most: float
    ours: str


def svg(panels: Sequence[Panel], caption: str) -> str:
    """Return a picture of the panels, one below the other."""
    parts: list[str] = []
    top = 24
    for panel in panels:
        parts += _panel(panel, top)
        top += _HEIGHT + 74
    parts.append(f'<text x="8" y="{top - 8}" class="caption">{escape(caption)}</text>')
    longest = max(len(_legend(name)) for panel in panels for name in panel.lines)
    width = max(_WIDTH, round(_RIGHT + 38 + _LETTER * longest))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top + 4}" role="img">
<title>{escape(panels[0].title)}</title>
<style>
text {{ font: 12px sans-serif; fill: #24292f }} .title {{ font-weight: bold; font-size: 14px }}
.tick {{ fill: #6e7781 }} .y {{ text-anchor: end }} .x {{ text-anchor: middle }} .caption {{ fill: #6e7781 }}
.grid {{ stroke: #d0d7de }} polyline {{ fill: none; stroke-linejoin: round }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #dde4ea }} .tick, .caption {{ fill: #9198a1 }} .grid {{ stroke: #30363d }} }}
</style>
{chr(10).join(parts)}
</svg>
"""


def _panel(panel: Panel, top: int) -> list[str]:
    points = [point for line in panel.lines.values() for point in line]
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    right, base = _RIGHT, top + 14 + _HEIGHT

    def at(x: float, y: float) -> tuple[float, float]:
        return _LEFT + (x - low) / (high - low) * (right - _LEFT), base - min(y, panel.most) / panel.most * _HEIGHT

    parts = [f'<text x="8" y="{top}" class="title">{escape(panel.title)}</text>']
    for number in range(5):
        value = panel.most * number / 4
        _, y = at(low, value)
        parts.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" class="grid"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" class="tick y">{value:g}</text>')
        moment = low + (high - low) * number / 4
        x, _ = at(moment, 0)
        parts.append(f'<text x="{x:.1f}" y="{base + 16}" class="tick x">{moment:g}</text>')
    parts.append(f'<text x="{(_LEFT + right) / 2:.0f}" y="{base + 32}" class="tick x">{escape(panel.across)}</text>')
    for number, (name, line) in enumerate(panel.lines.items()):
        colour = _COLOURS["ours" if name == panel.ours else number % 4]
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in line))
        width = 1.5 + len(panel.lines) - 1 - number  # so that one shows below others that are the same
        parts.append(f'<polyline points="{drawn}" stroke="{colour}" stroke-width="{width:g}"/>')
        y = top + 24 + 18 * number
        parts.append(
            f'<line x1="{right + 12}" y1="{y}" x2="{right + 32}" y2="{y}" stroke="{colour}" stroke-width="3"/>'
        )
        parts.append(f'<text x="{right + 38}" y="{y + 4}">{escape(_legend(name))}</text>')
    return parts


def _legend(name: str) -> str:
    return name.replace("*", "").replace("`", "")
