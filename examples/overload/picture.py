"""A plot of what came of the load, over time: one line for each way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from .client import LENGTH, SCHEDULE, STEP, Tick

_WIDTH, _HEIGHT, _LEFT, _TOP, _NAMES = 860, 320, 50, 40, 190
_COLOURS = ("#8c959f", "#cf222e", "#bf8700", "#1a7f37")


def svg(found: Mapping[str, Sequence[Tick]], capacity: float) -> str:
    """Good answers per second in parts of the capacity, and what was offered."""
    parts: list[str] = []
    for whole in range(4):
        y = _y(whole)
        parts.append(f'<line x1="{_LEFT}" y1="{y:.0f}" x2="{_x(LENGTH):.0f}" y2="{y:.0f}" class="grid"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.0f}" class="tick">{whole}</text>')
    parts += [
        f'<text x="{_x(second):.0f}" y="{_y(0) + 18:.0f}" class="tick">{second} s</text>'
        for second in range(0, LENGTH + 1, 2)
    ]
    steps: list[tuple[float, float]] = []
    for tick in next(iter(found.values())):
        offered = SCHEDULE[tick.phase][0]
        steps += [(tick.at - STEP, offered), (tick.at, offered)]
    parts.append(_line(steps, "#24292f", "offered", dashes=' stroke-dasharray="5 4"'))
    ends: list[tuple[float, str, str]] = []
    for (way, some), colour in zip(found.items(), _COLOURS, strict=True):
        points = [(tick.at - STEP / 2, tick.good / STEP / capacity) for tick in some]
        parts.append(_line(points, colour, way))
        ends.append((_y(points[-1][1]), way, colour))
    lowest = float(_TOP)
    for y, way, colour in sorted(ends):
        lowest = max(y + 4, lowest + 15)
        parts.append(f'<text x="{_x(LENGTH) + 6:.0f}" y="{lowest:.0f}" fill="{colour}">{escape(way)}</text>')
    caption = "Good answers per second in parts of what the service can do; dashed: what it was offered"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">
<title>{caption}</title>
<style>
text {{ font: 12px sans-serif }} .tick {{ text-anchor: end; fill: #6e7781 }} .grid {{ stroke: #d0d7de }}
</style>
<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>
<text x="8" y="20">{caption}</text>
{chr(10).join(parts)}
</svg>
"""


def _line(points: Sequence[tuple[float, float]], colour: str, name: str, dashes: str = "") -> str:
    at = " ".join(f"{_x(x):.1f},{_y(y):.1f}" for x, y in points)
    title = f"<title>{escape(name)}</title>"
    return f'<polyline points="{at}" fill="none" stroke="{colour}" stroke-width="2"{dashes}>{title}</polyline>'


def _x(seconds: float) -> float:
    return _LEFT + seconds / LENGTH * (_WIDTH - _LEFT - _NAMES)


def _y(part: float) -> float:
    return _HEIGHT - 40 - min(part, 3.2) / 3.2 * (_HEIGHT - 40 - _TOP)
