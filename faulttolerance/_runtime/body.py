"""Code of the application on a thread of the pool, and what it awaits afterwards on a loop (rules R2, R5, R7b)."""

from __future__ import annotations

import concurrent.futures
import inspect
import math
from collections.abc import Awaitable, Coroutine
from contextvars import Context
from functools import partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from .._strategy import deadline as lateness
from ..exceptions import BulkheadException, TimeoutException
from . import interruption
from .callback import to_its_end
from .clock import clock
from .environment import Attempt, StoppedIteration
from .inherited import pass_on
from .interrupting.roles import TIMED_ATTEMPT, register
from .interrupting.thread_deadlines import HAS_GIL, Entry, ThreadDeadlines, deadlines_here
from .interruption import NOT_WANTED, Interrupted, set_innermost, settle, watchdog
from .loop_thread import loop_thread
from .native import get_ident
from .offloaded import NO_THREAD, Suspension, log_dropped
from .pool import pool
from .task_deadline import TaskDeadline, current, standing, work_under

if TYPE_CHECKING:
    import asyncio

__all__ = ["Body"]


class Body(Suspension):
    """Code of the application, on a thread, and what it awaits afterwards on a loop."""

    __slots__ = (
        "_attempt",
        "_deadlines",
        "_entry",
        "_limit",
        "_loop",
        "_other",
        "_task",
        "_unbegun",
        "_unwoken",
        "_withdrawn",
    )

    def __init__(self, attempt: Attempt) -> None:
        super().__init__()
        self._attempt = attempt
        self._unbegun = [None]
        """Emptied by whoever begins the body, who then also gives its permit back, or by whoever withdraws it."""
        self._unwoken = [None]
        """Emptied when the queue of the bulkhead lets the attempt in."""
        self._withdrawn = False
        """Whether the body will never begin; looked at after a place in that queue was taken."""
        self._deadlines: ThreadDeadlines | None = None
        self._entry: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._limit: TaskDeadline | None = None
        self._other: concurrent.futures.Future[Any] | None = None

    # Before the body

    def begin(self, may_run: bool) -> bool:
        """Ask for a permit, and run the body here or have it run."""
        attempt, call = self._attempt, self.call
        bulkhead = attempt.bulkhead
        try:
            if call.attempted and not may_run:
                call.is_shared = True
                # A refused attempt is retried at once: the caller shall not wait for this one, and all that follow.
                pool.submit(self._begin_submitted)
                return False
            call.attempted = True
            call.is_shared = True
            if bulkhead is not None and bulkhead.acquire(attempt.record, NO_THREAD, self._wake) is not None:
                attempt.record.queued = True
            if attempt.deadline is not None:
                self.set_timer(attempt.deadline)
            if not attempt.record.queued:
                if may_run and not pool.is_crowded:
                    return self._run_body()
                pool.submit(self._run_submitted)
            elif self._withdrawn:
                self._leave()
            return False
        except BaseException as error:
            return self._refuse(error, may_run)

    def _begin_submitted(self) -> None:
        if self.begin(may_run=True):
            self.resume()

    def _refuse(self, error: BaseException, may_run: bool) -> bool:
        """Let the attempt fail with *error*, which came before its body was begun, or was sure to be."""
        try:
            if isinstance(error, BulkheadException):
                self.call.is_shared = False  # nobody else has heard of it yet
            self.cancel_timer()
            claimed = self.claim()
            try:
                self._unbegun.pop()
            except IndexError:
                if claimed and not isinstance(error, Exception):
                    self._withdraw(may_interrupt=True, may_cancel=True)
            else:
                self._withdrawn = True
                if self._attempt.bulkhead is not None and not isinstance(error, BulkheadException):
                    self._attempt.bulkhead.release(self._attempt.record)
            if claimed:
                self.error = error
            elif not may_run and not isinstance(error, Exception):
                raise error  # somebody means this thread, and not the call, which goes on elsewhere
            return claimed
        finally:
            del error

    def _wake(self) -> None:
        """Run the body, which has got its permit now; called from any thread, and at times twice."""
        try:
            self._unwoken.pop()
        except IndexError:
            return
        try:
            pool.submit(self._run_submitted)
        except RuntimeError as error:
            if self.claim():
                self.cancel_timer()
                self.call.give_up(error)
            raise

    def _run_submitted(self) -> None:
        if self._run_body():
            self.resume()

    @register(TIMED_ATTEMPT)
    def _run_body(self) -> bool:
        """Run the body; whether its outcome counts, and the call goes on here."""
        attempt, call = self._attempt, self.call
        deadlines = self._deadlines = deadlines_here()
        previous = deadlines.innermost
        deadline = attempt.deadline
        entry: Entry
        if deadline is None:
            entry = (math.inf, previous)  # what interrupts the body of a call that is cancelled
        elif attempt.interrupt:
            entry = (deadline, previous)
        else:
            entry = (math.inf, (deadline, previous, NOT_WANTED))
        self._entry = entry
        try:
            self._unbegun.pop()
        except IndexError:
            self._leave()  # withdrawn, perhaps before it had anything to give back
            return False
        record, bulkhead = attempt.record, attempt.bulkhead
        self.ident = get_ident()
        if bulkhead is not None:
            bulkhead.held[record] = self.ident
            if not self._unwoken:
                record.running_since = clock.monotonic()
            record.admitted = True
        error: BaseException | None = None
        result = None
        context = call.context.copy()
        try:
            try:
                # No need to wake the watchdog, as ``be_watched`` does: there is a timer for the same moment.
                deadlines.innermost = entry
                result = context.run(attempt.function, *attempt.args, **attempt.kwargs)
            finally:
                if HAS_GIL:
                    deadlines.innermost = previous
                else:
                    set_innermost(deadlines, previous)
            if deadlines.in_flight is not None:
                settle(deadlines, entry)
        except BaseException as raised:
            error = raised
            try:
                if deadlines.in_flight is not None:
                    settle(deadlines, entry)
            except Interrupted as late:
                error = late
        if deadlines.heirs and deadline is not None and clock.monotonic() >= deadline:
            pass_on(deadlines, entry if attempt.interrupt else entry[1])
        try:
            if error is None and self._is_awaited(result):
                return self._await(result, context)
            self._leave()
            return self._conclude(result, error, clock.monotonic())
        finally:
            del error

    def _leave(self) -> None:
        """Give the permit back, or the place in the queue."""
        if self._attempt.bulkhead is not None:
            self._attempt.bulkhead.release(self._attempt.record)

    # After the body

    def _conclude(self, result: Any, error: BaseException | None, ended: float) -> bool:
        """Take what the attempt came to as its outcome, unless somebody went on without it."""
        self.cancel_timer()
        try:
            if not self.claim():
                _drop(result, error)
                return False
            error = self._in_time(error, ended)
            self.value, self.error = result, None if error is None else StoppedIteration.of(error)
            return True
        finally:
            del error

    def _in_time(self, error: BaseException | None, ended: float) -> BaseException | None:
        """What the attempt comes to that ended before its timer rang, the deadline considered."""
        attempt, deadlines, entry = self._attempt, self._deadlines, self._entry
        if attempt.deadline is None:
            return error
        outcome = lateness.conclude(
            error,
            ended,
            attempt.deadline,
            attempt.late,
            str,
            is_own=isinstance(error, Interrupted) and error.owner is entry,
            was_interrupted=deadlines is not None and id(entry) in deadlines.sent,
        )
        attempt.record.timed_out = outcome is not error
        return outcome

    def expire(self) -> None:
        """Go on without the body: its deadline has passed."""
        if self.claim():
            self._attempt.record.timed_out = True
            self.error = TimeoutException(self._attempt.late())
            self._withdraw(may_interrupt=False, may_cancel=True)
            self.submit(self.resume, urgent=True)

    def abandon(self, may_interrupt: bool) -> None:
        """Go on without the body: the caller gave up."""
        self.cancel_timer()
        self._withdraw(may_interrupt, may_interrupt)

    def _withdraw(self, may_interrupt: bool, may_cancel: bool) -> None:
        try:
            self._unbegun.pop()
        except IndexError:
            pass
        else:
            self._withdrawn = True
            self._leave()
            return
        loop = self._loop
        if self._other is not None:
            if may_cancel:
                self._other.cancel()
        elif loop is not None:
            if may_cancel:
                try:
                    loop.call_soon_threadsafe(to_its_end(self._cancel_task), None)
                except RuntimeError:
                    self._leave()  # the loop was closed, and the task with it
        elif may_interrupt and self._deadlines is not None:
            interruption.interrupt(self._deadlines, self._entry)
        else:
            watchdog.wake()  # the deadline stands in the chain of the body's thread

    # What the body returned, where that is awaited

    def _is_awaited(self, result: Any) -> bool:
        awaits = self._attempt.awaits
        if not awaits and awaits is not None:
            return False
        if isinstance(result, concurrent.futures.Future):
            return bool(awaits)
        return hasattr(result, "__await__") or _is_old_coroutine(result)

    def _await(self, result: Any, context: Context) -> bool:
        """Let the attempt end with *result*, on the loop to which that belongs; the permit is kept meanwhile."""
        if isinstance(result, concurrent.futures.Future):
            self._other = result
            if self not in self.call.suspended:
                result.cancel()
            result.add_done_callback(to_its_end(self._take_over, result))
            return False
        borrowed = None
        try:
            loop = _loop_of(result) or self.call.loop
            if loop is None:
                loop = borrowed = loop_thread.acquire()
            self._loop = loop
            loop.call_soon_threadsafe(to_its_end(self._begin_task, result, context, borrowed), None)
        except Exception as error:  # the loop was closed; or a new one could not be made
            if borrowed is not None:
                loop_thread.release()
            _drop(result, None)
            self._leave()
            return self._conclude(None, error, clock.monotonic())
        return False

    def _begin_task(self, result: Any, context: Context, borrowed: object) -> None:
        loop, task = self._loop, self._task
        assert loop is not None
        if task is None:
            if self not in self.call.suspended:
                _drop(result, None)
                self._leave()
                if borrowed is not None:
                    loop_thread.release()
                return
            if self._attempt.deadline is not None and self._limit is None:
                limit = TaskDeadline()
                limit.start(self._attempt.deadline, standing(context.run(current.get)))
                self._limit = limit
            if self._limit is not None:
                context.run(work_under, self._limit)
            task = self._task = loop.create_task(_outcome(result), context=context)
        if self._limit is not None:
            self._limit.task = task
        task.add_done_callback(to_its_end(self._end_task, task))
        if borrowed is not None:
            task.add_done_callback(_release_loop)

    def _cancel_task(self) -> None:
        if self._task is None:
            return  # _begin_task has seen to it
        if self._limit is not None and not self.call.stopped:
            self._limit.expire()
        else:
            self._task.cancel()

    def _end_task(self, task: asyncio.Task[Any]) -> None:
        import asyncio

        if self._limit is not None:
            self._limit.counts = self._limit.previous
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._end_elsewhere(None if error is not None else task.result(), error)

    def _take_over(self, other: concurrent.futures.Future[Any]) -> None:
        error = concurrent.futures.CancelledError() if other.cancelled() else other.exception()
        self._end_elsewhere(None if error is not None else other.result(), error)

    def _end_elsewhere(self, result: Any, error: BaseException | None) -> None:
        """Go on with what the attempt came to on another thread than this one; may be called again."""
        try:
            self._leave()
            self.cancel_timer()
            if self in self.call.suspended:
                self.submit(partial(self._go_on, result, error, clock.monotonic()), urgent=True)
            else:
                _drop(result, error)
        finally:
            del error

    def _go_on(self, result: Any, error: BaseException | None, ended: float) -> None:
        try:
            if self._conclude(result, error, ended):
                self.resume()
        finally:
            del error


async def _outcome(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _release_loop(_: object) -> None:
    loop_thread.release()


def _loop_of(awaitable: Any) -> asyncio.AbstractEventLoop | None:
    """The only loop that can await *awaitable*, for a future or task of asyncio."""
    import asyncio

    return awaitable.get_loop() if asyncio.isfuture(awaitable) else None


def _is_old_coroutine(result: Any) -> bool:
    """Whether *result* comes from a generator function that ``types.coroutine`` made awaitable."""
    return isinstance(result, GeneratorType) and bool(result.gi_code.co_flags & inspect.CO_ITERABLE_COROUTINE)


def _drop(result: Any, error: BaseException | None) -> None:
    """Do away with what a body came to for which nobody waits any more."""
    if isinstance(result, Coroutine):
        result.close()  # it was never awaited, and on purpose
    if error is not None:
        log_dropped(error)
