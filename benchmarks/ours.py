"""The guarded methods of this library that are measured."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import faulttolerance as ft

__all__ = ["WINDOW", "Failing", "Guarded", "GuardedAsync", "GuardedWide", "metrics_on", "use_up"]

WINDOW = 5000
"""A rolling window that is longer than a timed loop."""


class Guarded:
    """The same trivial method under different policies."""

    fails = False
    """Whether the next call of ``all_failures`` fails."""

    @ft.fallback(lambda context: 0)
    @ft.retry(jitter=0)
    @ft.circuit_breaker
    @ft.timeout(60_000)
    @ft.bulkhead(64)
    def all(self, x: int) -> int:
        return x

    @ft.fallback(lambda context: 0)
    @ft.retry(jitter=0)
    @ft.circuit_breaker(request_volume_threshold=WINDOW)
    @ft.timeout(60_000)
    @ft.bulkhead(64)
    def all_failures(self, x: int) -> int:
        if self.fails:
            self.fails = False
            raise ValueError
        return x

    @ft.retry
    def retry(self, x: int) -> int:
        return x

    @ft.circuit_breaker
    def circuit_breaker(self, x: int) -> int:
        return x

    @ft.bulkhead(64)
    def bulkhead(self, x: int) -> int:
        return x

    @ft.timeout(60_000)
    def timeout(self, x: int) -> int:
        return x

    @ft.fallback(lambda context: 0)
    def fallback(self, x: int) -> int:
        return x

    def fail_once(self) -> None:
        """Put a failure into the window of ``all_failures``, which is full."""
        self.fails = True
        self.all_failures(1)


class GuardedAsync:
    """Likewise for coroutines."""

    @ft.fallback(lambda context: 0)
    @ft.retry(jitter=0)
    @ft.circuit_breaker
    @ft.timeout(60_000)
    @ft.bulkhead(64)
    async def all(self, x: int) -> int:
        return x

    @ft.timeout(60_000)
    async def timeout(self, x: int) -> int:
        return x

    @ft.rate_limit(1_000_000_000)
    async def rate_limit(self, x: int) -> int:
        return x

    @ft.fallback(lambda context: 0)
    @ft.retry(jitter=0)
    @ft.circuit_breaker
    @ft.bulkhead(64)
    async def no_timeout(self, x: int) -> int:
        return x


class GuardedWide:
    """With room for many calls at a time."""

    def bare(self, x: int) -> int:
        return x

    @ft.fallback(lambda context: 0)
    @ft.retry(jitter=0)
    @ft.circuit_breaker
    @ft.timeout(60_000)
    @ft.bulkhead(64)
    def all(self, x: int) -> int:
        return x

    async def sleep(self) -> None:
        await asyncio.sleep(0.01)

    @ft.fallback(lambda context: None)
    @ft.retry(jitter=0)
    @ft.circuit_breaker
    @ft.timeout(60_000)
    @ft.bulkhead(100_000)
    async def guarded_sleep(self) -> None:
        await asyncio.sleep(0.01)


class Failing:
    """Calls that do not go well."""

    def __init__(self) -> None:
        self.turn = 0

    @ft.retry(jitter=0)
    def retry(self, x: int) -> int:
        self.turn ^= 1
        if self.turn:
            raise ValueError
        return x

    @ft.retry(jitter=0)
    async def retry_async(self, x: int) -> int:
        self.turn ^= 1
        if self.turn:
            raise ValueError
        return x

    @ft.circuit_breaker(request_volume_threshold=2, delay=86_400_000)
    def refused(self, x: int) -> int:
        raise ValueError

    @ft.circuit_breaker(request_volume_threshold=2, delay=86_400_000)
    async def refused_async(self, x: int) -> int:
        raise ValueError

    @ft.retry(jitter=0)
    @ft.circuit_breaker(request_volume_threshold=2, delay=86_400_000)
    @ft.timeout(60_000)
    @ft.bulkhead(64)
    def refused_all(self, x: int) -> int:
        raise ValueError


def use_up(call: Any, times: int) -> None:
    """Let *call* fail until its breaker is open."""
    for _ in range(times):
        try:
            call(1)
        except Exception:  # noqa: BLE001  # it is to fail
            pass


def metrics_on() -> str:
    """Count, and export to a Prometheus registry of our own where that is to be had; say which."""
    if "prometheus_registry" not in inspect.signature(ft.configure).parameters:
        return "counted"
    try:
        from prometheus_client import CollectorRegistry
    except ImportError:
        return "counted"
    ft.configure(prometheus_registry=CollectorRegistry())
    return "counted, and registered with Prometheus"
