"""Permits to run, and the queue for them (specification, chapter Bulkhead).

``held`` is a dictionary in the order in which keys were stored. The first ``limit`` keys hold permits. To store a key,
to count the keys and to remove a key are each a single step of the interpreter, so a call that finds room needs no
lock. ``acquire`` and ``release`` are the whole protocol. Where a call of either costs too much, a caller may write its
first steps in place, and call it for the rest only::

    held[attempt_id] = ident  # inside the ``try`` whose end removes it
    if len(held) > bulkhead.limit or bulkhead.waiting:
        bulkhead.acquire(attempt_id, ident)  # or with *wake*, where the call may wait
    ...
    del held[attempt_id]  # the first thing after the body
    if bulkhead.waiting:
        bulkhead.admit_waiters()

Proof that exactly ``limit`` calls run: keys only ever move forward, so a key among the first ``limit`` stays there. A
call that counts at most ``limit`` keys after it stored its own is among them. A call that counts more decides under the
lock.

The limit may move meanwhile (rule A1), under the lock. A call that was admitted under a higher limit stays admitted.
The argument holds for the lower limit again once so many calls have left that all keys are among its first. A call that
counts too many keys under a lower limit decides under the lock. Where the limit rises, the waiters are admitted in the
same step: an arrival that reads the higher limit reads ``waiting`` after it, and finds the waiters there, or has
counted their keys.

Proof that no permit is lost: a leaver removes its key first, then looks for waiters; a call that begins to wait enters
``waiting`` first, then looks for room. At least one side sees the other. A call that does not know whether it was
admitted, and finds no key to remove, looks under the lock.

Proof that nobody overtakes: an arrival looks at ``waiting`` after it stored its key. If there are waiters, the arrival
decides under the lock and steps behind, unless its key was there before the first of them began to wait.

An *attempt_id* is never used twice at a time. ``held`` stays the same object; ``waiting`` is replaced by another object
when the first call waits.

The order of service (rules Q3, Q4, K1) reorders ``waiting`` only, never ``held``. ``wake`` notifies a waiter that its
wait is over; ``reason`` says how it ended. A waiter whose time is over is also refused when another call arrives or
leaves. So a waiter that cannot look at the clock any more, as in a loop that was closed, holds up no other call.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from math import inf
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple, TypeVar

from ..exceptions import BulkheadException
from .adaptive_limit import AdaptiveLimit
from .condition import Condition
from .waking import wake_all

T = TypeVar("T")


_CONGESTED_AFTER: Final = 0.1
"""Seconds for which a queue may be filled before it counts as congested, where there is no longest wait."""
USUAL_TIER: Final = 2
"""The tier of calls that name none."""


class Waiter:
    """A call's place in the queue.

    Args:
        attempt_id: The key under which the permit will be held.
        ident: The thread that keeps the place in the child of a fork.
        wake: Called from any thread, without a lock, once the wait is over; seldom more than once. If it raises, the
            permit goes to the next waiter. ``None``: the call must not wait.
        tier: The importance of the call; higher tiers go first.
    """

    __slots__ = ("__weakref__", "admitted", "attempt_id", "ident", "reason", "tier", "until", "wake")

    def __init__(
        self, attempt_id: Hashable, ident: int, wake: Callable[[], object] | None, tier: int = USUAL_TIER
    ) -> None:
        self.attempt_id = attempt_id
        self.ident = ident
        self.wake = wake
        self.tier = tier
        self.until = inf
        """The moment at which the waiter has waited for the longest allowed time."""
        self.admitted = False
        self.reason: Literal["", "waited", "displaced"] = ""
        """The reason for a refusal; empty while the call waits, and after it got a permit."""


_tier = attrgetter("tier")


class _Queue(OrderedDict[Hashable, Waiter]):
    """Waiters by attempt, in the order of arrival; any of them leaves at the cost of one step."""

    ahead: Sequence[Hashable] = ()
    """The attempts that were there before the first waiter; empty where nobody waits."""
    filled_since = 0.0
    """The moment since which calls have been waiting."""
    tiers_differ = False
    """Whether the waiters may be of several tiers."""


_REASONS: Final = {
    "full": "",
    "waited": ", and no permit came free within the longest wait",
    "displaced": ", and another call took its place in the queue",
}
_EMPTY_QUEUE = _Queue()
"""The queue of every bulkhead for which no call has waited yet; nothing is ever stored in it."""


class LimitChange(NamedTuple):
    """The effect of an attempt from which the limit learned."""

    old: int
    """The limit before."""
    new: int
    is_target_unreachable: bool
    """Whether the target is wrong (rule A4)."""


class Bulkhead:
    """One limit for the calls of all threads and event loops.

    Args:
        limit: Calls that may run at once; with a *latency*, at most.
        queue: Calls that may wait, of those that can be woken.
        name: The owner of the bulkhead, for the message of a refusal.
        max_wait: Seconds that a call may wait; 0.0: *latency*, or where that is 0.0, without limit.
        latency: Seconds within which nine in ten calls are to end; the limit moves for this target. 0.0: it stays
            fixed.
        now: Returns the moment in seconds; called only where a call has to wait, or waits, or the limit moves.
        lock: A reentrant lock, which others may use too: it is held for a few steps, while a call enters or leaves.
    """

    __slots__ = (
        "__weakref__", "_ceiling", "_lock", "_name", "_now",
        "adaptive", "held", "limit", "max_wait", "queue", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        limit: int,
        queue: int,
        name: str = "",
        *,
        max_wait: float = 0.0,
        latency: float = 0.0,
        now: Callable[[], float] = lambda: 0.0,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self.limit = limit
        self.queue = queue
        self.max_wait = max_wait
        self.adaptive = AdaptiveLimit(limit, latency) if latency else None
        """The rule that moves the limit; changed under the lock only, except for its ``uncounted``."""
        self.held: dict[Hashable, int] = {}
        """Thread by attempt; the first ``limit`` keys hold a permit, the others are about to decide or to leave."""
        self.waiting = _EMPTY_QUEUE
        """The attempts that wait; true if a caller has to decide under the lock. Changed under the lock only."""
        self._ceiling = limit  # guarded by _lock: how many may still run after the limit was lowered
        self._name = name
        self._now = now
        # Reentrant: a signal handler or a finalizer may call the guarded function while its thread holds the lock.
        self._lock: AbstractContextManager[object] = threading.RLock() if lock is None else lock

    @property
    def running(self) -> int:
        """The number of calls that hold a permit."""
        return min(len(self.held), self._ceiling)

    @property
    def longest_wait(self) -> float:
        """The longest wait in seconds, for calls that may wait: without a *max_wait*, the target of the limit."""
        adaptive = self.adaptive
        return self.max_wait or (0.0 if adaptive is None else adaptive.latency)

    def has_room_to_spare(self, now: float, permits: int) -> bool:
        """Return whether *permits* are free, and the limit has not just fallen: an optional attempt has room."""
        adaptive = self.adaptive
        is_calm = adaptive is None or not adaptive.has_just_fallen(now)
        return is_calm and len(self.held) + permits <= self.limit and not len(self.waiting)

    def is_idle(self, now: float) -> bool:
        """Return whether the bulkhead can be dropped without loss: no permit held or waited for, no limit lowered."""
        adaptive = self.adaptive
        is_at_ceiling = adaptive is None or adaptive.exact_limit >= adaptive.ceiling
        return is_at_ceiling and not self.held and not len(self.waiting)

    def is_at_rest(self, now: float) -> bool:
        """Return whether no permit is held or waited for, and no limit was lowered for a minute."""
        adaptive = self.adaptive
        return (adaptive is None or adaptive.is_at_rest(now)) and not self.held and not len(self.waiting)

    def condition(self, now: float) -> Condition:
        """Return the condition of the bulkhead; *now* changes nothing."""
        waiting, adaptive = f", {len(self.waiting)} waiting" if self.waiting else "", self.adaptive
        words = f"{self.running} of {self.limit} running{waiting}"
        live = {"latency": f"limit now {self.limit} of {adaptive.ceiling}"} if adaptive is not None else {}
        return Condition(words, is_impaired=self.running >= self.limit, live=live)

    def acquire(self, attempt_id: Hashable, ident: int, wake: Callable[[], object] | None = None) -> Waiter | None:
        """Acquire a permit at once and return ``None``, or begin to wait for a permit; see ``Waiter`` and ``enter``."""
        return self.enter(Waiter(attempt_id, ident, wake))

    def enter(self, waiter: Waiter) -> Waiter | None:
        """Acquire a permit at once and return ``None``, or begin to wait for a permit and return *waiter*.

        A caller that is interrupted before this method returns calls ``release``.

        Raises:
            BulkheadException: All permits are taken, or promised to waiters, and the queue is full.
        """
        self.held[waiter.attempt_id] = waiter.ident
        if len(self.held) <= self.limit and not self.waiting:
            return None
        decision = self._decide(self._acquire_locked, waiter)
        if decision == "refused":
            raise self.refusal("full")
        return waiter if decision == "waits" else None

    def refusal(self, reason: str) -> BulkheadException:
        """Return the exception for a call that got no permit; *reason* is ``"full"`` or that of its waiter."""
        message = f"{self._name}: bulkhead is full" if self._name else "bulkhead is full"
        return BulkheadException(message + _REASONS[reason], 0.0, reason)

    def expire(self, waiter: Waiter) -> None:
        """Reject and wake *waiter*, whose longest wait is over, unless it was admitted meanwhile."""
        self._decide(self._expire_locked, waiter)

    def release(self, attempt_id: Hashable) -> None:
        """Release the permit of the attempt, or its place in the queue; any number of calls at any time is safe."""
        if self.held.pop(attempt_id, None) is None or self.waiting:
            self._decide(self._release_locked, attempt_id)

    def admit_waiters(self) -> None:
        """Grant the free permits to the waiters; called by a call that left and saw ``waiting``."""
        self._decide(self._admit_waiters_locked)

    def count_all(self) -> None:
        """Count all running calls, also beyond the limit, until there are new values: they need no permit (rule X7)."""
        self._ceiling = sys.maxsize

    def resize(self, limit: int, queue: int, max_wait: float = 0.0, latency: float = 0.0) -> None:
        """Replace the values; calls that run go on and calls that wait stay, also beyond the new values."""
        self._decide(self._resize_locked, limit, queue, max_wait, latency)

    def adapt(
        self, elapsed: float, *, is_success: bool = True, is_sample: bool = True, keeps_permit: bool = False
    ) -> LimitChange | None:
        """Adapt the limit to an attempt that ends now (rule A1).

        Args:
            elapsed: Seconds since the attempt got its permit.
            is_success: See ``AdaptiveLimit.end``.
            is_sample: See ``AdaptiveLimit.end``.
            keeps_permit: Whether the permit is not back yet, as the body goes on.

        Returns:
            The effect on the limit; ``None`` where the limit does not adapt.
        """
        return self._decide(self._adapt_locked, elapsed, is_success, is_sample, keeps_permit)

    def count(self) -> None:
        """Count the attempts that move nothing; see ``AdaptiveLimit.count``."""
        adaptive = self.adaptive
        if adaptive is not None:
            with self._lock:
                adaptive.count()

    def reset_after_fork(self, ident: int) -> None:
        """Drop what other threads than *ident* hold: they do not exist after a fork. Call it in the child only."""
        self._lock = threading.RLock()
        for attempt_id in [other for other, thread in list(self.held.items()) if thread != ident]:
            del self.held[attempt_id]
        for attempt_id in [other for other, waiter in list(self.waiting.items()) if waiter.ident != ident]:
            del self.waiting[attempt_id]
        self.admit_waiters()

    def _decide(self, decide: Callable[..., T], *args: Any) -> T:
        """Run *decide* under the lock with a list for the waiters that it ends, and wake these waiters afterwards."""
        woken: list[Waiter] = []
        try:
            with self._lock:
                decision = decide(woken, *args)
            self._wake(woken)
        except BaseException:
            self._wake(woken)  # a signal's handler raised: the waiters that were admitted have to be woken all the same
            raise
        return decision

    def _acquire_locked(self, woken: list[Waiter], waiter: Waiter) -> Literal["admitted", "waits", "refused"]:
        attempt_id, room = waiter.attempt_id, self.queue if waiter.wake is not None else 0
        if self._is_admitted_locked(attempt_id):
            return "admitted"
        self.held.pop(attempt_id, None)
        now = self._now()
        self._refuse_overdue_locked(woken, now)
        if not len(self.waiting):
            if not room:
                return "refused"
            if self.waiting is _EMPTY_QUEUE:
                self.waiting = _Queue()
            self.waiting.ahead = list(self.held)
            self.waiting.filled_since, self.waiting.tiers_differ = now, False
        elif waiter.tier != next(iter(self.waiting.values())).tier:
            self.waiting.tiers_differ = True
        if longest := self.longest_wait:
            waiter.until = now + longest
        # Also where it may not wait: the waiters may all get in now, and leave room for one more.
        self.waiting[attempt_id] = waiter
        self._admit_waiters_locked(woken)
        if waiter.admitted:
            woken.remove(waiter)
            return "admitted"
        if len(self.waiting) > room:
            loser = waiter if waiter.wake is None else self._displaced_locked(now)
            if loser is waiter:
                self.waiting.pop(attempt_id, None)
                self._admit_waiters_locked(woken)
                return "refused"
            self._refuse_locked(woken, loser, "displaced")
        return "waits"

    def _release_locked(self, woken: list[Waiter], attempt_id: Hashable) -> None:
        self.held.pop(attempt_id, None)  # it may have been admitted a moment ago
        self.waiting.pop(attempt_id, None)
        self._admit_waiters_locked(woken)

    def _expire_locked(self, woken: list[Waiter], waiter: Waiter) -> None:
        if self.waiting.get(waiter.attempt_id) is waiter:
            self._refuse_locked(woken, waiter, "waited")
            self._admit_waiters_locked(woken)

    def _resize_locked(self, woken: list[Waiter], limit: int, queue: int, max_wait: float, latency: float) -> None:
        self.queue = queue
        self.max_wait = max_wait
        if not latency:
            self.adaptive = None
        elif self.adaptive is None:
            self.adaptive = AdaptiveLimit(limit, latency)
        else:
            self.adaptive.reconfigure(limit, latency)
        self._move_locked(woken, limit if self.adaptive is None else self.adaptive.limit)

    def _adapt_locked(
        self, woken: list[Waiter], elapsed: float, is_success: bool, is_sample: bool, keeps_permit: bool
    ) -> LimitChange | None:
        adaptive, old = self.adaptive, self.limit
        if adaptive is None:
            return None
        adaptive.count()
        now, running = self._now(), min(max(1, len(self.held) + (not keeps_permit)), self._ceiling)
        began = now - elapsed
        adaptive.end(began, now, running, is_success=is_success, is_sample=is_sample)
        if adaptive.limit != old or self._ceiling > old:  # else the permit's old and new holder count both
            self._move_locked(woken, adaptive.limit)
        return LimitChange(old, adaptive.limit, adaptive.is_target_unreachable(began, now, running))

    def _move_locked(self, woken: list[Waiter], limit: int) -> None:
        self._ceiling = max(limit, min(len(self.held), self._ceiling))
        self.limit = limit
        self._admit_waiters_locked(woken)

    def _is_admitted_locked(self, attempt_id: Hashable) -> bool:
        if not self._is_among_first_locked(attempt_id):
            return False
        return not len(self.waiting) or attempt_id in self.waiting.ahead

    def _is_among_first_locked(self, attempt_id: Hashable) -> bool:
        if len(self.held) <= self.limit:
            return True
        return attempt_id not in list(self.held)[self.limit :]  # one step each: others store and remove keys meanwhile

    def _admit_waiters_locked(self, woken: list[Waiter]) -> None:
        held, waiting = self.held, self.waiting
        now = self._now() if len(waiting) and (self.longest_wait or waiting.tiers_differ) else 0.0
        self._refuse_overdue_locked(woken, now)
        while len(waiting) and len(held) < self.limit:
            waiter = self._next_locked(now)
            attempt_id = waiter.attempt_id
            held[attempt_id] = waiter.ident
            try:
                has_room = self._is_among_first_locked(attempt_id)
            except BaseException:
                held.pop(attempt_id, None)
                raise
            if not has_room:
                # An arrival was quicker. It has yet to look at ``waiting``: then it steps behind and hands over.
                held.pop(attempt_id, None)
                break
            del waiting[attempt_id]
            waiter.admitted = True
            woken.append(waiter)
        if waiting.ahead and not len(waiting):
            waiting.ahead = ()

    def _refuse_overdue_locked(self, woken: list[Waiter], now: float) -> None:
        while (oldest := next(iter(self.waiting.values()), None)) is not None and oldest.until < now:
            self._refuse_locked(woken, oldest, "waited")

    def _refuse_locked(self, woken: list[Waiter], waiter: Waiter, reason: Literal["waited", "displaced"]) -> None:
        woken.append(waiter)
        waiter.reason = reason
        self.waiting.pop(waiter.attempt_id, None)

    def _next_locked(self, now: float) -> Waiter:
        """Return the waiter that gets the next permit (rules Q3, Q4, K1)."""
        if not self._is_congested_locked(now):
            return next(iter(self.waiting.values()))
        return self._choose_locked(max, newest=self.longest_wait > 0.0)

    def _displaced_locked(self, now: float) -> Waiter:
        """Return the waiter that leaves a queue that is too long (rules Q3, K1): the last in the order of service."""
        return self._choose_locked(min, newest=not (self.longest_wait > 0.0 and self._is_congested_locked(now)))

    def _choose_locked(self, choose: Callable[..., Waiter], newest: bool) -> Waiter:
        waiters = reversed(self.waiting.values()) if newest else iter(self.waiting.values())
        # In one step: others may come and go where a signal handler runs.
        return choose(waiters, key=_tier) if self.waiting.tiers_differ else next(waiters)

    def _is_congested_locked(self, now: float) -> bool:
        longest = self.longest_wait
        if not (longest or self.waiting.tiers_differ):
            return False
        return now - self.waiting.filled_since > (longest or _CONGESTED_AFTER)

    def _wake(self, woken: list[Waiter]) -> None:
        wake_all(woken, lambda waiter: self.release(waiter.attempt_id))


class UnqueuedBulkhead:
    """A bulkhead that admits an attempt while a permit is free, and lets none wait; hedges use it (rule H2).

    Args:
        bulkhead: Holds the permits, and has the queue of the attempts that do wait.
    """

    max_wait: Final = 0.0

    def __init__(self, bulkhead: Bulkhead) -> None:
        self._bulkhead = bulkhead

    held = property(attrgetter("_bulkhead.held"))
    limit = property(attrgetter("_bulkhead.limit"))
    waiting = property(attrgetter("_bulkhead.waiting"))
    release = property(attrgetter("_bulkhead.release"))
    admit_waiters = property(attrgetter("_bulkhead.admit_waiters"))

    def enter(self, waiter: Waiter) -> Any:
        """Acquire a permit for *waiter*, which does not wait.

        Raises:
            BulkheadException: No permit is free.
        """
        waiter.wake = None
        return self._bulkhead.enter(waiter)
