"""Limits on the number of calls in a window of time; the kinds of window are SmallRye's.

Unlike there, a refused call leaves no trace: it neither uses up the limit nor moves the spacing. A caller that calls
again and again is admitted as soon as a caller that waits.

Time is counted in whole nanoseconds and never divided, so that no rounding admits a call beyond the limit.

Calls that may wait stand in one queue (rule RL1). Each call learns when its turn comes if all calls before it are
admitted, and asks again then. A call that is admitted, or releases its turn, leaves an earlier turn to the first call
in the queue. Only this call is woken: it asks again, and does the same for the next.
"""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

import copy
import math
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from operator import indexOf
from typing import Literal, NamedTuple, TypeAlias

from ..exceptions import RateLimitException
from .condition import Condition, in_seconds

WindowKind: TypeAlias = Literal["fixed", "rolling", "smooth"]

_PER_SECOND = 1_000_000_000
PASSED = 0
"""In the place of the thread of a waiter: its call has passed, because the limit was only observed."""
GRACE = _PER_SECOND
"""The time after its longest wait after which a call that has not asked again counts as gone."""


class _Window:
    """The common part of the windows, which count admitted calls. Moments and lengths are in nanoseconds.

    Threads read the clock before they get here, so a moment may be a little earlier than the one before; then it has
    less room, never more. Each kind of window has these methods:

    - ``due(now, ahead)`` returns the moment from which a call has room after *ahead* others; *now* or earlier: there is
      room now.
    - ``record(now, since)`` counts an admitted call that had room from *since* on; only after ``due`` with the same
      *now*.
    """

    burst = 1
    """The calls that may come at once after a rest, where the window is smooth."""
    count: int
    """The calls that were admitted since the current window began; 0 where windows do not follow one another."""
    has_room_until = -math.inf
    """Up to this moment, in seconds, a call has room if ``count`` is below ``limit``; minus infinity: call ``due``."""

    def __init__(self, limit: int, length: int, burst: int) -> None:
        self.count = 0
        _Window.resize(self, limit, length, burst, 0)

    def resize(self, limit: int, length: int, burst: int, now: int) -> None:
        """Replace the values; keep the counts."""
        self.limit = limit
        self.length = length


class _Fixed(_Window):
    """Windows that follow one another from the first call on."""

    end: int | None = None

    def due(self, now: int, ahead: int = 0) -> int:
        end = self.end
        if end is None:
            end = self._set_end(now + self.length)
        elif now >= end:
            end = self._set_end(now - (now - end) % self.length + self.length)
            self.count = 0
        if ahead + self.count < self.limit:
            return now
        beyond = ahead - max(0, self.limit - self.count)
        return end + beyond // (self.limit or 1) * self.length

    def record(self, now: int, since: int) -> None:
        self.count += 1

    def resize(self, limit: int, length: int, burst: int, now: int) -> None:
        self.due(now)
        assert self.end is not None
        self._set_end(self.end + length - self.length)
        super().resize(limit, length, burst, now)

    def _set_end(self, end: int) -> int:
        self.end = end
        self.has_room_until = end / _PER_SECOND - 1e-6  # more than a float of seconds is rounded by
        return end


class _Rolling(_Window):
    """A window that moves: no period of its length admits more calls than the limit."""

    def __init__(self, limit: int, length: int, burst: int) -> None:
        super().__init__(limit, length, burst)
        # Of the newest calls; the deque drops the oldest.
        self.moments: deque[int] = deque(maxlen=min(limit, sys.maxsize))

    def due(self, now: int, ahead: int = 0) -> int:
        later, ahead = divmod(ahead, self.limit)
        before = len(self.moments) + ahead - self.limit  # index of the call that has to leave the window first
        due = now if before < 0 else self.moments[before] + self.length
        return max(now, due) + later * self.length if later else due

    def record(self, now: int, since: int) -> None:
        self.moments.append(max(now, self.moments[-1]) if self.moments else now)  # threads may be late with theirs

    def resize(self, limit: int, length: int, burst: int, now: int) -> None:
        super().resize(limit, length, burst, now)
        self.moments = deque(self.moments, maxlen=min(limit, sys.maxsize))


