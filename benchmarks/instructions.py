"""The instructions of the interpreter that a guarded call takes: a cost that no machine and no load changes.

``tck/house/test_cost.py`` compares with what ``python -m benchmarks.record`` has written down.
``--beside opentelemetry.trace`` counts in a process that has imported such a module.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable
from importlib import import_module
from threading import get_ident
from types import CodeType, FrameType
from typing import Any

import faulttolerance as ft

__all__ = ["count"]


_WARM_UP = 100  # the window of a breaker fills, the adaptive interpreter settles
_CALLS = 5


class _Subject:
    def __init__(self) -> None:
        self.fails = False

    def _body(self, x: int) -> int:
        if self.fails:
            self.fails = False
            raise ValueError
        return x

    @ft.fallback(lambda context: 0)
    @ft.retry(jitter=0)
    @ft.circuit_breaker
    @ft.timeout(60_000)
    @ft.bulkhead(64)
    def all(self, x: int) -> int:
        return x

    @ft.fallback(lambda context: 0)
    @ft.retry(jitter=0)
    @ft.circuit_breaker(request_volume_threshold=1_000)
    @ft.timeout(60_000)
    @ft.bulkhead(64)
    def window_not_clean(self, x: int) -> int:
        return x

    @ft.retry(jitter=0)
    def retry(self, x: int) -> int:
        return x

    @ft.circuit_breaker
    def circuit_breaker(self, x: int) -> int:
        return x

    @ft.timeout(60_000)
    def timeout(self, x: int) -> int:
        return x

    @ft.bulkhead(64)
    def bulkhead(self, x: int) -> int:
        return x

    @ft.coalesce
    @ft.retry(jitter=0)
    def coalesce(self, x: int) -> int:
        return x

    @ft.partition_by("x")
    @ft.bulkhead(64)
    def partition_by(self, x: int) -> int:
        return x

    @ft.retry(jitter=0)
    def retried_once(self, x: int) -> int:
        return self._body(x)

    @ft.circuit_breaker(request_volume_threshold=2, delay=86_400_000)
    def refused(self, x: int) -> int:
        raise ValueError

    @ft.fallback(lambda context: 0)
    @ft.retry(jitter=0)
    @ft.circuit_breaker
    @ft.timeout(60_000)
    @ft.bulkhead(64)
    async def async_all(self, x: int) -> int:
        return x

    @ft.timeout(60_000)
    async def async_timeout(self, x: int) -> int:
        return x

    @ft.retry(jitter=0)
    async def async_retry(self, x: int) -> int:
        return x

    @ft.coalesce
    @ft.retry(jitter=0)
    async def async_coalesce(self, x: int) -> int:
        return x


_SYNC = (
    "all", "window_not_clean", "retry", "circuit_breaker", "timeout", "bulkhead", "coalesce", "partition_by",
    "retried_once", "refused",
)  # fmt: skip
_ASYNC = ("async_all", "async_timeout", "async_retry", "async_coalesce")


class _Traced:
    """Counts the instructions of every frame that begins while it is on."""

    def __init__(self) -> None:
        self.seen = 0

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._begin)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _begin(self, frame: FrameType, event: str, argument: object) -> Any:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._inside

    def _inside(self, frame: FrameType, event: str, argument: object) -> Any:
        self.seen += event == "opcode"
        return self._inside


class _Monitored:
    """The same where ``sys.monitoring`` is, with which tracing misses instructions."""

    def __init__(self) -> None:
        self.seen = 0

    def __enter__(self) -> None:
        ident, monitoring = get_ident(), sys.monitoring

        def count_one(code: CodeType, offset: int) -> None:
            self.seen += get_ident() == ident and code is not leaving

        leaving = type(self).__exit__.__code__
        monitoring.use_tool_id(_TOOL, "benchmarks")
        monitoring.register_callback(_TOOL, monitoring.events.INSTRUCTION, count_one)
        monitoring.set_events(_TOOL, monitoring.events.INSTRUCTION)

    def __exit__(self, *_: object) -> None:
        sys.monitoring.set_events(_TOOL, 0)
        sys.monitoring.free_tool_id(_TOOL)


_TOOL = 4  # those that a debugger, a profiler, coverage and an optimizer take are others
_Counter = _Monitored if sys.version_info >= (3, 12) else _Traced


def count() -> dict[str, int]:
    """Instructions of one call by what is called: the fewest of a few calls, in each of which all else is warm."""
    subject = _Subject()
    counts = {name: _counted(getattr(subject, name), subject, fails=name == "retried_once") for name in _SYNC}
    return {**counts, **asyncio.run(_count_async(subject))}


def _counted(call: Callable[[int], object], subject: _Subject, fails: bool) -> int:
    for _ in range(_WARM_UP):
        _tried(call)
    least = sys.maxsize
    for _ in range(_CALLS):
        subject.fails = fails
        counter = _Counter()
        try:
            with counter:
                call(1)
        except ft.CircuitBreakerOpenException:
            pass
        least = min(least, counter.seen)
    return least


def _tried(call: Callable[[int], object]) -> None:
    try:
        call(1)
    except (ValueError, ft.CircuitBreakerOpenException):
        pass


async def _count_async(subject: _Subject) -> dict[str, int]:
    counts = {}
    for name in _ASYNC:
        call = getattr(subject, name)
        for _ in range(_WARM_UP):
            await call(1)
        counts[name] = sys.maxsize
        for _ in range(_CALLS):
            counter = _Counter()
            with counter:
                await call(1)
            counts[name] = min(counts[name], counter.seen)
    return counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.add_argument("--beside", metavar="MODULE", nargs="+", default=(), help="imported before anything is called")
    for module in parser.parse_args().beside:
        import_module(module)
    print(json.dumps(count(), indent=2))
