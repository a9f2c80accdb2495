"""The running event loop, and objects that are kept as long as a loop lives."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..exceptions import FaultToleranceException

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


def loop_here() -> Any:
    """Return the event loop of asyncio that runs on this thread, or ``None``; does not import asyncio."""
    # While another thread imports asyncio, the module has no such function yet.
    get_running_loop = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    return None if get_running_loop is None else get_running_loop()


def refuse_trio(what: str) -> None:
    """Raise an exception in a task of trio, where nothing that needs asyncio may be awaited.

    Args:
        what: The feature that must wait, for the message.

    Raises:
        FaultToleranceException: The running task is a task of trio.
    """
    trio: Any = sys.modules.get("trio")
    in_trio_task = getattr(getattr(trio, "lowlevel", None), "in_trio_task", None)
    if in_trio_task is not None and in_trio_task():
        raise FaultToleranceException(f"{what} needs asyncio, and was called in a task of trio")


def running_loop(what: str) -> asyncio.AbstractEventLoop:
    """Return the event loop that runs the running task (rule O3).

    Args:
        what: The feature that must wait, for the message.

    Raises:
        FaultToleranceException: The running task is a task of trio, or no task of asyncio runs.
    """
    if "trio" in sys.modules:
        refuse_trio(what)
    loop: asyncio.AbstractEventLoop | None = loop_here()
    if loop is None:
        raise FaultToleranceException(f"{what} needs asyncio, and was called where no event loop of asyncio runs")
    if sys.modules["asyncio"].current_task(loop) is None:  # as under Twisted: nothing could be awaited or cancelled
        raise FaultToleranceException(
            f"{what} needs a task of asyncio, and was called outside of one: pass the call to asyncio.ensure_future(), "
            "in Twisted inside of Deferred.fromFuture()"
        )
    return loop


def kept_on(loop: Any, name: str, make: Callable[[], T]) -> T:
    """Return the attribute *name* of *loop*, which *make* creates if it is missing; it lives as long as the loop."""
    value: T | None = getattr(loop, name, None)
    if value is None:
        value = make()
        setattr(loop, name, value)
    return value


def _kept(loop: asyncio.AbstractEventLoop) -> set[asyncio.Future[Any]]:
    return kept_on(loop, "__faulttolerance_futures__", set)


def keep(task: asyncio.Task[T]) -> asyncio.Task[T]:
    """Keep *task* alive while it runs, and no longer than its loop, which refers to it weakly; return it."""
    running = _kept(task.get_loop())
    running.add(task)
    task.add_done_callback(running.discard)
    return task


class KeptFuture(NamedTuple):
    """A future that is kept alive while it is awaited, and no longer than its loop.

    Its task lives as long: often nothing but the future refers to the task, and a task that is collected never ends.
    """

    future: asyncio.Future[None]

    def __await__(self) -> Generator[Any, None, None]:
        awaited = _kept(self.future.get_loop())
        try:
            awaited.add(self.future)
            yield from self.future
        finally:
            awaited.discard(self.future)
