"""A rate limit that all processes of a fleet share (rules F2 and F5).

The window of this process is checked first: a call without room here has none in the fleet. Then the fleet is asked,
and its answer wakes the waiting call. If no answer comes within the patience, and while the fleet is late or lost, this
process decides alone, by its part of the limit. A late answer counts for a call that still waits. Without a fleet, the
limit is the limit of the process.

Calls that may wait queue in the line of the local limit. Only its first call asks again; the others are woken one by
one as the calls before them leave.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..._strategy.rate_limit import GRACE, NOBODY, Place, RateLimit, ticks, wait_for
from .protocol import Link, TakeTurn
from .share import Part

__all__ = ["FleetPlace", "FleetRateLimit"]

_NOT_ASKED: Final = -1
_OUT: Final = -2
"""The answer to a question that is still under way."""

_AT_ONCE: Final = 1e-9
"""The seconds after which a call asks again that has already waited for its answer: time has passed."""

_MICROSECOND: Final = 1000
"""In nanoseconds."""
_ROUNDING: Final = 5e-7
_APART: Final = 3 * _MICROSECOND
"""The fleet may round a moment up to whole microseconds, so its turn may be due later by so much."""
_LOOKS_EACH: Final = 1.0
"""The seconds between checks, by the first call of the line, whether a fleet has appeared or gone before its turn."""


class FleetPlace(Place):
    """The place of a call that may also have a question under way."""

    __slots__ = ("answer", "asked_at", "asks", "gives_up_at", "patience", "was_prompt")

    asks: FleetRateLimit
    asked_at: float
    gives_up_at: float

    def __init__(self, ident: int, wake: Callable[[], object], may_block: bool = False) -> None:
        super().__init__(ident, wake, may_block)
        self.answer: int | None = _NOT_ASKED
        """The microseconds until there may be room; ``None`` if the fleet is lost."""
        self.patience = 0.0
        self.was_prompt = False
        """Whether the call joined the line while the fleet was prompt."""

    def tell(self, answer: Any) -> None:
        """Record the answer of the fleet, on any thread, and wake the waiting call."""
        if self.answer != _OUT:
            return
        if answer == 0:
            self.asks.count(self.asked_at)
        self.answer = answer
        try:
            self.wake()
        except RuntimeError:
            pass  # its loop was closed


class FleetRateLimit:
    """The requests to a fleet for the turns of one guarded function, or of one of its keys.

    Args:
        limit: The limit of this process.
        part: The part of the limit that this process has while it decides alone.
        key: The name of the limit in the fleet.
        link: The way to the fleet.
        may_wait: Whether calls queue for their turn, as long as *limit* allows.
    """

    __slots__ = ("_key", "_known", "_limit", "_link", "_may_wait", "_part")

    place = FleetPlace

    def __init__(self, limit: RateLimit, part: Part, key: str, link: Link, *, may_wait: bool) -> None:
        self._limit = limit
        self._part = part
        self._key = key
        self._link = link
        self._may_wait = may_wait
        self._known: tuple[object, Any] = None, None  # the last requested window, and its question

    def ask(self, place: FleetPlace, now: float) -> float:
        """Admit a call and return 0.0, or return the seconds after which it must ask again unless it is woken earlier.

        A caller that does not ask again, for any reason, calls ``leave``.

        Raises:
            RateLimitException: If the call is refused, or its turn would come after the longest wait.
        """
        answer, limit, link = place.answer, self._limit, self._link
        if answer == _NOT_ASKED:
            if not limit.follows_fleet or not link.processes:
                return self._decide_locally(place, now)
            if wait := self._look(place, now):
                return wait
            place.asks, place.asked_at, place.answer = self, now, _OUT
            place.patience = patience = link.patience
            place.gives_up_at = now + patience
            if place.may_block and link.is_prompt and link.ask_here(self._question(), place.tell):
                if place.answer == _OUT:
                    return _AT_ONCE
            elif not (link.is_prompt and link.ask(self._question(), place.tell)):
                place.answer = None
            answer = place.answer
        if answer == _OUT:
            if (wait := place.gives_up_at - now) > 0.0:
                return wait
            return self._decide_alone(place, now)
        place.answer = _NOT_ASKED
        if answer is None:
            return self._decide_alone(place, now)
        if answer:
            self._part.full_until = due = ticks(place.asked_at) + answer * _MICROSECOND
            return self._line_up(place, now, due, answer / 1e6)
        if place.until is not None:
            limit.leave(place, now)
        return 0.0

    def count(self, at: float) -> None:
        """Count a turn that the fleet has granted to a request from the moment *at*."""
        limit, at = self._limit, at - _ROUNDING  # no later than in the fleet, which rounds moments
        with limit.lock:
            limit.count(at)
            self._part.take_locked(limit, self._link.processes or 1, at)

    def leave(self, place: FleetPlace, now: float) -> None:
        """Release the turn, or leave the line if it was not taken; any number of calls."""
        self._limit.leave(place, now)

    def cut_short(self, place: FleetPlace, now: float, seconds: float, left: float) -> float:
        """Return the seconds to wait, instead of *seconds*, for a call whose nearest deadline is *left* seconds away.

        The call waits for an answer until that deadline; a missing answer by then does not mean that the fleet is slow.

        Raises:
            RateLimitException: If the call would wait for its turn in vain.
        """
        if place.answer == _OUT and now < place.gives_up_at:
            place.gives_up_at = now + left
            if left > 0.0:
                return left
        if place.answer != _NOT_ASKED:  # the answer may have come just now
            seconds = self.ask(place, now)
            if not seconds:
                return 0.0
        return self._limit.cut_short(place, now, seconds, left)

    def _decide_locally(self, place: FleetPlace, now: float) -> float:
        """Admit a call by the limit of this process, without a fleet."""
        limit = self._limit
        place.is_patient = None
        if self._may_wait:
            return limit.ask(place, now)
        limit.admit(now)
        return 0.0

    def _decide_alone(self, place: FleetPlace, now: float) -> float:
        """Admit a call by the part of this process, or queue it for its turn; an answer may still come."""
        limit, processes = self._limit, self._link.processes
        if limit.waiting:
            self._drop_overdue(place, now)
        with limit.lock:
            due, is_first = ticks(now), not limit.ahead_of_locked(place)
            if is_first:
                due = self._part.take_locked(limit, processes or 1, now)
            is_through = is_first and due <= ticks(now)
            if is_through:
                limit.count(now)
        if not is_through:
            return self._line_up(place, now, due)
        place.answer = _NOT_ASKED
        if place.until is not None:
            limit.leave(place, now)
        return 0.0

    def _question(self) -> TakeTurn:
        limit = self._limit
        window = limit.window
        known, question = self._known
        if known is not window:
            length, spacing = -(-window.length // _MICROSECOND), -(-limit.spacing // _MICROSECOND)
            burst = getattr(window, "burst", 1)
            question = TakeTurn(self._key, limit.kind, window.limit, length, burst, spacing)
            self._known = window, question
        return question  # type: ignore[no-any-return]

    def _look(self, place: FleetPlace, now: float) -> float:
        """Return 0.0 if the fleet must be asked, else the seconds to wait before that."""
        limit = self._limit
        if limit.waiting:
            self._drop_overdue(place, now)
        with limit.lock:
            moment = due = ticks(now)
            if limit.kind != "fixed":  # fixed windows start at other moments in the fleet
                due = limit.due_locked(moment) if limit.spacing else limit.window.due(moment)
            elif limit.spacing and limit.last is not None:
                due = ticks(limit.last) + limit.spacing
            if limit.waiting.first in (None, place):
                if place.is_patient and place.asks_at > moment and place.was_prompt == self._link.is_prompt:
                    due = place.asks_at  # it was woken too early
                if due <= moment:
                    return 0.0
        return self._line_up(place, now, due)

    def _drop_overdue(self, place: FleetPlace, now: float) -> None:
        """Remove first calls that never ask, for example after their loop was closed, so that no call waits for one."""
        limit, waiting = self._limit, self._limit.waiting
        latest = ticks(now) - GRACE - ticks(self._link.patience)
        with limit.lock:
            while (first := waiting.first) is not None and first is not place and first.asks_at < latest:
                waiting.pop(first, None)
        limit.leave(NOBODY, now)

    def _line_up(self, place: FleetPlace, now: float, due: int, told: float = 0.0) -> float:
        """Queue *place* for its turn, which comes at *due* if it is the first, and return the seconds to wait.

        Raises:
            RateLimitException: If it may not wait so long; the fleet expects room in *told* seconds.
        """
        limit = self._limit
        with limit.lock:
            moment, waiting, ahead = ticks(now), limit.waiting, limit.ahead_of_locked(place)
            until = place.until
            if until is None:
                until = moment + (limit.max_wait + _APART if self._may_wait else 0)
            if ahead:
                due = max(due, self._turn_behind_locked(ahead))
            due = max(due, moment + 1)
            if due <= until:
                is_new = place.until is None or ahead == len(waiting)
                place.until, place.is_patient, place.was_prompt = until, not ahead, self._link.is_prompt
                if is_new:
                    waiting.add(place)
                # A call that is not the first is woken when it becomes the first; it also checks by itself, in case the
                # first never leaves.
                place.asks_at = min(until, moment + (1 + ahead) * GRACE) if ahead else due
                wait = wait_for(now, place.asks_at)
                return wait if ahead else min(wait, _LOOKS_EACH)
        if place.until is not None:
            limit.leave(place, now)
        if not told:  # at most the time that a window started now would take
            due = max(due, min(due + _APART, moment + max(limit.window.length, limit.spacing)))
        raise limit.refusal(max(told, wait_for(now, due)))

    def _turn_behind_locked(self, ahead: int) -> int:
        """Return the moment before which a call behind *ahead* others has no turn."""
        limit, link = self._limit, self._link
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
        return first.asks_at + later
