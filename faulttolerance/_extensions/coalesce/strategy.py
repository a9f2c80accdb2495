"""The calls of one function that share an execution: leader, followers, and the succession of a leader that gives up.

A call whose key is under way follows; any other call leads::

    seat = Seat(ident)
    flight = Flight(key, seat)
    outcome = None
    try:
        if flights.lead(flight, seat) is not None:
            seat.wake = ...
            if not flights.join(flight, seat, own):
                ...  # it could only wait for itself, and runs plainly
            while not (seat.leads or seat.is_over):
                ...  # wait until woken
        if seat.leads:
            outcome = ...  # of the call itself; ``None`` if control flow ends it, which is not shared
    finally:
        flights.leave(seat, outcome)

A leader that leaves without an outcome hands over to its first follower. Nothing is kept after the end of a flight.

A call without followers needs no lock: storing a flight under a free key and removing it are single steps of the
interpreter. No call can follow a flight that has ended: a leader first removes its flight, then checks for followers; a
follower first joins the followers, then checks whether the flight is still there. One of the two sees the other.
Under the lock followers join, a flight is handed over, and an outcome is shared.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import ClassVar, Final, TypeAlias

from ..._cause import Links
from ..._strategy.condition import Condition
from ..._strategy.waking import wake_all

Outcome: TypeAlias = tuple[object, BaseException | None, TracebackType | None, Links]
"""A result, or the failure in its place, with its traceback and its chain as the call itself created them."""

_NOBODY: Final[dict[Seat, None]] = {}
"""The followers of a flight that has none, as most flights. Never changed."""


class Seat:
    """The place of one call in a flight."""

    __slots__ = ("flight", "ident", "is_over", "leads", "outcome", "wake", "within")

    flight: Flight | None

    def __init__(self, ident: int, wake: Callable[[], object] | None = None) -> None:
        self.flight = None
        self.ident = ident
        """The thread that runs the call; in the child of a fork, seats of other threads are removed."""
        self.wake = wake
        """Called from any thread, without a lock, when ``leads`` or ``is_over`` has changed; may be called twice.

        A call that leads at once needs none.
        """
        self.leads = False
        self.is_over = False
        self.outcome: Outcome | None = None
        """The outcome that its leader shares, after the end."""
        self.within: Sequence[Flight] = ()
        """The flights that wait while this call follows."""


class Flight:
    """The overlapping calls with one key."""

    __slots__ = ("followers", "key", "leader")

    def __init__(self, key: Hashable, leader: Seat) -> None:
        self.key = key
        self.leader: Seat | None = leader
        """``None`` after the end of the flight."""
        self.followers: dict[Seat, None] = _NOBODY
        """The followers in the order of their arrival."""


class Flights:
    """The flights of one guarded function, by key."""

    __slots__ = ("_by_key",)

    # Held for a few steps, and shared by all: flights of several functions may wait for each other. Reentrant: a signal
    # handler or a finalizer may call the function while its thread is in here, and so may the comparison of keys.
    _lock: ClassVar = threading.RLock()

    def __init__(self) -> None:
        self._by_key: dict[Hashable, Flight] = {}  # a leader stores and removes its own; else _lock guards it

    def __len__(self) -> int:
        return len(self._by_key)

    def lead(self, flight: Flight, seat: Seat) -> Flight | None:
        """Register *seat* as the leader of *flight*, or return the flight with its key that is under way, for ``join``.

        Raises:
            TypeError: If the key has no hash.
        """
        hash(flight.key)  # rejects an unhashable key before any change
        seat.flight = flight
        met = self._by_key.setdefault(flight.key, flight)
        if met is not flight:
            seat.flight = None
            return met
        seat.leads = True
        return None

    def join(self, own: Flight, seat: Seat, around: Sequence[Flight] = ()) -> bool:
        """Add *seat* to the flight that has the key of *own*, or make it the leader of *own* if there is no flight.

        *around* are the flights in which the call is made. Return false if the call could only wait for itself (rule
        CO5).

        Raises:
            TypeError: If the key has no hash.
        """
        with self._lock:
            while (flight := self.lead(own, seat)) is not None:
                if around and _leads_to(flight, around):
                    return False
                seat.flight, seat.within = flight, around
                if flight.followers is _NOBODY:
                    flight.followers = OrderedDict()  # finds its first item at once, even after many removals
                flight.followers[seat] = None
                is_there = self._by_key.get(own.key) is flight
                if is_there and flight.leader is not None:
                    return True
                _unseat_locked(seat)  # it has ended, and may remain if equality of keys has changed
                if is_there:
                    del self._by_key[own.key]
        return True

    def leave(self, seat: Seat, outcome: Outcome | None = None) -> None:
        """End the part of one call; the *outcome* of a leader is shared. A second call completes an interrupted one.

        A signal handler may raise anywhere in here: every seat that was changed must still be woken.
        """
        woken: list[Seat] = []
        try:
            flight = seat.flight
            if outcome is not None and flight is not None:
                self._remove(flight)
                if not flight.followers:
                    flight.leader = None
                    return
            with self._lock:
                self._leave_locked(woken, seat, outcome, is_removed=outcome is not None)
            wake_all(woken, self.leave)
        except BaseException:
            with self._lock:
                self._leave_locked(woken, seat, outcome)
            wake_all(woken, self.leave)
            raise

    def is_idle(self, now: float) -> bool:
        """Return whether the flights can be removed without loss: there are none."""
        return not self._by_key

    def condition(self, now: float) -> Condition:
        """Return the number of flights under way."""
        return Condition(f"{len(self)} under way")

    def reset_after_fork(self, ident: int) -> None:
        """Remove the calls of other threads than *ident* in the child of a fork: they do not go on there."""
        Flights._lock = threading.RLock()
        for flight in list(self._by_key.values()):
            for seat in [seat for seat in flight.followers if seat.ident != ident]:
                self.leave(seat)
            if flight.leader is not None and flight.leader.ident != ident:
                self.leave(flight.leader)

    def _leave_locked(
        self, woken: list[Seat], seat: Seat, outcome: Outcome | None, *, is_removed: bool = False
    ) -> None:
        flight = seat.flight
        if flight is None or flight.leader is not seat:
            _unseat_locked(seat)
            return
        if outcome is None and flight.followers:
            heir = next(iter(flight.followers))
            woken.append(heir)
            heir.leads, flight.leader = True, heir
            _unseat_locked(heir)
            return
        followers = list(flight.followers)
        woken += followers
        for follower in followers:
            follower.outcome, follower.is_over = outcome, True
            _unseat_locked(follower)
        if not is_removed:
            self._remove(flight)
        flight.leader = None

    def _remove(self, flight: Flight) -> None:
        try:
            if self._by_key.get(flight.key) is flight:
                del self._by_key[flight.key]
                return
        except Exception:  # noqa: BLE001  # of the key, which belongs to the application
            pass
        with suppress(Exception):
            if flight in self._by_key.values():
                # Its key has changed or lost its hash: copy the other flights into a new table. A flight that starts
                # meanwhile may be missed; then no call follows it.
                others = [one for one in list(self._by_key.values()) if one is not flight and one.leader is not None]
                self._by_key = {one.key: one for one in others}


def _unseat_locked(follower: Seat) -> None:
    """Remove *follower* from its flight, so that it waits no longer."""
    if follower.flight is not None:
        follower.flight.followers.pop(follower, None)


def _leads_to(flight: Flight, others: Collection[Flight]) -> bool:
    """Return whether *flight* is one of *others*, or waits for one of them, directly or through other flights."""
    seen: set[Flight] = set()
    near = list(others)
    while near:
        other = near.pop()
        if other is flight:
            return True
        if other not in seen:
            seen.add(other)
            for follower in other.followers:
                near += follower.within
    return False
