"""Callbacks that are due at a moment and run on the watchdog's thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import NamedTuple, TypeAlias

from ..._log import ERROR, log
from ..._platform.unpatched import native

_Key: TypeAlias = tuple[float, int]
"""The moment of a timer, and its number."""


class Timer(NamedTuple):
    """A callback that is due at a moment; ``Timers.call_at`` creates it."""

    cancel: Callable[[], object]
    """Removes the callback if it has not started."""


class Timers:
    """All timers: any thread adds or cancels them, each by one call of C code."""

    def __init__(self, rouse: Callable[[Callable[[], object]], object]) -> None:
        self._rouse = rouse
        """Makes the other thread call ``run_due`` soon, and calls its argument in one step with that."""
        self.next: float = inf
        """The moment of the next ``run_due``."""
        self.callbacks: dict[_Key, Callable[[], object]] = {}
        """The callbacks that have not started and were not cancelled."""
        self._numbers = count()
        self._heap: list[_Key] = []

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        """Run a short callback on the other thread at *when*; its exceptions are logged."""
        key = (when, next(self._numbers))
        self.callbacks[key] = callback
        heappush(self._heap, key)
        if when < self.next or self._has_many_cancelled:
            self._rouse(partial(setattr, self, "next", -inf))
        return Timer(partial(self.callbacks.pop, key, None))

    def run_due(self) -> float:
        """Run the due callbacks, and return when the next timer is due."""
        self.next = inf  # before the look, as ``call_at`` adds before it reads this
        self.next = self._run_due()
        return self.next

    def _run_due(self) -> float:
        heap, callbacks = self._heap, self.callbacks
        if self._has_many_cancelled:
            heap[:] = filter(callbacks.__contains__, heap)  # one call of C code: no other thread adds a key meanwhile
            heapify(heap)
        while heap:
            key = heappop(heap)
            if key in callbacks and key[0] > native.monotonic():
                heappush(heap, key)
                return key[0]
            callback = callbacks.pop(key, None)
            if callback is not None:
                try:
                    callback()
                except BaseException as error:  # other timers need this thread
                    log(ERROR, "a timer's callback failed", error=error)
        return inf

    @property
    def _has_many_cancelled(self) -> bool:
        return len(self._heap) > 2 * len(self.callbacks) + 64
