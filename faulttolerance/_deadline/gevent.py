"""Deadlines of greenlets of a gevent hub: its timer raises the interruption where a greenlet waits (rule S4).

A hub runs on the thread of its greenlets, and only while all of them wait. So a greenlet that the hub looks at stands
where it gave way, in a call that has taken nothing yet, and nothing happens between the look and the interruption.
gevent is never imported here: a thread without a hub has no greenlets to wait for.
"""

from __future__ import annotations

import sys
from itertools import takewhile
from math import inf
from typing import Any
from weakref import ref

from .._platform.atomic import stack_of
from .._platform.frames import module_of
from .._platform.unpatched import get_ident, native
from .threads.async_exception import interruption_for
from .threads.cancels import are_under_way, make_due
from .threads.chain import Entry, ThreadDeadlines, chain, depth, due, lateness
from .threads.pending_interrupt import PendingInterrupt
from .threads.safe_point import Stack, reason_unsafe
from .threads.watchdog import watchdog

_SOON = 0.001
_SELDOM = 0.05
"""Seconds until the next look at a greenlet that stood badly: as long as it is late by ten times that, and at most."""
_PUTTING_BACK = frozenset({"__exit__", "_acquire_restore", "release"})
"""Functions that wait for a lock which what follows an exception is going to give back."""


def hub_here() -> Any:
    """Return the hub of gevent that the running thread has; ``None`` where it has none."""
    hubs = sys.modules.get("gevent._hub_local")
    return hubs.get_hub_if_exists() if hubs is not None else None


def make_hub_here() -> bool:
    """Let the running thread have a hub before it waits, if sockets wait by one; tell whether they do.

    A hub imports modules when it is made, by locks that are gevent's: two threads that make theirs at once wait for
    each other for ever.
    """
    patcher = sys.modules.get("gevent.monkey")
    if patcher is None or not patcher.is_module_patched("socket"):
        return False
    sys.modules["gevent"].get_hub()
    return True


class HubWatch:
    """Interrupts one greenlet of a hub at its deadlines, with one timer for the next of them."""

    def __init__(self, deadlines: ThreadDeadlines, hub: Any, greenlet: Any) -> None:
        self._deadlines = ref(deadlines)
        self._greenlet = ref(greenlet, self._stop)  # a timer would keep it until its time has come
        self._loop = hub.loop
        self._ident = get_ident()
        self._timer: Any = None
        self._is_first = greenlet.parent is None
        """Whether this is the greenlet with which the thread began: it does not end, and may wait for the hub to end,
        which it only does when there is no timer any more."""
        self._turns: Any = None
        self.next = inf
        """When the timer is due."""
        if hasattr(greenlet, "rawlink"):
            greenlet.rawlink(self._stop)  # who keeps a greenlet that has ended does not keep the hub waiting

    def wake_at(self, when: float) -> None:
        """Look at the greenlet at *when*; called on its thread."""
        if when >= self.next:
            return
        self.next = when
        if self._timer is not None:
            self._timer.stop()
        self._timer = self._loop.timer(max(0.0, when - native.monotonic()))
        self._timer.start(self._look)
        if self._is_first and self._turns is None:
            self._turns = self._loop.prepare(ref=False, priority=getattr(self._loop, "MINPRI", None))
            self._turns.start(self._stop_if_over)

    def look_soon(self) -> None:
        """Look at the greenlet when the hub next runs; called on any thread."""
        if get_ident() == self._ident:
            self._loop.run_callback(self._look)
        else:
            self._loop.run_callback_threadsafe(self._look)

    def _stop(self, _: object) -> None:
        timer, self._timer, self.next = self._timer, None, inf
        if timer is not None and get_ident() == self._ident:  # elsewhere it only does nothing when it is due
            timer.stop()

    def _stop_if_over(self) -> None:
        """Forget the timer if no call is under way; called at each turn of the hub."""
        deadlines = self._deadlines()
        if deadlines is None or deadlines.innermost is None:
            turns, self._turns = self._turns, None
            if turns is not None:
                turns.stop()
            self._stop(None)

    def _look(self) -> None:
        """Interrupt the greenlet if a deadline has passed; called by the hub."""
        self.next = inf
        greenlet, deadlines = self._greenlet(), self._deadlines()
        if greenlet is None or deadlines is None or greenlet.dead or deadlines.innermost is None:
            return
        now = native.monotonic()
        entry = due(deadlines, -inf if watchdog.is_paused else now)
        why = None
        if entry is not None:
            if deadlines.cancels:
                make_due(deadlines, now)
            if are_under_way(deadlines, lateness(deadlines, entry, now)):
                why = "something was called first"
            else:
                why = self._why_not(greenlet, deadlines, entry, now)
        soonest = min((one[0] for one in chain(deadlines) if type(one) is not list and one[0] > now), default=inf)
        if entry is not None and why is not None:
            soonest = min(soonest, now + min(_SELDOM, max(_SOON, lateness(deadlines, entry, now) / 10)))
        if soonest < inf:
            self.wake_at(soonest)
        if entry is not None and why is None:
            greenlet.throw(interruption_for(deadlines, entry))

    @staticmethod
    def _why_not(greenlet: Any, deadlines: ThreadDeadlines, entry: Entry, now: float) -> str | None:
        """Return why the greenlet may not be interrupted where it waits; ``None`` where it may."""
        frame = greenlet.gr_frame
        if frame is None:
            return "it ran in a greenlet"  # it is the hub itself, or has not begun
        stack, late_by = stack_of(frame), lateness(deadlines, entry, now)
        if any(step.f_code.co_name in _PUTTING_BACK for step in _waiting_frames(stack)):
            why: str | None = "it was about to take a lock again"
        else:
            layers = depth(deadlines, entry)
            why = reason_unsafe(stack, late_by, exact=True, asleep=True, blocked=True, depth=layers)
        pending = deadlines.pending_interrupt
        if pending is None or pending.entry is not entry:
            pending = deadlines.pending_interrupt = PendingInterrupt(entry)
        pending.why = why
        return why


def _waiting_frames(stack: Stack) -> Stack:
    """Return the frames of the code, made for waiting, in which the greenlet waits."""
    return tuple(takewhile(lambda step: module_of(step).partition(".")[0] in ("gevent", "threading"), stack))


def watch_in_hub(deadlines: ThreadDeadlines) -> HubWatch | None:
    """Let the hub of this thread interrupt the running greenlet, which has *deadlines*; ``None``: there is none."""
    watch: HubWatch | None = deadlines.hub_watch
    if watch is None:
        hub = hub_here()
        if hub is not None:
            greenlet = sys.modules["greenlet"].getcurrent()
            if greenlet is not hub:
                watch = deadlines.hub_watch = HubWatch(deadlines, hub, greenlet)
    return watch
