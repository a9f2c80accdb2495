"""The threads of a simulated run, the workers on which they run, and their waits."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import Context
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

from .._deadline.threads.chain import ThreadDeadlines, this_thread

if TYPE_CHECKING:
    from .simulated_loop import SimulatedLoop
    from .simulated_run import SimulatedRun


Worker: TypeAlias = "SimpleQueue[Callable[[], object] | None]"
"""Functions for a thread of the system, which runs simulated threads, one after the other, until ``None`` comes."""


def _started_worker() -> Worker:
    worker: Worker = SimpleQueue()
    threading.Thread(target=_work, args=(worker,), name="simulated", daemon=True).start()
    return worker


def _work(worker: Worker) -> None:
    while (serve := worker.get()) is not None:
        serve()
        del serve


class SimulatedThread:
    """A part of the run that goes on by itself: a caller, a timer's callback, a job of the pool, a loop."""

    ident = 0
    deadlines: ThreadDeadlines | None = None
    may_go: Callable[[], bool] | None = None
    """Returns whether it can go on; ``None``: it can whenever it is ready."""
    loop: SimulatedLoop | None = None
    is_over = False
    is_unwound = False

    def __init__(self, run: SimulatedRun, name: str, work: Callable[[], object], context: Context) -> None:
        self.run = run
        self.name = name
        self.work = work
        self.context = context
        self.points = 0
        """The number of points so far at which it could have been stopped."""
        self.next_stop = run.schedule.next_stop(name, 0)
        self.gate = threading.Lock()
        self.gate.acquire()
        self.ended = threading.Lock()
        self.ended.acquire()
        self._worker = run.idle_workers.pop() if run.idle_workers else _started_worker()
        self._worker.put(self._serve)

    def _serve(self) -> None:
        run = self.run
        self.gate.acquire()
        self.ident = threading.get_ident()
        this_thread.deadlines = self.deadlines = type(this_thread.deadlines)()
        before = sys.gettrace()  # a debugger's, or that of coverage
        if run.trace is not None:
            sys.settrace(run.trace)
        try:
            if not run.is_abandoned:
                self.context.run(self.work)
        except BaseException as error:  # noqa: BLE001  # nobody else is on this thread
            run.fail(error)
        finally:
            del self.work, self.context  # while it has the turn: finalizers are the program's, too
            sys.settrace(before)
            run.idle_workers.append(self._worker)
            run.end(self)


class SimulatedWait:
    """A thread's wait for a moment, or for another thread that wakes it."""

    __slots__ = ("_thread",)

    def __init__(self, thread: SimulatedThread) -> None:
        self._thread: SimulatedThread | None = thread

    def fire(self) -> None:
        """End the wait, so that the thread goes on when its turn comes; a second call does nothing."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.run.ready[thread] = None

    release = fire
    """The name under which ``threading.Condition`` calls it."""

    @property
    def is_over(self) -> bool:
        """Whether the thread goes on."""
        return self._thread is None


class SimulatedTimer:
    """A callback that is due at a moment, in a thread of its own."""

    def __init__(self, run: SimulatedRun, owner: str, callback: Callable[[], object]) -> None:
        self._run = run
        self._owner = owner
        self._callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Drop the callback if it has not begun."""
        self._callback = None

    @property
    def is_over(self) -> bool:
        """Whether it has begun or was cancelled."""
        return self._callback is None

    def fire(self) -> None:
        """Start a thread for the callback, which runs when its turn comes."""
        if self._callback is not None:
            self._run.start_thread(self._owner, self._call, Context())

    def _call(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()
