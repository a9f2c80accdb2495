"""The last N results of a closed circuit."""

from __future__ import annotations

__all__ = ["RollingWindow"]


_NO_RESULTS = bytearray()


class RollingWindow:
    """Remembers which of the last *size* results were failures; every step costs the same, whatever the size.

    Not safe under threads: the circuit breaker's lock covers it.
    """

    __slots__ = ("_next", "_results", "failures", "is_full", "quiet", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.failures = 0
        self.is_full = False
        """Whether *size* results were recorded; before that the circuit's state is not assessed."""
        self.quiet = 0
        """How many results were recorded since the newest failure; at least *size* where none is left."""
        # 1 is a failure; grows up to the size, then a ring. Nothing before the first result.
        self._results: bytearray = _NO_RESULTS
        self._next = 0  # where the next result goes once the ring is full: on the oldest one

    def record(self, failed: bool) -> None:
        """Add a result; the oldest one leaves when the window is full."""
        results = self._results
        self.quiet = 0 if failed else self.quiet + 1
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

    def record_successes(self, count: int) -> None:
        """Add that many successes; cheap by the many where the window is full."""
        if not self.is_full:
            for _ in range(count):
                self.record(False)
            return
        results, at = self._results, self._next
        self.quiet += count
        left = min(count, self.size)
        while left:
            end = min(at + left, self.size)
            self.failures -= results.count(1, at, end)
            results[at:end] = bytes(end - at)
            left -= end - at
            at = end % self.size
        self._next = at

    def successes_to_change(self) -> int:
        """How many successes it takes to fill the window or, when it is full, until its last failure has left."""
        return self.size - (self.quiet if self.is_full else len(self._results))

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
        self.quiet = len(results) - 1 - results.rfind(1) if self.failures else self.size
        self.is_full = len(results) == self.size
