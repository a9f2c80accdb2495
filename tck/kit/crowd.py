"""Callers on threads of their own: one, or many at once, with a count of those that are inside."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["Crowd", "on_thread", "press"]


class Crowd:
    """Counts the callers inside of its block, and the most of them at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.inside = 0
        self.most = 0

    def __enter__(self) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.inside -= 1


def on_thread(function: Callable[[], Any]) -> tuple[BaseException | None, float]:
    """Return the exception of *function* on another thread than the main one, and its duration."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    began = time.monotonic()
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    return (raised[0] if raised else None), time.monotonic() - began


def press(
    seconds: float,
    thread: Callable[[random.Random], object],
    task: Callable[[random.Random], Coroutine[Any, Any, object]],
    *,
    threads: int = 64,
    tasks: int = 10_000,
    loops: int = 2,
) -> None:
    """Run *thread* on threads and *task* in tasks of some loops, of which three in ten are cancelled.

    *thread* goes on for *seconds* by itself; each has a chance of its own. All of them have to end.
    """
    batches = tasks // loops // 100

    async def main(dice: random.Random) -> None:
        for _ in range(batches):
            fresh = [asyncio.ensure_future(task(dice)) for _ in range(100)]
            await asyncio.sleep(dice.random() * seconds / batches)
            for one in fresh:
                if dice.random() < 0.3:
                    one.cancel()
            if dice.random() < 0.5:
                await asyncio.gather(*fresh, return_exceptions=True)
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)

    pressing = [threading.Thread(target=thread, args=(random.Random(seed),), daemon=True) for seed in range(threads)]
    pressing += [
        threading.Thread(target=lambda dice: asyncio.run(main(dice)), args=(random.Random(seed),), daemon=True)
        for seed in range(loops)
    ]
    for one in pressing:
        one.start()
    for one in pressing:
        one.join(seconds * 5 + 60)
    assert not [one.name for one in pressing if one.is_alive()]
