"""How many calls pass in a window of time; the kinds of window are SmallRye's.

Other than there, a refused call leaves no trace: it neither uses up the limit nor moves the spacing. A caller that
keeps knocking is let in as soon as one that waits.

Time is counted in whole nanoseconds and never divided, so that no rounding lets a call more through than the limit.
"""

from __future__ import annotations

import math
import sys
import threading
from collections import deque
from typing import Literal, Protocol, TypeAlias

from ..exceptions import RateLimitException
from .condition import Condition

__all__ = ["RateLimit", "WindowKind"]

WindowKind: TypeAlias = Literal["fixed", "rolling", "smooth"]

_PER_SECOND = 1_000_000_000
_MOST = 1_000_000
"""So many calls are carried over when a window becomes a rolling one, which keeps a moment for each."""


class _Window(Protocol):
    """Moments and lengths are in nanoseconds.

    Threads read the clock before they get here, so a moment may be a little earlier than the one before; then it finds
    less room, never more.
    """

    def due(self, now: int) -> int:
        """The moment from which the next call has room; *now* or earlier: it has room now."""
        ...

    def take(self, now: int) -> None:
        """Count a call that was let through; only after ``due`` with the same *now*."""

    def used(self, now: int) -> int:
        """How much of the limit is used up at the moment, in calls."""
        ...

    def remember(self, used: int, now: int) -> None:
        """Begin with *used* calls counted, so that a change of the kind of window forgives none."""

    def resize(self, limit: int, length: int, now: int) -> None:
        """Take new values, keep what was counted."""


class _Fixed:
    """Windows follow one another from the first call on."""

    def __init__(self, limit: int, length: int) -> None:
        self.limit = limit
        self.length = length
        self.start: int | None = None
        self.count = 0

    def due(self, now: int) -> int:
        if self.start is None:
            self.start = now
        passed = (now - self.start) // self.length
        if passed > 0:
            self.start += passed * self.length
            self.count = 0
        return now if self.count < self.limit else self.start + self.length

    def take(self, now: int) -> None:
        self.count += 1

    def used(self, now: int) -> int:
        self.due(now)
        return self.count

    def remember(self, used: int, now: int) -> None:
        self.start = now
        self.count = used

    def resize(self, limit: int, length: int, now: int) -> None:
        self.due(now)
        self.limit = limit
        self.length = length


class _Rolling:
    """In no period as long as the window are more calls let through than the limit."""

    def __init__(self, limit: int, length: int) -> None:
        self.limit = limit
        self.length = length
        self.moments: deque[int] = deque(
            maxlen=min(limit, sys.maxsize)
        )  # of the newest calls; the oldest leaves by itself

    def due(self, now: int) -> int:
        return now if len(self.moments) < self.limit else self.moments[0] + self.length

    def take(self, now: int) -> None:
        self.moments.append(now)

    def used(self, now: int) -> int:
        return sum(moment + self.length > now for moment in self.moments)

    def remember(self, used: int, now: int) -> None:
        self.moments.extend([now] * min(used, _MOST))

    def resize(self, limit: int, length: int, now: int) -> None:
        self.limit = limit
        self.length = length
        self.moments = deque(self.moments, maxlen=min(limit, sys.maxsize))


