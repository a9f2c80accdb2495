"""The functions of the application that ``on_deadline`` blocks call when a deadline passes (rule S1).

Each call runs on a thread of its own. A long call delays neither the watchdog nor other calls, but only the end of its
own block. The handshake: the first party that stores its token in ``_owner`` decides. If that is the block, which is
being left, the call is not made. If it is the finder of the passed deadline, the call is made and the block waits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from sys import modules
from types import CoroutineType
from typing import Any

from ..._log import ERROR, log
from ..._platform.greenlets import hub_here
from ..._platform.loop_callback import take
from ..._platform.unpatched import run_on_thread, threads_are_real
from .chain import Entry, ThreadDeadlines

_START_SECONDS = 0.05
"""Seconds for which a block that is left waits for the start of the call before it starts the call itself."""


_PATIENCE_SECONDS = 1.0
"""Seconds for which an interruption waits for the end of the calls; the end of their block always waits."""
_FAILED = "the function of on_deadline failed: %r"


class DeadlineCallback:
    """One call that is made when a deadline passes, unless its block was left before."""

    __slots__ = ("_ended", "_function", "_owner", "_start_token", "entry", "is_effective", "is_over", "when")

    def __init__(self, function: Callable[[], object], lock: Any) -> None:
        self._function = function
        self._owner: dict[None, object] = {}
        self._start_token: list[None] = [None]
        self._ended = lock
        self._ended.acquire()
        self.is_over = False
        """Whether the call was made and has returned."""
        self.when = 0.0
        """The moment at which the deadline passes."""
        self.is_effective: Callable[[], bool] = bool
        """Returns whether the deadline still counts and nothing holds it back."""
        self.entry: Entry = None
        """The deadline, if it is a deadline of the thread."""

    def claim(self) -> bool:
        """Claim the right to make the call, once; return false if the block was left or it was claimed before."""
        token = object()
        return self._owner.setdefault(None, token) is token

    def call(self) -> None:
        """Make the claimed call, at most once; control flow propagates, every other failure is logged."""
        if not take(self._start_token):
            return
        try:
            result = self._function()
            if isinstance(result, CoroutineType):
                result.close()
                raise TypeError("the function returned a coroutine, and nothing awaits it")
        except Exception as error:
            log(ERROR, _FAILED, self._function, error=error)
        finally:
            self.is_over = True
            self._ended.release()

    def revoke(self) -> None:
        """Make the call impossible, or wait for the end of a call that is under way; each step may be repeated."""
        if self._owner.setdefault(None, self) is not self:
            self.wait()

    @property
    def is_running(self) -> bool:
        """Whether the call is running or was claimed."""
        return self._owner.get(None, self) is not self and not self.is_over

    def wait(self) -> None:
        """Wait for the end of a call that is under way."""
        while not self.is_over:
            if not self._ended.acquire(timeout=_START_SECONDS) and self._start_token:
                call_on_thread([self])  # the claiming thread was interrupted, or is in the parent process


def call_due(deadlines: ThreadDeadlines, now: float) -> None:
    """Start the calls whose deadline has passed at *now* and is not held back, those of the innermost block first."""
    # A single C call copies the dict: the thread itself may be in the middle of leaving a block.
    claimed = []
    for callback in reversed([*deadlines.callbacks]):
        if callback.when <= now and callback.is_effective() and callback.claim():
            if callback.entry is not None:
                deadlines.called = callback.entry
            claimed.append(callback)
    if claimed:
        call_on_thread(claimed)


def call_due_and_wait(deadlines: ThreadDeadlines, now: float) -> None:
    """Make the due calls for the running thread, and wait for their end."""
    if deadlines.callbacks:
        call_due(deadlines, now)
        for callback in [*deadlines.callbacks]:
            if callback.is_running:
                callback.wait()


def are_running(deadlines: ThreadDeadlines, late_by: float) -> bool:
    """Return whether calls must end before the interruption of the thread, which is *late_by* seconds late."""
    return late_by < _PATIENCE_SECONDS and any(callback.is_running for callback in [*deadlines.callbacks])


def call_on_thread(claimed: list[DeadlineCallback]) -> None:
    """Make claimed calls in order on a thread of their own, or on this thread if no other thread is available."""
    work = partial(_call_all, claimed)
    if hub_here() is not None:
        modules["gevent"].spawn(work)  # the locks of greenlets belong to their thread, and a hub may not wait
        return
    if threads_are_real():
        run_on_thread(work)
    else:
        work()


def _call_all(claimed: list[DeadlineCallback]) -> None:
    for callback in claimed:
        try:
            callback.call()
        except BaseException as error:  # this thread has no caller that could receive it
            log(ERROR, _FAILED, callback, error=error)
