"""A rate limit that all processes of a fleet share (rules F2 and F5).

The window of this process is checked first: a call without room here has none in the fleet. Then the fleet is asked,
and its answer wakes the waiting call. If no answer comes within the patience, and while the fleet is late or lost, this
process decides alone, by its part of the limit. A late answer counts for a call that still waits. Without a fleet, the
limit is the limit of the process.

Calls that may wait stand in the queue of the local limit. Only its first call asks again; the others are woken one by
one as the calls before them leave.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..._strategy.rate_limit import GRACE, NO_WAITER, RateLimit, TurnWaiter, ticks, wait_for
from .protocol import Links, TurnRequest
from .share import LocalShare

_NOT_REQUESTED: Final = -1
_PENDING: Final = -2
"""The answer to a request that is still under way."""

_NO_TIME: Final = 1e-9
"""The seconds after which a call asks again that has already waited for its answer: time has passed."""

_MICROSECOND: Final = 1000
"""In nanoseconds."""
_ROUNDING: Final = 5e-7
_ROUNDED_UP: Final = 3 * _MICROSECOND
"""The fleet may round a moment up to whole microseconds, so its turn may be due later by so much."""
_CHECK_SECONDS: Final = 1.0
"""The seconds between checks, by the first call of the queue, whether a fleet has appeared or gone before its turn."""


class FleetTurnWaiter(TurnWaiter):
    """The waiter of a call that may also have a request under way."""

    __slots__ = ("asked_at", "gives_up_at", "owner", "patience", "response", "was_prompt")

    owner: FleetRateLimit
    asked_at: float
    gives_up_at: float

    def __init__(self, ident: int, wake: Callable[[], object], may_block: bool = False) -> None:
        super().__init__(ident, wake, may_block)
        self.response: int | None = _NOT_REQUESTED
        """The microseconds until there may be room; ``None`` if the fleet is lost."""
        self.patience = 0.0
        self.was_prompt = False
        """Whether the call joined the queue while the fleet was prompt."""

    def on_response(self, response: Any) -> None:
        """Record the answer of the fleet, on any thread, and wake the waiting call."""
        if self.response != _PENDING:
            return
        if response == 0:
            self.owner.count(self.asked_at)
        self.response = response
        try:
            self.wake()
        except RuntimeError:
            pass  # its loop was closed


class FleetRateLimit:
    """The requests to a fleet for turns of one guarded function, or of one of its keys.

    Args:
        limit: The limit of this process.
        share: The part of the limit that this process has while it decides alone.
        key: The name of the limit in the fleet.
        links: The way to the fleet.
        may_wait: Whether calls queue for their turn, as long as *limit* allows.
    """

    waiter_type = FleetTurnWaiter

    def __init__(self, limit: RateLimit, share: LocalShare, key: str, links: Links, *, may_wait: bool) -> None:
        self._limit = limit
        self._share = share
        self._key = key
        self._links = links
        self._may_wait = may_wait

    def request_turn(self, waiter: FleetTurnWaiter, now: float) -> float:
        """Admit a call and return 0.0, or return the seconds after which it must ask again unless it is woken earlier.

        A caller that does not ask again, for any reason, calls ``leave``.

        Raises:
            RateLimitException: If the call is refused, or its turn would come after the longest wait.
        """
        response, limit, link = waiter.response, self._limit, self._links.current
        if limit.waiting and link.processes:
            self._remove_gone(waiter, now)
        if response == _NOT_REQUESTED:
            if not link.processes:  # without a fleet, the limit of this process decides
                waiter.awaits_fleet_turn = None
                if self._may_wait:
                    return limit.request_turn(waiter, now)
                limit.admit(now)
                return 0.0
            if wait := self._check_window(waiter, now):
                return wait
            waiter.owner, waiter.asked_at, waiter.response = self, now, _PENDING
            waiter.patience = patience = link.patience
            waiter.gives_up_at = now + patience
            if waiter.may_block and link.is_prompt and link.send_here(self._request(), waiter.on_response):
                if waiter.response == _PENDING:
                    return _NO_TIME
            elif not (link.is_prompt and link.send(self._request(), waiter.on_response)):
                waiter.response = None
            response = waiter.response
        if response == _PENDING:
            if (wait := waiter.gives_up_at - now) > 0.0:
                return wait
            return self._decide_alone(waiter, now)
        waiter.response = _NOT_REQUESTED
        if response is None:
            return self._decide_alone(waiter, now)
        if response:
            self._share.full_until = due = ticks(waiter.asked_at) + response * _MICROSECOND
            return self._enqueue(waiter, now, due, response / 1e6)
        if waiter.until is not None:
            limit.leave(waiter, now)
        return 0.0

    def count(self, at: float) -> None:
        """Count a turn that the fleet has granted to a request from the moment *at*."""
        limit, at = self._limit, at - _ROUNDING  # no later than in the fleet, which rounds moments
        with limit.lock:
            limit.count(at)
            self._share.take_locked(limit, self._links.current.processes or 1, at)

    def leave(self, waiter: FleetTurnWaiter, now: float) -> None:
        """Release the turn, or leave the queue if it was not taken; any number of calls."""
        self._limit.leave(waiter, now)

    def cut_short(self, waiter: FleetTurnWaiter, now: float, seconds: float, left: float) -> float:
        """Return the seconds to wait, instead of *seconds*, for a call whose nearest deadline is *left* seconds away.

        The call waits for an answer until that deadline; a missing answer by then does not mean that the fleet is slow.

        Raises:
            RateLimitException: If the call would wait for its turn in vain.
        """
        if waiter.response == _PENDING and now < waiter.gives_up_at:
            waiter.gives_up_at = now + left
            if left > 0.0:
                return left
        if waiter.response != _NOT_REQUESTED:  # the answer may have come just now
            seconds = self.request_turn(waiter, now)
            if not seconds:
                return 0.0
        return self._limit.cut_short(waiter, now, seconds, left)

    def _decide_alone(self, waiter: FleetTurnWaiter, now: float) -> float:
        """Admit a call by the part of this process, or queue it for its turn; an answer may still come."""
        limit, processes = self._limit, self._links.current.processes
        with limit.lock:
            due = ticks(now)
            is_first = not limit.waiting.count_before(waiter)
            if is_first:
                due = self._share.take_locked(limit, processes or 1, now)
            is_through = is_first and due <= ticks(now)
            if is_through:
                limit.count(now)
        if not is_through:
            return self._enqueue(waiter, now, due)
        waiter.response = _NOT_REQUESTED
        if waiter.until is not None:
            limit.leave(waiter, now)
        return 0.0

    def _request(self) -> TurnRequest:
        limit, window = self._limit, self._limit.window
        length, spacing = -(-window.length // _MICROSECOND), -(-limit.spacing // _MICROSECOND)
        return TurnRequest(self._key, limit.kind, window.limit, length, window.burst, spacing)

    def _check_window(self, waiter: FleetTurnWaiter, now: float) -> float:
        """Return 0.0 if the fleet must be asked, else the seconds to wait before that."""
        limit = self._limit
        with limit.lock:
            moment = due = ticks(now)
            if limit.kind != "fixed":  # fixed windows start at other moments in the fleet
                due = limit.due_locked(moment) if limit.spacing else limit.window.due(moment)
            elif limit.spacing and limit.last is not None:
                due = ticks(limit.last) + limit.spacing
            if limit.waiting.first in (None, waiter):
                is_early = waiter.awaits_fleet_turn and waiter.next_request_at > moment
                if is_early and waiter.was_prompt == self._links.current.is_prompt:
                    due = waiter.next_request_at
                if due <= moment:
                    return 0.0
        return self._enqueue(waiter, now, due)

    def _remove_gone(self, waiter: FleetTurnWaiter, now: float) -> None:
        """Remove first calls that never ask, as after the end of their loop: all others would wait for them."""
        limit, waiting = self._limit, self._limit.waiting
        latest = ticks(now) - GRACE - ticks(self._links.current.patience)
        with limit.lock:
            while (first := waiting.first) is not None and first is not waiter and first.next_request_at < latest:
                waiting.pop(first, None)
        limit.leave(NO_WAITER, now)

    def _enqueue(self, waiter: FleetTurnWaiter, now: float, due: int, expected_wait: float = 0.0) -> float:
        """Queue *waiter* for its turn, which comes at *due* if it is the first, and return the seconds to wait.

        Raises:
            RateLimitException: If it may not wait so long; the fleet expects room in *expected_wait* seconds.
        """
        limit = self._limit
        with limit.lock:
            moment, waiting, ahead = ticks(now), limit.waiting, limit.waiting.count_before(waiter)
            until = waiter.until
            if until is None:
                until = moment + (limit.max_wait + _ROUNDED_UP if self._may_wait else 0)
            if ahead:
                due = max(due, self._turn_behind_locked(ahead))
            due = max(due, moment + 1)
            if due <= until:
                is_new = waiter.until is None or ahead == len(waiting)
                waiter.until, waiter.awaits_fleet_turn = until, not ahead
                waiter.was_prompt = self._links.current.is_prompt
                if is_new:
                    waiting[waiter] = None
                # A call that is not the first is woken when it becomes the first; it also checks by itself, in case the
                # first never leaves.
                waiter.next_request_at = min(until, moment + (1 + ahead) * GRACE) if ahead else due
                wait = wait_for(now, waiter.next_request_at)
                return wait if ahead else min(wait, _CHECK_SECONDS)
        if waiter.until is not None:
            limit.leave(waiter, now)
        if not expected_wait:  # at most the time that a window started now would take
            due = max(due, min(due + _ROUNDED_UP, moment + max(limit.window.length, limit.spacing)))
        raise limit.refusal(max(expected_wait, wait_for(now, due)))

    def _turn_behind_locked(self, ahead: int) -> int:
        """Return the moment before which a call behind *ahead* others has no turn."""
        limit, link = self._limit, self._links.current
        length, value = limit.window.length, limit.window.limit
        if not link.is_prompt:
            ahead *= link.processes or 1
        if limit.spacing:
            later = ahead * limit.spacing
        elif limit.kind == "smooth":
            later = ahead * length // value
        else:
            later = ahead // value * length
        first = limit.waiting.first
        assert first is not None  # there are *ahead* others
        return first.next_request_at + later
