"""The comparison in the README: the features as they were looked up, the costs as the benchmark recorded them.

Run this file to write the table anew where `benchmarks/results.json` or a feature below has changed.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "README.md"
RESULTS: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
MARK = "<!-- The table is written by tck/docs/test_comparison.py. -->\n"
TABLE = re.compile(re.escape(MARK) + r"(?:\n\|[^\n]*)*\n*(?:\|[^\n]*\n)*", re.MULTILINE)

LOOKED_UP = "November 2026"
"""The month of the comparison of features: the Python libraries were run, the documentation of the others was read."""

FEATURES = (
    "retry", "time-out", "circuit breaker", "bulkhead", "fallback", "rate limit",
    "functions", "set from outside", "metrics", "shared by replicas",
)  # fmt: skip

NO, YES, BOTH = "no", "✓", "`def`, `async def`"


class Library(NamedTuple):
    """One column.

    Attributes:
        name: The distribution.
        version: Which one was looked up.
        features: One for each of FEATURES.
        smooth: The name of the measured call that goes well, and of the one of ours beside it, in the row of RESULTS.
        trouble: Likewise of the call that fails once and is retried, or that an open circuit refuses.
    """

    name: str
    version: str
    features: tuple[str, ...]
    smooth: tuple[str, str, str] | None = None
    trouble: tuple[str, str, str] | None = None


SYNC, ASYNC = "sync, five policies, metrics on", "async, five policies, metrics on"
FAILED, FAILED_ASYNC = "one failure, then success, sync", "one failure, then success, async"
REFUSED = "refused by an open breaker, sync"

OURS = Library(
    "faulttolerance", "",
    (YES, "interrupts", "rate", YES, YES, YES, BOTH, "files, variables", "Prometheus, OpenTelemetry", "Redis"),
)  # fmt: skip
PEERS = (
    Library(
        "tenacity", "9.2.1",
        (YES, NO, NO, NO, "callback", NO, BOTH, NO, NO, NO),
        (SYNC, "tenacity", "retry"), (FAILED, "tenacity, no sleep", "retry"),
    ),
    Library(
        "stamina", "26.1.0",
        (YES, NO, NO, NO, NO, NO, BOTH, NO, "Prometheus: retries", NO),
        (SYNC, "stamina", "retry"),
    ),
    Library(
        "pybreaker", "1.4.1",
        (NO, NO, "in a row", NO, NO, NO, "`def`, Tornado", NO, NO, "Redis"),
        (SYNC, "pybreaker", "circuit_breaker"), (REFUSED, "pybreaker", "breaker"),
    ),
    Library(
        "circuitbreaker", "2.1.3",
        (NO, NO, "in a row", NO, YES, NO, BOTH, NO, NO, NO),
        (SYNC, "circuitbreaker", "circuit_breaker"), (REFUSED, "circuitbreaker", "breaker"),
    ),
    Library(
        "hyx", "0.0.2",
        (YES, "cancels", "in a row", YES, YES, YES, "`async def`", NO, NO, NO),
        (ASYNC, "stack hyx", "all"), (FAILED_ASYNC, "hyx async", "retry"),
    ),
    Library(
        "interlock-cb", "2.8.2",
        ("by tenacity", "leaves a thread behind", "rate", YES, YES, NO, BOTH, NO, "OpenTelemetry", "Redis: breaker"),
        (SYNC, "interlock", "circuit_breaker"), (REFUSED, "interlock", "breaker"),
    ),
    Library(
        "SmallRye (Java)", "6.11.2",
        (YES, "interrupts", "rate", YES, YES, YES, "Java, Kotlin", "files, variables", "Micrometer, OpenTelemetry", NO),
    ),
)  # fmt: skip


def table() -> str:
    """Return the table: libraries from left to right, features and costs from top to bottom."""
    names = [f"**{OURS.name}**", *map(heading, PEERS)]
    rows = [["", *names], ["---", *[":-:"] * len(names)]]
    for number, feature in enumerate(FEATURES):
        rows.append([feature, *(one.features[number] for one in (OURS, *PEERS))])
    rows.append(["a call that goes well costs", "**1**", *(times(one.smooth) for one in PEERS)])
    rows.append(["one in trouble costs", "**1**", *(times(one.trouble) for one in PEERS)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def heading(peer: Library) -> str:
    """Return the name of a library, with a link to the page for those who come from it."""
    page = f"docs/how-to/migrate/from-{peer.name}.md"
    return f"[{peer.name}]({page}) {peer.version}" if (ROOT / page).is_file() else f"{peer.name} {peer.version}"


def times(measured: tuple[str, str, str] | None) -> str:
    """Return the cost of a peer as a multiple of ours, where both were measured in one run."""
    if measured is not None:
        row, theirs, ours = measured
        [found] = [one["ns"] for one in RESULTS["rows"] if one["what"] == row]
        if theirs in found and ours in found:
            ratio = found[theirs] / found[ours]
            return f"{ratio:.0f}" if ratio >= 9.5 else f"{ratio:.1f}"
    return "not measured"


def measured_on() -> str:
    """Return the sentence below the table, as the record has it."""
    python = RESULTS["machine"].partition(",")[0]
    return f"Features as of {LOOKED_UP}; costs measured on {RESULTS['when'][:10]}, {python}."


def page() -> str:
    """Return the README with the table as it has to be."""
    text = TABLE.sub(lambda _: f"{MARK}\n{table()}\n", PAGE.read_text(encoding="utf-8"), count=1)
    return re.sub(r"^Features as of [^\n]*?\.(?= |$)", lambda _: measured_on(), text, count=1, flags=re.MULTILINE)


def test_the_comparison_is_up_to_date() -> None:
    """The figures of the README are those of the record."""
    assert PAGE.read_text(encoding="utf-8") == page(), f"run python {Path(__file__).name}"
    assert MARK in page()
    assert measured_on() in page()


def test_the_compared_versions_are_those_that_are_measured() -> None:
    """The benchmark is pinned to the versions in the table, and the record names them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = dict(one.split("==") for one in project["optional-dependencies"]["bench"] if re.match(r"[\w-]+==", one))

    for peer in PEERS[:-1]:
        assert pinned[peer.name] == peer.version
        assert RESULTS["versions"].get(peer.name, peer.version) == peer.version
        assert peer.smooth is not None


def test_every_library_has_every_feature_or_says_that_it_has_not() -> None:
    assert {len(one.features) for one in (OURS, *PEERS)} == {len(FEATURES)}
    assert all(all(one.features) for one in (OURS, *PEERS))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
