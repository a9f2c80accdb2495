"""What each policy against overload adds to a call, in relation to five other policies in the same run."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import faulttolerance as ft

from .table import Row, cheaper
from .timing import BARE, Contender, overheads, overheads_async

__all__ = ["rows"]


class _Guarded:
    """The same trivial method with and without a policy; what may turn calls down has nothing to turn down."""

    def bare(self, x: int) -> int:
        return x

    @ft.fallback(lambda context: 0)
    @ft.retry(jitter=0)
    @ft.circuit_breaker
    @ft.timeout(60_000)
    @ft.bulkhead(64)
    def all(self, x: int) -> int:
        return x

    @ft.retry(jitter=0)
    def retry(self, x: int) -> int:
        return x

    @ft.retry(jitter=0)
    @ft.retry_budget
    def retry_budget(self, x: int) -> int:
        return x

    @ft.retry(jitter=0)
    @ft.adaptive_throttle
    def adaptive_throttle(self, x: int) -> int:
        return x

    @ft.retry(jitter=0)
    @ft.bulkhead(64)
    def bulkhead(self, x: int) -> int:
        return x

    @ft.retry(jitter=0)
    @ft.bulkhead(64, latency=10_000)
    def latency(self, x: int) -> int:
        return x

    @ft.retry(jitter=0)
    @ft.timeout(60_000)
    def timeout(self, x: int) -> int:
        return x

    @ft.retry(jitter=0)
    @ft.timeout(60_000, adaptive=True)
    def adaptive_timeout(self, x: int) -> int:
        return x

    @ft.partition_by("x")
    @ft.retry(jitter=0)
    @ft.bulkhead(64)
    def partition_by(self, x: int) -> int:
        return x

    @ft.coalesce
    @ft.retry(jitter=0)
    def coalesce(self, x: int) -> int:
        return x


class _GuardedAsync:
    async def bare(self, x: int) -> int:
        return x

    async def task(self, x: int) -> int:
        return await asyncio.create_task(self.bare(x))

    @ft.retry(jitter=0)
    async def retry(self, x: int) -> int:
        return x

    @ft.fallback(lambda context: 0)
    @ft.retry(jitter=0)
    @ft.circuit_breaker
    @ft.timeout(60_000)
    @ft.bulkhead(64)
    async def all(self, x: int) -> int:
        return x

    @ft.coalesce
    @ft.retry(jitter=0)
    async def coalesce(self, x: int) -> int:
        return x

    @ft.retry(jitter=0)
    @ft.hedge(delay=60_000)
    async def hedge(self, x: int) -> int:
        return x


class _Price(NamedTuple):
    """What *kind* adds to *without* has to be, and is to be, so many times less than what *measure* costs."""

    what: str
    kind: str
    without: str
    must: float
    aim: float
    measure: str = "all"

    def row(self, cost: dict[str, float]) -> Row:
        figures = {**cost, "added": cost[self.kind] - cost[self.without]}
        must, aim = ([cheaper(figures, "added", self.measure, times)] for times in (self.must, self.aim))
        return Row(self.what, f"{figures['added']:,.0f} ns more", must, aim, figures)


_SYNC = (
    _Price("retry_budget, full", "retry_budget", "retry", 8, 16),
    _Price("bulkhead(latency=…), in time", "latency", "bulkhead", 1.7, 2.6),
    _Price("adaptive_throttle, nothing fails", "adaptive_throttle", "retry", 1.6, 3.2),
    _Price("timeout(adaptive=True)", "adaptive_timeout", "timeout", 1, 1.4),
    _Price("partition_by, a key that is known", "partition_by", "bulkhead", 2, 2.6),
    _Price("coalesce, alone under its key, sync", "coalesce", "retry", 0.3, 0.43),
)
_ASYNC = (
    _Price("coalesce, alone under its key, async", "coalesce", "retry", 0.4, 0.8),
    _Price("hedge, none is sent, async", "hedge", "retry", 0.15, 1, "task"),
)


def rows(rounds: int) -> list[Row]:
    """Measure, and compare."""
    guarded = _Guarded()
    names = dict.fromkeys(name for price in _SYNC for name in (price.measure, price.kind, price.without))
    cost = overheads(_contenders(guarded, names), rounds)
    cost_async = asyncio.run(_coroutines(rounds))
    return [*(price.row(cost) for price in _SYNC), *(price.row(cost_async) for price in _ASYNC)]


async def _coroutines(rounds: int) -> dict[str, float]:
    names = dict.fromkeys(name for price in _ASYNC for name in ("all", price.measure, price.kind, price.without))
    return await overheads_async(_contenders(_GuardedAsync(), names), rounds * 10)


def _contenders(guarded: Any, names: dict[str, None]) -> list[Contender]:
    return [Contender(BARE, guarded.bare), *(Contender(name, getattr(guarded, name)) for name in names)]
