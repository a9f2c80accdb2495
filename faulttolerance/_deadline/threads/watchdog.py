"""The one thread that examines deadlines when they pass, and runs the timers of the library.

``next`` is the moment of the next look. A caller first stores its deadline in the chain and then reads ``next``. The
watchdog first sets ``next`` to infinity and then reads the chains. So at least one of them sees the store of the other.

An interruption is withdrawn in the same way. The caller first removes its deadline from the chain and then reads
``in_flight``. The watchdog first stores ``in_flight`` and then reads the chain. While ``busy`` holds the deadlines of
the caller's thread, the caller waits for the outcome. So no interruption arrives after its call is over.

Callers hold no lock here: an interruption, a finalizer or a signal handler may come between any two of their steps.
They also leave nothing half done, because nothing would complete it. One call of C code sets ``next`` to -inf and wakes
the thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from math import inf
from operator import call

from ..._platform.daemon import Daemon
from ..._platform.unpatched import native
from .chain import ThreadDeadlines, deadlines_of_threads
from .timers import Timer, Timers

_SWITCH_OFTEN = 0.0001
"""Seconds after which a moving thread without a safe point must switch to the watchdog; usually that is 5 ms."""
_LONGEST_SLEEP = 86400.0


class Watchdog(Daemon):
    """The watchdog, which sleeps until a deadline passes or a timer is due."""

    def __init__(self) -> None:
        self.next: float = inf
        """The moment of the next look; a caller that starts an earlier deadline calls ``wake``."""
        self.busy: ThreadDeadlines | None = None
        """The deadlines of the thread that is being interrupted at this moment."""
        self.look: Callable[[], float] = lambda: inf
        """Examines the deadlines of all threads, and returns the moment of the next look."""
        self.is_paused = False
        self.switches_often = False
        """Whether a look at a moving thread found no safe point in this round."""
        self.forks: list[None] = []
        """The forks that are under way; nothing is watched meanwhile."""
        self._renew()

    def _renew(self) -> None:
        super().__init__(self._watch, self._has_work)
        self._sleep = native.allocate_lock()
        self._sleep.acquire()
        self.timers = Timers(self.rouse)
        self.switches_often = False
        self.busy = None
        self.next = -inf if self.is_paused else inf

    # Methods for callers

    def wake(self) -> None:
        """Schedule a look at the chains soon; start the thread if there is none."""
        if not self.is_paused:
            self.rouse(partial(setattr, self, "next", -inf))  # no other caller needs to wake the thread then

    def rouse(self, *before: Callable[[], object]) -> None:
        """Start the thread's next round; call *before* first, in one step with the wake-up if it is written in C."""
        if self.is_running or self.start():
            try:
                list(map(call, (*before, self._sleep.release)))
            except RuntimeError:
                pass  # the thread was woken already, and has not slept since

    def look_after(self, deadlines: ThreadDeadlines) -> None:
        """Schedule a look at a thread whose interruption was delivered or withdrawn; its other deadlines may be due."""
        if deadlines.innermost is not None:
            self.wake()

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        """Run a short callback on the watchdog's thread at *when*; its exceptions are logged."""
        return self.timers.call_at(when, callback)

    def pause(self) -> None:
        """Stop interruptions by deadlines until ``resume``; requested interruptions and timers continue."""
        self.is_paused = True
        self.next = -inf
        while self.busy is not None:
            native.sleep(0)

    def resume(self) -> None:
        """Resume interruptions by deadlines."""
        if self.is_paused:
            self.next = inf
            self.is_paused = False
            self.wake()

    def start(self) -> bool:
        """Start the thread unless it runs; return false if no thread is possible: then deadlines end late."""
        return not self.forks and super().start()

    # Methods of the watchdog's thread

    def _watch(self) -> None:
        try:
            while not self.forks:
                self._go_round()
        finally:
            self.busy = None

    def _go_round(self) -> None:
        if not self.is_paused:
            self.next = inf
        soonest = self.look()
        if not self.is_paused:
            self.next = soonest
        self._rest(min(soonest, self.timers.run_due()) - native.monotonic())

    def _rest(self, seconds: float) -> None:
        """Sleep for *seconds* or until a wake-up; shorten the switch interval if a moving thread had no safe point."""
        usual = often = sys.getswitchinterval()
        if self.switches_often:
            self.switches_often = False
            sys.setswitchinterval(min(usual, _SWITCH_OFTEN))
            often = sys.getswitchinterval()
        self._sleep.acquire(timeout=max(0.0, min(seconds, _LONGEST_SLEEP)))
        if often != usual and sys.getswitchinterval() == often:  # and no other code has changed it meanwhile
            sys.setswitchinterval(usual)

    def _has_work(self) -> bool:
        """Return whether the thread must run again; the next caller with a deadline or timer starts it otherwise."""
        if not self.is_paused:
            self.next = inf
        self.timers.next = inf
        has_deadline = any(deadlines.innermost is not None for deadlines in deadlines_of_threads())
        return not self.forks and (bool(self.timers.callbacks) or has_deadline)

    # Forks

    def stop(self) -> None:
        """Stop the thread because of ``forks``, and wait until it is gone."""
        if self.is_running and not self.is_here:
            self.rouse()
            self.join(1.0)  # a timer's callback may take long

    def restart(self) -> None:
        """Continue after a fork."""
        if self._has_work():
            self.rouse()

    def restart_in_child(self) -> None:
        """Continue in the child of a fork; the watchdog's timers are gone."""
        self.forks.clear()
        self._renew()
        self.restart()


watchdog = Watchdog()
