"""Draws the history of a run that was kept.

python examples/storefront --record docs/pictures/storefront.json
python examples/storefront/picture.py docs/pictures/storefront.json > docs/pictures/storefront.svg
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

WIDTH, LEFT, RIGHT, TOP, HEIGHT, GAP = 860, 150, 90, 62, 92, 22
SERIES = (("with guards", "guarded"), ("without guards", "unguarded"))

STYLE = """
svg { --paper: #ffffff; --ink: #24292f; --faint: #6e7781; --line: #d0d7de; --spell: #f6e3c5; --well: #1a7f37;
  --ill: #cf222e }
@media (prefers-color-scheme: dark) { svg { --paper: #0d1117; --ink: #e6edf3; --faint: #8b949e; --line: #30363d;
  --spell: #3d2e12; --well: #3fb950; --ill: #f85149 } }
text { font: 13px sans-serif; fill: var(--ink) } .title { font-size: 16px; font-weight: bold }
.faint { fill: var(--faint) } .middle { text-anchor: middle } .end { text-anchor: end } .share { font-size: 20px }
.paper { fill: var(--paper) } .spell { fill: var(--spell) } .line { stroke: var(--line) }
.well { fill: var(--well) } .ill { fill: var(--ill) }
"""


def svg(record: dict[str, Any]) -> str:
    """Give the picture: one bar for each step, as high as the part of the calls that was answered in time."""
    bottom = TOP + len(SERIES) * (HEIGHT + GAP) - GAP
    parts = [*_spells(record, bottom)]
    for number, (name, series) in enumerate(SERIES):
        parts += _bars(record, name, series, TOP + number * (HEIGHT + GAP))
    for second in range(0, round(record["spells"][-1][2]) + 1, 2):
        parts.append(f'<text x="{_x(record, second):.0f}" y="{bottom + 18}" class="faint middle">{second} s</text>')
    height = bottom + 50
    shares = " against ".join(f"{record[series]['share']:.1%} {name}" for name, series in SERIES)
    title = f"Answered within a second while the backend fails: {shares}"
    caption = f"One run on {record['machine']}: 70 calls a second, the same traffic twice, at once."
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">
<title>{escape(title)}</title>
<style>{STYLE}</style>
<rect width="{WIDTH}" height="{height}" class="paper"/>
<text x="8" y="24" class="title">The part of a shop's calls that is answered within a second</text>
{chr(10).join(parts)}
<text x="8" y="{height - 8}" class="faint">{escape(caption)}</text>
</svg>
"""


def _spells(record: dict[str, Any], bottom: int) -> Iterator[str]:
    names = {"errors": "30 % errors", "crash": "crashed", "hangs": "slow, hangs"}
    for label, since, until in record["spells"]:
        if label:
            left, right = _x(record, since), _x(record, until)
            place = f'x="{left:.1f}" y="{TOP - 22}" width="{right - left:.1f}" height="{bottom - TOP + 22}"'
            yield f'<rect {place} class="spell"/>'
            yield f'<text x="{(left + right) / 2:.1f}" y="{TOP - 7}" class="middle">{names.get(label, label)}</text>'


def _bars(record: dict[str, Any], name: str, series: str, top: int) -> Iterator[str]:
    base, found = top + HEIGHT, record[series]
    yield f'<text x="{LEFT - 12}" y="{top + HEIGHT / 2 + 4:.0f}" class="end">{name}</text>'
    yield f'<line x1="{LEFT}" y1="{top}" x2="{WIDTH - RIGHT}" y2="{top}" class="line"/>'
    for number, share in enumerate(found["shares"]):
        left, right = (_x(record, (number + more) * record["step"]) for more in (0, 1))
        high = max(1.0, share * HEIGHT)
        place = f'x="{left + 1:.1f}" y="{base - high:.1f}" width="{right - left - 2:.1f}" height="{high:.1f}"'
        yield f'<rect {place} class="{"well" if share >= 0.9 else "ill"}"/>'
    yield f'<line x1="{LEFT}" y1="{base}" x2="{WIDTH - RIGHT}" y2="{base}" class="line"/>'
    yield f'<text x="{WIDTH - RIGHT + 10}" y="{top + HEIGHT / 2 + 7:.0f}" class="share">{found["share"]:.1%}</text>'


def _x(record: dict[str, Any], seconds: float) -> float:
    end: float = record["spells"][-1][2]
    return LEFT + seconds / end * (WIDTH - LEFT - RIGHT)


if __name__ == "__main__":
    print(svg(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))), end="")
