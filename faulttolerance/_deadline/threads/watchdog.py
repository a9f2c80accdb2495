"""The one thread that looks at deadlines when they pass, and runs the timers of the library.

``next`` is when it will look again. A caller stores its deadline in the chain first and reads ``next`` afterwards; the
watchdog sets ``next`` to infinity first and reads the chains afterwards. One of them sees what the other did.

An interruption is withdrawn in the same way: the caller takes its deadline off the chain first and reads ``in_flight``
afterwards; the watchdog stores ``in_flight`` first and reads the chain afterwards. While ``busy`` names the deadlines
of the caller's thread, the caller waits for the outcome. So nothing arrives after its call is over.

Callers hold no lock here: an interruption, a finalizer or a signal handler may land between any two of their steps. Nor
do they leave anything half done there, as nobody would come back to it: the thread takes its place itself, and ends
where another one has it; ``next`` becomes -inf, and the thread is woken, in one call of C code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from math import inf
from operator import call
from typing import Any

from ..._platform.atomic import once
from ..._platform.fork import stop_at_end_of_subinterpreter
from ..._platform.unpatched import allows_watching, get_ident, get_native_id, native
from .chain import ThreadDeadlines, deadlines_of_threads
from .timers import Timer, Timers

_SWITCH_OFTEN = 0.0001
"""Seconds after which a thread that moves, and never stands well, is to give way to the look; usually that is 5 ms."""
_LONGEST_SLEEP = 86400.0


class Watchdog:
    """Sleeps until a deadline passes or a timer is due."""

    def __init__(self) -> None:
        self.next: float = inf
        """When it will look again; who begins an earlier deadline calls ``wake``."""
        self.busy: ThreadDeadlines | None = None
        """The deadlines of the thread that is being interrupted at this moment."""
        self.look: Callable[[], float] = lambda: inf
        """Looks at the deadlines of all threads, and returns when to do so again."""
        self.is_paused = False
        self.is_pressed = False
        """Whether a thread that moves was looked at in vain in this round."""
        self.forks: list[None] = []
        """The forks that are under way; nothing watches meanwhile."""
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
        self.is_pressed = False
        self.busy = None
        self.next = -inf if self.is_paused else inf

    # What callers do

    def wake(self) -> None:
        """Look at the chains soon; the thread is started where there is none."""
        if not self.is_paused:
            self.rouse(partial(setattr, self, "next", -inf))  # nobody else needs to wake it

    def rouse(self, *before: Callable[[], object]) -> None:
        """Make the thread go through its round; call *before* first, in one step with that if it is written in C."""
        if self._running or self._start():
            try:
                list(map(call, (*before, self._sleep.release)))
            except RuntimeError:
                pass  # it was woken already, and has not yet gone to sleep since

    def look_after(self, deadlines: ThreadDeadlines) -> None:
        """Look again at a thread whose interruption was delivered or withdrawn; others may have waited for that."""
        if deadlines.innermost is not None:
            self.wake()

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        """Run a short callback on this thread at *when*; what it raises is logged."""
        return self.timers.call_at(when, callback)

    def pause(self) -> None:
        """Let deadlines interrupt nobody until ``resume``; what was requested, and the timers, are still seen to."""
        self.is_paused = True
        self.next = -inf
        while self.busy is not None:
            native.sleep(0)

    def resume(self) -> None:
        """Interrupt again."""
        if self.is_paused:
            self.next = inf
            self.is_paused = False
            self.wake()

    # Its thread

    def _start(self) -> bool:
        """Start a thread, and wait until it has begun; return whether that was possible."""
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
        except RuntimeError:  # the interpreter is ending, or no thread is to be had: deadlines end late
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
            return  # another one has the place
        try:
            while not self.forks:
                self._go_round()
        finally:  # also where it fails: then the next caller starts another one
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
        """Sleep for *seconds*, or until somebody wakes it; where a thread rarely stands well, wait for it less long."""
        usual = often = sys.getswitchinterval()
        if self.is_pressed:
            self.is_pressed = False
            sys.setswitchinterval(min(usual, _SWITCH_OFTEN))
            often = sys.getswitchinterval()
        self._sleep.acquire(timeout=max(0.0, min(seconds, _LONGEST_SLEEP)))
        if often != usual and sys.getswitchinterval() == often:  # and nobody else has changed it meanwhile
            sys.setswitchinterval(usual)

    def _look_around(self) -> None:
        """Start the thread again where it has something to do, and else as soon as it has."""
        self._expect_callers()
        if self.timers.alive or any(deadlines.innermost is not None for deadlines in deadlines_of_threads()):
            self.rouse()

    def _expect_callers(self) -> None:
        """Have whoever begins a deadline or a timer wake the thread, or start it."""
        if not self.is_paused:
            self.next = inf
        self.timers.next = inf

    # Forking

    def stop(self) -> None:
        """End the thread for the sake of ``forks``, and wait until it is gone."""
        if not self._running or self._ident == get_ident():
            return
        self.rouse()
        for is_over in once(self._place.acquire, True, 1.0):  # a timer's callback may take its time
            if is_over:
                self._place.release()
                self._wait_until_gone()

    def _wait_until_gone(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.join()
        path = f"/proc/self/task/{self._native_id}"
        for _ in range(100):
            if not os.path.exists(path):
                return
            native.sleep(0.0001)

    def begin_again(self) -> None:
        """Go on, in the parent of a fork."""
        if not self.forks:
            self._look_around()

    def begin_anew(self) -> None:
        """Go on, in the child of a fork; its timers are gone."""
        self.forks.clear()
        self._renew()
        self._look_around()


watchdog = Watchdog()
