"""What asks every guard: its processor time with 100, 1,000 and 10,000 guards, and how many functions it calls.

    python -m benchmarks.many [COUNT ...]

Half of the guards are methods, each of a class of its own, half are a ``Guard``; all have five policies and were
called. Processor time depends on the machine and on what else it does; the calls are the same everywhere.
"""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
from collections.abc import Callable
from time import process_time
from typing import Any

import faulttolerance as ft
from faulttolerance._command.lints import lint
from faulttolerance._config import settings
from faulttolerance.web.reading import GuardFilter, guard_called, overview

from .memory import guarded

ROUNDS = 3
FEW = 1_000
"""The most guards with which calls are counted, which takes many times as long as to make them."""


def _zero(context: object) -> int:
    return 0


def _made(count: int) -> list[object]:
    kept: list[object] = []
    for number in range(count // 2):
        cls = guarded()
        cls.__qualname__ = f"Client{number}"
        cls().method(1)
        guard = ft.Guard(
            fallback=ft.policies.Fallback(_zero),
            retry=ft.policies.Retry(),
            circuit_breaker=ft.policies.CircuitBreaker(),
            timeout=ft.policies.Timeout("60s"),
            bulkhead=ft.policies.Bulkhead(64),
            name=f"service {number}",
        )
        guard.call(int)
        kept += [cls, guard]
    return kept


def _actions(registry: Any) -> dict[str, Callable[[], object]]:
    from prometheus_client import generate_latest

    return {
        "a scrape, with the text that prometheus_client makes": lambda: generate_latest(registry),
        "the same without the text": lambda: [*registry.collect()],
        "`health()`": ft.health,
        "`guards()`": lambda: [*ft.guards()],
        "`guards(name)`": lambda: [*ft.guards("service 7")],
        "`fingerprint()`": ft.fingerprint,
        "`validate()`": ft.validate,
        "`check`, without the imports": lambda: (ft.validate(), [*lint(ft.guards(), settings.snapshot)]),
        "the status page": lambda: overview((), GuardFilter(limit=100)),
        "its page of one guard": lambda: guard_called("service 7"),
        "its page of no guard": lambda: guard_called("nothing"),
        "a reload": ft.reload,
    }


def _calls(action: Callable[[], object]) -> int:
    calls = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return calls


def _spent(action: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        gc.collect()
        gc.disable()
        began = process_time()
        action()
        best = min(best, process_time() - began)
        gc.enable()
    return best


def _measure(count: int) -> None:
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    logging.getLogger("faulttolerance").setLevel(logging.ERROR)
    ft.configure(prometheus_registry=registry, properties={"Retry/maxRetries": 2})
    kept = _made(count)
    for name, action in _actions(registry).items():
        action()
        calls = _calls(action) / len(kept) if count <= FEW else 0.0
        print(name, _spent(action), calls, sep="\t", flush=True)


def main(counts: list[str]) -> None:
    found: dict[str, list[tuple[float, float]]] = {}
    for count in counts:
        # A process each: what one leaves behind would be paid for by the next.
        command = [sys.executable, "-m", "benchmarks.many", "--measure", count]
        for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
            name, spent, calls = line.split("\t")
            found.setdefault(name, []).append((float(spent), float(calls)))
    print("| ms of processor time |", *(f"{int(count):,} |" for count in counts), "calls for each guard |")
    print("| --- |", *("--- |" for _ in counts), "--- |")
    for name, figures in found.items():
        times = (f"{spent * 1e3:,.1f} |" if spent < 0.01 else f"{spent * 1e3:,.0f} |" for spent, _ in figures)
        print(f"| {name} |", *times, " → ".join(f"{calls:.1f}" for _, calls in figures if calls), "|")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        _measure(int(sys.argv[2]))
    else:
        main(sys.argv[1:] or ["100", "1000", "10000"])
