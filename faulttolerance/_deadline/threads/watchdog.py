"""The one thread that examines deadlines when they pass, and runs the timers of the library.

``next`` is the moment of the next look. A caller first stores its deadline in the chain and then reads ``next``. The
watchdog first sets ``next`` to infinity and then reads the chains. So at least one of them sees the store of the other.

An interruption is withdrawn in the same way. The caller first removes its deadline from the chain and then reads
``in_flight``. The watchdog first stores ``in_flight`` and then reads the chain. While ``busy`` holds the deadlines of
the caller's thread, the caller waits for the outcome. So no interruption arrives after its call is over.

Callers hold no lock here: an interruption, a finalizer or a signal handler may come between any two of their steps.
They also leave nothing half done, because nothing would complete it. The watchdog's thread takes its place itself, and
ends if another thread has the place. One call of C code sets ``next`` to -inf and wakes the thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from math import inf
from operator import call
from typing import Any

from ..._platform.atomic import once
from ..._platform.daemon import wait_until_gone
from ..._platform.fork import stop_at_end_of_subinterpreter
from ..._platform.unpatched import allows_watching, get_ident, get_native_id, native
from .chain import ThreadDeadlines, deadlines_of_threads
from .timers import Timer, Timers

_SWITCH_OFTEN = 0.0001
"""Seconds after which a moving thread without a safe point must switch to the watchdog; usually that is 5 ms."""
_LONGEST_SLEEP = 86400.0


class Watchdog:
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
        self._sleep = native.allocate_lock()
        self._sleep.acquire()
        self._place = native.allocate_lock()
        """Held by the thread that watches, as long as it does."""
        self._running = False
        self._ident = 0
        self._native_id = 0
        self._handle: Any = None
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
        if self._running or self._start():
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

    def runs_on(self, ident: int) -> bool:
        """Return whether *ident* is its thread, for virtual time, which asks at each step."""
        return self._running and self._ident == ident

    @property
    def is_running(self) -> bool:
        """Whether its thread runs; otherwise none is needed yet, or none could be started."""
        return self._running

    # Methods of the watchdog's thread

    def _start(self) -> bool:
        """Start a thread, and wait until it runs; return whether that was possible."""
        if not allows_watching or self.forks:
            return False
        begun = native.allocate_lock()
        begun.acquire()
        try:
            stop_at_end_of_subinterpreter()
            if sys.version_info >= (3, 13):
                self._handle = native.start_joinable_thread(partial(self._run, begun), daemon=True)
            else:
                native.start_thread(partial(self._run, begun), ())
        except RuntimeError:  # the interpreter is ending, or no thread is available: deadlines end late
            return False
        if not sys.is_finalizing():
            begun.acquire()
        return True

    def _run(self, begun: Any) -> None:
        is_wanted = self._place.acquire(False)
        if is_wanted:
            self._ident = get_ident()
            self._native_id = get_native_id()
            self._running = True
        begun.release()
        if not is_wanted:
            return  # another thread has the place
        try:
            while not self.forks:
                self._go_round()
        finally:  # also after a failure: then the next caller starts another thread
            self.busy = None
            self._running = False
            self._place.release()
            self._expect_callers()
        if not self.forks:
            self._look_around()

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

    def _look_around(self) -> None:
        """Start the thread again if it has work, and otherwise as soon as it has."""
        self._expect_callers()
        if self.timers.alive or any(deadlines.innermost is not None for deadlines in deadlines_of_threads()):
            self.rouse()

    def _expect_callers(self) -> None:
        """Reset ``next``, so that the caller of an earlier deadline or timer wakes the thread, or starts it."""
        if not self.is_paused:
            self.next = inf
        self.timers.next = inf

    # Forks

    def stop(self) -> None:
        """Stop the thread because of ``forks``, and wait until it is gone."""
        if not self._running or self._ident == get_ident():
            return
        self.rouse()
        for is_over in once(self._place.acquire, True, 1.0):  # a timer's callback may take long
            if is_over:
                self._place.release()
                wait_until_gone(self._handle, self._native_id)

    def restart_in_parent(self) -> None:
        """Continue in the parent of a fork."""
        if not self.forks:
            self._look_around()

    def restart_in_child(self) -> None:
        """Continue in the child of a fork; the watchdog's timers are gone."""
        self.forks.clear()
        self._renew()
        self._look_around()


watchdog = Watchdog()
