"""The nanoseconds of one guarded call, policy by policy: the price that each adds to the ones before it.

``python -m benchmarks.layers`` prints it; ``docs/explanation/cost.md`` shows and explains one run.
"""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from threading import get_ident
from typing import Any

import faulttolerance as ft
from faulttolerance._deadline.threads.chain import this_thread
from faulttolerance._guard.declare.declaration import declaration_of

from .timing import BARE, Contender, overheads, overheads_async


class _Steps:
    """One policy more from method to method."""

    def bare(self, x: int) -> int:
        return x

    @ft.retry(jitter=0)
    def one(self, x: int) -> int:
        return x

    @ft.fallback(lambda context: 0)
    @ft.retry(jitter=0)
    def two(self, x: int) -> int:
        return x

    @ft.fallback(lambda context: 0)
    @ft.retry(jitter=0)
    @ft.circuit_breaker
    def three(self, x: int) -> int:
        return x

    @ft.fallback(lambda context: 0)
    @ft.retry(jitter=0)
    @ft.circuit_breaker
    @ft.bulkhead(64)
    def four(self, x: int) -> int:
        return x

    @ft.fallback(lambda context: 0)
    @ft.retry(jitter=0)
    @ft.circuit_breaker
    @ft.bulkhead(64)
    @ft.timeout(60_000)
    def five(self, x: int) -> int:
        return x


class _AsyncSteps:
    async def bare(self, x: int) -> int:
        return x

    @ft.retry(jitter=0)
    async def one(self, x: int) -> int:
        return x

    @ft.fallback(lambda context: 0)
    @ft.retry(jitter=0)
    async def two(self, x: int) -> int:
        return x

    @ft.fallback(lambda context: 0)
    @ft.retry(jitter=0)
    @ft.circuit_breaker
    async def three(self, x: int) -> int:
        return x

    @ft.fallback(lambda context: 0)
    @ft.retry(jitter=0)
    @ft.circuit_breaker
    @ft.bulkhead(64)
    async def four(self, x: int) -> int:
        return x

    @ft.fallback(lambda context: 0)
    @ft.retry(jitter=0)
    @ft.circuit_breaker
    @ft.bulkhead(64)
    @ft.timeout(60_000)
    async def five(self, x: int) -> int:
        return x


_STEPS = {"one": "retry", "two": "fallback", "three": "breaker", "four": "bulkhead", "five": "time-out"}


def sync(rounds: int) -> dict[str, float]:
    """Nanoseconds of each layer of a synchronous call."""
    steps = _Steps()
    for name in _STEPS:
        for _ in range(64):
            getattr(steps, name)(1)
    path = declaration_of(_Steps.one).resolver.call  # type: ignore[union-attr]
    nothing: dict[str, Any] = {}
    cost = overheads(
        [
            Contender(BARE, steps.bare),
            Contender("unwrapped", lambda x: steps.bare(x)),
            Contender("path", lambda x: path((steps, x), nothing)),
            *(Contender(name, getattr(steps, name)) for name in _STEPS),
        ],
        rounds,
    )
    inside = cost["path"] - cost["unwrapped"]
    return {
        "bare call": cost[BARE],
        "finding the path, and forwarding": cost["one"] - inside,
        "the path of retry, clock and count included": inside,
        **_added(cost),
    }


async def coroutines(rounds: int) -> dict[str, float]:
    """The same for a coroutine."""
    steps = _AsyncSteps()
    for name in _STEPS:
        for _ in range(64):
            await getattr(steps, name)(1)
    calls = [Contender(BARE, steps.bare), *(Contender(name, getattr(steps, name)) for name in _STEPS)]
    cost = await overheads_async(calls, rounds * 3)
    return {"bare call": cost[BARE], "retry, all included": cost["one"], **_added(cost)}


def _added(cost: dict[str, float]) -> dict[str, float]:
    added = {f"+ {_STEPS[name]}": cost[name] - cost[before] for before, name in pairwise(_STEPS)}
    return {**added, "all": cost["five"]}


def primitives(rounds: int) -> dict[str, float]:
    """Measure the interpreter's price for the pieces."""
    held: dict[object, int] = {}
    samples: list[float] = []

    def permit(x: int) -> None:
        me = object()
        held[me] = 1
        del held[me]

    def sample(x: int) -> None:
        samples.append(0.0)
        if len(samples) >= 1024:
            del samples[:]

    return overheads(
        [
            Contender(BARE, lambda x: None),
            Contender("time.monotonic", lambda x: time.monotonic()),
            Contender("get_ident", lambda x: get_ident()),
            Contender("the thread's deadlines", lambda x: this_thread.deadlines),
            Contender("a permit taken and given back", permit),
            Contender("a sample appended", sample),
        ],
        rounds,
    )


def main() -> None:
    for title, found in (
        ("synchronous", sync(60)),
        ("coroutine", asyncio.run(coroutines(60))),
        ("primitives", primitives(60)),
    ):
        print(title)
        for name, spent in found.items():
            print(f"    {spent:7.0f} ns  {name}")


if __name__ == "__main__":
    main()
