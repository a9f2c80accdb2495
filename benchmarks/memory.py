"""The bytes that a guarded method takes after its first call, exporters aside: the same on every machine.

``tck/unit/test_cost.py`` compares with what ``python -m benchmarks.record`` has written down.
"""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable

import faulttolerance as ft

__all__ = ["each", "guarded"]


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


if __name__ == "__main__":
    print(json.dumps(each(), indent=2))
