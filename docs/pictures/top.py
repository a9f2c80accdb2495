"""Draw what `faulttolerance top` shows of a shop in the middle of an outage.

    python docs/pictures/top.py [FILE]

The shop lives in virtual time, so that the same picture is drawn each time.
"""

from __future__ import annotations

import io
import re
import sys
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import shop  # noqa: E402
from prometheus_client import CollectorRegistry, generate_latest  # noqa: E402
from rich._export_format import CONSOLE_SVG_FORMAT  # noqa: E402
from rich.console import Console  # noqa: E402

from faulttolerance import configure  # noqa: E402
from faulttolerance._command.top.exposition import Exposition, parse_exposition  # noqa: E402
from faulttolerance._command.top.guard_stats import collect_stats  # noqa: E402
from faulttolerance._command.top.table import render  # noqa: E402
from faulttolerance._command.top.target import Target  # noqa: E402
from faulttolerance.testing import virtual_time  # noqa: E402

WIDTH = 100
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""Rich's, without fonts from elsewhere."""


def main(file: Path = HERE / "top.svg") -> None:
    with virtual_time(seed=7) as clock:
        registry = CollectorRegistry()
        configure(prometheus_registry=registry)
        shop.open_for_business(clock)
        pages = [parse_exposition(generate_latest(registry).decode())]
        payments, catalogue, recommendations = shop.Payments(), shop.Catalogue(), shop.Recommendations()
        payments.is_down = recommendations.is_down = True
        for number in range(1, 101):
            with suppress(Exception):
                payments.charge(number)
            with suppress(Exception):
                payments.refund(number) if number % 20 == 0 else catalogue.search("lamp")
            with suppress(OSError):
                catalogue.product(number, fails=number % 19 == 0)
            recommendations.for_customer(number)
            clock.advance(0.02)
        pages.append(parse_exposition(generate_latest(registry).decode()))
    targets = [watched("http://shop-1:8000/metrics", pages), watched("http://shop-2:8000/metrics", pages)]
    lost = Target("http://shop-3:8000/metrics")
    lost.begin_scrape(0.0)
    lost.record_failure("Connection refused", 0.0)
    targets.append(lost)
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(render(targets, collect_stats(targets), 14.0, WIDTH))
    title = "faulttolerance top shop-1:8000 shop-2:8000 shop-3:8000"
    drawn = console.export_svg(title=title, code_format=FORMAT, unique_id="top")
    file.write_text("\n".join(line.rstrip() for line in drawn.splitlines()) + "\n", encoding="utf-8")


def watched(url: str, pages: list[Exposition]) -> Target:
    """Give an address that has shown *pages*, two seconds after one another."""
    target = Target(url)
    for at, page in enumerate(pages):
        target.begin_scrape(2.0 * at)
        target.record_answer(page, 2.0 * at)
    return target


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
