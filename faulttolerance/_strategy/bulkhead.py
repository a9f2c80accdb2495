"""Who may run, and who waits for a turn (specification, chapter Bulkhead).

``held`` is a dictionary in the order in which keys were stored. A permit is held by whoever stored one of its first
``limit`` keys. Storing a key, counting the keys and removing one are each a single step of the interpreter, so that a
call that finds room needs no lock::

    held[me] = ident  # inside the ``try`` whose end removes it
    if len(held) > bulkhead.limit or bulkhead.waiting:
        bulkhead.contend(me, ident)  # raises BulkheadException
        waiter = bulkhead.enqueue(me, ident, wake)  # or, where calls may wait; None: go on
    ...
    held.pop(me, None)  # the first thing after the body
    if bulkhead.waiting:
        bulkhead.hand_over()

Why exactly ``limit`` calls run: keys only ever move forward, so who was among the first ``limit`` stays there. A call
that counts at most ``limit`` keys after it stored its own is among them. One that counts more asks under the lock.

Why no permit is lost: who leaves removes its key, then looks whether somebody waits; who begins to wait is in
``waiting`` first, then looks whether there is room. One of the two sees the other.

Why nobody overtakes: an arrival looks at ``waiting`` after it stored its key. If somebody waits it asks under the lock,
and steps behind, unless its key was there before the first of them began to wait.

Without the GIL two threads may each miss what the other stored a moment ago, so there ``waiting`` counts as true even
when it is empty: every arrival and every leaver then asks under the lock.

*me* identifies one attempt and is never used twice at a time. Drivers may keep a reference to
``held``, which stays the same object; ``waiting`` is another one once somebody waits.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, TypeVar

from ..exceptions import BulkheadException

__all__ = ["Bulkhead", "Waiter"]

T = TypeVar("T")


class Waiter:
    """A call's place in the queue."""

    __slots__ = ("admitted", "ident", "me", "wake")

    def __init__(self, me: Hashable, ident: int, wake: Callable[[], object]) -> None:
        self.me = me
        self.ident = ident
        self.wake = wake
        """Called from any thread, without a lock, once the waiter is admitted; seldom more than once. If it raises, the
        permit goes to the next waiter."""
        self.admitted = False
        """Whether the call holds a permit, stored in ``held`` under ``me``."""


class _Queue(OrderedDict[Waiter, None]):
    """Waiters, first come first; any of them leaves at the cost of one step."""


class _QueueThatCountsAsFilled(_Queue):
    def __bool__(self) -> bool:
        return True


_NOBODY, _NOBODY_KNOWS = _Queue(), _QueueThatCountsAsFilled()
"""Stand for the queue of every bulkhead for which no call has waited yet; nothing is ever stored in them."""


def _has_gil() -> bool:
    is_enabled: Callable[[], bool] | None = getattr(sys, "_is_gil_enabled", None)
    return is_enabled is None or is_enabled()


