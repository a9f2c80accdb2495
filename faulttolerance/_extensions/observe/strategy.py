"""Strategies of observed policies: they decide as usual, and report refusals instead of raising them (rule X7)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from typing import Final
from weakref import WeakKeyDictionary

from ..._strategy.bulkhead import Bulkhead, UnqueuedBulkhead, Waiter
from ..._strategy.gate import Gate, GateState, GateWrapper, OnRefusal, lasting_state
from ..._strategy.rate_limit import PASSED, RateLimit, TurnWaiter
from ..._strategy.verdict import Verdict
from ...exceptions import RefusedException

_ASKS: Final = lasting_state(is_closed=False)
"""Stands for the state of a gate that is not closed: each attempt must request admission."""
_LET_BY: Final = lasting_state(is_closed=True)
"""Stands for the state of an attempt that the gate would have refused: its outcome is not reported to the gate."""


class ObservedGate(GateWrapper):
    """A circuit breaker or an adaptive throttle that admits everything."""

    __slots__ = ("_tell",)

    def __init__(self, gate: Gate, tell: OnRefusal) -> None:
        super().__init__(gate)
        self._tell = tell

    @property
    def state(self) -> GateState:
        """The state of the gate while it is closed."""
        state = self._gate.state
        return state if state.is_closed else _ASKS

    def admit(self, permit: Hashable, ident: int, now: float) -> GateState:
        """Admit the attempt, for any decision of the gate."""
        try:
            return self._gate.admit(permit, ident, now)
        except RefusedException:
            pass  # after the handler, so that a failure of the callback does not have it as its context
        self._tell()
        return _LET_BY

    def settle(self, state: GateState, permit: Hashable, verdict: Verdict, now: float, failure: str = "") -> None:
        """Report the outcome of an attempt that the gate admitted to the gate."""
        if state is not _LET_BY:
            self._gate.settle(self._gate.state if state is _ASKS else state, permit, verdict, now, failure)


class ObservedRateLimit:
    """A rate limit that admits everything; its window contains the attempts that it would have admitted.

    An attempt that would have waited takes its turn when that comes, although it has passed long before.

    Args:
        limit: The limit.
        tell: Called for each attempt that the limit would have refused.
        left: Returns the seconds until the nearest deadline, before which the turn of a waiting attempt must come.
        may_wait: Whether attempts may wait for their turn if the limit is enforced.
    """

    __slots__ = ("_left", "_limit", "_lock", "_may_wait", "_tell", "_waiting")

    def __init__(self, limit: RateLimit, tell: OnRefusal, left: Callable[[], float | None], *, may_wait: bool) -> None:
        self._limit = limit
        self._left = left
        self._tell = tell
        self._may_wait = may_wait
        self._waiting: deque[tuple[float, TurnWaiter]] = deque()
        """The moment of each turn, and its place; guarded by ``_lock``."""
        self._lock = threading.RLock()

    def admit(self, now: float) -> None:
        """Admit the attempt, for any decision of the limit."""
        refused, left = 0, self._left()
        with self._lock:
            while self._waiting and self._waiting[0][0] <= now:
                at, place = self._waiting.popleft()
                refused += self._is_refused_locked(place, at)
            refused += self._is_refused_locked(TurnWaiter(PASSED, bool), now, left)
        for _ in range(refused):
            self._tell()

    def _is_refused_locked(self, place: TurnWaiter, now: float, left: float | None = None) -> bool:
        try:
            if not self._may_wait:
                self._limit.admit(now)
            elif wait := self._limit.request_turn(place, now):
                if left is not None and left <= wait:
                    self._limit.leave(place, now)
                    return True
                self._waiting.append((now + wait, place))
        except RefusedException:
            return True
        return False


_beyond: WeakKeyDictionary[Bulkhead, dict[Hashable, None]] = WeakKeyDictionary()
"""By bulkhead, the attempts that it would have refused; some of them may have ended."""


class ObservedBulkhead(UnqueuedBulkhead):
    """A bulkhead that runs everything, and makes nothing wait.

    Attempts that would have had a place in its queue run, too, and count as admitted.

    Args:
        bulkhead: Holds the permits of all running attempts, also beyond its limit.
        tell: Called for each attempt for which there is neither a permit nor a place.
        may_wait: Whether calls may wait for a permit if the bulkhead is enforced.
    """

    __slots__ = ("_beyond", "_may_wait", "_tell")

    def __init__(self, bulkhead: Bulkhead, tell: OnRefusal, *, may_wait: bool) -> None:
        super().__init__(bulkhead)
        self._beyond = _beyond.setdefault(bulkhead, {})
        self._tell = tell
        self._may_wait = may_wait

    def enter(self, waiter: Waiter) -> None:
        """Acquire a permit for *waiter*, which does not wait, independent of the limit."""
        held, beyond, attempt_id = self._bulkhead.held, self._beyond, waiter.attempt_id
        held[attempt_id] = waiter.ident
        if len(held) <= self._bulkhead.limit:
            return
        self._bulkhead.count_all()
        for ended in [other for other in list(beyond) if other not in held]:
            beyond.pop(ended, None)
        if len(held) - len(beyond) > self._bulkhead.limit + (self._bulkhead.queue if self._may_wait else 0):
            beyond[attempt_id] = None
            self._tell()
