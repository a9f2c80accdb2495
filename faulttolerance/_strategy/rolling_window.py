"""The last N results of a closed circuit."""

from __future__ import annotations

__all__ = ["RollingWindow"]


_NO_RESULTS = bytearray()


class RollingWindow:
    """Remembers which of the last *size* results were failures; every step costs the same, whatever the size.

    Not safe under threads: the circuit breaker's lock covers it.
    """

    __slots__ = ("_next", "_results", "failures", "is_full", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.failures = 0
        self.is_full = False
        """Whether *size* results were recorded; before that the circuit's state is not assessed."""
        # 1 is a failure; grows up to the size, then a ring. Nothing before the first result.
        self._results: bytearray = _NO_RESULTS
        self._next = 0  # where the next result goes once the ring is full: on the oldest one

    def record(self, failed: bool) -> None:
        """Add a result; the oldest one leaves when the window is full."""
        results = self._results
        if self.is_full:
            at = self._next
            self.failures += failed - results[at]
            results[at] = failed
            self._next = at + 1 if at + 1 < self.size else 0
        else:
            if results is _NO_RESULTS:
                results = self._results = bytearray()
            results.append(failed)
            self.failures += failed
            self.is_full = len(results) == self.size

    def resize(self, size: int) -> None:
        """Change the length; the newest results stay."""
        results = self._results[self._next :] + self._results[: self._next]
        self._results = results[-size:]
        self._next = 0
        self.size = size
        self.recount()

    def recount(self) -> None:
        """Count again, after a fork may have caught another thread between two steps of ``record``."""
        results = self._results[self._next :] + self._results[: self._next]
        self.failures = results.count(1)
        self.is_full = len(results) == self.size
