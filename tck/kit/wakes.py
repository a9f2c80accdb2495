"""The number of times that each waiter of a bulkhead is woken."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from faulttolerance._strategy.bulkhead import Bulkhead

__all__ = ["Wakes"]


class Wakes:
    """Counts the wake-ups of all waiters for a permit, as long as *monkeypatch* lasts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._counts: Counter[int] = Counter()
        self._waiters: list[Any] = []
        enter = Bulkhead.enter

        def watched(bulkhead: Bulkhead, waiter: Any) -> Any:
            if waiter.wake is not None:
                self._watch(waiter)
            return enter(bulkhead, waiter)

        monkeypatch.setattr(Bulkhead, "enter", watched)

    def _watch(self, waiter: Any) -> None:
        wake, counts = waiter.wake, self._counts
        self._waiters.append(waiter)

        def counted() -> None:
            counts[id(waiter)] += 1
            try:
                wake()
            except Exception:
                raise
            except BaseException:
                counts[id(waiter)] -= 1  # a time-out came where the loop's socket was written to: it is woken again
                raise

        waiter.wake = counted

    @property
    def most(self) -> int:
        """The most wake-ups that a waiter got."""
        return max(self._counts.values())

    @property
    def is_each_refused_told(self) -> bool:
        """Whether each refused waiter was woken once."""
        return all(self._counts[id(waiter)] == 1 for waiter in self._waiters if waiter.reason)
