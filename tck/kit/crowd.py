"""Counting who is inside at once."""

from __future__ import annotations

import threading

__all__ = ["Crowd"]


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
