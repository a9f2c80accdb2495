"""The demonstration of an outage fits the terminal, and its picture is that of a recorded run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.outside

ROOT = Path(__file__).resolve().parents[2]
STOREFRONT = ROOT / "examples" / "storefront"
PICTURE = ROOT / "docs" / "pictures" / "storefront.svg"

SHOW = """
import sys
from figures import Figures
from rich.console import Console
from traffic import KINDS, Traffic
from view import summary, timeline, view

guarded, unguarded = (Traffic("http://127.0.0.1:1", guarded=which) for which in (True, False))
for moment in range(13 * 20):
    for traffic, failed in ((guarded, False), (unguarded, 80 <= moment < 110)):
        kind, second = KINDS[moment % len(KINDS)], moment / 20
        error = OSError() if failed else None
        traffic.history.come(second)
        in_time = traffic.history.end(second, 0.1, error)
        traffic.records[kind.method].add(0.1, error, in_time=in_time)
live = sys.argv[2] == "live"
console = Console(width=int(sys.argv[1]), force_terminal=live)
with view(console, guarded, unguarded, lambda: {"product": Figures(breaker="open")}, live=live) as show:
    for second in range(15):
        show(second, "crashed")
summary(console, guarded, unguarded)
"""


@pytest.mark.parametrize(("width", "how"), [(80, "plain"), (120, "plain"), (80, "ascii"), (80, "live")])
def test_the_outage_is_shown_in_the_width_of_the_terminal(width: int, how: str) -> None:
    """It shows its spells second by second; the headline is the share of requests answered within a second."""
    pytest.importorskip("rich")
    pytest.importorskip("httpx")
    done = subprocess.run(
        [sys.executable, "-c", SHOW, str(width), how],
        cwd=STOREFRONT, capture_output=True, encoding="utf-8", timeout=60, check=False,
        env={"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii" if how == "ascii" else "utf-8"},
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    shown = done.stdout.splitlines()
    assert "Answered within a second: 100.0 % with guards, 88.5 % without" in done.stdout
    if how != "live":
        assert max(map(len, shown)) <= width - 1
        [crash] = [line for line in shown if line.startswith("     4  crashed")]
        assert crash.split()[-2:] == ["0%", "open"]
        [spells] = [line for line in shown if line.startswith("the backend")]
        assert spells.split() == ["the", "backend", *(f"{word:-<{length}}" for word, length in spans(width))]


def spans(width: int) -> list[tuple[str, int]]:
    """Return the words of the timeline and their lengths, by the columns of a second."""
    columns = 6 if width == 120 else 4
    return [(word, round(seconds * columns) - 1) for word, seconds in (("errors", 2.5), ("crash", 1.5), ("hangs", 2.0))]


def test_the_picture_is_drawn_from_the_record_beside_it() -> None:
    """Run `picture.py` after a change of either."""
    done = subprocess.run(
        [sys.executable, "picture.py", str(PICTURE.with_suffix(".json"))],
        cwd=STOREFRONT, capture_output=True, encoding="utf-8", timeout=60, check=True,
    )  # fmt: skip

    assert done.stdout == PICTURE.read_text(encoding="utf-8")
