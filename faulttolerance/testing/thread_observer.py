"""The state of every thread of the process, read from its stack, which decides whether time may move.

Guarded calls do not announce themselves here; they stay as cheap as they are. So a thread is known by its frames: it is
inside a guard while the library's code is on its stack. It waits while it stands in a wait that nobody has ended, or
has not moved from one place for a while.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Collection
from concurrent.futures import Future
from types import FrameType
from typing import NamedTuple

from .. import _call, _control, _deadline, _execution, _extensions, _guard, _inspection, _platform
from .._call.order import ORDER
from .._deadline import clock
from .._deadline.threads import watchdog
from .._deadline.threads.sleeper import is_in_condition_wait
from .._execution import future, loop_thread, pool
from .._platform import daemon
from .._platform.atomic import frames_of_threads, stack_of, variables_of
from .._platform.frames import module_of

_IS_BUSY = [row.is_busy for row in ORDER if row.is_busy is not None]
STARTING = 0
"""Stands for threads that are just being started, and have no frame to look at yet, and for a server's answer."""

_GUARD_PACKAGES = tuple(
    f"{package.__name__}."
    for package in (_platform, _deadline, _execution, _call, _guard, _extensions, _inspection, _control)
)
_NOT_GUARDS = (daemon.__name__, watchdog.__name__, future.__name__, loop_thread.__name__)
"""Modules of the library that are no guard: threads that only wait for guarded calls, or serve them, run them."""

_LOOPS = f"{__package__}.virtual_loop"
"""The module whose frames show that a thread runs a loop that follows the clock, or a function in its executor."""

_WAITS = (threading.__name__, queue.__name__, "concurrent")
"""Modules where a thread stands that waits for another thread; the caller of these modules is the one that waits."""
_STANDARD_LIBRARY = os.path.dirname(threading.Condition.wait.__code__.co_filename) + os.sep
_OURS = "faulttolerance."
_BESIDE = (f"{__package__}", clock.__name__)
_JOIN = threading.Thread.join
_JOINS = (_JOIN.__code__, getattr(threading.Thread, "_wait_for_tstate_lock", _JOIN).__code__)  # up to Python 3.12
_FUTURE_WAITS = (Future.result.__code__, Future.exception.__code__)

_LOOKS_STILL = 5
"""The number of looks in a row at one place, a millisecond apart, after which a thread counts as waiting."""


class ThreadStates(NamedTuple):
    """The threads at one moment, by what they do."""

    participants: dict[int, FrameType]
    """Threads that hold time: they work for the clock or are inside a guard, and do not sleep in the library."""
    running: set[int]
    """Threads, participants or not, that do something before they next wait."""


class ThreadObserver:
    """An observer that tells running from waiting threads by looking at their frames again and again."""

    def __init__(self) -> None:
        self.registered: set[int] = set()
        """The threads that participate wherever they are: those of the clock."""
        self._last_positions: dict[int, tuple[tuple[int, int], int]] = {}
        """The place where each thread was last seen (frame, instruction), and the number of looks at it there."""

    def observe(self, asleep: Collection[int | None], tick: bool) -> ThreadStates:
        """Return the state of every thread but those *asleep*; *tick* is true a millisecond after the last look."""
        states = ThreadStates({}, set())
        before, self._last_positions = self._last_positions, {}
        parked, threads = _parked(), _threads()
        frames = frames_of_threads()
        # Work that was passed on in between is in neither look: its caller waits already, and its thread was idle then.
        has_begun_work = _parked() != parked or _threads().keys() != threads.keys()
        if has_begun_work or None in threads or any(is_busy() for is_busy in _IS_BUSY):
            states.running.add(STARTING)
        for ident, frame in frames.items():
            if ident in asleep or ident in parked or ident == watchdog.watchdog.ident:
                continue
            trace = _Trace(frame)
            waits = not trace.is_between_jobs and _waits(frame, frames)
            if waits is None:
                place, looks = (id(frame), frame.f_lasti), 0
                last = before.get(ident)
                if last is not None and last[0] == place and not _is_runnable(threads.get(ident)):
                    looks = last[1] + tick
                self._last_positions[ident] = place, looks
                waits = looks >= _LOOKS_STILL
            if not waits:
                states.running.add(ident)
            if (trace.is_guarded or ident in self.registered) and not (waits and trace.waits_for_us):
                states.participants[ident] = frame
        return states


class _Trace:
    """The facts about a thread that its stack shows."""

    __slots__ = ("is_between_jobs", "is_guarded", "waits_for_us")

    def __init__(self, innermost: FrameType) -> None:
        self.is_guarded = False
        self.waits_for_us = False
        """If it waits at all: for a call of this library, whose own threads hold time as long as they have to."""
        caller = outermost = ""
        for frame in stack_of(innermost):
            module = module_of(frame)
            is_ours = module.startswith(_GUARD_PACKAGES)
            if (is_ours and module not in _NOT_GUARDS) or module == _LOOPS:
                self.is_guarded = True
            if not caller:
                if frame.f_code in _FUTURE_WAITS:
                    self.waits_for_us = isinstance(variables_of(frame).get("self"), future.Future)
                if module not in _WAITS and not module.startswith("concurrent."):
                    caller = module
                    self.waits_for_us = self.waits_for_us or is_ours
            if module != threading.__name__:
                outermost = module
        self.is_between_jobs = caller == outermost == pool.__name__
        """Whether it is the pool's, and not parked: it has a job to do, however long it takes to wake up."""


def _waits(innermost: FrameType, living: Collection[int]) -> bool | None:
    """Return whether the thread waits for another thread; ``None`` where only time can show it.

    A thread whose wait is over already is about to run, however long it takes to get there. The state of its lock is no
    evidence: the lock is taken again before the thread gets to run.
    """
    code = innermost.f_code
    if is_in_condition_wait(innermost):
        local = variables_of(innermost)
        return "waiter" in local and local["waiter"] in local["self"]._waiters
    if code in _JOINS:
        return variables_of(innermost)["self"].ident in living
    return None


def _is_runnable(thread: threading.Thread | None) -> bool:
    """Return whether the system would run the thread, and only has not got to it; false where this is unknown."""
    try:
        with open(f"/proc/self/task/{thread.native_id if thread is not None else 0}/stat", "rb") as status:
            return status.read().rpartition(b")")[2].lstrip().startswith(b"R")
    except OSError:
        return False


def _threads() -> dict[int | None, threading.Thread]:
    """Return the threads by their identifiers; those that are being started have none."""
    return {thread.ident: thread for thread in threading.enumerate()}


def _parked() -> frozenset[int | None]:
    """Return the pool's threads that have nothing to do; a woken thread has work before it gets to run."""
    return frozenset(worker.thread.ident for worker in pool.pool._parked.copy() if not worker.is_woken)


def place_of(innermost: FrameType | None) -> str:
    """Return where a thread stands: its line outside of the standard library, and the line of the application."""
    frames = [] if innermost is None else [frame for frame in stack_of(innermost) if not _is_beside(frame)]
    outside = [frame for frame in frames if not module_of(frame).startswith(_OURS)]
    lines = dict.fromkeys(
        f"at {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} in {frame.f_code.co_qualname}"
        for frame in (*frames[:1], *outside[:1])
    )
    return ", called from ".join(lines)


def _is_beside(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    is_standard = file.startswith((_STANDARD_LIBRARY, "<frozen")) and "site-packages" not in file
    return is_standard or module_of(frame).startswith(_BESIDE)
