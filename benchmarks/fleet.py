"""Questions to a fleet: one link for all callers, beside a client for each, and beside the package ``limits``.

``python -m benchmarks.fleet`` starts a Redis of its own, lets threads and tasks take turns under a limit that refuses
nobody, each in rotation, and prints the rates and the waits of their best rounds. Without ``redis-server`` it says so.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

import limits.aio.storage
import limits.aio.strategies
import limits.storage
import limits.strategies
import redis
import redis.asyncio

from faulttolerance import RedisFleet, configure, fleet_wide, rate_limit
from faulttolerance._extensions.fleet.protocol import TurnRequest
from faulttolerance._extensions.fleet.server.scripts import script

__all__ = ["DEMANDED", "measured"]

DEMANDED = 2.5
"""The least number of questions of 64 tasks through the link for one of theirs through clients of their own."""

_LINK, _CLIENTS, _FIXED, _MOVING = "the link", "a client per caller", "limits, fixed window", "limits, moving window"
_VALUE = 10_000_000
_NOBODY_IS_REFUSED = limits.RateLimitItemPerSecond(_VALUE)

_QUESTION = TurnRequest("benchmark", "smooth", _VALUE, 1_000_000, _VALUE)


class Rate(NamedTuple):
    """What a crowd of callers came to in its best round."""

    per_second: float
    p50: float
    """Seconds."""
    p99: float

    def __str__(self) -> str:
        return f"{self.per_second:8,.0f}/s, p50 {self.p50 * 1e6:6,.0f} us, p99 {self.p99 * 1e6:7,.0f} us"


@rate_limit(value=_VALUE, window=1000, type="smooth", burst=_VALUE)
@fleet_wide
def _turn() -> None:
    """Do nothing once a turn was granted."""


@rate_limit(value=_VALUE, window=1000, type="smooth", burst=_VALUE)
@fleet_wide
async def _turn_async() -> None:
    """Do nothing once a turn was granted."""


def threads(count: int, seconds: float, calls: list[Callable[[], object]]) -> Rate:
    """Let *count* threads call, each its own of *calls*."""
    waits: list[float] = []
    end = time.perf_counter() + seconds

    def work(call: Callable[[], object]) -> None:
        mine = []
        while (began := time.perf_counter()) < end:
            call()
            mine.append(time.perf_counter() - began)
        waits.extend(mine)

    working = [threading.Thread(target=work, args=(calls[number % len(calls)],)) for number in range(count)]
    for one in working:
        one.start()
    for one in working:
        one.join()
    return _rate(waits, seconds)


async def tasks(count: int, seconds: float, call: Callable[[], Awaitable[object]]) -> Rate:
    """Let *count* tasks of one loop call."""
    waits: list[float] = []
    end = time.perf_counter() + seconds

    async def work() -> None:
        while (began := time.perf_counter()) < end:
            await call()
            waits.append(time.perf_counter() - began)

    await asyncio.gather(*(work() for _ in range(count)))
    return _rate(waits, seconds)


def _rate(waits: list[float], seconds: float) -> Rate:
    waits.sort()
    return Rate(len(waits) / seconds, statistics.median(waits), waits[int(len(waits) * 0.99)])


@contextmanager
def server() -> Iterator[int]:
    """A Redis of its own, by its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        options = ["--port", str(port), "--save", "", "--appendonly", "no", "--dir", folder]
        process = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
        try:
            _wait_for(port)
            yield port
        finally:
            process.kill()
            process.wait()


def _wait_for(port: int) -> None:
    for _ in range(200):
        try:
            redis.Redis(port=port).ping()
        except redis.ConnectionError:
            time.sleep(0.02)
        else:
            return
    raise SystemExit("redis-server does not answer")


def _of_threads(port: int, count: int) -> dict[str, list[Callable[[], object]]]:
    def own() -> Callable[[], object]:
        client = redis.Redis(port=port)
        digest = client.script_load(script("turn").text)
        return lambda: client.evalsha(digest, 1, "benchmark", *_QUESTION[1:])

    storage = limits.storage.RedisStorage(f"redis://127.0.0.1:{port}")
    fixed, moving = (kind(storage) for kind in (
        limits.strategies.FixedWindowRateLimiter, limits.strategies.MovingWindowRateLimiter,
    ))  # fmt: skip
    return {
        _LINK: [_turn],
        _CLIENTS: [own() for _ in range(count)],
        _FIXED: [lambda: fixed.hit(_NOBODY_IS_REFUSED, "fixed")],
        _MOVING: [lambda: moving.hit(_FEW, "moving")],
    }


_FEW = limits.RateLimitItemPerSecond(100)
"""A moving window keeps every turn: with a value that nobody reaches, it would measure its length."""


@asynccontextmanager
async def _of_tasks(port: int, count: int) -> AsyncIterator[dict[str, Callable[[], Awaitable[object]]]]:
    client = redis.asyncio.Redis(port=port, max_connections=count)
    digest = redis.Redis(port=port).script_load(script("turn").text)
    storage: Any = limits.aio.storage.RedisStorage(
        f"async+redis://127.0.0.1:{port}", implementation="redispy", max_connections=count
    )
    fixed = limits.aio.strategies.FixedWindowRateLimiter(storage)
    moving = limits.aio.strategies.MovingWindowRateLimiter(storage)
    yield {
        _LINK: _turn_async,
        _CLIENTS: lambda: client.evalsha(digest, 1, "benchmark", *map(str, _QUESTION[1:])),  # type: ignore[dict-item]
        _FIXED: lambda: fixed.hit(_NOBODY_IS_REFUSED, "fixed"),
        _MOVING: lambda: moving.hit(_FEW, "moving"),
    }
    await client.aclose()


def measured(rounds: int = 3, seconds: float = 1.0) -> dict[str, dict[str, Rate]]:
    """By the crowd, and by the way in which it asks: the best of *rounds*, all in rotation."""
    found: dict[str, dict[str, Rate]] = {}

    def note(crowd: str, way: str, rate: Rate) -> None:
        best = found.setdefault(crowd, {}).setdefault(way, rate)
        found[crowd][way] = max(best, rate)

    with server() as port:
        configure(fleet=RedisFleet(f"redis://127.0.0.1:{port}", namespace="benchmark", patience=1000))
        try:
            _turn()
            for _ in range(rounds):
                for count in (1, 8):
                    for way, calls in _of_threads(port, count).items():
                        note(f"{count} thread{'s' * (count > 1)}", way, threads(count, seconds, calls))
                for count in (1, 64):
                    asyncio.run(_round(port, count, seconds, note))
        finally:
            configure(fleet=None)
    return found


async def _round(port: int, count: int, seconds: float, note: Callable[[str, str, Rate], object]) -> None:
    async with _of_tasks(port, count) as ways:
        for way, call in ways.items():
            note(f"{count} task{'s' * (count > 1)}", way, await tasks(count, seconds, call))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each crowd and round")
    options = parser.parse_args()
    if shutil.which("redis-server") is None:
        print("there is no redis-server")
        return 0
    found = measured(options.rounds, options.seconds)
    for crowd, ways in found.items():
        print(crowd)
        for way, rate in ways.items():
            print(f"  {way:22} {rate}")
    crowd = found["64 tasks"]
    ratio = crowd[_LINK].per_second / crowd[_CLIENTS].per_second
    print(f"\n64 tasks: {ratio:.1f} times a client per caller; demanded: {DEMANDED}")
    return 0 if ratio >= DEMANDED else 1


if __name__ == "__main__":
    sys.exit(main())
