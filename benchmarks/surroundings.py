"""What the surroundings of an application add to a call: a tracer, a span, a registry, a log that is on.

``python -m benchmarks.surroundings`` prints it; ``docs/explanation/cost.md`` shows one run.
Each surrounding has processes of its own, since what is imported does not go again: several, in rotation, for where the
objects of a process lie in memory moves a figure by a fifth. The minimum is kept.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from . import ours
from .timing import BARE, Contender, overheads

CALLS = ("healthy", "retried once", "refused")
_ROUNDS = 10


def _tracer() -> None:
    import opentelemetry.trace  # noqa: F401


def _span() -> None:
    from opentelemetry import context, trace
    from opentelemetry.sdk.trace import TracerProvider

    context.attach(trace.set_span_in_context(TracerProvider().get_tracer("benchmarks").start_span("request")))


def _registry() -> None:
    import prometheus_client  # noqa: F401


def _greenlet() -> None:
    import greenlet  # noqa: F401


def _handler(level: int) -> logging.Handler:
    """Return a handler of all records of *level* and above, which formats them and drops the text."""
    handler = logging.StreamHandler(open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # to the end of the process
    logging.basicConfig(level=level, handlers=[handler])
    return handler


def _structlog() -> None:
    import structlog

    handler = _handler(logging.DEBUG)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=structlog.processors.JSONRenderer()))


SURROUNDINGS: Mapping[str, Callable[[], object]] = {
    "bare": lambda: None,
    "OpenTelemetry's API imported": _tracer,
    "its SDK, in a span that records": _span,
    "prometheus_client imported": _registry,
    "greenlet imported, as SQLAlchemy does": _greenlet,
    "logging at INFO, a handler": lambda: _handler(logging.INFO),
    "structlog's ProcessorFormatter, at DEBUG": _structlog,
}


def _bare(x: int) -> int:
    return x


def _cost(surrounding: str) -> dict[str, float]:
    """Return the nanoseconds of a call in *surrounding*, by its kind."""
    SURROUNDINGS[surrounding]()
    guarded, failing = ours.Guarded(), ours.Failing()
    for _ in range(64):
        guarded.all(1)
    ours.use_up(failing.refused, 64)
    return {
        "healthy": _above_bare(guarded.all),
        "retried once": _above_bare(failing.retry),
        "refused": _above_bare(failing.refused, raising=True),
    }


def _above_bare(call: Callable[[int], Any], *, raising: bool = False) -> float:
    return overheads([Contender(BARE, _bare), Contender("guarded", call)], _ROUNDS, raising=raising)["guarded"]


def measure(processes: int) -> dict[str, dict[str, float]]:
    """Return the same of every surrounding, the minimum of so many *processes*."""
    best = {name: dict.fromkeys(CALLS, inf) for name in SURROUNDINGS}
    for _ in range(processes):
        for name, least in best.items():
            command = [sys.executable, "-m", "benchmarks.surroundings", "--in", name]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            for call, spent in json.loads(done.stdout).items():
                least[call] = min(spent, least[call])
    return best


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.surroundings", description=__doc__)
    parser.add_argument("--processes", type=int, default=15, help="how many each surrounding has")
    parser.add_argument("--in", dest="surrounding", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.surrounding is not None:
        print(json.dumps(_cost(options.surrounding)))
        return
    costs = measure(options.processes)
    bare = costs["bare"]
    print(f"| {'in relation to bare':40} | {' | '.join(f'{call:>12}' for call in CALLS)} |")
    for name, cost in costs.items():
        print(f"| {name:40} | {' | '.join(f'{cost[call] / bare[call]:12.2f}' for call in CALLS)} |")
    print(f"bare: {', '.join(f'{call} {bare[call]:,.0f} ns' for call in CALLS)}")


if __name__ == "__main__":
    main()
