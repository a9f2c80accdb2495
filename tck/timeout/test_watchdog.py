"""The thread that looks at deadlines, where a signal's handler raises in a caller that wakes it."""

from __future__ import annotations

import sys
import threading
from functools import partial
from math import inf

import pytest

from faulttolerance._deadline.threads.watchdog import Watchdog
from faulttolerance._platform.unpatched import native
from kit.struck import Struck, strikes

OURS = ("watchdog.py", "daemon.py", "timers.py", "fork.py")


class Watched:
    """A watchdog of its own, with a record of its looks."""

    def __init__(self, is_running: bool) -> None:
        self.has_looked = threading.Event()
        self.watchdog = Watchdog()
        self.watchdog.look = self.look
        if is_running:
            assert self.is_woken()

    def look(self) -> float:
        self.has_looked.set()
        return inf

    def is_woken(self) -> bool:
        """Return whether the thread looks for a caller that asks as ``attempt`` does."""
        self.has_looked.clear()
        if native.monotonic() < self.watchdog.next:
            self.watchdog.wake()
        return self.has_looked.wait(5)

    def end(self) -> None:
        """End the thread for good."""
        self.watchdog.forks.append(None)
        self.watchdog.stop()

    def runs_timer(self) -> bool:
        """Return whether a timer that is due is run."""
        has_run = threading.Event()
        self.watchdog.call_at(native.monotonic(), has_run.set)
        return has_run.wait(5)


@pytest.mark.parametrize("is_running", [False, True], ids=["cold", "running"])
def test_the_next_caller_is_served_wherever_a_handler_raises_in_a_caller(is_running: bool) -> None:
    """R0, R11: time-outs and timers of the process go on, whether the thread was there already or not."""
    wrong = []
    for makes_timer in (False, True):
        for strike in strikes(*OURS):
            watched = Watched(is_running)
            try:
                with strike:
                    if makes_timer:
                        watched.watchdog.call_at(native.monotonic(), lambda: None)
                    else:
                        watched.watchdog.wake()
            except Struck:
                pass
            if not (watched.is_woken() and watched.runs_timer()):
                wrong.append(strike.where)
            watched.end()

    assert not wrong


def test_the_next_caller_is_served_wherever_a_handler_raises_around_a_fork() -> None:
    """R0, L5: the watchdog, which stops before a fork and goes on after it, is not left stopped."""
    wrong = []
    for strike in strikes(*OURS):
        watched = Watched(is_running=True)
        forks = watched.watchdog.forks
        for step in (partial(forks.append, None), watched.watchdog.stop, forks.pop, watched.watchdog.restart):
            try:
                with strike:
                    step()
            except Struck:
                pass  # the interpreter only reports it, and goes on
        if not (watched.is_woken() and watched.runs_timer()):
            wrong.append(strike.where)
        watched.end()

    assert not wrong


def test_a_look_that_fails_is_not_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """R0: the thread ends, and the next caller starts another one."""
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    watched = Watched(is_running=True)
    has_failed = threading.Event()

    def fail() -> float:
        has_failed.set()
        raise MemoryError

    watched.watchdog.look = fail
    watched.watchdog.wake()
    assert has_failed.wait(5)
    watched.watchdog.look = watched.look
    while watched.watchdog.is_running:
        native.sleep(0)

    assert watched.is_woken()
    watched.end()


def test_a_single_thread_watches_however_many_are_started_at_once() -> None:
    """Callers that find no thread all start one; the second and further ones end."""
    watched = Watched(is_running=False)
    looking: set[int] = set()
    watched.watchdog.look = lambda: looking.add(threading.get_ident()) or inf  # type: ignore[func-returns-value]
    gate = threading.Barrier(8)

    def wake() -> None:
        gate.wait()
        watched.watchdog.start()
        watched.watchdog.rouse()

    threads = [threading.Thread(target=wake) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    watched.watchdog.look = watched.look

    assert watched.is_woken()
    assert len(looking) <= 1
    watched.end()
