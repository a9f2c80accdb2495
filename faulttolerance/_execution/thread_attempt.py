"""Attempts, and other code of the application, on threads of the pool (rules R2, R5, R7b)."""

from __future__ import annotations

import concurrent.futures
import math
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any
from weakref import ref

from .._deadline import interruption
from .._deadline.clock import clock
from .._deadline.gevent import watch_in_hub
from .._deadline.interruption import NOT_WANTED, settle
from .._deadline.parent import mark_missed
from .._deadline.task import NO_TASK, TaskDeadline, current, effective_deadline
from .._deadline.threads.async_exception import Interrupted
from .._deadline.threads.chain import Entry, ThreadDeadlines, deadlines_here
from .._deadline.threads.roles import TIMED_ATTEMPT, register
from .._platform.loop_callback import take, to_its_end, while_alive
from .._platform.unpatched import get_ident
from .._strategy.bulkhead import Waiter
from ..exceptions import BulkheadException, TimeoutException
from .criticality import level_in
from .environment import Attempt, StoppedIteration
from .loop_thread import loop_thread
from .pool import pool
from .thread_call import NO_THREAD, Suspension, log_dropped, run_urgently

if TYPE_CHECKING:
    import asyncio


class ThreadAttempt(Suspension):
    """An attempt on a thread, including the wait for an awaitable that it returned."""

    # Attributes of the class, so that the creation of an attempt calls less; most keep their default.
    _has_ended = False
    """Whether the body has ended, or will never start; read after a place in that queue was taken."""
    _deadlines: ThreadDeadlines | None = None
    _entry: Any = None
    _awaited: AwaitedTask | concurrent.futures.Future[Any] | None = None

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self._start_token = [None]
        """Emptied at the start of the body, whose thread then also releases the permit, or at the withdrawal."""
        self._wake_token = [None]
        """Emptied when the wait for a permit is over."""

    # Before the body

    def begin(self, may_run: bool) -> bool:
        """Request a permit, and run the body here or submit it; return whether the call continues here."""
        attempt, call = self.attempt, self.call
        record, bulkhead = attempt.record, attempt.bulkhead
        try:
            call.is_shared = True
            if call.attempted and not may_run:
                # A refused attempt is retried at once. The caller must not wait for this attempt and all that follow.
                pool.submit(partial(self._resume_after, self.begin, True))
                return False
            call.attempted = True
            if bulkhead is not None:
                waiter = Waiter(record, NO_THREAD, None, level_in(call.context))
                waiter.wake = partial(self._wake, ref(waiter))
                record.queued = bulkhead.enter(waiter) is not None
                if record.queued and waiter.until < math.inf:
                    self.call_at(waiter.until, partial(while_alive, ref(waiter), bulkhead.expire))
            if attempt.deadline is not None:
                self.set_timer(attempt.deadline)
            if not record.queued:
                if may_run and not pool.is_crowded:
                    return self._run_body()
                pool.submit(partial(self._resume_after, self._run_body))
            elif self._has_ended:
                self.release_permit()
            return False
        except BaseException as error:
            return self._refuse(error, may_run)

    def _refuse(self, error: BaseException, may_run: bool) -> bool:
        """Fail the attempt with *error*, which came before its body was started, or was sure to be."""
        try:
            if isinstance(error, BulkheadException) and not may_run:
                self.call.is_shared = False  # no other thread was notified of the attempt yet
            self.cancel_timers()
            claimed = self.claim()
            if take(self._start_token):
                if not isinstance(error, BulkheadException):
                    self.release_permit()
            elif claimed and not isinstance(error, Exception):
                self._give_up(may_interrupt=True, may_cancel=True)
            if claimed:
                self.error = error
            elif not may_run and not isinstance(error, Exception):
                raise error  # the exception is for this thread, and not for the call, which continues elsewhere
            return claimed
        finally:
            del error

    def _wake(self, known: ref[Waiter]) -> None:
        """Submit the body, or its refusal, when the wait for a permit is over; from any thread, and at times twice."""
        if not take(self._wake_token):
            return
        bulkhead, waiter = self.attempt.bulkhead, known()
        if bulkhead is None or waiter is None or not waiter.reason:
            self.submit(partial(self._resume_after, self._run_body), urgent=False)
        else:
            self.submit(partial(self._resume_after, self._refuse, bulkhead.refusal(waiter.reason), True))

    def _resume_after(self, step: Callable[..., bool], *args: Any) -> None:
        """Run one step on this thread of the pool, and resume the call if the outcome of the step counts."""
        counts = step(*args)
        del step, args  # a failure's traceback keeps this frame
        if counts:
            self.resume()

    # The body

    @register(TIMED_ATTEMPT)
    def _run_body(self) -> bool:
        """Run the body; return whether its outcome counts, so that the call continues here."""
        attempt, call = self.attempt, self.call
        deadlines = self._deadlines = deadlines_here()
        if deadlines.is_greenlet:
            watch_in_hub(deadlines)
        previous = deadlines.innermost
        entry = self._entry = _entry_of(attempt, previous)
        if not take(self._start_token):
            self.release_permit()  # withdrawn, perhaps before the attempt held anything to release
            return False
        self.ident = get_ident()
        if attempt.bulkhead is not None:
            attempt.bulkhead.held[attempt.record] = self.ident
            if not self._wake_token:
                attempt.record.running_since = clock.monotonic()
            attempt.record.admitted = True
        error: BaseException | None = None
        result = None
        context = call.body_context()
        try:
            try:
                # No wake-up of the watchdog is needed, unlike in ``watch_deadline``: a timer is set for this moment.
                deadlines.innermost = entry
                result = context.run(attempt.function, *attempt.args, **attempt.kwargs)
            finally:
                deadlines.innermost = previous
            settle(deadlines, entry)
        except BaseException as raised:
            error = raised
            try:
                settle(deadlines, entry)
            except Interrupted as late:
                error = late
        if deadlines.dependents and attempt.deadline is not None and clock.monotonic() >= attempt.deadline:
            mark_missed(deadlines, self._own_entry)
        try:
            if error is None:
                try:
                    if self._is_to_be_awaited(result):
                        self._await(result, context)
                        return False
                except Exception as raised:  # the loop was closed, or no new loop could be created
                    drop(result, None)
                    error = raised
            self.release_permit()
            return self._conclude(result, error, clock.monotonic())
        finally:
            del error

    def release_permit(self) -> None:
        """Release the permit, or the place in the queue."""
        self._has_ended = True
        self._awaited = None  # it refers to this object
        if self.attempt.bulkhead is not None:
            self.attempt.bulkhead.release(self.attempt.record)
        if self.attempt.left_behind is not None:
            self.attempt.left_behind.remove(self)

    # After the body

    @property
    def _own_entry(self) -> Any:
        """The entry of the attempt's deadline in the chain of its thread."""
        return self._entry if self.attempt.interrupt else self._entry[1]

    def _conclude(self, result: Any, error: BaseException | None, ended: float) -> bool:
        """Store the outcome of the attempt, unless the call went on without it; return whether it counts."""
        self.cancel_timers()
        try:
            if not self.claim():
                drop(result, error)
                return False
            attempt, deadlines = self.attempt, self._deadlines
            if attempt.deadline is not None and deadlines is not None:
                error = interruption.conclude_at(
                    attempt.record, deadlines, self._own_entry, error, ended, attempt.timeout_message
                )
            self.value, self.error = result, None if error is None else StoppedIteration.of(error)
            return True
        finally:
            del error

    def conclude_with(self, future: Any, cancelled: type[BaseException]) -> None:
        """Conclude with the outcome of *future*, on another thread than this; may be called again."""
        error = cancelled() if future.cancelled() else future.exception()
        result = None if error is not None else future.result()
        try:
            self.release_permit()
            self.cancel_timers()
            self.submit(partial(self._resume_after, self._conclude, result, error, clock.monotonic()))
        finally:
            del error

    def expire(self) -> None:
        """Resume the call without the body, because its deadline has passed."""
        if self.claim():
            self.attempt.record.timed_out = True
            self.error = TimeoutException(self.attempt.timeout_message(self.attempt.record))
            self._withdraw(may_interrupt=False, may_cancel=True)
            left_behind, was_withdrawn = self.attempt.left_behind, self._has_ended
            if left_behind is not None and not was_withdrawn:
                left_behind.add(self)
                if self._has_ended:
                    left_behind.remove(self)
            self.submit(self.resume)

    def abandon(self, may_interrupt: bool) -> None:
        """Withdraw or end the body, because the caller gave up."""
        self.cancel_timers()
        self._withdraw(may_interrupt, may_interrupt)

    def _withdraw(self, may_interrupt: bool, may_cancel: bool) -> None:
        """Withdraw the body if it has not started, otherwise end it."""
        if take(self._start_token):
            self.release_permit()
        else:
            self._give_up(may_interrupt, may_cancel)

    def _give_up(self, may_interrupt: bool, may_cancel: bool) -> None:
        """End the body, which has started, or the awaitable that it returned."""
        awaited = self._awaited
        if awaited is not None:
            if may_cancel and isinstance(awaited, AwaitedTask):
                awaited.cancel()
            elif may_cancel:
                run_urgently(awaited.cancel)  # it calls back, and may be called on the watchdog's thread
        elif may_interrupt and self._deadlines is not None:
            interruption.interrupt(self._deadlines, self._entry)
        elif self._deadlines is not None:
            interruption.examine_soon(self._deadlines)  # the deadline stands in the chain of the body's thread

    # The awaitable that the body returned

    def _is_to_be_awaited(self, result: Any) -> bool:
        awaits = self.attempt.awaits
        if issubclass(type(result), concurrent.futures.Future):
            return bool(awaits)
        return awaits is not False and isawaitable(result)

    def _await(self, result: Any, context: Context) -> None:
        """Wait for the awaitable *result*, with the permit."""
        if issubclass(type(result), concurrent.futures.Future):
            self._awaited = result
            if self not in self.call.suspended:
                result.cancel()  # the call waits no longer, and a future may never end by itself
            result.add_done_callback(to_its_end(self.conclude_with, result, concurrent.futures.CancelledError))
            return
        self._awaited = task = AwaitedTask(self, result)
        task.loop.call_soon_threadsafe(to_its_end(task.begin, result, context), None)


