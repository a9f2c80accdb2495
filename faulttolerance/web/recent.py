"""What guards counted in the last minute, as far as somebody looked: nothing here runs by itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

WINDOW = 75.0
"""Seconds until a look is forgotten."""
SPACING = 15.0
"""Seconds between two looks that are kept, so the oldest one is a minute old."""

Figures = Mapping[str, float]


class Recent:
    """The figures that earlier looks found, of each guard that lives."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._looks: WeakKeyDictionary[Callable[..., Any], dict[str, deque[tuple[float, Figures]]]] = (
            WeakKeyDictionary()
        )

    def since(self, guarded: Callable[..., Any], name: str, figures: Figures, now: float) -> dict[str, float] | None:
        """Return by how much *figures* have grown, and in how many seconds; ``None`` where there was no look.

        Args:
            guarded: The guarded function, or the ``Guard``.
            name: That of the guard: classes share functions.
            figures: What is counted now; it is kept for later looks.
            now: Seconds of the clock on the wall.
        """
        with self._lock:
            looks = self._looks.setdefault(guarded, {}).setdefault(name, deque())
            while looks and not 0 <= now - looks[0][0] <= WINDOW:  # a clock may be set back
                looks.popleft()
            if looks and any(before > figures.get(key, 0) for key, before in looks[0][1].items()):
                looks.clear()  # a test began to count anew
            first = looks[0] if looks else None
            if not looks or now - looks[-1][0] >= SPACING:
                looks.append((now, figures))
        if first is None:
            return None
        grown = {key: value - first[1].get(key, 0) for key, value in figures.items()}
        return {"seconds": round(now - first[0], 1), **grown}
