"""Deadlines of the running thread: how a call begins one, what the call comes to, and what holds a deadline back.

An attempt begins a deadline by the plain store ``deadlines.innermost = (when, deadlines.innermost)``, having noted
*deadlines* and what stood there before, so that it can take the deadline back whatever happens. It does so by the plain
store ``deadlines.innermost = outer``, as the first thing after the body, and asks ``conclude`` then. An interruption
that was sent before may be raised from whatever is called next; it is expected until ``conclude`` has returned.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import partial
from math import inf
from sys import modules
from types import TracebackType
from typing import TYPE_CHECKING

from .._log import WARNING, log
from .._strategy import deadline as lateness
from .._swap import Swap
from .callback import to_its_end
from .clock import clock, next_deadline, raise_if_expired
from .inherited import pass_on
from .interrupting.safe_point import forget_added_modules, put_uninterruptible_modules
from .interrupting.thread_deadlines import (
    HAS_GIL,
    Entry,
    ThreadDeadlines,
    deadlines_here,
    deadlines_of_threads,
    this_thread,
)
from .interrupting.watchdog import OTHER_GREENLETS, Interrupted, watchdog, withdraw
from .native import allows_watching
from .task_deadline import EXPIRED, NO_TASK, OWED, TaskDeadline, current, standing

if TYPE_CHECKING:
    from .attempt_record import AttemptRecord

__all__ = [
    "NOT_WANTED",
    "Interrupted",
    "ThreadDeadlines",
    "be_watched",
    "conclude",
    "conclude_at",
    "interrupt",
    "next_deadline",
    "put_interrupt_signal",
    "put_uninterruptible_modules",
    "raise_if_expired",
    "remaining",
    "reset",
    "set_innermost",
    "set_interrupt_signal",
    "settle",
    "sleep",
    "this_thread",
    "uninterruptible",
    "watchdog",
]

_modules = sys.modules
NOT_WANTED = "interrupt=False"


# A guarded call


def set_innermost(deadlines: ThreadDeadlines, entry: Entry) -> None:
    """Begin a deadline, or take one back, where a plain store does not do: without the GIL."""
    deadlines.innermost = entry
    deadlines.order.clear()


def be_watched(deadlines: ThreadDeadlines, when: float) -> None:
    """See to it that the watchdog looks at *deadlines* by *when*, and that its thread can be interrupted then.

    To be called where ``not deadlines.is_ready or when < watchdog.next``.
    """
    if deadlines.is_greenlet:
        if len(deadlines.innermost) == 2:
            deadlines.is_ready = True
            _tell_of_greenlets()
        return
    if not deadlines.is_ready:
        watchdog.install_handler(deadlines)
    if when < watchdog.next:
        watchdog.wake()


def settle(deadlines: ThreadDeadlines, entry: Entry) -> None:
    """Withdraw the interruption that is on its way to this thread for *entry*, which is over."""
    if deadlines.in_flight is entry:
        withdraw(deadlines)


def conclude(record: AttemptRecord, error: BaseException | None, message: Callable[[], str]) -> BaseException | None:
    """What an attempt comes to whose deadline was taken back: *error*, nothing, or ``TimeoutException``.

    Args:
        record: The attempt; ``timed_out`` is set where it ends by its own deadline.
        error: What the body raised, or an ``Interrupted`` that was raised after it; ``None``: it returned.
        message: Gives what a ``TimeoutException`` is to say.
    """
    deadlines, entry = record.deadlines, record.entry
    assert deadlines is not None
    try:
        settle(deadlines, entry)
        ended = clock.monotonic()
    except Interrupted as late:
        error = late
        ended = clock.monotonic()
    outcome = conclude_at(record, deadlines, entry, error, ended, message)
    if record.timed_out and deadlines.heirs:
        pass_on(deadlines, entry)
    return outcome


def conclude_at(
    record: AttemptRecord,
    deadlines: ThreadDeadlines,
    entry: Entry,
    error: BaseException | None,
    ended: float,
    message: Callable[[], str],
) -> BaseException | None:
    """Say the same of one that *ended* under *entry*, in its caller's thread or in one of the pool."""
    outcome = lateness.conclude(
        error,
        ended,
        entry[0],
        message,
        partial(_why_not_interrupted, deadlines, entry),
        is_own=_is_own(deadlines, entry, error),
        was_interrupted=id(entry) in deadlines.sent,
    )
    record.timed_out = outcome is not error
    return outcome


