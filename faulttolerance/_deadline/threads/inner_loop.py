"""Event loops that run inside a synchronous call, as under ``asyncio.run``, and their end at a deadline of the call.

An exception that is raised in a task ends only that task. An exception in the loop's own code leaves all tasks
unfinished. So the loop's main task is cancelled, as ``asyncio.run`` does at Ctrl-C: the tasks clean up, and the loop
ends.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, NamedTuple

from ..._platform.atomic import stack_of, variables_of
from ..._platform.loop_callback import to_its_end
from .callbacks import call_due_and_wait
from .chain import Depth, Entry, ThreadDeadlines, deadlines_here, depth, due, is_open, prune
from .instructions import callee_at
from .safe_point import Stack, frames_of_call


class InnerLoop(NamedTuple):
    """An event loop on the stack of a thread."""

    frame: FrameType
    is_idle: bool
    """Whether the loop waits or is about to wait, and runs no task or callback."""
    is_compiled: bool
    """Whether the loop has no frames, as uvloop's: what is raised while it waits ends nothing, or some other task."""

    main: str | None
    """The variable of the frame with the loop's main task; a compiled loop has one only under ``asyncio.Runner``."""

    def schedule_cancel(self, deadlines: ThreadDeadlines, entry: Entry) -> bool:
        """Schedule the cancellation of the loop's main task, on its thread, for *entry*; return whether it is."""
        if self.main is None:
            return False
        variables = variables_of(self.frame)
        try:
            main = variables[self.main]
            loop = main.get_loop() if self.is_compiled else variables["self"]
            loop.call_soon_threadsafe(to_its_end(_cancel, main, deadlines, entry), None)
        except (KeyError, RuntimeError):  # the loop has not started, or is closed already
            return False
        return True


def find_loop(stack: Stack, depth: Depth) -> InnerLoop | None:
    """Return the loop that runs in the call whose extent is *depth*, or ``None``."""
    asyncio: Any = sys.modules.get("asyncio")
    if not hasattr(asyncio, "runners"):  # not imported, or only in part
        return None
    running = asyncio.base_events.BaseEventLoop.run_until_complete.__code__
    callback = asyncio.events.Handle._run.__code__
    is_idle = True
    for step in frames_of_call(stack, depth):
        if step.f_code is running:
            return InnerLoop(step, is_idle, is_compiled=False, main="future")
        if callee_at(step.f_code, step.f_lasti)[0].endswith(".run_until_complete"):
            main = "task" if step.f_code is asyncio.runners.Runner.run.__code__ else None
            return InnerLoop(step, is_idle=step is stack[0], is_compiled=True, main=main)
        is_idle = is_idle and step.f_code is not callback
    return None


def end_loop(now: float) -> bool:
    """End the loop on this thread if a deadline around it has passed at *now*; return whether it was notified."""
    deadlines = deadlines_here()
    entry = due(deadlines, now)
    loop = find_loop(stack_of(sys._getframe()), depth(deadlines, entry)) if entry is not None else None
    if loop is None:
        return False
    call_due_and_wait(deadlines, now)
    loop.schedule_cancel(deadlines, entry)
    return True


def _cancel(main: Any, deadlines: ThreadDeadlines, entry: Entry) -> None:
    if is_open(deadlines, entry) and main.cancel():
        deadlines.cancelled = entry
        prune(deadlines)
        deadlines.sent[id(entry)] = entry
