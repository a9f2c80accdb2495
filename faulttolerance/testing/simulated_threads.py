"""The threads of a simulated run, the workers on which they run, and their waits."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING

from .._deadline.threads.chain import ThreadDeadlines, this_thread
from .line_tracer import Trace

if TYPE_CHECKING:
    from .simulated_loop import SimulatedLoop
    from .simulated_run import SimulatedRun


class WorkerThread:
    """A thread of the system that runs simulated threads, one after the other."""

    def __init__(self, trace: Trace | None) -> None:
        self._trace = trace
        self._served: SimulatedThread | None = None
        self.gate = threading.Lock()
        self.gate.acquire()
        self.is_idle = True
        self._thread = threading.Thread(target=self._work, name="simulated", daemon=True)
        self._thread.start()

    def serve(self, thread: SimulatedThread) -> None:
        """Run *thread* as soon as its turn comes."""
        self._served = thread
        self.is_idle = False

    def end(self) -> None:
        """End the worker, which is idle."""
        self._served = None
        self.gate.release()

    def _work(self) -> None:
        while True:
            self.gate.acquire()
            thread, self._served = self._served, None
            if thread is None:
                return
            self.run(thread)
            del thread

    def run(self, thread: SimulatedThread) -> None:
        """Run *thread* on the calling worker, which has the turn."""
        thread.ident = threading.get_ident()
        this_thread.deadlines = thread.deadlines = type(this_thread.deadlines)()
        before = sys.gettrace()  # a debugger's, or that of coverage
        if self._trace is not None:
            sys.settrace(self._trace)
        try:
            if not thread.run.is_abandoned:
                thread.context.run(thread.work)
        except BaseException as error:  # noqa: BLE001  # nobody else is on this thread
            thread.run.fail(error)
        finally:
            thread.forget()  # while it has the turn: finalizers are the program's, too
            sys.settrace(before)
            self.is_idle = True
            thread.run.end(thread)


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
        self.ended = threading.Lock()
        self.ended.acquire()
        self.worker: WorkerThread

    def forget(self) -> None:
        """Release the work and its context."""
        self.work, self.context = _nothing, Context()


def _nothing() -> None:
    pass


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
