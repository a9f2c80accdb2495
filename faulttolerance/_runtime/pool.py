"""Daemon threads that park while they have nothing to do.

``submit`` takes no lock: a finalizer or a signal handler that submits while this thread is in the middle of submitting
cannot find one held. Every step is one operation on a list, a deque or a dict, and whoever has changed one of them
looks at the others afterwards; of two that pass each other, the later one therefore sees what the earlier one did.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from .fork import at_fork
from .native import get_ident, threads_are_real

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["Pool", "configure", "pool"]

Job: TypeAlias = Callable[[], object]

_IDLE_SECONDS = 10.0
"""How long a thread stays parked before it ends; real time, whatever clock is in use."""
_JOIN_SECONDS = 1.0
"""How long a fork or a shutdown waits for a thread whose work is over already."""

_numbers = count(1)


class _Worker:
    """One thread of a pool, and the lock on which it sleeps while it is parked."""

    __slots__ = ("ident", "job", "leaving", "thread", "wake")

    def __init__(self, pool: Pool, job: Job | None) -> None:
        self.job = job
        """What to do next; ``None``: look at the queue. Written by whoever took the worker off ``parked``."""
        self.leaving = False
        """Whether it is to end instead."""
        self.ident = 0
        """The thread that it is, or on which it is a greenlet."""
        self.wake = threading.Lock()
        self.wake.acquire()
        options: dict[str, Any] = {}
        if sys.version_info >= (3, 14):
            options["context"] = Context()  # not the context of the call that happens to need a new thread
        self.thread = threading.Thread(
            target=pool.work, args=(self,), name=f"faulttolerance-{next(_numbers)}", daemon=True, **options
        )


class Pool:
    """Threads for whatever is submitted, the last one parked first, so that the others can end.

    Args:
        max_threads: Work beyond this many threads waits, first in first out; ``None``: all of it gets a thread at once.
    """

    def __init__(self, max_threads: int | None = None) -> None:
        self.max_threads = max_threads
        self.closed = False
        """Whether new calls are refused; work of calls that are under way is still done."""
        self._calls: dict[Hashable, None] = {}
        self._workers: dict[_Worker, None] = {}
        self._parked: list[_Worker] = []
        self._waiting: deque[Job] = deque()
        self._newest: _Worker | None = None
        """Who was woken last to look at the queue, and has yet to do so while its lock is open."""
        self._ended: list[threading.Thread] = []
        self._drained: threading.Event | None = None
        """Set once nothing is left to do; exists while, and after, the pool shuts down."""

    # Calls

    def enter(self, call: Hashable) -> bool:
        """Count *call* as under way; false, and not counted, where the pool is shut down."""
        self._calls[call] = None
        if self.closed:
            self.leave(call)
            return False
        return True

    def leave(self, call: Hashable) -> None:
        """Note that *call* is over."""
        self._calls.pop(call, None)
        if self._drained is not None:
            self._look_whether_drained()

    @property
    def calls(self) -> tuple[Hashable, ...]:
        """The calls that are under way."""
        return tuple(self._calls.copy())

    # Work

    def submit(self, job: Job, urgent: bool = False) -> None:
        """Run *job* on a thread of the pool.

        Args:
            job: Must not raise.
            urgent: Run it now even where the pool has all its threads; for what frees a caller, and is short.

        Raises:
            RuntimeError: No thread can be started, and none is there that could do it later; the interpreter is ending.
        """
        if urgent and self._hand_to_a_thread(job):
            return
        waiting = self._waiting
        waiting.append(job)
        newest = self._newest
        if newest is None or newest.wake.locked():
            try:
                self._see_to_waiting()
            except RuntimeError:
                try:
                    waiting.remove(job)
                except (ValueError, IndexError):
                    return  # somebody has taken it after all, or takes another one right now
                raise

    @property
    def is_crowded(self) -> bool:
        """Whether more threads are there than wanted, so that this one should begin nothing long."""
        return self.max_threads is not None and len(self._workers) > self.max_threads

    @property
    def threads(self) -> int:
        """How many threads are there, parked ones included."""
        return len(self._workers)

    @property
    def busy(self) -> int:
        """How many threads have something to do, and how many jobs wait for one."""
        parked = len(self._parked)  # counted first: a thread that is handed a job meanwhile counts as busy
        return len(self._workers) - parked + len(self._waiting)

    def configure(self, max_threads: int | None) -> None:
        """Change the limit; threads beyond a smaller one end as soon as they have nothing to do."""
        self.max_threads = max_threads
        self.follow_limit()

    def follow_limit(self) -> None:
        """Have as many threads as there is work for and as the limit allows; called when that has changed."""
        self._see_to_waiting()
        max_threads = self.max_threads
        if max_threads is not None:
            self._send_home(len(self._workers) - max_threads)

    def work(self, worker: _Worker) -> None:
        """Do what is submitted until there has been nothing for a while; the target of each thread."""
        worker.ident = get_ident()
        job = worker.job
        worker.job = None
        while True:
            if job is None:
                job = self._next(worker)
                if job is None:
                    return
            try:
                job()
            except BaseException:
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), worker.thread)))
            job = None

    def _next(self, worker: _Worker) -> Job | None:
        parked, waiting = self._parked, self._waiting
        job: Job | None
        while True:
            if worker.leaving or self.is_crowded:
                self._end(worker)
                return None
            if waiting:
                try:
                    job = waiting.popleft()
                except IndexError:
                    continue
                if waiting:
                    self._wake_the_next()
                return job
            if self._drained is not None or not threads_are_real():
                self._end(worker)  # a greenlet serves its own thread only, and another one costs next to nothing
                return None
            parked.append(worker)
            if (waiting or self._drained is not None or self.is_crowded) and self._unpark(worker):
                continue
            if not worker.wake.acquire(timeout=_IDLE_SECONDS):
                if self._unpark(worker):
                    self._end(worker)
                    return None
                worker.wake.acquire()
            job = worker.job
            if job is not None:
                worker.job = None
                return job

    def _wake_the_next(self) -> None:
        newest = self._newest
        if newest is None or newest.wake.locked():
            try:
                self._see_to_waiting()
            except RuntimeError:
                pass  # there is no further thread to be had, so this one goes on with the queue

    def _unpark(self, worker: _Worker) -> bool:
        """Take *worker* off the parked ones; false where somebody did so to wake it."""
        try:
            self._parked.remove(worker)
        except ValueError:
            return False
        return True

    def _end(self, worker: _Worker) -> None:
        if self._drained is not None:
            self._ended.append(worker.thread)
        self._workers.pop(worker, None)
        if self._waiting:
            self._wake_the_next()
        if self._drained is not None:
            self._look_whether_drained()

    def _see_to_waiting(self) -> None:
        """Make sure that a thread is going to look at the queue.

        One is woken for any number of jobs: whoever takes the first wakes the next thread if there is more. Short jobs
        are therefore done by a few threads, while each of those that block gets its own.
        """
        while self._waiting:
            try:
                worker = self._pop_parked()
            except IndexError:
                pass
            else:
                self._newest = worker
                worker.wake.release()
                return
            limit = self.max_threads
            if limit is not None and len(self._workers) >= limit:
                return  # each of them looks at the queue before it parks or ends
            worker = _Worker(self, None)
            self._workers[worker] = None
            if limit is None or len(self._workers) <= limit:
                try:
                    worker.thread.start()
                except RuntimeError as error:
                    self._workers.pop(worker, None)
                    if not self._workers or _is_final(error):
                        raise
                return
            self._workers.pop(worker, None)

    def _pop_parked(self) -> _Worker:
        """Take the thread that parked last; raises ``IndexError`` where there is none."""
        worker = self._parked.pop()
        while not threads_are_real():
            # It parked before greenlets took the place of threads. ``threading`` does not know it any more, and would
            # complain at its end; so it stays where it is.
            self._workers.pop(worker, None)
            worker = self._parked.pop()
        return worker

    def _hand_to_a_thread(self, job: Job) -> bool:
        """Let a parked thread or a new one do *job*, whatever the limit and the queue; false where there is none."""
        try:
            worker = self._pop_parked()
        except IndexError:
            worker = _Worker(self, job)
            self._workers[worker] = None
            try:
                worker.thread.start()
            except RuntimeError as error:
                self._workers.pop(worker, None)
                if not self._workers or _is_final(error):
                    raise
                return False
        else:
            worker.job = job
            worker.wake.release()
        return True

    # The end

    def shutdown(self, timeout: float | None = None) -> bool:
        """Refuse new calls, wait for those that are under way, and end the threads.

        Args:
            timeout: Seconds to wait at most; ``None``: as long as it takes.

        Returns:
            Whether every call and every body has ended. What has not goes on; it does not keep the interpreter from
            exiting.

        Raises:
            RuntimeError: When called by a thread of the pool, which would wait for itself.
        """
        if any(worker.thread is threading.current_thread() for worker in self._workers.copy()):
            raise RuntimeError("faulttolerance.shutdown() was called by one of the threads for which it waits")
        self.closed = True
        drained = self._drained
        if drained is None:
            drained = self._drained = threading.Event()
        self._send_home(len(self._parked))
        self._look_whether_drained()
        if not drained.wait(timeout):
            return False
        while self._ended:
            self._ended.pop().join(_JOIN_SECONDS)
        return True

    def reopen(self) -> None:
        """Take new calls again."""
        self._drained = None
        self.closed = False

    def stop_idle(self) -> None:
        """End the parked threads, and wait until they are gone."""
        for worker in self._send_home(len(self._parked)):
            worker.thread.join(_JOIN_SECONDS)

    def forget_other_threads(self) -> None:
        """Begin anew in a forked child, where only the calling thread exists; calls stay until they ``leave``."""
        ident = get_ident()
        self._workers = {worker: None for worker in self._workers if worker.ident == ident}
        self._parked = []
        self._waiting = deque()
        self._newest = None
        self._ended = []
        self._drained = threading.Event() if self.closed else None

    def _send_home(self, how_many: int) -> list[_Worker]:
        sent: list[_Worker] = []
        for _ in range(how_many):
            try:
                worker = self._parked.pop()
            except IndexError:
                break
            worker.leaving = True
            sent.append(worker)
            worker.wake.release()
        return sent

    def _look_whether_drained(self) -> None:
        drained = self._drained
        if drained is not None and not self._calls and not self._workers:
            drained.set()


def _is_final(error: RuntimeError) -> bool:
    """Whether no thread can be started any more, because the interpreter is ending."""
    return "shutdown" in str(error)


pool = Pool()
"""The one that offloaded calls share."""
configure = pool.configure

at_fork(before=pool.stop_idle, child=pool.forget_other_threads)
