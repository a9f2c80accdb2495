"""Callbacks that are due at a moment and run on the watchdog's thread."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf

from ..._log import ERROR, log
from ..._platform.unpatched import native


class Timer:
    """A callback that is due at a moment; ``Timers.call_at`` creates it."""

    __slots__ = ("_alive", "callback", "when")

    def __init__(self, alive: dict[Timer, None], when: float, callback: Callable[[], object]) -> None:
        self.when = when
        self.callback = callback
        self._alive = alive
        alive[self] = None

    def __lt__(self, other: Timer) -> bool:
        return self.when < other.when

    def cancel(self) -> None:
        """Remove the callback if it has not started."""
        self._alive.pop(self, None)


class Timers:
    """All timers: any thread adds or cancels them, and only the thread that runs them sorts them."""

    def __init__(self, rouse: Callable[[Callable[[], object]], object]) -> None:
        self._rouse = rouse
        """Makes the other thread call ``run_due`` soon, and calls its argument in one step with that."""
        self.next: float = inf
        """The moment of the next ``run_due``."""
        self.alive: dict[Timer, None] = {}
        self._incoming: deque[Timer] = deque()
        self._heap: list[Timer] = []

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        """Run a short callback on the other thread at *when*; its exceptions are logged."""
        timer = Timer(self.alive, when, callback)
        self._incoming.append(timer)
        if when < self.next or self._has_many_cancelled(len(self._incoming)):
            self._rouse(partial(setattr, self, "next", -inf))
        return timer

    def run_due(self) -> float:
        """Run the due callbacks, and return when the next timer is due."""
        self.next = inf  # before the look, as ``call_at`` adds before it reads this
        self.next = self._run_due()
        return self.next

    def _run_due(self) -> float:
        heap, alive = self._heap, self.alive
        while self._incoming:
            heapq.heappush(heap, self._incoming.popleft())
        if self._has_many_cancelled(0):
            heap[:] = [timer for timer in heap if timer in alive]
            heapq.heapify(heap)
        while heap:
            first = heap[0]
            if first in alive and first.when > native.monotonic():
                return first.when
            heapq.heappop(heap)
            if alive.pop(first, first) is None:
                try:
                    first.callback()
                except BaseException as error:  # other timers need this thread
                    log(ERROR, "a timer's callback failed", error=error)
        return inf

    def _has_many_cancelled(self, more: int) -> bool:
        return len(self._heap) + more > 2 * len(self.alive) + 64
