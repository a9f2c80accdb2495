"""The one thread that looks at deadlines when they pass, and runs the timers of the library.

``next`` is when it will look again. A caller stores its deadline in the chain first and reads ``next`` afterwards; the
watchdog sets ``next`` to infinity first and reads the chains afterwards. One of them sees what the other did.

An interruption is withdrawn in the same way: the caller takes its deadline off the chain first and reads ``in_flight``
afterwards; the watchdog stores ``in_flight`` first and reads the chain afterwards. While ``busy`` names the deadlines
of the caller's thread, the caller waits for the outcome. So nothing arrives after its call is over.

No lock is taken here by any thread but the watchdog's own: an interruption, a finalizer or a signal handler may land
between any two steps of a caller.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from math import inf
from typing import Any

from ..fork import stop_at_end_of_subinterpreter
from ..native import allows_watching, get_ident, get_native_id, native
from .thread_deadlines import ThreadDeadlines, deadlines_of_threads
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
        self._forks = 0
        self._renew()

    def _renew(self) -> None:
        self._sleep = native.allocate_lock()
        self._sleep.acquire()
        self._starting = native.allocate_lock()
        self._ended = native.allocate_lock()
        self._running = False
        self._stopping = False
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
            self.next = -inf  # nobody else needs to wake it
            self.rouse()

    def rouse(self) -> None:
        """Make the thread go through its round."""
        if not self._running:
            self._start()
        try:
            self._sleep.release()
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
            self.is_paused = False
            self.wake()

    # Its thread

    def _start(self) -> None:
        if not allows_watching:
            self.next = inf if not self.is_paused else self.next
            return
        if self._forks or not self._starting.acquire(False):
            return
        try:
            if not self._running and self._ended.acquire(False):
                stop_at_end_of_subinterpreter()
                self._running = True
                self._stopping = False
                try:
                    if sys.version_info >= (3, 13):
                        self._handle = native.start_joinable_thread(self._run, daemon=True)
                    else:
                        native.start_thread(self._run, ())
                except RuntimeError:  # the interpreter is ending, or no thread is to be had: deadlines end late
                    self._running = False
                    self._ended.release()
                    if not self.is_paused:
                        self.next = inf
        finally:
            self._starting.release()

    def _run(self) -> None:
        self._ident = get_ident()
        self._native_id = get_native_id()
        while not self._stopping:
            if not self.is_paused:
                self.next = inf
            soonest = self.look()
            if not self.is_paused:
                self.next = soonest
            self._rest(min(soonest, self.timers.run_due()) - native.monotonic())
        self._running = False
        self._ended.release()
        if not self._forks:
            self._look_around()

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
        if not self.is_paused:
            self.next = inf
        self.timers.next = inf
        if self.timers.alive or any(deadlines.innermost is not None for deadlines in deadlines_of_threads()):
            self.rouse()

    # Forking

    def stop(self) -> None:
        """End the thread and wait until it is gone; it is not started until ``begin_again``."""
        self._forks += 1
        if not self._running or self._ident == get_ident():
            return
        self._stopping = True
        self.rouse()
        if self._ended.acquire(timeout=1.0):  # a timer's callback may take its time
            self._ended.release()
            self._wait_until_gone()

    def _wait_until_gone(self) -> None:
        if self._handle is not None:
            self._handle.join()
            self._handle = None
            return
        path = f"/proc/self/task/{self._native_id}"
        for _ in range(100):
            if not os.path.exists(path):
                return
            native.sleep(0.0001)

    def begin_again(self) -> None:
        """Go on, in the parent of a fork."""
        self._forks -= 1
        if not self._forks:
            self._stopping = False
            self._look_around()

    def begin_anew(self) -> None:
        """Go on, in the child of a fork; its timers are gone."""
        self._forks = 0
        self._renew()
        self._look_around()


watchdog = Watchdog()