class _Smooth(_Window):
    """Permits that come back singly and evenly; up to the burst gather while nobody calls, as before the first call."""

    filled: int | None = None
    """The moment at which all permits are back, times the limit: whole even where a permit's interval is not."""

    def __init__(self, limit: int, length: int, burst: int) -> None:
        super().__init__(limit, length, burst)
        self.burst = burst

    def due(self, now: int, ahead: int = 0) -> int:
        if self.filled is None:
            self.filled = now * self.limit
        filled = max(self.filled, now * self.limit) + ahead * self.length if ahead else self.filled
        return -(((self.burst - 1) * self.length - filled) // self.limit)

    def record(self, now: int, since: int) -> None:
        assert self.filled is not None
        # A waiting call is woken a little late. Without this correction each delay would lose a part of the limit.
        taken = max(since, now - self.length // self.limit)
        self.filled = max(self.filled, taken * self.limit) + self.length

    def resize(self, limit: int, length: int, burst: int, now: int) -> None:
        if self.filled is not None:
            missing = max(0, self.filled - now * self.limit)  # in permits, times the old length
            self.filled = now * limit + min(burst * length, -(-missing * length // self.length))
        super().resize(limit, length, burst, now)
        self.burst = burst


_AnyWindow: TypeAlias = _Fixed | _Rolling | _Smooth
_KINDS: dict[WindowKind, type[_AnyWindow]] = {"fixed": _Fixed, "rolling": _Rolling, "smooth": _Smooth}


class LimitValues(NamedTuple):
    """The values of a rate limit, which configuration may replace. All durations are in seconds."""

    limit: int
    """Calls that are admitted in one window."""
    window: float
    """The length of the window; more than 0."""
    min_spacing: float
    """The shortest time between two admitted calls."""
    kind: WindowKind
    """How the window moves."""
    max_wait: float = 0.0
    """How long a call may wait for its turn."""
    burst: int = 0
    """Calls that may come at once after a rest, where the window is smooth; 0: as many as the limit says."""

    def of_window(self) -> tuple[int, int, int]:
        """Return the limit, the length and the burst of a window."""
        return self.limit, ticks(self.window) or 1, self.burst or self.limit


class TurnWaiter:
    """A call's place in the queue of the calls that wait for their turn.

    Args:
        ident: The thread that keeps the waiter in the child of a fork.
        wake: Makes the call ask again; called from any thread, without a lock.
        may_block: Whether asking may block the running thread, which waits for the turn anyway.
    """

    __slots__ = ("awaits_fleet_turn", "ident", "may_block", "next_request_at", "until", "wake")

    patience = 0.0
    """The number of seconds for which many other calls wait, too; 0: there is none."""

    def __init__(self, ident: int, wake: Callable[[], object], may_block: bool = False) -> None:
        self.ident = ident
        self.wake = wake
        self.may_block = may_block
        self.next_request_at = 0
        """The moment at which the call asks again by itself."""
        self.until: int | None = None
        """The moment at which its longest wait is over; ``None`` before the call stands in the queue."""
        self.awaits_fleet_turn: bool | None = None
        """Whether the call waits although there may be room: the fleet has announced its turn.

        ``False``: it stands behind another call, and is woken in any case when that call leaves. ``None``: its turn is
        that of the local window.
        """


class _TurnQueue(OrderedDict[TurnWaiter, None]):
    """Waiters in the order of their turns. Any of them leaves in one step, so that many may be cancelled at once."""

    @property
    def first(self) -> TurnWaiter | None:
        """The waiter whose turn comes next."""
        for waiter in self:  # no call, at which a signal's handler could make a call of its own
            return waiter
        return None

    def count_before(self, waiter: TurnWaiter) -> int:
        """Return how many waiters stand before *waiter*; all of them where it is not in the queue, or was dropped."""
        return indexOf(self, waiter) if waiter in self else len(self)


class RateLimit:
    """One limit for the calls of all threads. All durations and moments are in seconds of one monotonic clock.

    Args:
        name: The owner of the limit, for the message of a refusal.
        values: The values of the limit.
    """

    __slots__ = ("_message", "kind", "last", "lock", "max_wait", "spacing", "waiting", "window")

    waiter_type = TurnWaiter
    """The class of the waiters with which calls ask."""

    def __init__(self, name: str, values: LimitValues) -> None:
        self._message = f"{name}: rate limit is exceeded"
        self.kind: WindowKind = values.kind
        self.window: _AnyWindow = _KINDS[values.kind](*values.of_window())
        self.spacing = ticks(values.min_spacing)
        self.max_wait = ticks(values.max_wait)
        self.last: float | None = None  # guarded by lock: when the newest call was admitted
        self.waiting = _TurnQueue()  # guarded by lock
        # Reentrant: a signal handler or a finalizer may call the guarded function while its thread holds the lock.
        self.lock = threading.RLock()

    def admit(self, now: float) -> None:
        """Admit a call that must not wait.

        Raises:
            RateLimitException: There were too many calls; there is no room before ``retry_after``, and perhaps then.
        """
        with self.lock:
            window = self.window
            if now <= window.has_room_until and window.count < window.limit and not (self.waiting or self.spacing):
                window.count += 1  # as in ``request_turn``, by fewer steps: most calls come this way
                self.last = now
                return
        self.request_turn(NO_WAITER, now, may_wait=False)

    def request_turn(self, waiter: TurnWaiter, now: float, *, may_wait: bool = True) -> float:
        """Return 0.0 for an admitted call, else the seconds after which it asks again, unless it is woken before.

        A caller that does not ask again, for whatever reason, calls ``leave``.

        Raises:
            RateLimitException: It was not admitted, or would not be within the longest wait.
        """
        with self.lock:
            moment, ahead = round(now * _PER_SECOND), 0
            if self.waiting:
                self._remove_overdue_locked(moment)
                ahead = self.waiting.count_before(waiter)
            due = self.due_locked(moment, ahead)
            if due > moment:
                if may_wait and waiter.until is None and due - moment <= self.max_wait:
                    waiter.until = moment + self.max_wait
                    self.waiting[waiter] = None
                waiter.next_request_at = min(due, waiter.until or moment)
                if waiter.next_request_at > moment:
                    return wait_for(now, waiter.next_request_at)
            else:
                self.window.record(moment, moment if waiter.until is None else due)
                self.last = now
        if waiter.until is not None or self.waiting:
            self.leave(waiter, now)
        if due > moment:
            raise self.refusal(wait_for(now, due))
        return 0.0

    def leave(self, waiter: TurnWaiter, now: float) -> None:
        """Release the turn, or leave the queue after the turn was used; any number of calls is safe."""
        while True:
            with self.lock:
                self.waiting.pop(waiter, None)
                first = self.waiting.first
                moment = ticks(now)
                if first is None or first.awaits_fleet_turn:
                    return
                if first.awaits_fleet_turn is None and first.next_request_at <= max(moment, self.due_locked(moment)):
                    return
                first.next_request_at, first.awaits_fleet_turn = moment, None
            try:
                first.wake()
            except Exception:  # noqa: BLE001  # the caller is gone, as with a loop that was closed: on to the next
                waiter = first
            else:
                return

    def cut_short(self, waiter: TurnWaiter, now: float, seconds: float, left: float) -> float:
        """Reject a call that would wait for *seconds*, beyond the *left* seconds to its nearest deadline.

        Raises:
            RateLimitException: At once, because the wait would be in vain.
        """
        raise self.refusal(seconds)

    def refusal(self, wait: float) -> RateLimitException:
        """Return the exception for a call that could be admitted in *wait* seconds."""
        return RateLimitException(self._message, wait)

    def count(self, at: float) -> None:
        """Count a call that the fleet has admitted, *at* that moment or a little later.

        Calls that are counted in the order in which the fleet decided are never counted later than in the fleet.
        """
        with self.lock:
            moment = ticks(at)
            self.window.due(moment)
            self.window.record(moment, moment)
            self.last = at if self.last is None else max(self.last, at)

    def condition(self, now: float) -> Condition:
        """Return the condition of the limit."""
        with self.lock:
            moment = ticks(now)
            due = self.due_locked(moment)
        if due <= moment:
            return Condition("with room")
        return Condition(f"used up for {in_seconds((due - moment) / _PER_SECOND)}", is_impaired=True)

    def is_idle(self, now: float) -> bool:
        """Return whether the limit can be dropped without loss: no admitted call still counts, and none waits."""
        with self.lock:
            moment = ticks(now)
            is_spaced = self.last is None or ticks(self.last) + self.spacing <= moment
            most = self.window.burst if self.kind == "smooth" else self.window.limit
            return is_spaced and self.window.due(moment, most - 1) <= moment and not self.waiting

    def reconfigure(self, values: LimitValues, now: float) -> None:
        """Replace the values; waiting calls go on; admitted calls still count, except in a window of another kind."""
        with self.lock:
            moment = ticks(now)
            self.spacing = ticks(values.min_spacing)
            self.max_wait = ticks(values.max_wait)
            if values.kind == self.kind:
                renewed: _AnyWindow = copy.copy(self.window)
                renewed.resize(*values.of_window(), moment)
            else:
                renewed = _KINDS[values.kind](*values.of_window())
            self.kind = values.kind
            self.window = renewed  # last, and a new object: by that callers see that the values changed
            for waiter in [one for one in self.waiting if one.ident == PASSED]:
                self.waiting.pop(waiter, None)  # else calls of an enforced limit would wait for it
            if (first := self.waiting.first) is not None:
                first.awaits_fleet_turn = None  # the fleet's answer was about the old values
        self.leave(NO_WAITER, now)

    def due_locked(self, moment: int, ahead: int = 0) -> int:
        """Return when a call may be admitted after *ahead* others."""
        due = self.window.due(moment, ahead)
        if not self.spacing or self.last is None:
            return due
        first = ticks(self.last) + self.spacing
        if ahead:
            first = max(first, self.window.due(moment)) + ahead * self.spacing
        return max(due, first)

    def _remove_overdue_locked(self, moment: int) -> None:
        """Remove first calls that never ask again, for example after their loop was closed."""
        while (first := self.waiting.first) is not None and (first.until or moment) + GRACE < moment:
            self.waiting.pop(first, None)

    def reset_after_fork(self, ident: int) -> None:
        """Replace the lock, which another thread may have held when the process forked. Call it in the child only."""
        self.lock = threading.RLock()
        self.waiting = _TurnQueue((waiter, None) for waiter in self.waiting if waiter.ident == ident)


NO_WAITER = TurnWaiter(PASSED, lambda: None)


def ticks(seconds: float) -> int:
    """Convert *seconds* to the whole nanoseconds in which this module counts."""
    return round(seconds * _PER_SECOND)


def wait_for(now: float, due: int) -> float:
    """Return the seconds after which a caller that adds them to *now* has surely reached *due*."""
    moment = due / _PER_SECOND
    while ticks(moment) < due:
        moment = math.nextafter(moment, math.inf)
    wait = moment - now
    while now + wait < moment:
        wait = math.nextafter(wait, math.inf)
    return wait
