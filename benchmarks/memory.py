"""How many bytes a guarded method takes after its first call, exporters aside: the same on every machine.

``tck/unit/test_cost.py`` compares with what is recorded here; ``python -m benchmarks.memory --record`` records.
"""

from __future__ import annotations

import gc
import json
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import faulttolerance as ft

__all__ = ["each", "guarded", "recorded"]

RECORDED = Path(__file__).with_name("memory.json")
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def each(count: int = 1_000) -> dict[str, int]:
    """Bytes per method beyond those of the method itself: with five policies, and with one."""
    for make in (bare, guarded, retried):
        built(make, 10)
    plain = built(bare, count)
    return {"all": (built(guarded, count) - plain) // count, "retry": (built(retried, count) - plain) // count}


def built(make: Callable[[], type], count: int) -> int:
    """Bytes that *count* classes with one method take, each called once."""
    gc.collect()
    tracemalloc.start()
    kept = []
    for _ in range(count):
        cls = make()
        cls().method(1)
        kept.append(cls)
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return taken


def bare() -> type:
    class Bare:
        def method(self, x: int) -> int:
            return x

    return Bare


def guarded() -> type:
    class Guarded:
        @ft.fallback(_zero)
        @ft.retry(jitter=0)
        @ft.circuit_breaker
        @ft.timeout(60_000)
        @ft.bulkhead(64)
        def method(self, x: int) -> int:
            return x

    return Guarded


def retried() -> type:
    class Retried:
        @ft.retry
        def method(self, x: int) -> int:
            return x

    return Retried


def _zero(context: object) -> int:
    return 0


def recorded() -> dict[str, dict[str, int]]:
    """What was recorded, by version of Python."""
    return json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}


if __name__ == "__main__":
    taken = each()
    print(json.dumps(taken, indent=2))
    if "--record" in sys.argv:
        RECORDED.write_text(
            json.dumps({**recorded(), VERSION: taken}, indent=2, sort_keys=True) + "\n", encoding="utf-8"
        )
