"""The strands of a simulated run, the threads on which they run, and their waits."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING

from .._deadline.threads.chain import ThreadDeadlines, this_thread
from .lines import Trace

if TYPE_CHECKING:
    from .simulated_loop import SimulatedLoop
    from .simulated_run import Run


class Thread:
    """A thread that runs one strand after the other."""

    def __init__(self, trace: Trace | None) -> None:
        self._trace = trace
        self._strand: Strand | None = None
        self.gate = threading.Lock()
        self.gate.acquire()
        self.is_idle = True
        self._thread = threading.Thread(target=self._work, name="simulated", daemon=True)
        self._thread.start()

    def serve(self, strand: Strand) -> None:
        """Run *strand* as soon as its turn comes."""
        self._strand = strand
        self.is_idle = False

    def end(self) -> None:
        """End the thread, which is idle."""
        self._strand = None
        self.gate.release()

    def _work(self) -> None:
        while True:
            self.gate.acquire()
            strand, self._strand = self._strand, None
            if strand is None:
                return
            self.run(strand)
            del strand

    def run(self, strand: Strand) -> None:
        """Run *strand* on the calling thread, which has the turn."""
        strand.ident = threading.get_ident()
        this_thread.deadlines = strand.deadlines = type(this_thread.deadlines)()
        before = sys.gettrace()  # a debugger's, or that of coverage
        if self._trace is not None:
            sys.settrace(self._trace)
        try:
            if not strand.run.is_abandoned:
                strand.context.run(strand.work)
        except BaseException as error:  # noqa: BLE001  # nobody else is on this thread
            strand.run.fail(error)
        finally:
            strand.forget()  # while it has the turn: finalizers are the program's, too
            sys.settrace(before)
            self.is_idle = True
            strand.run.end(strand)


class Strand:
    """A part of the run that goes on by itself: a caller, a timer's callback, a job of the pool, a loop."""

    ident = 0
    deadlines: ThreadDeadlines | None = None
    may_go: Callable[[], bool] | None = None
    """Returns whether it can go on; ``None``: it can whenever it is ready."""
    loop: SimulatedLoop | None = None
    is_over = False
    is_unwound = False

    def __init__(self, run: Run, name: str, work: Callable[[], object], context: Context) -> None:
        self.run = run
        self.name = name
        self.work = work
        self.context = context
        self.points = 0
        """The number of points so far at which it could have been stopped."""
        self.next_stop = run.schedule.next_stop(name, 0)
        self.ended = threading.Lock()
        self.ended.acquire()
        self.thread: Thread

    def forget(self) -> None:
        """Release the work and its context."""
        self.work, self.context = _nothing, Context()


def _nothing() -> None:
    pass


class Wait:
    """A strand's wait for a moment, or for another strand that wakes it."""

    __slots__ = ("_strand",)

    def __init__(self, strand: Strand) -> None:
        self._strand: Strand | None = strand

    def come(self) -> None:
        """End the wait, so that the strand goes on when its turn comes; a second call does nothing."""
        strand, self._strand = self._strand, None
        if strand is not None:
            strand.run.ready[strand] = None

    release = come
    """The name under which ``threading.Condition`` calls it."""

    @property
    def is_over(self) -> bool:
        """Whether the strand goes on."""
        return self._strand is None


class SimulatedTimer:
    """A callback that is due at a moment, in a strand of its own."""

    def __init__(self, run: Run, owner: str, callback: Callable[[], object]) -> None:
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

    def come(self) -> None:
        """Start a strand for the callback, which runs when its turn comes."""
        if self._callback is not None:
            self._run.strand(self._owner, self._call, Context())

    def _call(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()
