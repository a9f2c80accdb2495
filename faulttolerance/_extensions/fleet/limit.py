"""A rate limit that all processes of a fleet share (rules F2 and F5).

The window of this process is looked at first: what has no room there has none in the fleet. Then the fleet is asked,
and whoever has to wait for its answer is woken by it. Where none comes within the patience, and while the fleet is late
or lost, this process decides alone, by its part of the limit. An answer that is late counts for a call that still
waits. Without a fleet, the limit is that of the process.

Calls that may wait stand in the line of the local limit. Only its first one asks again; the others are woken one by one
as those before them leave.
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
"""Stands for the answer to a question that is out."""

_AT_ONCE: Final = 1e-9
"""Seconds after which a call asks again that has waited for its answer already: time has passed."""

_MICROSECOND: Final = 1000
"""In nanoseconds."""
_ROUNDING: Final = 5e-7
_APART: Final = 3 * _MICROSECOND
"""The fleet may count in whole microseconds what is due here by so much sooner."""
_LOOKS_EACH: Final = 1.0
"""Seconds after which the first of the line looks whether the fleet has come or gone, however long its turn is off."""


class FleetPlace(Place):
    """The place of a call that may have a question out, too."""

    __slots__ = ("answer", "asked_at", "asks", "gives_up_at", "patience", "was_prompt")

    asks: FleetRateLimit
    asked_at: float
    gives_up_at: float

    def __init__(self, ident: int, wake: Callable[[], object], may_block: bool = False) -> None:
        super().__init__(ident, wake, may_block)
        self.answer: int | None = _NOT_ASKED
        """The microseconds until there may be room; ``None``: the fleet is lost."""
        self.patience = 0.0
        self.was_prompt = False
        """Whether it stands in the line while the fleet was prompt."""

    def tell(self, answer: Any) -> None:
        """Take the answer of the fleet, on any thread, and wake whoever waits for it."""
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
    """What asks a fleet for the turns of one guarded function, or of one of its keys.

    Args:
        limit: The limit of this process.
        part: What this process has of it while it decides alone.
        key: Names the limit in the fleet.
        link: Reaches the fleet.
        may_wait: Whether calls stand in line for their turn, as long as *limit* lets them.
    """

    __slots__ = ("_key", "_known", "_limit", "_link", "_may_wait", "_part")

    place = FleetPlace

    def __init__(self, limit: RateLimit, part: Part, key: str, link: Link, *, may_wait: bool) -> None:
        self._limit = limit
        self._part = part
        self._key = key
        self._link = link
        self._may_wait = may_wait
        self._known: tuple[object, Any] = None, None  # the window that was asked for last, and how

    def ask(self, place: FleetPlace, now: float) -> float:
        """Let a call through (0.0), or give the seconds after which it has to ask again, if it is not woken before.

        A caller that does not ask again, for whatever reason, calls ``leave``.

        Raises:
            RateLimitException: It was not, or would not be let through within the longest wait.
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
        """Count a turn that the fleet has given, asked for *at* that moment."""
        limit, at = self._limit, at - _ROUNDING  # not later than it counts there, where moments are rounded
        with limit.lock:
            limit.count(at)
            self._part.take_locked(limit, self._link.processes or 1, at)

    def leave(self, place: FleetPlace, now: float) -> None:
        """Give the turn back, or make way after it was taken; any number of times."""
        self._limit.leave(place, now)

    def cut_short(self, place: FleetPlace, now: float, seconds: float, left: float) -> float:
        """Give the seconds to wait, instead of *seconds*, for a call whose nearest deadline is *left* seconds away.

        An answer is waited for until then; that it does not come by then says nothing of the fleet.

        Raises:
            RateLimitException: It would wait for its turn in vain.
        """
        if place.answer == _OUT and now < place.gives_up_at:
            place.gives_up_at = now + left
            if left > 0.0:
                return left
        if place.answer != _NOT_ASKED:  # the answer may have come this moment
            seconds = self.ask(place, now)
            if not seconds:
                return 0.0
        return self._limit.cut_short(place, now, seconds, left)

    def _decide_locally(self, place: FleetPlace, now: float) -> float:
        """Let a call through as the limit of this process does, without a fleet."""
        limit = self._limit
        place.is_patient = None
        if self._may_wait:
            return limit.ask(place, now)
        limit.admit(now)
        return 0.0

    def _decide_alone(self, place: FleetPlace, now: float) -> float:
        """Let a call through by the part of this process, or let it wait for its turn; an answer may still come."""
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
        """Give 0.0 where the fleet is to be asked, else the seconds to wait before."""
        limit = self._limit
        if limit.waiting:
            self._drop_overdue(place, now)
        with limit.lock:
            moment = due = ticks(now)
            if limit.kind != "fixed":  # whose windows begin elsewhere in the fleet
                due = limit.due_locked(moment) if limit.spacing else limit.window.due(moment)
            elif limit.spacing and limit.last is not None:
                due = ticks(limit.last) + limit.spacing
            if limit.waiting.first in (None, place):
                if place.is_patient and place.asks_at > moment and place.was_prompt == self._link.is_prompt:
                    due = place.asks_at  # it was woken for nothing
                if due <= moment:
                    return 0.0
        return self._line_up(place, now, due)

    def _drop_overdue(self, place: FleetPlace, now: float) -> None:
        """Let nobody wait for a first one that never asks, as one whose loop was closed."""
        limit, waiting = self._limit, self._limit.waiting
        latest = ticks(now) - GRACE - ticks(self._link.patience)
        with limit.lock:
            while (first := waiting.first) is not None and first is not place and first.asks_at < latest:
                waiting.pop(first, None)
        limit.leave(NOBODY, now)

    def _line_up(self, place: FleetPlace, now: float, due: int, told: float = 0.0) -> float:
        """Let *place* wait for its turn, which comes at *due* if it is the first, and give the seconds.

        Raises:
            RateLimitException: It may not wait so long; in *told* seconds there may be room, says the fleet.
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
                # Whoever is not the first is woken when it is; it looks by itself in case that one never leaves.
                place.asks_at = min(until, moment + (1 + ahead) * GRACE) if ahead else due
                wait = wait_for(now, place.asks_at)
                return wait if ahead else min(wait, _LOOKS_EACH)
        if place.until is not None:
            limit.leave(place, now)
        if not told:  # never longer than what was begun this moment takes
            due = max(due, min(due + _APART, moment + max(limit.window.length, limit.spacing)))
        raise limit.refusal(max(told, wait_for(now, due)))

    def _turn_behind_locked(self, ahead: int) -> int:
        """Give the moment before which a call has no turn that stands behind *ahead* others."""
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
