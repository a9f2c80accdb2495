"""Attempts in and as tasks of an event loop (rules R3, R7a)."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import sys
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Iterator
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from math import inf
from types import FrameType, coroutine
from typing import TYPE_CHECKING, Any
from weakref import ref

from .._deadline.clock import clock
from .._deadline.queue import Expiry, begin_deadline, conclude_at, queue_of
from .._deadline.task import NO_DEADLINE, NO_TASK, TaskDeadline, binding_deadlines, current, effective_deadline
from .._deadline.threads.block import has_yielded, holder_of_block
from .._platform.event_loop import KeptFuture, keep, running_loop
from .._platform.loop_callback import complete_soon, completion, to_its_end
from .._platform.unpatched import get_ident
from .._strategy.bulkhead import Bulkhead, Waiter
from ..exceptions import TimeoutException
from .criticality import Criticality
from .environment import Attempt, Environment, Wait

if TYPE_CHECKING:
    from .._deadline.detached import DetachedCallWatch
    from ..typing import Timer
    from .environment import MakeCall, Run, Ts


@coroutine  # no ``async def``: it may be dropped before its first step
def _admission(bulkhead: Bulkhead, waiter: Waiter, awaitable: KeptFuture) -> Generator[Any, None, float]:
    """Wait in the queue of *bulkhead*; return the moment at which the permit was granted."""
    timer = None
    try:
        if waiter.until < inf:
            expire = to_its_end(bulkhead.expire, waiter)
            timer = awaitable.future.get_loop().call_later(max(0.0, waiter.until - clock.monotonic()), expire, None)
        yield from awaitable.__await__()
    finally:
        if timer is not None:
            timer.cancel()
    if waiter.reason:
        raise bulkhead.refusal(waiter.reason)
    return clock.monotonic()


def acquire_in_task(bulkhead: Bulkhead, permit: object) -> Awaitable[float] | None:
    """Acquire a permit for an attempt of the running task: at once (returns ``None``), or when the result completes.

    Raises:
        BulkheadException: The bulkhead and its queue are full.
    """
    wait = wait_in_task()
    waiter = bulkhead.enter(Waiter(permit, wait.ident, wait.wake, Criticality.current()))
    return None if waiter is None else _admission(bulkhead, waiter, wait.awaitable)  # type: ignore[arg-type]


def wait_in_task() -> Wait:
    """Return a wait for the running task; its ``wake`` raises if its loop was closed."""
    future = running_loop("a call that may have to wait for another").create_future()
    ident = get_ident()
    known = ref(future)  # queues outlive loops, and would keep a closed loop alive, with its tasks

    def wake() -> None:
        waited = known()
        if waited is None:
            raise RuntimeError("the wait has ended, because the loop was closed")
        if get_ident() == ident:
            next(completion(waited), None)
        else:
            complete_soon(waited)

    return Wait(ident, wake, KeptFuture(future))


class _DetachedDeadline(TaskDeadline):
    """The deadline of an attempt that is a task of its own, for whose end its caller does not wait."""

    __slots__ = ("_given_up",)

    def __init__(self, when: float, given_up: Iterator[object]) -> None:
        self.start(when, effective_deadline(current.get()))
        self._given_up = given_up

    def expire(self) -> None:
        if self.task.done():
            return  # the end of the task decides whether it was in time, not the loop's look at it
        super().expire()
        next(self._given_up, None)


class _BlockDeadline(TaskDeadline):
    """The deadline of a block; if an asynchronous generator holds it open, it interrupts only that generator."""

    __slots__ = ("holder",)

    def __init__(self, holder: FrameType | None) -> None:
        # Nothing is asked of other frames, which would live as long as the task: it has the deadline in its context.
        is_generator = holder is not None and holder.f_code.co_flags & inspect.CO_ASYNC_GENERATOR
        self.holder = holder if is_generator else None

    def end(self) -> None:
        super().end()
        self.holder = None

    def expire(self) -> None:
        if not has_yielded(self.holder):
            super().expire()


def _call_later(seconds: float, callback: Callable[[], object], is_usual: bool = False) -> Timer:
    loop = asyncio.get_running_loop()
    return Expiry(loop, seconds, callback) if is_usual else loop.call_later(seconds, to_its_end(callback), None)


class TaskEnvironment(Environment):
    """The environment of calls that run as tasks of the running loop."""

    acquire = staticmethod(acquire_in_task)
    begin_deadline = staticmethod(begin_deadline)
    call_later = staticmethod(_call_later)
    ident = staticmethod(get_ident)
    new_wait = staticmethod(wait_in_task)

    async def pause(self, seconds: float) -> None:
        if seconds > 0.0:
            running_loop("waiting for the next attempt")
        await asyncio.sleep(seconds)

    async def start_child(
        self,
        make: MakeCall,
        prepare: Callable[[], object],
        on_start: Callable[[Run], object],
        on_end: Callable[[], object],
    ) -> None:
        loop, context = running_loop("a call with hedges"), copy_context()
        context.run(prepare)
        body, task = make(), None
        try:
            task = context.run(loop.create_task, body)  # not every loop accepts a context
            on_start(task)
            task.add_done_callback(_drop)
            task.add_done_callback(to_its_end(on_end))
            keep(task)
        except BaseException as error:
            try:
                _give_up(body, task, error)
            except BaseException:
                _give_up(body, task, error)  # a signal's handler raised: no other code ends the call
                raise
            raise

    async def await_children(self, runs: Collection[Any]) -> None:
        # The end of the call may close objects that these tasks use.
        while running := [run for run in runs if not run.done()]:
            with suppress(asyncio.CancelledError):  # anyio repeats it; the call ends by the first one
                await asyncio.wait(running)

    async def bind_detached_calls(self) -> None:
        current.get().is_binding = True

    async def call(self, function: Callable[[*Ts], Any], *args: *Ts) -> Any:
        try:
            return await _outcome(function(*args), awaits=True)
        finally:
            del args  # a fallback may raise the failure among them again, whose traceback refers to this frame

    async def attempt(self, attempt: Attempt) -> Any:
        # The body is left behind at its deadline, and when its caller is cancelled.
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        ends = completion(ended)
        deadline: TaskDeadline = NO_DEADLINE
        task = watch = None
        if attempt.deadline is not None or current.get() is not NO_DEADLINE:
            deadline = _DetachedDeadline(inf if attempt.deadline is None else attempt.deadline, ends)
            watch = _watch_detached_call()
        body = self._body(attempt, deadline)
        try:
            if attempt.deadline is not None:  # before the body, which an eager task starts at once
                queue_of(loop, attempt.seconds).add(deadline)
            task = keep(loop.create_task(body))
            task.add_done_callback(partial(next, ends))
            if deadline is not NO_DEADLINE:
                deadline.task = task
            await ended
        except BaseException as error:
            late = deadline if watch is not None and watch.has_ended else None
            try:
                _give_up(body, task, error, late)
            except BaseException:
                _give_up(body, task, error, late)  # a signal's handler raised: no other code ends the attempt
                raise
            raise
        finally:
            deadline.queue.pending.pop(deadline, None)
            if watch is not None:
                watch.cancel()
        raised = failure = None
        try:
            if not task.done():
                attempt.record.timed_out = True
                task.add_done_callback(_drop)
                if attempt.left_behind is not None:
                    attempt.left_behind.add(task)
                    task.add_done_callback(attempt.left_behind.remove)
                raise TimeoutException(attempt.timeout_message(attempt.record))
            deadline.task = NO_TASK  # an eager task may have ended before it was stored there
            if attempt.deadline is not None:
                raised = asyncio.CancelledError() if task.cancelled() else task.exception()
                ended_at = attempt.record.ended or clock.monotonic()
                failure = conclude_at(attempt.record, deadline, raised, ended_at, attempt.timeout_message)
                if failure is not None:
                    raise failure
            return task.result()
        finally:
            del task, raised, failure  # the traceback of a failure keeps this frame

    async def _body(self, attempt: Attempt, deadline: TaskDeadline) -> Any:
        record, bulkhead = attempt.record, attempt.bulkhead
        permit = object()  # not the record, which refers to this task: the bulkhead would keep the task and its loop
        current.set(deadline)
        try:
            if bulkhead is not None:
                admission = acquire_in_task(bulkhead, permit)
                if admission is not None:
                    record.queued = True
                    record.running_since = await admission
                record.admitted = True
            return await _outcome(attempt.function(*attempt.args, **attempt.kwargs), attempt.awaits)
        finally:
            if bulkhead is not None:
                try:
                    bulkhead.release(permit)  # or its place in the queue, even if the task was not notified of a permit
                except BaseException:
                    bulkhead.release(permit)  # a signal's handler raised before the first instruction
                    raise
            deadline.effective = deadline.previous
            deadline.task = NO_TASK  # the task refers to the deadline by its context
            record.ended = clock.monotonic()


class BlockEnvironment(TaskEnvironment):
    """The environment of tasks whose guarded body is a block of code."""

    @staticmethod
    def begin_deadline(seconds: float, when: float, what: str) -> TaskDeadline:  # type: ignore[override]
        """Start and return the deadline of the block that is being entered."""
        return begin_deadline(seconds, when, what, partial(_BlockDeadline, holder_of_block(sys._getframe())))


def _watch_detached_call() -> DetachedCallWatch | None:
    """Cancel the running call at a deadline of another task under which it was made; return ``None`` if there is none.

    A deadline of its own task cancels the call anyway.
    """
    latest, task = current.get(), asyncio.current_task()
    if latest is NO_DEADLINE or task is None or not (deadlines := binding_deadlines(latest, task)):
        return None
    from .._deadline.detached import DetachedCallWatch

    watch = DetachedCallWatch(deadlines, _call_later, task.cancel)
    watch.check()
    return watch


def _give_up(
    body: Coroutine[Any, Any, Any],
    task: asyncio.Task[Any] | None,
    error: BaseException,
    deadline: TaskDeadline | None = None,
) -> None:
    """End an attempt whose caller does not wait for it any more, because of *error*.

    *deadline*, that of the body, passes with a deadline around the call, but not in an ``uninterruptible`` block.
    """
    reason = error.args[:1] if isinstance(error, asyncio.CancelledError) else ()
    with suppress(RuntimeError):  # the loop was closed, and will not run the task
        if task is None:
            body.close()
        elif deadline is None:
            task.cancel(*reason)
        else:
            deadline.task = task
            deadline.expire()


def _drop(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of a task that no code waits for any more, so that the loop does not complain about it."""
    if not task.cancelled():
        task.exception()


async def _outcome(result: Any, awaits: bool | None) -> Any:
    """Return *result*, or the result of awaiting it if ``Attempt.awaits`` requires that."""
    is_executor_future = isinstance(result, concurrent.futures.Future)
    if awaits is False or (awaits is None and is_executor_future):
        return result
    if inspect.isawaitable(result):
        return await result
    return await asyncio.wrap_future(result) if is_executor_future else result
