"""The clock, the pool and the watchdog that the library uses while callers are simulated."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from .._call import attempt, continuation
from .._deadline.clock import chance, clock as shared_clock, next_deadline, raise_if_expired
from .._deadline.threads.chain import this_thread
from .._deadline.threads.watchdog import watchdog
from .._execution.loop_thread import loop_thread
from .._execution.pool import Job, pool
from .._platform.event_loop import loop_here
from .simulated_loop import SimulatedLoop
from .simulated_run import START_TIME, SimulatedRun
from .simulated_threads import Due
from .waiter import VirtualTimeStalled

if TYPE_CHECKING:
    from ..typing import Alarm

_UNLOCKED = (attempt.__name__, continuation.__name__)
"""The modules in which a guard reads the time while it holds no lock."""
_original_wait = threading.Condition.wait
_START = threading.Thread.start.__code__


class SimulatedClock:
    """The clock of the run that goes on."""

    def __init__(self) -> None:
        self.run: SimulatedRun | None = None
        self._sleeping: dict[Due, Any] = {}

    def _here(self) -> SimulatedRun:
        run = self.run
        if run is None or not run.has_turn():
            raise VirtualTimeStalled(
                f"simulate() is active, and the thread {threading.current_thread().name!r} is not one of its callers;"
                " start it by sim.start(...)"
            )
        return run

    # The protocol of a clock

    def monotonic(self) -> float:
        """Return the seconds; where an attempt begins or ends, and so reads the time, its caller may be stopped."""
        run = self.run
        if run is None:
            return START_TIME
        if sys._getframe(1).f_globals.get("__name__") in _UNLOCKED and run.has_turn():
            _refuse_foreign_loop()
            run.switch_point()
        return run.now

    def random(self) -> float:
        """Return the next random number of the caller."""
        run = self.run
        return run.random_numbers().random() if run is not None and run.has_turn() else chance()

    def sleep(self, seconds: float, alarm: Alarm | None = None) -> None:
        """Pass the turn to others until the time is over, a deadline passes, or *alarm* rings."""
        run = self._here()
        run.switch_point()
        end = run.now + seconds
        while True:
            raise_if_expired(run.now)
            if run.now >= end or (alarm is not None and alarm.rings):
                return
            wait = run.new_wait()
            self._sleeping[wait] = this_thread.deadlines
            if alarm is not None:
                alarm.ends(wait.fire)
            try:
                run.wait(wait, min(end, next_deadline()))
            finally:
                del self._sleeping[wait]

    def call_at(self, when: float, callback: Callable[[], object]) -> Due:
        """Run a short callback in a thread of its own once the time has come."""
        run = self._here()
        timer = Due(partial(run.start_thread, run.name_for("timer"), callback))
        run.add(when, timer)
        return timer

    # Other waits

    def rouse(self, *_: object) -> None:
        """Wake the sleepers for which an interruption was requested."""
        for wait, deadlines in self._sleeping.items():
            if deadlines.requested:
                wait.fire()

    def submit(self, job: Job, urgent: bool = False) -> None:
        """Run a job of the pool in a thread of its own, however many there are."""
        run = self._here()
        run.start_thread(run.name_for("pool"), job)

    def loop(self) -> SimulatedLoop:
        """Return the loop on which the tasks of the run are."""
        run = self._here()
        return run.loops[0] if run.loops else SimulatedLoop(run)

    def wait_for_condition(self, condition: threading.Condition, timeout: float | None = None) -> bool:
        """Replace ``threading.Condition.wait`` in callers."""
        run = self.run
        if run is None or not run.has_turn() or sys._getframe(3).f_code is _START:
            return _original_wait(condition, timeout)
        inner: Any = condition
        wait = run.new_wait()
        inner._waiters.append(wait)
        saved = inner._release_save()
        try:
            run.wait(wait, math.inf if timeout is None else run.now + max(0.0, timeout))
        finally:
            run.await_locks(inner._lock)
            inner._acquire_restore(saved)
            was_notified = wait not in inner._waiters
            if not was_notified:
                inner._waiters.remove(wait)
        return was_notified


@contextmanager
def in_use(clock: SimulatedClock) -> Iterator[None]:
    """Use *clock* for the whole process within the block."""

    def wait(condition: threading.Condition, timeout: float | None = None) -> bool:
        return clock.wait_for_condition(condition, timeout)

    shared_clock.use(clock)
    loop_thread.stop_if_idle()
    pool.submit, watchdog.rouse = clock.submit, clock.rouse  # type: ignore[method-assign]
    loop_thread.acquire, loop_thread.release = clock.loop, lambda: None  # type: ignore[method-assign]
    threading.Condition.wait = wait  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        threading.Condition.wait = _original_wait  # type: ignore[method-assign]
        del pool.submit, watchdog.rouse, loop_thread.acquire, loop_thread.release
        shared_clock.use_system()


def _refuse_foreign_loop() -> None:
    loop = loop_here()
    if loop is not None and not hasattr(loop, "current_name"):
        raise VirtualTimeStalled(
            "simulate() is active, and this event loop does not belong to it: start the coroutine by sim.start(...)"
        )
