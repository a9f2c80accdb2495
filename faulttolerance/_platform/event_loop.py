"""What is asked of the event loop that runs, and what is kept for as long as it lives."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ..exceptions import FaultToleranceException

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


def loop_here() -> Any:
    """Return the event loop of asyncio that runs on this thread, if one does; does not import asyncio."""
    asyncio = sys.modules.get("asyncio")
    return None if asyncio is None else asyncio._get_running_loop()


def refuse_trio(what: str) -> None:
    """Refuse to wait in a task of trio, where nothing that asyncio can wait for may be awaited.

    Args:
        what: What has to wait.

    Raises:
        FaultToleranceException: The running task is trio's.
    """
    trio: Any = sys.modules.get("trio")
    in_trio_task = getattr(getattr(trio, "lowlevel", None), "in_trio_task", None)
    if in_trio_task is not None and in_trio_task():
        raise FaultToleranceException(f"{what} needs asyncio, and was called in a task of trio")


def running_loop(what: str) -> asyncio.AbstractEventLoop:
    """Give the event loop that runs (rule O3).

    Args:
        what: What has to wait.

    Raises:
        FaultToleranceException: The running task is trio's, or no loop of asyncio runs it.
    """
    if "trio" in sys.modules:
        refuse_trio(what)
    loop: asyncio.AbstractEventLoop | None = loop_here()
    if loop is None:
        raise FaultToleranceException(f"{what} needs asyncio, and was called where no event loop of asyncio runs")
    return loop


def kept_on(loop: Any, name: str, make: Callable[[], T], elsewhere: T | None = None) -> T:
    """Give what *loop* has as its attribute *name*, made where there is none; it lives as long as the loop does.

    Args:
        loop: The event loop.
        name: What the attribute is called.
        make: Makes its first value.
        elsewhere: Serves where the loop takes no attributes; ``None``: what was made just now.
    """
    value: T | None = getattr(loop, name, None)
    if value is None:
        value = make()
        with suppress(AttributeError):
            setattr(loop, name, value)
            return value
        return value if elsewhere is None else elsewhere
    return value


_running_elsewhere: set[asyncio.Task[Any]] = set()
"""The tasks of loops that take no attributes."""


def keep(task: asyncio.Task[T]) -> asyncio.Task[T]:
    """Let *task* live as long as it runs, and no longer than its loop, which itself refers to it weakly."""
    running = kept_on(task.get_loop(), "__faulttolerance_tasks__", set, _running_elsewhere)
    running.add(task)
    task.add_done_callback(running.discard)
    return task
