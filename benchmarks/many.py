"""What asks every guard: its processor time with 100, 1,000 and 10,000 guards, and how many functions it calls.

    python -m benchmarks.many [COUNT ...]

Half of the guards are methods, each of a class of its own, half are a ``Guard``; all have five policies and were
called. Processor time depends on the machine and on what else it does; the calls are the same everywhere.
Times and calls are measured in processes of their own, so that the first scrape of each is a first one.
"""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from time import process_time
from typing import Any, NamedTuple

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


def _made(guards: int) -> list[object]:
    kept: list[object] = []
    for number in range(guards // 2):
        cls = guarded()
        cls.__qualname__ = f"Client{number}"
        cls().method(1)
        kept += [cls, _service(number)]
    return kept


def _service(number: int) -> ft.Guard:
    guard = ft.Guard(
        fallback=ft.policies.Fallback(_zero),
        retry=ft.policies.Retry(),
        circuit_breaker=ft.policies.CircuitBreaker(),
        timeout=ft.policies.Timeout("60s"),
        bulkhead=ft.policies.Bulkhead(64),
        name=f"service {number}",
    )
    guard.call(int)
    return guard


def _nothing() -> None: ...


_numbers = count(10_000_000)
"""Names and values that nothing else has."""


class _Action(NamedTuple):
    run: Callable[[], object]
    prepare: Callable[[], object] = _nothing
    """Runs before each time that counts."""
    rounds: int = ROUNDS


def _actions(registry: Any, kept: list[object]) -> dict[str, _Action]:
    from prometheus_client import generate_latest

    def scrape() -> object:
        return [*registry.collect()]

    def changed() -> None:
        ft.configure(properties={"Retry/maxRetries": next(_numbers)})

    return {
        "the first scrape, without the text that prometheus_client makes": _Action(scrape, rounds=1),
        "a later one": _Action(scrape),
        "the first one after a reload that changes each guard": _Action(scrape, changed),
        "the first one after a new guard": _Action(scrape, lambda: kept.append(_service(next(_numbers)))),
        "a scrape with the text": _Action(lambda: generate_latest(registry)),
        "`health()`": _Action(ft.health),
        "`guards()`": _Action(lambda: [*ft.guards()]),
        "`guards(name)`": _Action(lambda: [*ft.guards("service 7")]),
        "`fingerprint()`": _Action(ft.fingerprint),
        "`validate()`": _Action(ft.validate),
        "`check`, without the imports": _Action(lambda: (ft.validate(), [*lint(ft.guards(), settings.snapshot)])),
        "the status page": _Action(lambda: overview((), GuardFilter(limit=100))),
        "its page of one guard": _Action(lambda: guard_called("service 7")),
        "its page of no guard": _Action(lambda: guard_called("nothing")),
        "a reload": _Action(ft.reload),
        "`configure(...)` that changes each guard": _Action(changed),
    }


def _calls(action: _Action) -> int:
    calls = 0

    def called(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    for _ in range(min(action.rounds, 2)):  # the second one, where there is one: it loads nothing
        action.prepare()
        calls = 0
        sys.setprofile(called)
        try:
            action.run()
        finally:
            sys.setprofile(None)
    return calls


def _spent(action: _Action) -> float:
    best = float("inf")
    for _ in range(action.rounds):
        action.prepare()
        gc.collect()
        gc.disable()
        began = process_time()
        action.run()
        best = min(best, process_time() - began)
        gc.enable()
    return best


def _measure(guards: int, what: str) -> None:
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    logging.getLogger("faulttolerance").setLevel(logging.ERROR)
    ft.configure(prometheus_registry=registry, properties={"Retry/maxRetries": 2})
    kept = _made(guards)
    for name, action in _actions(registry, kept).items():
        found = _calls(action) / guards if what == "calls" else _spent(action)
        print(name, found, sep="\t", flush=True)


def main(counts: list[str]) -> None:
    times: dict[str, list[float]] = {}
    calls: dict[str, list[float]] = {}
    for number in counts:
        # A process each: what one leaves behind would be paid for by the next.
        for found, what in ((times, "time"), (calls, "calls")):
            if what == "time" or int(number) <= FEW:
                command = [sys.executable, "-m", "benchmarks.many", "--measure", number, what]
                for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
                    name, figure = line.split("\t")
                    found.setdefault(name, []).append(float(figure))
    print("| ms of processor time |", *(f"{int(number):,} |" for number in counts), "calls for each guard |")
    print("| --- |", *("--- |" for _ in counts), "--- |")
    for name, spent in times.items():
        shown = (f"{seconds * 1e3:,.1f} |" if seconds < 0.01 else f"{seconds * 1e3:,.0f} |" for seconds in spent)
        print(f"| {name} |", *shown, " → ".join(f"{number:,.1f}" for number in calls.get(name, ())), "|")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        _measure(int(sys.argv[2]), sys.argv[3])
    else:
        main(sys.argv[1:] or ["100", "1000", "10000"])