class _Smooth:
    """Permits come back one by one, evenly; up to the limit gather while nobody calls. The first call finds one."""

    def __init__(self, limit: int, length: int) -> None:
        self.limit = limit
        self.length = length
        # The moment at which all permits are back, times the limit: whole numbers, where a permit's interval is none.
        self.filled: int | None = None

    def due(self, now: int) -> int:
        if self.filled is None:
            self.filled = now * self.limit + (self.limit - 1) * self.length
        return -(((self.limit - 1) * self.length - self.filled) // self.limit)

    def take(self, now: int) -> None:
        assert self.filled is not None
        self.filled = max(self.filled, now * self.limit) + self.length

    def used(self, now: int) -> int:
        if self.filled is None:
            return 0
        return max(0, -((now * self.limit - self.filled) // self.length))

    def remember(self, used: int, now: int) -> None:
        self.filled = now * self.limit + used * self.length

    def resize(self, limit: int, length: int, now: int) -> None:
        if self.filled is not None:
            missing = max(0, self.filled - now * self.limit)  # in permits, times the old length
            self.filled = now * limit + min(limit * length, -(-missing * length // self.length))
        self.limit = limit
        self.length = length


_KINDS: dict[WindowKind, type[_Fixed | _Rolling | _Smooth]] = {"fixed": _Fixed, "rolling": _Rolling, "smooth": _Smooth}


class RateLimit:
    """One limit for the calls of all threads. All durations and moments are in seconds of one monotonic clock.

    Args:
        name: Whose limit it is, for the message of a refusal.
        limit: Calls that are let through in one window.
        window: The length of the window; more than 0.
        min_spacing: The shortest time between two calls that are let through.
        kind: How the window moves.
    """

    __slots__ = ("_kind", "_last", "_lock", "_message", "_spacing", "_window")

    def __init__(self, name: str, limit: int, window: float, min_spacing: float, kind: WindowKind) -> None:
        self._message = f"{name}: rate limit is exceeded"
        self._kind: WindowKind = kind
        self._window: _Window = _KINDS[kind](limit, _ticks(window) or 1)
        self._spacing = _ticks(min_spacing)
        self._last: int | None = None  # guarded by _lock: when the newest call was let through
        # Reentrant: a signal handler or a finalizer may call the guarded function while its thread is in here.
        self._lock = threading.RLock()

    def admit(self, now: float) -> None:
        """Let a call through.

        Raises:
            RateLimitException: There were too many; ``retry_after`` is when there may be room, and not before.
        """
        with self._lock:
            moment = _ticks(now)
            due = self._due_locked(moment)
            if due <= moment:
                self._window.take(moment)
                self._last = moment
                return
        raise RateLimitException(self._message, _wait(now, due))

    def condition(self, now: float) -> Condition:
        """How it stands."""
        with self._lock:
            moment = _ticks(now)
            due = self._due_locked(moment)
            used = self._window.used(moment)
        return Condition(f"{used} let through in its window", is_impaired=due > moment)

    def is_idle(self, now: float) -> bool:
        """Whether nothing is lost if it is forgotten: no call that was let through still counts."""
        with self._lock:
            moment = _ticks(now)
            is_spaced = self._last is None or self._last + self._spacing <= moment
            return is_spaced and not self._window.used(moment)

    def reconfigure(self, limit: int, window: float, min_spacing: float, kind: WindowKind, now: float) -> None:
        """Take new values; calls that were let through still count."""
        with self._lock:
            moment = _ticks(now)
            length = _ticks(window) or 1
            self._spacing = _ticks(min_spacing)
            if kind == self._kind:
                self._window.resize(limit, length, moment)
                return
            used = min(self._window.used(moment), limit)
            self._kind = kind
            self._window = _KINDS[kind](limit, length)
            if used:
                self._window.remember(used, moment)

    def _due_locked(self, moment: int) -> int:
        """Return when the next call may be let through."""
        due = self._window.due(moment)
        return max(due, self._last + self._spacing) if self._spacing and self._last is not None else due

    def keep_only(self, ident: int) -> None:
        """Replace the lock, which another thread may have held when the process forked. Call it in the child only."""
        self._lock = threading.RLock()


def _ticks(seconds: float) -> int:
    return round(seconds * _PER_SECOND)


def _wait(now: float, due: int) -> float:
    """Seconds after which a caller that adds them to *now* has surely reached *due*."""
    moment = due / _PER_SECOND
    while _ticks(moment) < due:
        moment = math.nextafter(moment, math.inf)
    wait = moment - now
    while now + wait < moment:
        wait = math.nextafter(wait, math.inf)
    return wait