def _entry_of(attempt: Attempt, outer: Entry) -> Entry:
    """Return the entry of *attempt* in its thread's chain; without a deadline it only serves cancellations."""
    if attempt.deadline is None:
        return (math.inf, outer)
    return (attempt.deadline, outer) if attempt.interrupt else (math.inf, (attempt.deadline, outer, NOT_WANTED))


class AwaitedTask:
    """The task that awaits the awaitable which a body returned.

    It runs on the loop of the awaitable if that has a loop, otherwise on the loop of the caller, otherwise on a
    borrowed loop. Functions on the loop may be called twice, and so repeat no completed step.
    """

    _deadline: TaskDeadline

    def __init__(self, body: ThreadAttempt, awaitable: Any) -> None:
        import asyncio

        self._body = body
        loop = awaitable.get_loop() if asyncio.isfuture(awaitable) else body.call.loop
        self._is_borrowed = loop is None
        self.loop: asyncio.AbstractEventLoop = loop_thread.acquire() if loop is None else loop
        self._task: asyncio.Task[Any] | None = None

    def begin(self, awaitable: Any, context: Context) -> None:
        """Create the task, on its loop."""
        body = self._body
        if self._task is None:
            if body not in body.call.suspended:  # the call waits no longer
                drop(awaitable, None)
                body.release_permit()
                self._return_loop()
                return
            when = math.inf if body.attempt.deadline is None else body.attempt.deadline
            self._deadline = TaskDeadline()
            self._deadline.start(when, effective_deadline(context.run(current.get)))
            context.run(current.set, self._deadline)
            self._task = context.run(self.loop.create_task, _outcome(awaitable))  # not every loop accepts a context
        self._deadline.task = self._task
        self._task.add_done_callback(to_its_end(self._end, self._task))

    def cancel(self) -> None:
        """Cancel the task, from any thread."""
        try:
            self.loop.call_soon_threadsafe(to_its_end(self._cancel), None)
        except RuntimeError:
            self._body.release_permit()  # the loop was closed, and the task with it

    def _cancel(self) -> None:
        if self._task is not None:  # otherwise ``begin`` releases the permit
            self._deadline.expire()  # not in an ``uninterruptible`` block

    def _end(self, task: asyncio.Task[Any]) -> None:
        import asyncio

        self._return_loop()  # first, as a thread that has the result may fork
        self._deadline.effective = self._deadline.previous
        self._deadline.task = NO_TASK  # the task refers to the deadline by its context
        self._body.conclude_with(task, asyncio.CancelledError)

    def _return_loop(self) -> None:
        if self._is_borrowed:
            self._is_borrowed = False
            loop_thread.release()


async def _outcome(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def drop(result: Any, error: BaseException | None) -> None:
    """Discard the result or exception of a body that no caller waits for."""
    if issubclass(type(result), Coroutine):
        result.close()  # it was deliberately never awaited
    if error is not None:
        log_dropped(error)
