"""Daemon threads that park while they have nothing to do.

``submit`` takes no lock: a finalizer or a signal handler that submits while this thread is in the middle of submitting
cannot find one held. Every step is one operation on a list, a deque, a dict or a lock, and whoever has changed one of
them looks at the others afterwards; of two that pass each other, the later one therefore sees what the earlier one did.

No step takes something away that a later one would have to pass on: an exception of a signal handler may land between
any two. So who wakes a thread only opens its lock. The thread itself leaves the parked ones, and then looks at the
queues: an open lock, of whomever, means that its thread is about to do so.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from .._platform.fork import at_fork, stop_at_end_of_subinterpreter
from .._platform.loop_callback import take
from .._platform.unpatched import get_ident, threads_are_real

if TYPE_CHECKING:
    from collections.abc import Hashable

Job: TypeAlias = Callable[[], object]

_IDLE_SECONDS = 10.0
"""How long a thread stays parked before it ends; real time, whatever clock is in use."""
_JOIN_SECONDS = 1.0
"""How long a fork or a shutdown waits for a thread whose work is over already."""

_numbers = count(1)


class _Worker:
    """One thread of a pool, and the lock on which it sleeps while it is parked."""

    __slots__ = ("ident", "is_woken", "leaving", "thread", "unbegun", "wake")

    def __init__(self, pool: Pool) -> None:
        self.leaving = False
        """Whether it is to end once it has nothing to do."""
        self.is_woken = False
        """Whether it was woken and has not got to run yet; virtual time does not pass meanwhile."""
        self.unbegun = [None]
        """Emptied by the thread when it begins, or by whoever could not start it."""
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
        self._calls: dict[Hashable, None] = {}
        self._workers: dict[_Worker, None] = {}
        self._parked: list[_Worker] = []
        self._urgent: deque[Job] = deque()
        self._waiting: deque[Job] = deque()
        self._ended: list[threading.Thread] = []
        self._shutdowns: dict[threading.Event, None] = {}
        """The shutdowns that are under way; each event is set once nothing is left to do."""

    # Calls

    def enter(self, call: Hashable, is_part: bool = False) -> bool:
        """Count *call* as under way, and return true; a pool that is shut down takes parts of calls only."""
        self._calls[call] = None
        if self._shutdowns and not is_part:
            self.leave(call)
            return False
        return True

    def leave(self, call: Hashable) -> None:
        """Note that *call* is over."""
        self._calls.pop(call, None)
        if self._shutdowns:
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
        queue = self._urgent if urgent else self._waiting
        queue.append(job)
        try:
            self._see_to_work()
        except RuntimeError:
            try:
                queue.remove(job)
            except (ValueError, IndexError):
                return  # somebody has taken it after all, or takes another one right now
            raise

    @property
    def is_crowded(self) -> bool:
        """Whether more threads are there than wanted, so that this one should begin nothing long."""
        return self.max_threads is not None and len(self._workers) > self.max_threads

    def configure(self, max_threads: int | None) -> None:
        """Change the limit; threads beyond a smaller one end as soon as they have nothing to do."""
        self.max_threads = max_threads
        self.follow_limit()

    def follow_limit(self) -> None:
        """Have as many threads as there is work for and as the limit allows; called when that has changed."""
        self._see_to_work()
        max_threads = self.max_threads
        if max_threads is not None:
            self._send_home(len(self._workers) - max_threads)

    def work(self, worker: _Worker) -> None:
        """Do what is submitted until there has been nothing for a while; the target of each thread."""
        worker.ident = get_ident()
        if not take(worker.unbegun):
            return
        while True:
            job = self._next(worker)
            if job is None:
                return
            try:
                job()
            except BaseException:
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), worker.thread)))
            job = None

    def _next(self, worker: _Worker) -> Job | None:
        parked = self._parked
        while True:
            job = self._take(worker)
            if job is not None:
                if self._urgent or self._waiting:
                    self._wake_the_next()
                return job
            if worker.leaving or self.is_crowded or self._shutdowns or not threads_are_real():
                self._end(worker)  # a greenlet serves its own thread only, and another one costs next to nothing
                return None
            parked.append(worker)
            has_something = self._urgent or self._waiting or self._shutdowns or self.is_crowded
            is_idle = not has_something and not worker.wake.acquire(timeout=_IDLE_SECONDS)
            self._unpark(worker)
            if is_idle:
                self._end(worker)
                return None

    def _take(self, worker: _Worker) -> Job | None:
        """Take the next job for *worker*, if there is one that it should do."""
        for queue in (self._urgent, self._waiting):
            if queue is self._waiting and (worker.leaving or self.is_crowded):
                break
            try:
                return queue.popleft()
            except IndexError:
                pass
        return None

    def _wake_the_next(self) -> None:
        with suppress(RuntimeError):  # there is no further thread to be had, so this one goes on with the queue
            self._see_to_work()

    def _unpark(self, worker: _Worker) -> None:
        try:
            self._parked.remove(worker)
        except ValueError:
            worker.wake.acquire()  # for ever: it was left behind when greenlets took the place of threads
        worker.is_woken = False

    def _end(self, worker: _Worker) -> None:
        if self._shutdowns:
            self._ended.append(worker.thread)
        self._workers.pop(worker, None)
        if self._urgent or self._waiting:  # also what this thread was woken for just now
            self._wake_the_next()
        if self._shutdowns:
            self._look_whether_drained()

    def _see_to_work(self) -> None:
        """Make sure that a thread is going to look at the queues.

        One is woken for any number of jobs: whoever takes the first wakes the next thread if there is more. Short jobs
        are therefore done by a few threads, while each of those that block gets its own.
        """
        while self._urgent or self._waiting:
            while self._parked and not threads_are_real():
                # Greenlets have taken the place of threads: ``threading`` would complain at the end of these.
                self._workers.pop(self._parked.pop(), None)
            try:
                _wake(self._parked[-1])
            except IndexError:
                pass
            else:
                return
            limit = self.max_threads
            if limit is not None and len(self._workers) >= limit and not self._urgent:
                return  # each of them looks at the queues before it parks or ends
            worker = _Worker(self)
            try:
                self._workers[worker] = None
                if limit is None or len(self._workers) <= limit or self._urgent:
                    stop_at_end_of_subinterpreter()
                    worker.thread.start()
                    return
                self._workers.pop(worker, None)
            except BaseException as error:
                if take(worker.unbegun):  # else it runs, and what was raised is a signal handler's
                    self._workers.pop(worker, None)
                    if isinstance(error, RuntimeError) and self._workers and not _is_final(error):
                        return
                raise

    # The end

    def shutdown(self, timeout: float | None = None) -> bool:
        """Refuse new calls, wait for those that are under way, and end the threads; afterwards take new calls again.

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
        drained = threading.Event()
        try:
            self._shutdowns[drained] = None
            self._send_home(len(self._parked))
            self._look_whether_drained()
            if not drained.wait(timeout):
                return False
            while self._ended:
                self._ended.pop().join(_JOIN_SECONDS)
            return True
        finally:
            self._shutdowns.pop(drained, None)

    def stop_idle(self) -> None:
        """End the parked threads, and wait until they are gone."""
        for worker in self._send_home(len(self._parked)):
            worker.thread.join(_JOIN_SECONDS)

    def forget_other_threads(self) -> None:
        """Begin anew in a forked child, where only the calling thread exists; calls stay until they ``leave``."""
        ident = get_ident()
        self._workers = {worker: None for worker in self._workers if worker.ident == ident}
        self._parked = []
        self._urgent = deque()
        self._waiting = deque()
        self._ended = []
        self._shutdowns = {}

    def _send_home(self, how_many: int) -> list[_Worker]:
        sent = self._parked[-how_many:] if how_many > 0 else []
        for worker in sent:
            worker.leaving = True
            _wake(worker)
        return sent

    def _look_whether_drained(self) -> None:
        if not self._calls and not self._workers:
            for drained in self._shutdowns.copy():
                drained.set()


def _wake(worker: _Worker) -> None:
    """Let the thread of *worker* look at the queues."""
    worker.is_woken = True
    try:
        worker.wake.release()
    except RuntimeError:
        pass  # somebody has just woken it


def _is_final(error: RuntimeError) -> bool:
    """Tell whether no thread can be started any more, because the interpreter is ending."""
    return "shutdown" in str(error)


pool = Pool()
"""The one that offloaded calls share."""

at_fork(before=pool.stop_idle, child=pool.forget_other_threads)
