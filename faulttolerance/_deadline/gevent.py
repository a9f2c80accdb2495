"""Deadlines of greenlets of a gevent hub, whose timer interrupts a waiting greenlet (rule S4).

A hub runs on the thread of its greenlets, and only while all of them wait. So a greenlet that the hub examines stands
in a call that has switched to the hub and has taken nothing yet. Nothing happens between the examination and the
interruption. This module never imports gevent: a thread without a hub has no greenlets that could wait.
"""

from __future__ import annotations

import sys
from functools import partial
from itertools import takewhile
from math import inf
from typing import Any
from weakref import ref

from .._platform.atomic import stack_of
from .._platform.frames import module_of
from .._platform.greenlets import hub_here
from .._platform.unpatched import get_ident, native
from .threads.async_exception import interruption_for
from .threads.callbacks import are_running, call_due
from .threads.chain import Entry, ThreadDeadlines, chain, depth, due, lateness
from .threads.pending_interrupt import PendingInterrupt
from .threads.safe_point import RESTORING, reason_unsafe
from .threads.watchdog import watchdog

_SOON = 0.001
_SELDOM = 0.05
"""The shortest and longest delay, in seconds, before a greenlet in an unsafe place is examined again.

In between, the delay is a tenth of the lateness.
"""


def make_hub_here() -> bool:
    """Create the hub of the running thread if gevent has patched sockets; return whether it has.

    The creation of a hub imports modules, under import locks of gevent. Two threads that created their hubs at the same
    time would wait for each other for ever.
    """
    patcher = sys.modules.get("gevent.monkey")
    if patcher is None or not patcher.is_module_patched("socket"):
        return False
    sys.modules["gevent"].get_hub()
    return True


class HubWatch:
    """The watch that interrupts one greenlet of a hub at its deadlines, with one timer for the nearest of them."""

    def __init__(self, deadlines: ThreadDeadlines, hub: Any, greenlet: Any) -> None:
        self._deadlines = ref(deadlines)
        self._greenlet = ref(greenlet, self._stop)  # weak: a running timer would keep the greenlet alive
        self._loop = hub.loop
        self._ident = get_ident()
        self._timer: Any = None
        # The first greenlet of a thread does not end. It may wait for the hub to end, which no timer must prevent.
        self._new_timer = partial(hub.loop.timer, ref=greenlet.parent is not None)
        self.next = inf
        """The moment at which the timer is due."""
        if hasattr(greenlet, "rawlink"):
            greenlet.rawlink(self._stop)  # a reference to a greenlet that has ended must not keep the hub running

    def wake_at(self, when: float) -> None:
        """Schedule an examination of the greenlet at *when*; called on the greenlet's thread."""
        if when >= self.next:
            return
        self.next = when
        if self._timer is not None:
            self._timer.stop()
        self._timer = self._new_timer(max(0.0, when - native.monotonic()))
        self._timer.start(self._look)

    def look_soon(self) -> None:
        """Schedule an examination of the greenlet for the hub's next turn; called on any thread."""
        if get_ident() == self._ident:
            self._loop.run_callback(self._look)
        else:
            self._loop.run_callback_threadsafe(self._look)

    def _stop(self, _: object) -> None:
        timer, self._timer, self.next = self._timer, None, inf
        if timer is not None and get_ident() == self._ident:  # on another thread, the timer runs out without effect
            timer.stop()

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
            call_due(deadlines, now)
            if are_running(deadlines, lateness(deadlines, entry, now)):
                why = "functions of on_deadline had to end first"
            else:
                why = self._why_not(greenlet, deadlines, entry, now)
        soonest = min((one[0] for one in chain(deadlines) if type(one) is not list and one[0] > now), default=inf)
        if entry is not None and why is not None:
            soonest = min(soonest, now + min(_SELDOM, max(_SOON, lateness(deadlines, entry, now) / 10)))
        self.wake_at(soonest)
        if entry is not None and why is None:
            greenlet.throw(interruption_for(deadlines, entry))

    @staticmethod
    def _why_not(greenlet: Any, deadlines: ThreadDeadlines, entry: Entry, now: float) -> str | None:
        """Return why the greenlet may not be interrupted at the place where it waits; ``None`` if it may."""
        frame = greenlet.gr_frame
        if frame is None:
            return "it ran in a greenlet"  # the greenlet is the hub itself, or has not started
        stack, late_by = stack_of(frame), lateness(deadlines, entry, now)
        waiting = takewhile(lambda step: module_of(step).partition(".")[0] in ("gevent", "threading"), stack)
        if any(step.f_code.co_name in RESTORING for step in waiting):
            why: str | None = "it was about to acquire a lock again"
        else:
            layers = depth(deadlines, entry)
            why = reason_unsafe(stack, late_by, exact=True, asleep=True, blocked=True, depth=layers)
        pending = deadlines.pending_interrupt
        if pending is None or pending.entry is not entry:
            pending = deadlines.pending_interrupt = PendingInterrupt(entry)
        pending.why = why
        return why


def watch_in_hub(deadlines: ThreadDeadlines) -> HubWatch | None:
    """Return the watch by which this thread's hub interrupts the running greenlet; ``None`` if there is no hub."""
    watch: HubWatch | None = deadlines.hub_watch
    if watch is None:
        hub = hub_here()
        if hub is not None:
            greenlet = sys.modules["greenlet"].getcurrent()
            if greenlet is not hub:
                watch = deadlines.hub_watch = HubWatch(deadlines, hub, greenlet)
    return watch
