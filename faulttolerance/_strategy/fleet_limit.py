"""A rate limit that all processes of a fleet share (rules F2 and F5).

The window of this process is looked at first: what has no room there has none in the fleet. Then the fleet is asked,
and whoever has to wait for its answer is woken by it. Where there is no fleet, or none that answers, this process
decides alone; its window holds every turn that it was given.

Calls that may wait stand in the line of the local limit. Only its first one asks the fleet again; the others are woken
one by one as those before them leave.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .fleet import Link, TakeTurn
from .rate_limit import GRACE, NOBODY, Place, RateLimit, ticks, wait_for

__all__ = ["FleetPlace", "FleetRateLimit"]

_NOT_ASKED: Final = -1
_OUT: Final = -2
"""Stands for the answer to a question that is out."""

_MICROSECOND: Final = 1000
"""In nanoseconds."""
_ROUNDING: Final = 5e-7
_APART: Final = 3 * _MICROSECOND
"""The fleet may count in whole microseconds what is due here by so much sooner."""
_LATE: Final = 0.005
"""Seconds. Who wakes up later than that was not let run."""


class FleetPlace(Place):
    """The place of a call that may have a question out, too."""

    __slots__ = ("answer", "asked_at", "decides_alone", "gives_up_at", "has_grace", "is_cut_short", "limit", "patience")

    limit: RateLimit
    asked_at: float
    gives_up_at: float

    def __init__(self, ident: int, wake: Callable[[], object]) -> None:
        super().__init__(ident, wake)
        self.answer: int | None = _NOT_ASKED
        """The microseconds until there may be room; ``None``: the fleet is lost."""
        self.patience = 0.0
        self.decides_alone = False
        """Whether the answer to a question was not waited for, and may still come: then nothing else is asked."""
        self.has_grace = False
        """Whether it waits longer than the patience, because it came too late to see whether there was an answer."""
        self.is_cut_short = False
        """Whether a deadline ends the wait for the answer, before the patience does."""

    def tell(self, answer: Any) -> None:
        """Take the answer of the fleet, on any thread, and wake whoever waits for it."""
        if self.answer != _OUT:
            return
        if answer == 0:
            # Not later than it counts there, where moments are rounded.
            self.limit.count(self.asked_at - _ROUNDING)
        self.answer = answer
        try:
            self.wake()
        except RuntimeError:
            pass  # its loop was closed


class FleetRateLimit:
    """What asks a fleet for the turns of one guarded function, or of one of its keys.

    Args:
        limit: The limit of this process.
        key: Names the limit in the fleet.
        link: Reaches the fleet.
        may_wait: Whether calls stand in line for their turn, as long as *limit* lets them.
    """

    __slots__ = ("_key", "_known", "_limit", "_link", "_may_wait")

    place = FleetPlace

    def __init__(self, limit: RateLimit, key: str, link: Link, *, may_wait: bool) -> None:
        self._limit = limit
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
        answer = place.answer
        if answer == _NOT_ASKED:
            limit = self._limit
            if place.decides_alone or not limit.follows_fleet or (limit.waiting and not self._link.is_up):
                return self._decide_alone(place, now)
            if wait := self._look(place, now):
                return wait
            place.limit, place.asked_at, place.answer = self._limit, now, _OUT
            place.patience = patience = self._link.patience
            place.gives_up_at = now + patience
            if not self._link.ask(self._question(), place.tell):
                place.answer = _NOT_ASKED
                return self._decide_alone(place, now)
            answer = place.answer
            if answer == _OUT:
                return patience
        if answer == _OUT:
            if (wait := place.gives_up_at - now) > 0.0:
                return wait
            if wait < -_LATE and not (place.has_grace or place.is_cut_short):
                # The whole process stood still, and who takes the answers with it.
                place.has_grace, place.gives_up_at = True, now + place.patience / 2
                return place.gives_up_at - now
            place.answer, place.decides_alone, answer = _NOT_ASKED, True, None
            if not place.is_cut_short:
                self._link.give_up()
        place.answer = _NOT_ASKED
        if answer is None:
            return self._decide_alone(place, now)
        if answer:
            return self._line_up(place, now, ticks(place.asked_at) + answer * _MICROSECOND, answer / 1e6)
        if place.until is not None:
            self._limit.leave(place, now)
        return 0.0

    def leave(self, place: FleetPlace, now: float) -> None:
        """Give the turn back, or make way after it was taken; any number of times."""
        self._limit.leave(place, now)

    def cut_short(self, place: FleetPlace, now: float, seconds: float, left: float) -> float:
        """Give the seconds to wait, instead of *seconds*, for a call whose nearest deadline is *left* seconds away.

        An answer is waited for until then; that it does not come by then says nothing of the fleet.

        Raises:
            RateLimitException: It would wait for its turn in vain.
        """
        if place.answer != _NOT_ASKED:  # the answer may have come this moment
            place.is_cut_short, place.gives_up_at = True, now + left
            if left > 0.0:
                return left
            seconds = self.ask(place, now)
            if not seconds:
                return 0.0
        return self._limit.cut_short(place, now, seconds, left)

    def _decide_alone(self, place: FleetPlace, now: float) -> float:
        limit = self._limit
        place.is_patient = None
        if limit.waiting:
            self._wake_first(place, now)
        if self._may_wait:
            return limit.ask(place, now)
        limit.admit(now)
        return 0.0

    def _wake_first(self, place: FleetPlace, now: float) -> None:
        """Let the first of the line go by the window of this process, whatever a lost fleet has told it."""
        limit = self._limit
        with limit.lock:
            first = limit.waiting[0] if limit.waiting else place
            if first is not place and first.is_patient:
                first.is_patient = None
        limit.leave(NOBODY, now)

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
            first = limit.waiting[0] if limit.waiting else place
            if first is place:
                if place.is_patient and place.asks_at > moment:
                    due = place.asks_at  # it was woken for nothing
                if due <= moment:
                    return 0.0
        return self._line_up(place, now, due)

    def _drop_overdue(self, place: FleetPlace, now: float) -> None:
        """Let nobody wait for a first one that never asks, as one whose loop was closed."""
        limit, waiting = self._limit, self._limit.waiting
        latest = ticks(now) - GRACE - ticks(self._link.patience)
        with limit.lock:
            while waiting and waiting[0] is not place and waiting[0].asks_at < latest:
                waiting.popleft()
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
                place.until, place.is_patient = until, not ahead
                if is_new:
                    waiting.append(place)
                # Whoever is not the first is woken when it is; it looks by itself in case that one never leaves.
                place.asks_at = min(until, moment + (1 + ahead) * GRACE) if ahead else due
                return wait_for(now, place.asks_at)
        if place.until is not None:
            limit.leave(place, now)
        if not told:  # never longer than what was begun this moment takes
            due = max(due, min(due + _APART, moment + max(limit.window.length, limit.spacing)))
        raise limit.refusal(max(told, wait_for(now, due)))

    def _turn_behind_locked(self, ahead: int) -> int:
        """Give the moment before which a call has no turn that stands behind *ahead* others."""
        limit = self._limit
        length, value = limit.window.length, limit.window.limit
        if limit.spacing:
            later = ahead * limit.spacing
        elif limit.kind == "smooth":
            later = ahead * length // value
        else:
            later = ahead // value * length
        return limit.waiting[0].asks_at + later
