"""What applications want called when a deadline passes, by blocks of ``on_deadline`` (rule S1).

Each is called on a thread of its own: one that takes long keeps neither the watchdog nor other calls waiting, but only
the end of its own block. That is the handshake: the first who stores its token in ``_owner`` decides, the block that is
left, whose call is off then, or whoever found the deadline passed, for whose call the block waits then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from sys import modules
from types import CoroutineType
from typing import Any

from ..._log import ERROR, log
from ..._platform.loop_callback import take
from ..._platform.unpatched import allows_watching, native, start_and_await, threads_are_real
from .chain import Entry, ThreadDeadlines

_SECONDS_TO_BEGIN = 0.05
"""How long a block that is left waits for the call to begin before it sees to that itself."""


_PATIENCE = 1.0
"""Seconds for which an interruption waits for the end of the calls; the end of their block does so anyway."""
_FAILED = "what on_deadline called failed: %r"


class Cancel:
    """One call that is made when a deadline passes, unless the block that wants it was left before."""

    __slots__ = ("_ended", "_function", "_owner", "_unbegun", "entry", "holds", "is_over", "when")

    def __init__(self, function: Callable[[], object], lock: Any) -> None:
        self._function = function
        self._owner: dict[None, object] = {}
        self._unbegun: list[None] = [None]
        self._ended = lock
        self._ended.acquire()
        self.is_over = False
        """Whether it was called, and has returned."""
        self.when = 0.0
        """When the deadline passes."""
        self.holds: Callable[[], bool] = bool
        """Whether the deadline still counts, and nothing holds it back."""
        self.entry: Entry = None
        """The deadline, where it is one of the thread's own."""

    def claim(self) -> bool:
        """Take the right to make the call, once; false where the block was left, or somebody else has it."""
        token = object()
        return self._owner.setdefault(None, token) is token

    def make(self) -> None:
        """Make the call, for whoever has claimed it; not twice. Control flow passes, every other failure is logged."""
        if not take(self._unbegun):
            return
        try:
            result = self._function()
            if isinstance(result, CoroutineType):
                result.close()
                raise TypeError("a coroutine came out, and nobody awaits it here")
        except Exception as error:
            log(ERROR, _FAILED, self._function, error=error)
        finally:
            self.is_over = True
            self._ended.release()

    def drop(self) -> None:
        """Make the call impossible, or wait for the end of one that is under way; each step may be taken twice."""
        if self._owner.setdefault(None, self) is not self:
            self.wait()

    @property
    def is_under_way(self) -> bool:
        """Whether somebody makes the call, or is about to."""
        return self._owner.get(None, self) is not self and not self.is_over

    def wait(self) -> None:
        """Wait for the end of a call that is under way."""
        while not self.is_over:
            if not self._ended.acquire(timeout=_SECONDS_TO_BEGIN) and self._unbegun:
                make_aside([self])  # whoever claimed it was interrupted, or is in the parent process

    def forget_other_threads(self) -> None:
        """Wait for nobody, in the child of a fork."""
        self.is_over = True


def make_due(deadlines: ThreadDeadlines, now: float, *, on_watchdog: bool = False) -> None:
    """Have the calls made whose deadline has passed at *now*, and is not held back; the innermost block's first."""
    # Copied by a single C call: the thread itself may be in the middle of leaving a block.
    claimed = []
    for cancel in reversed([*deadlines.cancels]):
        if cancel.when <= now and cancel.holds() and cancel.claim():
            if cancel.entry is not None:
                deadlines.called = cancel.entry
            claimed.append(cancel)
    if claimed:
        make_aside(claimed, on_watchdog=on_watchdog)


def make_due_first(deadlines: ThreadDeadlines, now: float) -> None:
    """Have these calls made for the running thread, and wait until they are."""
    if deadlines.cancels:
        make_due(deadlines, now)
        for cancel in [*deadlines.cancels]:
            if cancel.is_under_way:
                cancel.wait()


def are_under_way(deadlines: ThreadDeadlines, late_by: float) -> bool:
    """Tell whether such calls are to end before the thread is interrupted, which is *late_by* seconds late."""
    return late_by < _PATIENCE and any(cancel.is_under_way for cancel in [*deadlines.cancels])


def make_aside(claimed: list[Cancel], *, on_watchdog: bool = False) -> None:
    """Make calls that were claimed, one after the other, on a thread of their own; here, where none is to be had.

    *on_watchdog*: nothing interrupts the running thread, and it has no time to wait.
    """
    work = partial(_make_all, claimed)
    hubs = modules.get("gevent._hub_local")
    if hubs is not None and hubs.get_hub_if_exists() is not None:
        modules["gevent"].spawn(work)  # what greenlets wait by belongs to their thread, and a hub may not wait
        return
    if allows_watching and threads_are_real():
        try:
            if on_watchdog:
                native.start_thread(work, ())
            else:
                start_and_await(work)
            return
        except RuntimeError:
            pass
    work()


def _make_all(claimed: list[Cancel]) -> None:
    for cancel in claimed:
        try:
            cancel.make()
        except BaseException as error:  # nobody is on this thread whom it could tell
            log(ERROR, _FAILED, cancel, error=error)