def _is_own(deadlines: ThreadDeadlines, entry: Entry, error: BaseException | None) -> bool:
    if isinstance(error, Interrupted):
        return error.owner is entry
    # The loop that ran in the call was told to end, and did so in its own way.
    return deadlines.cancelled is entry and isinstance(error, _modules["asyncio"].CancelledError)


def _why_not_interrupted(deadlines: ThreadDeadlines, entry: Entry) -> str:
    if len(entry) == 3:
        return str(entry[2])
    if clock.is_virtual:
        return "under virtual time only the library's own sleeps are interrupted"
    if deadlines.withdrawn is entry:
        return "it was in a call that is no Python code; only one that waits can be interrupted, on the main thread"
    if deadlines.is_greenlet:
        return "it ran in a greenlet"
    if not allows_watching:
        return "it ran in an isolated sub-interpreter"
    if (
        deadlines.pending_interrupt is not None
        and deadlines.pending_interrupt.entry is entry
        and deadlines.pending_interrupt.why is not None
    ):
        if deadlines.pending_interrupt.why == OTHER_GREENLETS:
            _tell_of_greenlets()
        return deadlines.pending_interrupt.why
    if not HAS_GIL and not (deadlines.is_main and watchdog.owns_signal()):
        return "without the GIL only the main thread is interrupted, by a signal"
    return ""


_has_told_of_greenlets = False


def _tell_of_greenlets() -> None:
    """Say once that there are calls that no deadline interrupts, and what does."""
    global _has_told_of_greenlets
    if _has_told_of_greenlets:
        return
    _has_told_of_greenlets = True
    log(
        WARNING,
        "deadlines interrupt no call that runs in a greenlet, nor one during which other greenlets run in its thread:"
        " such calls end late, by themselves; let what they wait for have a time-out of its own, or put it under"
        " gevent.Timeout(remaining(), TimeoutError), or eventlet's",
    )


def interrupt(deadlines: ThreadDeadlines, entry: Entry) -> None:
    """Raise ``Interrupted`` in the thread of *deadlines* while *entry* stands in its chain, whatever the clock says.

    *entry* may be about to be put there.
    """
    deadlines.requested[id(entry)] = (entry, clock.monotonic())
    if deadlines.is_greenlet:
        gate = deadlines.gate
        if gate is not None:
            gate()
    else:
        watchdog.rouse()


# What an application calls


class uninterruptible:  # noqa: N801
    """A ``with`` block in which no deadline interrupts that ran when the block began.

    One that passes meanwhile interrupts at the end of the block, unless an exception leaves it: that one goes first. A
    guarded call inside the block still has its own deadline. Works in threads and in coroutines.
    """

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks: list[_Block] = []

    def __enter__(self) -> None:
        block = _Block(deadlines_here())
        deadlines = block.deadlines
        outer = deadlines.innermost
        deadlines.innermost = block.mask = [-1.0, outer, True]
        try:
            if deadlines.in_flight is not None:
                withdraw(deadlines)
            deadline = standing(current.get())
            while deadline is not None:
                block.held.append(deadline)
                deadline.hold(block)
                deadline = standing(deadline.previous)
            self._blocks.append(block)
        except BaseException:
            deadlines.innermost = outer
            for deadline in block.held:
                deadline.let_go(block)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        block: _Block | None = None
        try:
            block = self._innermost()
            owed = self._leave(block, error)
        except BaseException:
            # A signal's handler raised: the block is over all the same, and each step may be taken twice.
            self._leave(block if block is not None else self._innermost(), error)
            raise
        if error is None:
            raise_if_expired(clock.monotonic())
            if owed:
                raise _modules["asyncio"].CancelledError
        else:
            watchdog.look_after(block.deadlines)

    def _leave(self, block: _Block, error: BaseException | None) -> bool:
        """Hold nothing back any more; whether the running task has to be interrupted for it now."""
        _take_off(block.deadlines, block.mask)
        owed = False
        for deadline in block.held:
            deadline.let_go(block)
            if deadline.state == OWED and not deadline.is_held:
                owed = _deliver(deadline, now=error is None) or owed
        if block in self._blocks:
            self._blocks.remove(block)
        return owed

    def _innermost(self) -> _Block:
        here = deadlines_here()
        return next((block for block in reversed(self._blocks) if block.deadlines is here), self._blocks[-1])


