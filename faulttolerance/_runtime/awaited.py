"""What a body returned that is to be awaited, as a task of a loop (rule R7b)."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any

from .callback import to_its_end
from .loop_thread import loop_thread
from .offloaded import log_dropped
from .task_deadline import TaskDeadline, current, standing, work_under

if TYPE_CHECKING:
    import asyncio

    from .body import Body


class AwaitedTask:
    """The task that awaits what a body returned.

    It belongs to the loop of the awaitable, where that has one, else to the caller's, else to one that is borrowed.
    What is called on the loop may be called twice, and so takes no step that it has taken.
    """

    def __init__(self, body: Body, awaitable: Any) -> None:
        import asyncio

        self._body = body
        loop = awaitable.get_loop() if asyncio.isfuture(awaitable) else body.call.loop
        self._is_borrowed = loop is None
        self._loop: asyncio.AbstractEventLoop = loop_thread.acquire() if loop is None else loop
        self._limit: TaskDeadline | None = None
        self._task: asyncio.Task[Any] | None = None

    def begin(self, awaitable: Any, context: Context) -> None:
        """Have the task made on its loop.

        Raises:
            RuntimeError: The loop was closed.
        """
        try:
            self._loop.call_soon_threadsafe(to_its_end(self._begin, awaitable, context), None)
        except RuntimeError:
            self._return_loop()
            raise

    def _begin(self, awaitable: Any, context: Context) -> None:
        body = self._body
        if self._task is None:
            if not body.is_awaited:
                drop(awaitable, None)
                body.release_permit()
                self._return_loop()
                return
            if body.attempt.deadline is not None and self._limit is None:
                limit = TaskDeadline()
                limit.start(body.attempt.deadline, standing(context.run(current.get)))
                self._limit = limit
            if self._limit is not None:
                context.run(work_under, self._limit)
            self._task = self._loop.create_task(_outcome(awaitable), context=context)
        if self._limit is not None:
            self._limit.task = self._task
        self._task.add_done_callback(to_its_end(self._end, self._task))
        self._task.add_done_callback(self._return_loop)

    def cancel(self) -> None:
        """Cancel the task, from any thread."""
        try:
            self._loop.call_soon_threadsafe(to_its_end(self._cancel), None)
        except RuntimeError:
            self._body.release_permit()  # the loop was closed, and the task with it

    def _cancel(self) -> None:
        if self._task is None:
            return  # _begin has seen to it
        if self._limit is not None and not self._body.call.stopped:
            self._limit.expire()
        else:
            self._task.cancel()

    def _end(self, task: asyncio.Task[Any]) -> None:
        import asyncio

        if self._limit is not None:
            self._limit.counts = self._limit.previous
        self._body.take_over(task, asyncio.CancelledError)

    def _return_loop(self, _: object = None) -> None:
        if self._is_borrowed:
            loop_thread.release()


async def _outcome(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def drop(result: Any, error: BaseException | None) -> None:
    """Do away with what a body came to for which nobody waits any more."""
    if isinstance(result, Coroutine):
        result.close()  # it was never awaited, and on purpose
    if error is not None:
        log_dropped(error)
