"""Timing that stands noise: everything in rotation, and the minimum of many rounds."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import repeat
from time import perf_counter_ns
from typing import Any, NamedTuple

__all__ = ["BARE", "Contender", "overheads", "overheads_async"]

BARE = "bare"
"""The name of the contender that the others are compared with."""

_LOOP_NS = 1_000_000
_YIELD_AFTER = 256  # so that a loop gets to drop cancelled timers


class Contender(NamedTuple):
    """One way to make the call; *before* prepares each loop of calls and is not timed."""

    name: str
    call: Callable[[Any], Any]
    before: Callable[[], object] | None = None


def overheads(
    contenders: Sequence[Contender], rounds: int, *, raising: bool = False, collecting: bool = False
) -> dict[str, float]:
    """Nanoseconds per call above the contender ``bare``.

    Args:
        contenders: The ways to make the call.
        rounds: How often each is timed.
        raising: Whether every call ends in an exception.
        collecting: Whether the garbage collector runs, as in a service. A call that keeps its failure in a cycle pays
            for it only then.
    """
    once = _raising if raising else _calling
    counts = {one.name: _calibrated(lambda n, one=one: once(one.call, n)) for one in contenders}
    best: dict[str, float] = {}
    with nullcontext() if collecting else _no_gc():
        for contender in _rotating(contenders, rounds):
            if contender.before is not None:
                contender.before()
            count = counts[contender.name]
            spent = once(contender.call, count) / count
            best[contender.name] = min(spent, best.get(contender.name, spent))
    return _above_bare(best)


async def overheads_async(
    contenders: Sequence[Contender], rounds: int, *, raising: bool = False, collecting: bool = False
) -> dict[str, float]:
    """The same for coroutine functions, on the running loop."""
    once = _raising_async if raising else _awaiting
    best: dict[str, float] = {}
    for one in contenders:
        await once(one.call, _YIELD_AFTER)
        await asyncio.sleep(0)
    with nullcontext() if collecting else _no_gc():
        for contender in _rotating(contenders, rounds):
            if contender.before is not None:
                contender.before()
            spent = await once(contender.call, _YIELD_AFTER) / _YIELD_AFTER
            best[contender.name] = min(spent, best.get(contender.name, spent))
            await asyncio.sleep(0)
    return _above_bare(best)


def _above_bare(best: dict[str, float]) -> dict[str, float]:
    bare = best.pop(BARE)
    return {BARE: bare, **{name: spent - bare for name, spent in best.items()}}


def _rotating(contenders: Sequence[Contender], rounds: int) -> Iterator[Contender]:
    for turn in range(rounds):
        start = turn % len(contenders)
        yield from contenders[start:]
        yield from contenders[:start]


def _calibrated(timed: Callable[[int], float]) -> int:
    timed(3)
    # The least of several: a loop that is too short, because something else ran meanwhile, would time cold caches.
    return max(3, int(_LOOP_NS / max(1.0, min(timed(20) for _ in range(5)) / 20)))


def _calling(call: Callable[[Any], Any], count: int) -> float:
    began = perf_counter_ns()
    for _ in repeat(None, count):
        call(1)
    return perf_counter_ns() - began


def _raising(call: Callable[[Any], Any], count: int) -> float:
    began = perf_counter_ns()
    for _ in repeat(None, count):
        try:
            call(1)
        except Exception:  # noqa: BLE001  # whatever a peer refuses with
            pass
    return perf_counter_ns() - began


async def _awaiting(call: Callable[[Any], Awaitable[Any]], count: int) -> float:
    began = perf_counter_ns()
    for _ in repeat(None, count):
        await call(1)
    return perf_counter_ns() - began


async def _raising_async(call: Callable[[Any], Awaitable[Any]], count: int) -> float:
    began = perf_counter_ns()
    for _ in repeat(None, count):
        try:
            await call(1)
        except Exception:  # noqa: BLE001  # whatever a peer refuses with
            pass
    return perf_counter_ns() - began


@contextmanager
def _no_gc() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
