"""A block of the application's code in which no deadline interrupts."""

from __future__ import annotations

import sys
from types import FrameType, TracebackType
from typing import Any

from .._platform.loop_callback import to_its_end
from .clock import clock, raise_if_expired
from .task import DEFERRED, EXPIRED, NO_TASK, TaskDeadline, current, effective_deadlines
from .threads.async_exception import withdraw
from .threads.chain import Entry, ThreadDeadlines, deadlines_here, effective_entry, latest_of
from .threads.watchdog import watchdog


class uninterruptible:  # noqa: N801
    """A ``with`` block in which no deadline interrupts that ran when the block started.

    A deadline that passes during the block interrupts at the end of the block, unless an exception leaves the block:
    then that exception propagates first. A guarded call inside the block still has its own deadline. The block works in
    threads and in coroutines.
    """

    def __init__(self) -> None:
        self._blocks: list[_Block] = []

    def __enter__(self) -> None:
        block = _Block(sys._getframe(1))
        deadlines = block.deadlines
        deadlines.innermost = block.mask
        try:
            if deadlines.in_flight is not None:
                withdraw(deadlines)
            for deadline in effective_deadlines(current.get()):
                block.held.append(deadline)
                deadline.hold(block)
            self._blocks.append(block)
        except BaseException:
            deadlines.innermost = block.outer
            for deadline in block.held:
                deadline.release(block)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        block: Any = None
        try:
            block = latest_of(self._blocks, sys._getframe(1))
            is_due = self._leave(block, error)
        except BaseException:
            # The handler of a signal raised. The block is over all the same, and each step may be repeated.
            self._leave(block or latest_of(self._blocks, sys._getframe(1)), error)
            raise
        if error is None:
            raise_if_expired(clock.monotonic())
            if is_due:
                raise sys.modules["asyncio"].CancelledError
        else:
            watchdog.look_after(block.deadlines)

    def _leave(self, block: _Block, error: BaseException | None) -> bool:
        """Release all deadlines; return whether the running task must be interrupted for one of them now."""
        _take_off(block.deadlines, block.mask)
        is_due = False
        for deadline in block.held:
            deadline.release(block)
            task = deadline.task  # before the check: the end of the deadline removes it
            if deadline.state == DEFERRED and not deadline.is_held and deadline.effective is deadline:
                is_due = _deliver(deadline, task, now=error is None) or is_due
        if block in self._blocks:
            self._blocks.remove(block)
        return is_due


class undisturbed(uninterruptible):  # noqa: N801
    """An ``uninterruptible`` block of the library's code; a deadline that passes in it interrupts after its end."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error if error is not None else _NOTHING_YET, trace)


_NOTHING_YET = BaseException()


class _Block:
    """One entry into an ``uninterruptible`` block, with the deadlines that it holds back."""

    def __init__(self, holder: FrameType) -> None:
        self.holder = holder
        self.deadlines = deadlines_here()
        self.outer = effective_entry(self.deadlines.innermost)
        self.mask = [-1.0, self.outer, True]
        self.held: list[TaskDeadline] = []


def _take_off(deadlines: ThreadDeadlines, mask: Entry) -> None:
    """Remove *mask* from its chain, at any place, because coroutines leave their blocks in any order."""
    mask[2] = False
    if deadlines is not deadlines_here():
        return
    top = deadlines.innermost = effective_entry(deadlines.innermost)
    while top is not None:
        if top[1] is mask and type(top) is list:
            top[1] = mask[1]
        top = top[1]


def _deliver(deadline: TaskDeadline, task: Any, now: bool) -> bool:
    """Interrupt *task* for *deadline*, which was held back; return whether the running task must raise *now* for it."""
    asyncio = sys.modules["asyncio"]
    try:
        is_mine = task is NO_TASK or asyncio.current_task() is task
    except RuntimeError:  # no loop runs on this thread
        is_mine = False
    if is_mine and now:
        deadline.state = EXPIRED
        return True
    if task is not NO_TASK:
        # For another task, or at the next wait of this task; the call may be over by then.
        try:
            task.get_loop().call_soon_threadsafe(to_its_end(_expire_if_deferred, deadline), None)
        except RuntimeError:
            pass  # the loop was closed, and runs none of its tasks any more
    return False


def _expire_if_deferred(deadline: TaskDeadline) -> None:
    if deadline.state == DEFERRED and not deadline.is_held and deadline.effective is deadline:
        deadline.expire()