class _Block:
    """One entry into an ``uninterruptible`` block, and what it holds back."""

    __slots__ = ("deadlines", "held", "mask")

    mask: Entry

    def __init__(self, deadlines: ThreadDeadlines) -> None:
        self.deadlines = deadlines
        self.held: list[TaskDeadline] = []


def _take_off(deadlines: ThreadDeadlines, mask: Entry) -> None:
    """Take *mask* out of its chain, wherever it stands there: coroutines leave their blocks in any order."""
    mask[2] = False
    if deadlines is not deadlines_here():
        return
    top = deadlines.innermost
    while type(top) is list and not top[2]:
        top = deadlines.innermost = top[1]
    while top is not None:
        if top[1] is mask and type(top) is list:
            top[1] = mask[1]
        top = top[1]


def _deliver(deadline: TaskDeadline, now: bool) -> bool:
    """Let a deadline interrupt that was held back; whether the running task has to raise *now* for it."""
    asyncio, task = _modules["asyncio"], deadline.task
    try:
        is_mine = task is NO_TASK or asyncio.current_task() is task
    except RuntimeError:  # no loop runs on this thread
        is_mine = False
    if is_mine and now:
        deadline.state = EXPIRED
        return True
    if task is not NO_TASK:
        # For another task, or at the next time that this one waits; by then the call may be over.
        try:
            task.get_loop().call_soon_threadsafe(to_its_end(_expire_if_owed, deadline), None)
        except RuntimeError:
            pass  # the loop was closed, and will go on with none of its tasks
    return False


def _expire_if_owed(deadline: TaskDeadline) -> None:
    if deadline.state == OWED and not deadline.is_held and deadline.counts is deadline:
        deadline.expire()


def remaining() -> float | None:
    """Seconds left to the innermost deadline of the running call, the nearest one where they differ.

    0.0 once it has passed, ``None`` where there is none; in threads and in coroutines.
    """
    soonest: float = inf
    entry = (this_thread.deadlines if "greenlet" not in modules else deadlines_here()).innermost
    while entry is not None:
        if type(entry) is not list and entry[0] < soonest:
            soonest = entry[0]
        entry = entry[1]
    deadline = current.get().counts
    while deadline is not None:
        if deadline.when < soonest and deadline.counts is deadline:
            soonest = deadline.when
        deadline = deadline.previous
    return None if soonest == inf else max(0.0, soonest - clock.monotonic())


def sleep(seconds: float) -> None:
    """Block the thread for *seconds*; any interruption ends it, at once and on every thread.

    Raises:
        Interrupted: A deadline of the running call passed, or the call was cancelled.
        ValueError: *seconds* is negative or not a number.
    """
    if not seconds >= 0:
        raise ValueError(f"cannot sleep for {seconds!r} seconds; allowed: a number >= 0")
    if seconds:
        clock.sleep(seconds)
    else:
        raise_if_expired(clock.monotonic())


# The signal


def can_interrupt(signum: object) -> bool:
    """Whether a handler can be installed for *signum*."""
    return (
        isinstance(signum, int)
        and signum is not True
        and signum in signal.valid_signals()
        and signum not in _UNCATCHABLE
    )


def put_interrupt_signal(signum: int | None, swap: Swap) -> None:
    """Let this signal interrupt blocking calls of the main thread once *swap* takes place; ``None``: they end late.

    The next guarded call on the main thread installs the handler, and only where the signal has none.
    """
    swap.attribute(watchdog, "signum", signum)
    for deadlines in deadlines_of_threads():
        swap.attribute(deadlines, "is_ready", not deadlines.is_main)


def set_interrupt_signal(signum: int | None) -> None:
    """Let this signal interrupt blocking calls of the main thread; see ``put_interrupt_signal``."""
    swap = Swap()
    put_interrupt_signal(signum, swap)
    swap.take_place()


def reset() -> None:
    """Go back to the default signal, and interrupt again the modules that the application exempted."""
    forget_added_modules()
    set_interrupt_signal(getattr(signal, "SIGURG", None))


_UNCATCHABLE = frozenset(getattr(signal, name) for name in ("SIGKILL", "SIGSTOP") if hasattr(signal, name))
