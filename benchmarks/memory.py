"""The bytes that a guarded method takes after its first call, exporters aside: the same on every machine.

``tck/house/test_cost.py`` compares with what ``python -m benchmarks.record`` has written down.
"""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable

import faulttolerance as ft

__all__ = ["each", "guarded"]


def each(count: int = 250) -> dict[str, int]:
    """Bytes per method beyond those of the method itself: with five policies, and with one."""
    for make in (bare, guarded, retried):
        built(make, 10)
    plain = built(bare, count)
    return {"all": (built(guarded, count) - plain) // count, "retry": (built(retried, count) - plain) // count}


def built(make: Callable[[type], type], count: int) -> int:
    """Bytes that *count* classes with one method take, each called once."""
    # A class knows its subclasses, by a table that grows in steps: that of ``object`` does so now in one run, and now
    # in another, by 74 bytes for each of a thousand classes.
    base = type("Base", (), {})
    gc.collect()
    tracemalloc.start()
    kept = []
    for _ in range(count):
        cls = make(base)
        cls().method(1)
        kept.append(cls)
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return taken


def bare(base: type = object) -> type:
    class Bare(base):
        def method(self, x: int) -> int:
            return x

    return Bare


def guarded(base: type = object) -> type:
    class Guarded(base):
        @ft.fallback(_zero)
        @ft.retry(jitter=0)
        @ft.circuit_breaker
        @ft.timeout(60_000)
        @ft.bulkhead(64)
        def method(self, x: int) -> int:
            return x

    return Guarded


def retried(base: type = object) -> type:
    class Retried(base):
        @ft.retry
        def method(self, x: int) -> int:
            return x

    return Retried


def _zero(context: object) -> int:
    return 0


if __name__ == "__main__":
    print(json.dumps(each(), indent=2))
