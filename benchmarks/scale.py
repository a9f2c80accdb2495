"""The cost of many: threads, tasks, guarded methods, deadlines."""

from __future__ import annotations

import asyncio
import gc
import threading
import tracemalloc
from collections.abc import Awaitable, Callable
from itertools import repeat
from time import perf_counter
from typing import Any

from faulttolerance._deadline.clock import clock
from faulttolerance._deadline.queue import queue_of
from faulttolerance._deadline.task import TaskDeadline

from . import memory, ours
from .table import Limit, Row, under

__all__ = ["rows"]


def rows(rounds: int, *, quick: bool) -> list[Row]:
    """Measure, and compare."""
    return [
        _threads(max(3, rounds // 3), 0.05 if quick else 0.2),
        asyncio.run(_tasks(max(3, rounds // 2), 1_000 if quick else 10_000)),
        _memory(200 if quick else 1_000),
        asyncio.run(_deadlines(10_000 if quick else 100_000)),
    ]


def _threads(rounds: int, seconds: float) -> Row:
    guarded = ours.GuardedWide().all
    bare = ours.GuardedWide().bare
    best: dict[str, float] = {}
    for _ in range(rounds):
        for count in (1, 32):
            for name, call in (("all", guarded), ("bare", bare)):
                rate = _throughput(call, count, seconds)
                best[f"{name}, {count}"] = max(rate, best.get(f"{name}, {count}", 0.0))
    part, bare_part = best["all, 32"] / best["all, 1"], best["bare, 32"] / best["bare, 1"]
    return Row(
        "32 threads on one guarded method",
        f"{part:.0%} of one thread's {best['all, 1'] / 1e3:,.0f} thousand calls/s; bare {bare_part:.0%}",
        [Limit(f"{part:.0%}, needed 60 %", part, 0.6)],
        [Limit(f"{part:.0%}, needed 80 %", part, 0.8)],
        {name: 1e9 / rate for name, rate in best.items()},
    )


def _throughput(call: Callable[[Any], Any], threads: int, seconds: float) -> float:
    """Calls per second of all threads together."""
    start = threading.Barrier(threads + 1)
    stop = threading.Event()
    counts = [0] * threads

    def work(index: int) -> None:
        start.wait()
        while not stop.is_set():
            for _ in repeat(None, 200):
                call(1)
            counts[index] += 200

    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    start.wait()
    began = perf_counter()
    stop.wait(seconds)
    done = sum(counts)
    spent = perf_counter() - began
    stop.set()
    for worker in workers:
        worker.join()
    return done / spent


async def _tasks(rounds: int, count: int) -> Row:
    wide = ours.GuardedWide()
    best: dict[str, float] = {}
    for turn in range(rounds):
        contenders = [("bare", wide.sleep), ("all", wide.guarded_sleep)]
        for name, call in contenders if turn % 2 else reversed(contenders):
            gc.collect()
            spent = await _many(call, count)
            best[name] = min(spent, best.get(name, spent))
    over = (best["all"] - best["bare"]) / count * 1e6
    return Row(
        f"{count:,} concurrent tasks",
        f"{over:.2f} us per task over bare ({best['all'] * 1e3:.0f} and {best['bare'] * 1e3:.0f} ms)",
        [under(over, 3, "us")],
        [under(over, 2, "us")],
        {name: spent * 1e9 for name, spent in best.items()},
    )


async def _many(call: Callable[[], Awaitable[object]], count: int) -> float:
    gc.disable()
    began = perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(count):
            tasks.create_task(call())  # type: ignore[arg-type]
    spent = perf_counter() - began
    gc.enable()
    return spent


def _memory(count: int) -> Row:
    taken = memory.each(count)
    all_kib, retry_kib = taken["all"] / 1024, taken["retry"] / 1024
    return Row(
        "memory per guarded method",
        f"{all_kib:.2f} KiB with five policies, {retry_kib:.2f} KiB with one",
        [under(all_kib, 4, "KiB")],
        [under(all_kib, 2.5, "KiB")],
        dict(taken),
    )


async def _deadlines(count: int) -> Row:
    """Deadlines under way in as many tasks, without the tasks: what remains of each is what it takes by itself."""
    few = _tick_of(1_000)
    gc.collect()
    tracemalloc.start()
    kept = _outstanding(count)
    taken = tracemalloc.get_traced_memory()[0] / count
    tracemalloc.stop()
    began = perf_counter()
    for deadline in kept:
        deadline.end()
    ended = (perf_counter() - began) / count
    del kept
    many = _tick_of(count)
    return Row(
        f"{count:,} deadlines outstanding",
        f"{taken:.0f} bytes each, taken back in {ended * 1e9:.0f} ns; one look at them {many * 1e6:.1f} us,"
        f" at 1,000 {few * 1e6:.1f} us",
        [under(taken, 200, "bytes"), Limit("a look does not grow", few * 4 / max(many, 1e-9))],
        figures={"bytes": taken, "look at many": many * 1e9, "look at 1,000": few * 1e9},
    )


def _outstanding(count: int) -> list[TaskDeadline]:
    due = clock.monotonic() + 600
    queue = queue_of(asyncio.get_running_loop(), 600.0)
    kept = []
    for _ in range(count):
        deadline = TaskDeadline()
        deadline.start(due, None)
        queue.add(deadline)
        kept.append(deadline)
    return kept


def _tick_of(count: int) -> float:
    """Seconds that the timer needs to see that none of *count* deadlines has passed."""
    kept = _outstanding(count)
    queue = queue_of(asyncio.get_running_loop(), 600.0)
    best = float("inf")
    for _ in range(20):
        if queue.timer is not None:
            queue.timer.cancel()
        began = perf_counter()
        queue._tick()
        best = min(best, perf_counter() - began)
    for deadline in kept:
        deadline.end()
    return best
