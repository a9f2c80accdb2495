"""The figures that guards counted in the last minute, as far as the page was read: no code here runs by itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

WINDOW = 75.0
"""The seconds after which a reading is removed."""
SPACING = 15.0
"""The seconds between two readings that are kept: the oldest reading is then about a minute old."""

Figures = Mapping[str, float]


class RecentFigures:
    """The figures of earlier readings, for each guard that lives."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._readings: WeakKeyDictionary[Callable[..., Any], dict[str, deque[tuple[float, Figures]]]] = (
            WeakKeyDictionary()
        )

    def growth(self, guarded: Callable[..., Any], name: str, figures: Figures, now: float) -> dict[str, float] | None:
        """Return the growth of *figures* and its duration in seconds; ``None`` if there was no earlier reading.

        Args:
            guarded: The guarded function, or the ``Guard``.
            name: The name of the guard: classes share functions.
            figures: The current figures; they are kept for later readings.
            now: Seconds of the wall clock.
        """
        with self._lock:
            readings = self._readings.setdefault(guarded, {}).setdefault(name, deque())
            while readings and not 0 <= now - readings[0][0] <= WINDOW:  # the wall clock may be set back
                readings.popleft()
            if readings and any(before > figures.get(key, 0) for key, before in readings[0][1].items()):
                readings.clear()  # the counters were reset, as between tests
            first = readings[0] if readings else None
            if not readings or now - readings[-1][0] >= SPACING:
                readings.append((now, figures))
        if first is None:
            return None
        grown = {key: value - first[1].get(key, 0) for key, value in figures.items()}
        return {"seconds": round(now - first[0], 1), **grown}
