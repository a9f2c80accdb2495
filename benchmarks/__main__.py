"""Measure everything, print the table, and write down the figures and the picture."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from . import calls, ours, overload, scale, starting
from .plot import Panel, svg
from .table import Row, render
from .timing import BARE

HERE = Path(__file__).parent
PICTURE = HERE.parent / "docs" / "explanation" / "cost.svg"
PEERS = (
    "tenacity", "stamina", "backoff", "pybreaker", "circuitbreaker", "aiobreaker", "purgatory", "hyx", "httpware",
    "pyfailsafe", "interlock-cb", "stopit", "func-timeout", "prometheus-client",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, nothing is written: whether it runs at all")
    parser.add_argument("--rounds", type=int, default=60, help="how often each contender has its turn")
    options = parser.parse_args()
    rounds = 3 if options.quick else options.rounds
    metrics = ours.metrics_on()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else -1.0
    rows = [*calls.rows(rounds), *scale.rows(rounds, quick=options.quick), *starting.rows(rounds)]
    machine = f"{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} cores, {metrics}"
    print(f"{machine}; load average {load:.1f} at the beginning\n")
    print(render(rows))
    against_overload = overload.rows(rounds)
    print(f"\nPolicies against overload, each by what it adds\n\n{render(against_overload)}")
    rows += against_overload
    if not options.quick:
        _write(rows, machine, load)
    return 0


def _write(rows: list[Row], machine: str, load: float) -> None:
    results = {
        "machine": machine,
        "load": load,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {name: version(name) for name in PEERS},
        "rows": [
            {
                "what": row.what,
                "measured": row.measured,
                "verdict": row.verdict,
                "must": [{"text": limit.text, "holds": limit.holds} for limit in row.must],
                "aim": [{"text": limit.text, "holds": limit.holds} for limit in row.aim],
                "ns": {name: round(spent, 1) for name, spent in row.figures.items()},
            }
            for row in rows
        ],
    }
    (HERE / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    sync, coroutines = (
        next(row.figures for row in rows if row.what.startswith(which)) for which in ("sync, five", "async, five")
    )
    panels = [_panel("Synchronous call", sync), _panel("Coroutine", coroutines)]
    PICTURE.write_text(svg(panels, f"Above the bare call, logarithmic. {machine}."), encoding="utf-8")


def _panel(title: str, figures: dict[str, float]) -> Panel:
    renamed = {_MINE.get(name, name): spent for name, spent in figures.items() if name != BARE}
    return Panel(title, renamed, frozenset(_MINE.values()))


_MINE = {
    "all": "faulttolerance: five policies",
    "all, failures in the window": "… failures in the window",
    "all without time-out": "… without time-out",
    "retry": "faulttolerance: retry",
    "circuit_breaker": "faulttolerance: circuit breaker",
    "bulkhead": "faulttolerance: bulkhead",
    "timeout": "faulttolerance: time-out",
    "fallback": "faulttolerance: fallback",
}

if __name__ == "__main__":
    sys.exit(main())
