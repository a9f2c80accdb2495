"""The cost that comes once: of the import, and of the first call of a guard."""

from __future__ import annotations

import compileall
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

import faulttolerance

from .memory import guarded
from .table import Limit, Row, under

__all__ = ["rows"]

HEAVY = ("asyncio", "pydantic", "prometheus_client", "opentelemetry")
"""Packages that the import must not bring along; ``wrapt`` is the aim."""


def rows(rounds: int) -> list[Row]:
    """Measure, and compare."""
    return [_imports(max(4, rounds // 2)), _first_calls(), _very_first(max(3, rounds // 8))]


def _run(code: str) -> dict[str, float]:
    """Run *code* in a fresh interpreter, and read the JSON that it prints."""
    done = subprocess.run([sys.executable, "-I", "-c", code], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


_IMPORT = """
from time import perf_counter as now
began = now()
import {name}
spent = now() - began
import sys, json
print(json.dumps(dict(ms=spent * 1e3, **dict((one, one in sys.modules) for one in {heavy!r}))))
"""


def _compile() -> None:
    """Write the bytecode down, as installing a package does; a checkout may never have got any."""
    compileall.compile_dir(Path(faulttolerance.__file__).parent, quiet=1)


def _imports(rounds: int) -> Row:
    _compile()
    names = ("faulttolerance", "tenacity", "stamina", "pybreaker", "backoff", "circuitbreaker")
    best: dict[str, float] = {}
    loaded: list[str] = []
    for turn in range(rounds):
        for name in (*names[turn % len(names) :], *names[: turn % len(names)]):
            measured = _run(_IMPORT.format(name=name, heavy=(*HEAVY, "wrapt")))
            best[name] = min(measured["ms"], best.get(name, measured["ms"]))
            if name == "faulttolerance":
                loaded = [package for package in (*HEAVY, "wrapt") if measured[package]]
    ours, tenacity = best["faulttolerance"], best["tenacity"]
    heavy = [package for package in loaded if package != "wrapt"]
    return Row(
        "import",
        f"{ours:.1f} ms",
        [
            Limit(f"tenacity takes {tenacity:.1f} ms", tenacity / ours),
            Limit(f"loads {', '.join(heavy) or 'none'} of {', '.join(HEAVY)}", 0.0 if heavy else 1.0),
        ],
        [under(ours, 15, "ms"), Limit("wrapt stays out", 0.0 if loaded else 1.0)],
        {name: spent * 1e6 for name, spent in best.items()},
    )


def _first_calls() -> Row:
    """Guards of a shape that was cut before: what each method pays at its first call."""
    guarded()().method(1)
    objects = [guarded()() for _ in range(1_000)]
    spent = []
    for guarded_object in objects:
        began = perf_counter()
        guarded_object.method(1)
        spent.append(perf_counter() - began)
    middle, total = median(spent) * 1e6, sum(spent)
    return Row(
        "first call of a guard",
        f"{middle:.0f} us; 1,000 guards {total:.3f} s",
        [under(middle, 300, "us"), under(total, 0.3, "s")],
        figures={"median": middle * 1e3, "1,000 guards": total * 1e9},
    )


_VERY_FIRST = """
import faulttolerance as ft, json
from time import perf_counter as now
class Guarded:
    @ft.fallback(lambda context: 0)
    @ft.retry(jitter=0)
    @ft.circuit_breaker
    @ft.timeout(60_000)
    @ft.bulkhead(64)
    def method(self, x):
        return x
    @ft.retry
    def other(self, x):
        return x
    @ft.retry
    def another(self, x):
        return x
one = Guarded()
times = [now()]
one.method(1); times.append(now())
one.other(1); times.append(now())
one.another(1); times.append(now())
print(json.dumps(dict(zip(("first", "other", "another"), ((b - a) * 1e6 for a, b in zip(times, times[1:]))))))
"""


def _very_first(rounds: int) -> Row:
    """The first guard of a process also reads ``attempt.attempt``; the first one of a shape has it cut and compiled."""
    runs = [_run(_VERY_FIRST) for _ in range(rounds)]
    best = {name: min(run[name] for run in runs) for name in runs[0]}
    return Row(
        "first call of all, in a fresh process",
        f"{best['first'] / 1e3:.1f} ms, of a further shape {best['other'] / 1e3:.1f} ms,"
        f" of the same shape {best['another']:.0f} us",
        figures={name: spent * 1e3 for name, spent in best.items()},
    )