class Bulkhead:
    """One limit for the calls of all threads and event loops.

    Args:
        limit: Calls that may run at once.
        queue: Calls that may wait, of those that ask by ``enqueue``.
        name: Whose bulkhead it is, for the message of a refusal.
        lock_free: Whether drivers may rely on the interpreter's single steps; by default, whether there is a GIL.
        lock: A reentrant one, which others may use too: it is held for a few steps, while a call asks or hands over.
    """

    __slots__ = ("_ahead", "_ceiling", "_lock", "_name", "held", "limit", "queue", "waiting")

    def __init__(
        self,
        limit: int,
        queue: int,
        name: str = "",
        *,
        lock_free: bool | None = None,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self.limit = limit
        self.queue = queue
        self.held: dict[Hashable, int] = {}
        """Thread by attempt; the first ``limit`` hold a permit, others are about to ask or to leave."""
        self.waiting: _Queue = _NOBODY if (_has_gil() if lock_free is None else lock_free) else _NOBODY_KNOWS
        """Who waits; true if a driver has to ask. Changed under the lock only."""
        self._ahead: Sequence[Hashable] = ()  # guarded by _lock: who was there before the first waiter
        self._ceiling = limit  # guarded by _lock: how many may still run after the limit was lowered
        self._name = name
        # Reentrant: a signal handler or a finalizer may call the guarded function while its thread is in here.
        self._lock: AbstractContextManager[object] = threading.RLock() if lock is None else lock

    @property
    def running(self) -> int:
        """How many calls hold a permit."""
        return min(len(self.held), self._ceiling)

    @property
    def waiting_count(self) -> int:
        """How many calls wait for a permit."""
        return len(self.waiting)

    def contend(self, me: Hashable, ident: int) -> None:
        """Decide, for a call that must not wait and has stored *me*, whether it may run.

        Raises:
            BulkheadException: All permits are taken, or promised to calls that wait; *me* is removed.
        """
        if not self._decide(self._contend_locked, me, ident):
            raise self._refusal()

    def enqueue(self, me: Hashable, ident: int, wake: Callable[[], object]) -> Waiter | None:
        """Decide, for a call that may wait and has stored *me*, whether it may run now (None) or waits.

        A caller that is interrupted before it gets the answer calls ``abandon``.

        Raises:
            BulkheadException: As many calls run and wait as may; *me* is removed.
        """
        waiter = Waiter(me, ident, wake)
        found = self._decide(self._enqueue_locked, waiter)
        if found == "refused":
            raise self._refusal()
        return waiter if found == "waits" else None

    def hand_over(self) -> None:
        """Give the permits that are free to those that wait; called by who left and saw ``waiting``."""
        self._decide(self._hand_over_locked)

    def withdraw(self, waiter: Waiter) -> bool:
        """Leave the queue, or give the permit back where it was admitted; return whether it had been.

        May be called any number of times, at any time.
        """
        return self._decide(self._withdraw_locked, waiter)

    def abandon(self, me: Hashable) -> None:
        """Give back whatever *me* has, a permit or a place in the queue, for a caller that does not know."""
        self._decide(self._abandon_locked, me)

    def resize(self, limit: int, queue: int) -> None:
        """Take new values. Those that run go on and those that wait stay, also beyond the new values."""
        self._decide(self._resize_locked, limit, queue)

    def keep_only(self, ident: int) -> None:
        """Drop what other threads than *ident* held: they do not exist after a fork. Call it in the child only."""
        self._lock = threading.RLock()
        for me in list(self.held):
            if self.held[me] != ident:
                del self.held[me]
        for waiter in list(self.waiting):
            if waiter.ident != ident:
                del self.waiting[waiter]
        self.hand_over()

    def _refusal(self) -> BulkheadException:
        return BulkheadException(f"{self._name}: bulkhead is full" if self._name else "bulkhead is full")

    def _decide(self, decide: Callable[..., T], *args: Any) -> T:
        """Take one decision under the lock; *decide* is given the list for whom it admits, who are woken afterwards."""
        woken: list[Waiter] = []
        try:
            with self._lock:
                decision = decide(woken, *args)
            self._wake(woken)
        except BaseException:
            self._wake(woken)  # a signal's handler raised: whoever was admitted has to hear of it all the same
            raise
        return decision

    def _contend_locked(self, woken: list[Waiter], me: Hashable, ident: int) -> bool:
        if self._is_admitted_locked(me):
            return True
        self.held.pop(me, None)
        if len(self.waiting):
            self._hand_over_locked(woken)
            if not len(self.waiting):
                self.held[me] = ident
                if self._is_among_first_locked(me):
                    return True
                del self.held[me]
        return False

    def _enqueue_locked(self, woken: list[Waiter], waiter: Waiter) -> Literal["admitted", "waits", "refused"]:
        if self._is_admitted_locked(waiter.me):
            return "admitted"
        self.held.pop(waiter.me, None)
        if not len(self.waiting):
            self._ahead = list(self.held)
            if self.waiting is _NOBODY or self.waiting is _NOBODY_KNOWS:
                self.waiting = type(self.waiting)()
        self.waiting[waiter] = None
        self._hand_over_locked(woken)
        if waiter.admitted:
            woken.remove(waiter)
            return "admitted"
        if len(self.waiting) > self.queue:
            del self.waiting[waiter]
            self._hand_over_locked(woken)
            return "refused"
        return "waits"

    def _withdraw_locked(self, woken: list[Waiter], waiter: Waiter) -> bool:
        admitted = waiter.admitted
        if admitted:
            self.held.pop(waiter.me, None)
        else:
            self.waiting.pop(waiter, None)
        self._hand_over_locked(woken)
        return admitted

    def _abandon_locked(self, woken: list[Waiter], me: Hashable) -> None:
        self.held.pop(me, None)
        for waiter in [one for one in self.waiting if one.me == me]:
            del self.waiting[waiter]
        self._hand_over_locked(woken)

    def _resize_locked(self, woken: list[Waiter], limit: int, queue: int) -> None:
        self._ceiling = max(limit, min(len(self.held), self._ceiling))
        self.limit = limit
        self.queue = queue
        self._hand_over_locked(woken)

    def _is_admitted_locked(self, me: Hashable) -> bool:
        if not self._is_among_first_locked(me):
            return False
        return not len(self.waiting) or me in self._ahead

    def _is_among_first_locked(self, me: Hashable) -> bool:
        if len(self.held) <= self.limit:
            return True
        return me not in list(self.held)[self.limit :]  # one step each: other threads store and remove keys meanwhile

    def _hand_over_locked(self, woken: list[Waiter]) -> None:
        held, waiting = self.held, self.waiting
        while len(waiting) and len(held) < self.limit:
            waiter = next(iter(waiting))
            held[waiter.me] = waiter.ident
            try:
                has_room = self._is_among_first_locked(waiter.me)
            except BaseException:
                del held[waiter.me]
                raise
            if not has_room:
                # An arrival was quicker. It has yet to look at ``waiting``: then it steps behind and hands over.
                del held[waiter.me]
                break
            del waiting[waiter]
            waiter.admitted = True
            woken.append(waiter)
        if not len(waiting):
            self._ahead = ()

    def _wake(self, woken: list[Waiter]) -> None:
        while woken:
            waiter = woken[0]
            try:
                waiter.wake()
            except Exception:  # noqa: BLE001  # nobody is there any more, as with a loop that was closed: on to the next
                del woken[0]
                self.withdraw(waiter)
            except BaseException:
                # Not the waiter's: this thread was interrupted, perhaps before the waiter heard of it.
                self._wake(woken)
                raise
            else:
                del woken[0]
