"""Attempts as tasks of an event loop, and the handle that an asynchronous call returns (rules R3, R7a, R8)."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import ref

from .. import typing
from ..exceptions import TimeoutException
from .callback import completion
from .clock import clock
from .deadline_queue import conclude_at, queue_of
from .environment import Attempt
from .event_loop import kept_on, refuse_trio
from .native import get_ident
from .task_deadline import NO_TASK, TaskDeadline, current, standing, work_under

if TYPE_CHECKING:
    from .._strategy.bulkhead import Bulkhead
    from .environment import Ts

__all__ = ["Admission", "AsyncCall", "TaskEnvironment", "acquire_in_task"]

T = TypeVar("T")
Admission: TypeAlias = "asyncio.Future[None]"
"""Completes when a call that waits for a permit has got it."""


def acquire_in_task(bulkhead: Bulkhead, permit: object) -> Admission | None:
    """Take a permit for an attempt of the running task: at once (``None``), or when what is returned completes.

    Raises:
        BulkheadException: The bulkhead is full, and its queue too.
    """
    future = asyncio.get_running_loop().create_future()
    ident = get_ident()
    known = ref(future)  # the queue outlives loops, and would keep one that was closed, and its tasks with it

    def wake() -> None:
        admission = known()
        if admission is None:
            raise RuntimeError("nobody waits any more: the loop was closed")
        if get_ident() == ident:
            next(completion(admission), None)
        else:
            admission.get_loop().call_soon_threadsafe(next, completion(admission), None)

    return None if bulkhead.acquire(permit, ident, wake) is None else future


class _Apart(TaskDeadline):
    """The deadline of an attempt that is a task of its own: its caller does not wait for the task to end."""

    __slots__ = ("_given_up",)

    def __init__(self, when: float, given_up: Iterator[object]) -> None:
        self.start(when, standing(current.get()))
        self._given_up = given_up

    def expire(self) -> None:
        if self.task.done():
            return  # when it ended, and not when the loop comes to look, tells whether it was in time
        super().expire()
        next(self._given_up, None)


class TaskEnvironment:
    """The environment of calls that run as tasks of the running loop."""

    async def pause(self, seconds: float) -> None:
        """Wait between two attempts."""
        await asyncio.sleep(seconds)

    async def call(self, function: Callable[[*Ts], Any], *args: *Ts) -> Any:
        """Run a function of the application, and await what it returns if that can be awaited."""
        result = function(*args)
        return await _outcome(result) if _can_be_awaited(result) else result

    async def attempt(self, attempt: Attempt) -> Any:
        """Run an attempt as a task; leave it behind at its deadline, and when its caller is cancelled."""
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        ends = completion(ended)
        deadline = task = None
        if attempt.deadline is not None:  # there before the body, which an eager task begins at once
            deadline = attempt.record.deadline = _Apart(attempt.deadline, ends)
        body = self._body(attempt)
        try:
            task = keep(loop.create_task(body), loop)
            task.add_done_callback(partial(next, ends))
            if deadline is not None:
                deadline.task = task
                queue_of(loop, attempt.seconds).add(deadline)
            await ended
        except BaseException as error:
            _give_up(body, task, error)
            raise
        finally:
            if deadline is not None:
                deadline.queue.pending.pop(deadline, None)
        failure = None
        try:
            if not task.done():
                attempt.record.timed_out = True
                task.add_done_callback(_drop)
                raise TimeoutException(attempt.late())
            if deadline is not None:
                failure = _conclude(attempt, deadline, task)
                if failure is not None:
                    raise failure
            return task.result()
        finally:
            del task, failure  # the traceback of a failure keeps this frame

    async def _body(self, attempt: Attempt) -> Any:
        record, bulkhead = attempt.record, attempt.bulkhead
        permit = object()  # and not the record, which leads to this task: the bulkhead would keep it, and its loop
        if record.deadline is not None:
            work_under(record.deadline)
        try:
            if bulkhead is not None:
                admission = acquire_in_task(bulkhead, permit)
                if admission is not None:
                    record.queued = True
                    await admission
                    record.running_since = clock.monotonic()
                record.admitted = True
            result = attempt.function(*attempt.args, **attempt.kwargs)
            awaits = attempt.awaits if attempt.awaits is not None else not _is_concurrent_future(result)
            if awaits and _can_be_awaited(result):
                result = await _outcome(result)
            return result
        finally:
            if bulkhead is not None:
                bulkhead.release(permit)  # or its place in the queue, and whether or not it has heard of a permit
            if record.deadline is not None:
                record.deadline.counts = record.deadline.previous
            record.ended = clock.monotonic()


def _conclude(attempt: Attempt, deadline: TaskDeadline, task: asyncio.Task[Any]) -> BaseException | None:
    """The failure of an attempt that has ended, its deadline considered; ``None``: it succeeded in time."""
    deadline.task = NO_TASK  # which refers to it by its context
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    record = attempt.record
    return conclude_at(record, deadline, error, record.ended or clock.monotonic(), attempt.late)


_RUNNING = "__faulttolerance_tasks__"
_running_elsewhere: set[asyncio.Task[Any]] = set()
"""Those of loops that take no attributes."""


def keep(task: asyncio.Task[T], loop: asyncio.AbstractEventLoop) -> asyncio.Task[T]:
    """Let *task* live as long as it runs, and no longer than its loop, which itself refers to it weakly."""
    running = kept_on(loop, _RUNNING, set, _running_elsewhere)
    running.add(task)
    task.add_done_callback(running.discard)
    return task


def _give_up(body: Coroutine[Any, Any, Any], task: asyncio.Task[Any] | None, error: BaseException) -> None:
    """End an attempt whose caller does not wait for it any more, because of *error*."""
    try:
        if task is None:
            body.close()
        elif isinstance(error, asyncio.CancelledError):
            task.cancel(*error.args[:1])  # with the reason, if one was given
        else:
            task.cancel()
    except RuntimeError:
        pass  # the loop was closed, and will not go on with the task


def _drop(task: asyncio.Task[Any]) -> None:
    """Look at the end of a task that nobody waits for any more, so that the loop does not complain about it."""
    if not task.cancelled():
        task.exception()


def _can_be_awaited(result: object) -> bool:
    return inspect.isawaitable(result) or _is_concurrent_future(result)


def _is_concurrent_future(result: object) -> bool:
    return hasattr(result, "add_done_callback") and hasattr(result, "result") and not asyncio.isfuture(result)


async def _outcome(result: Any) -> Any:
    if inspect.isawaitable(result):
        return await result
    return await asyncio.wrap_future(result)


class AsyncCall(typing.AsyncCall[T]):  # type: ignore[misc]  # see there
    """A call of an ``@asynchronous async def``, and of an ``@asynchronous_non_blocking def`` (rule R7a)."""

    __slots__ = ("__weakref__", "_context", "_start", "_steps", "_task")

    def __init__(self, start: Callable[[], Coroutine[Any, Any, T]], context: Context | None = None) -> None:
        self._start: Callable[[], Coroutine[Any, Any, T]] | None = start
        self._context = context
        self._steps: Generator[Any, None, T] | None = None
        self._task: asyncio.Task[T] | None = None
        if asyncio._get_running_loop() is not None:
            self._begin()

    def _begin(self) -> asyncio.Task[T]:
        if self._task is None:
            if self._start is None:
                raise asyncio.CancelledError  # it was cancelled, or closed, before it began
            if asyncio._get_running_loop() is None:
                refuse_trio("an `@asynchronous async def`")
            loop = asyncio.get_running_loop()
            start, self._start = self._start, None
            self._task = keep(loop.create_task(start(), context=self._context), loop)
        return self._task

    def __await__(self) -> Generator[Any, None, T]:
        task = self._begin()
        try:
            if task.get_loop() is asyncio.get_running_loop():
                return (yield from task)
            return (yield from _from_other_loop(task).__await__())
        finally:
            del self, task  # the traceback of a failure keeps this frame, and the task keeps the failure

    def send(self, value: Any) -> Any:
        """Drive the call as a coroutine is driven."""
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an exception where the call is awaited, as for a coroutine."""
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps.throw(*error)

    def close(self) -> None:
        """End the waiting; a call that has begun is cancelled, one that has not never begins."""
        self._start = None
        if self._steps is not None:
            self._steps.close()
        self.cancel()

    def cancel(self, msg: Any = None) -> bool:
        """Ask the call to end with ``CancelledError``; false where it is over."""
        if self._task is None:
            was_open, self._start = self._start is not None, None
            return was_open
        return self._task.cancel(msg)

    def cancelled(self) -> bool:
        """Whether the call ended by cancellation."""
        return self._start is None if self._task is None else self._task.cancelled()

    def done(self) -> bool:
        """Whether the call is over."""
        return self._start is None if self._task is None else self._task.done()

    def result(self) -> T:
        """What the call returned or raised; ``InvalidStateError`` while it is not over."""
        return self._over().result()

    def exception(self) -> BaseException | None:
        """What the call raised; ``InvalidStateError`` while it is not over."""
        return self._over().exception()

    def add_done_callback(self, callback: Callable[[asyncio.Task[T]], object]) -> None:
        """Call *callback* with the task, on its loop, once the call is over; begins the call."""
        self._begin().add_done_callback(callback)

    def _over(self) -> asyncio.Task[T]:
        if self._task is None:
            if self._start is None:
                raise asyncio.CancelledError
            raise asyncio.InvalidStateError(
                "the call has not begun: it is awaited nowhere, and no loop ran when it was made"
            )
        return self._task


async def _from_other_loop(task: asyncio.Task[T]) -> T:
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    tell: Any = partial(loop.call_soon_threadsafe, next, completion(ended))
    task.get_loop().call_soon_threadsafe(task.add_done_callback, tell)
    await ended
    try:
        return task.result()
    finally:
        del task  # the traceback of a failure keeps this frame
