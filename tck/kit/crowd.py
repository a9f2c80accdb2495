"""Many callers at once, and counting how many of them are inside."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["Crowd", "press"]


class Crowd:
    """Counts who is inside of its block, and how many were at most."""

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


def press(
    seconds: float,
    thread: Callable[[random.Random], object],
    task: Callable[[random.Random], Coroutine[Any, Any, object]],
    *,
    threads: int = 64,
    tasks: int = 10_000,
    loops: int = 2,
) -> None:
    """Let *thread* run on threads and *task* in tasks of some loops, of which three in ten are cancelled.

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
