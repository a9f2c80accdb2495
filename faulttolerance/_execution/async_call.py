"""The handle that an asynchronous call on an event loop returns (rules R7a, R8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from .. import typing
from .._platform.event_loop import keep, running_loop

T = TypeVar("T")


class AsyncCall(typing.AsyncCall[T]):  # type: ignore[misc]  # see there
    """A call of an ``@asynchronous async def``, or of an ``@asynchronous_non_blocking def`` (rule R7a)."""

    __slots__ = ("__weakref__", "_start", "_task")

    def __init__(self, start: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._start: Callable[[], Coroutine[Any, Any, T]] | None = start
        self._task: asyncio.Task[T] | None = None
        if asyncio._get_running_loop() is not None:
            self._begin()

    def _begin(self) -> asyncio.Task[T]:
        if self._task is None:
            if self._start is None:
                raise asyncio.CancelledError  # the call was cancelled, or closed, before it started
            loop = asyncio._get_running_loop() or running_loop("an `@asynchronous async def`")
            start, self._start = self._start, None
            self._task = keep(loop.create_task(start()))
        return self._task

    def __await__(self) -> Generator[Any, None, T]:
        task = self._begin()
        try:
            if not task.done():
                running_loop("awaiting a call")
                yield from task
            return task.result()  # its loop may be closed
        finally:
            del self, task  # the traceback of a failure keeps this frame, and the task keeps the failure

    # Several tasks may step the call, each beside the others. So a step depends on nothing but the state of the call.

    def send(self, value: Any) -> Any:
        steps = self.__await__()
        del self  # as in ``__await__``
        return steps.send(value)

    def throw(self, *error: Any) -> Any:
        try:
            return (step for step in [None]).throw(*error)  # raises it
        except asyncio.CancelledError:
            if self._task is not None:
                self._task.cancel()  # no effect unless the task that steps the call is cancelled before its first step
            raise
        finally:
            del self, error

    def close(self) -> None:
        """Cancel a call that has started, and prevent the start of a call that has not."""
        self.cancel()

    def cancel(self, msg: Any = None) -> bool:
        if self._task is None:
            was_open, self._start = self._start is not None, None
            return was_open
        return self._task.cancel(msg)

    def cancelled(self) -> bool:
        return self._start is None if self._task is None else self._task.cancelled()

    def done(self) -> bool:
        return self._start is None if self._task is None else self._task.done()

    def result(self) -> T:
        return self._over().result()

    def exception(self) -> BaseException | None:
        return self._over().exception()

    def add_done_callback(self, callback: Callable[[asyncio.Task[T]], object]) -> None:
        self._begin().add_done_callback(callback)

    def _over(self) -> asyncio.Task[T]:
        if self._task is None:
            if self._start is None:
                raise asyncio.CancelledError
            raise asyncio.InvalidStateError(
                "the call has not started: nothing awaits it, and no loop ran when it was made"
            )
        return self._task
