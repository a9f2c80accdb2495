"""The pictures of the page on overload."""

from __future__ import annotations

from collections.abc import Callable

from . import overload, storm, throttles
from .plot import Panel, svg

__all__ = ["PICTURES"]


def _storm() -> str:
    lines = {}
    for kind in (storm.ALONE, "+ `bulkhead(60)`", "+ `retry_budget()`", "+ `circuit_breaker()`", storm.OURS):
        run = storm.Storm(kind, 1)
        lines[kind] = [(float(second - 60), run.succeeding(second, second + 2)) for second in range(40, 121)]
    panel = Panel("A spike of five seconds: the part of the calls that succeed", "seconds", lines, 1.0, storm.OURS)
    return svg(
        [panel], "0.7 of the capacity, at 0 s for 5 s three times the capacity; time-out 1 s, three retries. Seed 1."
    )


def _limits() -> str:
    kinds = {
        "none": "none",
        "60 per replica": "60 per replica",
        "Gradient2 of Netflix, from 1 on": "Gradient2 of Netflix",
        "AIMD of Netflix, 250 ms": "AIMD of Netflix, 250 ms",
        overload.OURS: overload.OURS,
    }
    loads = (0.5, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0, 2.5)
    seen = {name: [(load, overload.loaded(kind, load, 1)) for load in loads] for kind, name in kinds.items()}
    goodput = {name: [(load, one.goodput) for load, one in line] for name, line in seen.items()}
    late = {name: [(load, one.p99 * 1e3) for load, one in line if one.goodput > 0.3] for name, line in seen.items()}
    panels = [
        Panel("Calls that are answered in time, in capacities", "load, in capacities", goodput, 1.2, overload.OURS),
        Panel("p99 of those, in milliseconds", "load, in capacities", late, 1000.0, overload.OURS),
    ]
    return svg(panels, "Four replicas in front of one backend, each with a limit; callers wait for a second. Seed 1.")


def _throttles() -> str:
    lines = {}
    for kind in ("of Google's book: 120 s, sliding", "of Envoy: 30 s, at most 0.8", throttles.OURS):
        run = throttles.TurnedDown(kind, 100.0, 320.0, lambda now: 0.0 if 60 < now < 180 else throttles.HEALTHY, 1)
        seconds = range(140, 301, 2)
        lines[kind] = [(second - 180.0, run.per_second("accepted", second, second + 5)) for second in seconds]
    panel = Panel("Calls accepted per second, after an outage of two minutes", "seconds", lines, 120.0, throttles.OURS)
    return svg([panel], "A hundred calls a second; the callee takes none until 0 s, and then all. Seed 1.")


PICTURES: dict[str, Callable[[], str]] = {
    "overload-storm.svg": _storm,
    "overload-limits.svg": _limits,
    "overload-throttles.svg": _throttles,
}
