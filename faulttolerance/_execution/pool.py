"""Daemon threads that park while they have no work.

``submit`` takes no lock. So a finalizer or a signal handler that submits in the middle of a ``submit`` on the same
thread never finds a lock held. Every step is one operation on a list, a deque, a dict or a lock. A thread that has
changed one of them reads the others afterwards. So if two threads pass each other, the later thread sees the change of
the earlier.

No step removes something that a later step would have to pass on, because an exception of a signal handler may come
between any two steps. So the wake-up of a thread only opens its lock. The thread itself leaves the list of parked
threads, and then reads the queues. An open lock always means that its thread is about to do so.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from contextvars import Context
from itertools import count
from typing import Any, TypeAlias

from .._platform.daemon import wait_until_gone
from .._platform.fork import at_fork, stop_at_end_of_subinterpreter, wait
from .._platform.loop_callback import take
from .._platform.unpatched import allows_watching, get_ident, threads_are_real

Job: TypeAlias = Callable[[], object]

_IDLE_SECONDS = 10.0
"""Seconds for which a thread stays parked before it ends; real time, even if the clock was replaced."""
_JOIN_SECONDS = 1.0
"""Seconds for which a fork or a shutdown waits for a thread whose work is over already."""

_numbers = count(1)


class _Worker:
    """One thread of a pool, and the lock on which it sleeps while it is parked."""

    __slots__ = ("ident", "is_dismissed", "is_woken", "start_token", "thread", "wake")

    def __init__(self, pool: Pool) -> None:
        self.is_dismissed = False
        """Whether the thread must end when it has no work."""
        self.is_woken = False
        """Whether the thread was woken and does not run yet; virtual time does not pass meanwhile."""
        self.start_token = [None]
        """Emptied by the thread when it starts, or after a failure to start it."""
        self.ident = 0
        """The thread, or the thread on which it runs as a greenlet."""
        self.wake = threading.Lock()
        self.wake.acquire()
        name = f"faulttolerance-{next(_numbers)}"
        self.thread = threading.Thread(target=pool.run_jobs, args=(self,), name=name, daemon=True)


class Pool:
    """Threads for submitted jobs; the thread that parked last works first, so that the others can end.

    Args:
        max_threads: Jobs beyond this number of threads wait, first in first out; ``None``: each job gets a thread
            at once.
    """

    def __init__(self, max_threads: int | None = None) -> None:
        self.max_threads = max_threads
        self._calls: dict[Any, None] = {}
        self._workers: dict[_Worker, None] = {}
        self._parked: list[_Worker] = []
        self._urgent: deque[Job] = deque()
        self._waiting: deque[Job] = deque()
        self._shutdowns: dict[threading.Event, None] = {}
        """The shutdowns that are under way; each event is set when no work is left."""

    # Calls

    def register(self, call: Hashable, is_child: bool = False) -> bool:
        """Register *call* as under way and return true; accept only children during a shutdown.

        No call is accepted where no thread would continue it: at the end, and in an isolated sub-interpreter.
        """
        self._calls[call] = None
        if (self._shutdowns and not is_child) or sys.is_finalizing() or not allows_watching:
            self.unregister(call)
            return False
        return True

    def unregister(self, call: Hashable) -> None:
        """Remove *call*, which is over."""
        self._calls.pop(call, None)
        if self._shutdowns:
            self._check_drained()

    @property
    def calls(self) -> tuple[Any, ...]:
        """The calls that are under way."""
        return tuple(self._calls.copy())

    # Work

    def submit(self, job: Job, urgent: bool = False) -> None:
        """Run *job* on a thread of the pool.

        Args:
            job: Must not raise.
            urgent: Run it now even if the pool has all its threads; for short jobs, which continue a call.

        Raises:
            RuntimeError: No thread can be started, and no thread exists that could run the job later, because the
                interpreter is ending.
        """
        queue = self._urgent if urgent else self._waiting
        queue.append(job)
        try:
            self._ensure_worker()
        except RuntimeError:
            try:
                queue.remove(job)
            except (ValueError, IndexError):
                return  # a thread has taken it after all, or takes another job right now
            raise

    @property
    def is_crowded(self) -> bool:
        """Whether there are more threads than allowed, so that the running thread should start no long job."""
        return self.max_threads is not None and len(self._workers) > self.max_threads

    def configure(self, max_threads: int | None) -> None:
        """Change the limit; threads beyond a smaller limit end as soon as they have no work."""
        self.max_threads = max_threads
        self._ensure_worker()
        if max_threads is not None:
            self._dismiss(len(self._workers) - max_threads)

    def run_jobs(self, worker: _Worker) -> None:
        """Run submitted jobs until there was none for a while; the target of each thread."""
        worker.ident = get_ident()
        if not take(worker.start_token):
            return
        while True:
            job = self._next_job(worker)
            if job is None:
                return
            try:
                job()
            except BaseException:
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), worker.thread)))
            job = None

    def _next_job(self, worker: _Worker) -> Job | None:
        parked = self._parked
        while True:
            job = self._take(worker)
            if job is not None:
                if self._urgent or self._waiting:
                    self._wake_the_next()
                return job
            if worker.is_dismissed or self.is_crowded or self._shutdowns or not threads_are_real():
                self._end(worker)  # a greenlet serves only its own thread, and a new greenlet costs next to nothing
                return None
            parked.append(worker)
            has_something = self._urgent or self._waiting or self._shutdowns or self.is_crowded
            if not (has_something or worker.wake.acquire(timeout=_IDLE_SECONDS)):
                worker.is_dismissed = True
            self._unpark(worker)

    def _take(self, worker: _Worker) -> Job | None:
        """Remove and return the next job that *worker* should run, or ``None``."""
        for queue in (self._urgent, self._waiting):
            if queue is self._waiting and (worker.is_dismissed or self.is_crowded):
                break
            try:
                return queue.popleft()
            except IndexError:
                pass
        return None

    def _wake_the_next(self) -> None:
        with suppress(RuntimeError):  # no further thread is available, so this thread continues with the queue
            self._ensure_worker()

    def _unpark(self, worker: _Worker) -> None:
        try:
            self._parked.remove(worker)
        except ValueError:
            worker.wake.acquire()  # for ever: the thread was abandoned when greenlets replaced threads
        worker.is_woken = False

    def _end(self, worker: _Worker) -> None:
        self._workers.pop(worker, None)
        if self._urgent or self._waiting:  # including the job for which this thread was woken just now
            self._wake_the_next()
        if self._shutdowns:
            self._check_drained()

    def _ensure_worker(self) -> None:
        """Ensure that a thread will read the queues.

        One thread is woken for any number of jobs: the thread that takes the first job wakes the next thread if there
        are more jobs. So a few threads run all short jobs, while each job that blocks gets its own thread.
        """
        while self._urgent or self._waiting:
            while self._parked and not threads_are_real():
                # Greenlets have replaced threads: ``threading`` would complain at the end of these threads.
                self._workers.pop(self._parked.pop(), None)
            try:
                _wake(self._parked[-1])
            except IndexError:
                pass
            else:
                return
            limit = self.max_threads
            is_full = limit is not None and len(self._workers) >= limit
            if is_full and (not self._urgent or any(worker.start_token for worker in self._workers.copy())):
                return  # each of them reads the queues when it starts, and before it parks or ends
            worker = _Worker(self)
            try:
                self._workers[worker] = None
                if limit is None or len(self._workers) <= limit or self._urgent:
                    stop_at_end_of_subinterpreter()
                    Context().run(worker.thread.start)  # a thread of Python 3.14 may keep the context of its start
                    return
                self._workers.pop(worker, None)
            except BaseException as error:
                if take(worker.start_token):  # otherwise it runs, and a signal's handler raised the error
                    self._workers.pop(worker, None)
                    is_final = "shutdown" in str(error)  # the interpreter is ending, and starts no thread any more
                    if isinstance(error, RuntimeError) and self._workers and not is_final:
                        return
                raise

    # The end

    def shutdown(self, timeout: float | None = None) -> bool:
        """Reject new calls, wait for the calls under way, and end the threads; accept new calls again afterwards.

        Args:
            timeout: The longest wait in seconds; ``None``: unlimited.

        Returns:
            Whether every call and every body has ended. The others run on; they do not keep the interpreter from
            exiting.

        Raises:
            RuntimeError: When called by a thread of the pool, which would wait for itself.
        """
        workers = self._workers.copy()
        if any(worker.thread is threading.current_thread() for worker in workers):
            raise RuntimeError("faulttolerance.shutdown() was called by one of the threads for which it waits")
        drained = threading.Event()
        try:
            self._shutdowns[drained] = None
            self._dismiss(len(self._parked))
            self._check_drained()
            if not drained.wait(timeout):
                return False
            for worker in workers:
                if worker.ident:  # otherwise the thread could not be started
                    worker.thread.join(_JOIN_SECONDS)
            return True
        finally:
            self._shutdowns.pop(drained, None)

    def stop_idle(self, looks: int = 0) -> None:
        """End the parked threads, and wait until they are gone; before, look *looks* times whether all are parked."""
        wait(lambda: len(self._parked) >= len(self._workers) or not threads_are_real(), looks)
        for worker in self._dismiss(len(self._parked)):
            worker.thread.join(_JOIN_SECONDS)
            wait_until_gone(worker.thread.native_id)

    def forget_other_threads(self) -> None:
        """Reset the state in a forked child, where only the calling thread exists; calls stay until ``unregister``."""
        here = {worker: None for worker in self._workers if worker.ident == get_ident()}
        vars(self).update(vars(Pool(self.max_threads)), _calls=self._calls, _workers=here)

    def _dismiss(self, how_many: int) -> list[_Worker]:
        sent = self._parked[-how_many:] if how_many > 0 else []
        for worker in sent:
            worker.is_dismissed = True
            _wake(worker)
        return sent

    def _check_drained(self) -> None:
        if not self._calls and not self._workers:
            for drained in self._shutdowns.copy():
                drained.set()


def _wake(worker: _Worker) -> None:
    """Wake the thread of *worker*, so that it reads the queues."""
    worker.is_woken = True
    try:
        worker.wake.release()
    except RuntimeError:
        pass  # another thread has just woken it


pool = Pool()
"""The pool that offloaded calls share."""

at_fork(child=pool.forget_other_threads)
