"""Waits in greenlets, where gevent has replaced threads: other greenlets run meanwhile.

A call waits with the primitives of its thread. The library's watchdog stays a real thread, but no part of a call may
run there: a lock that switches between greenlets, or a greenlet that replaces a thread, belongs to its creator's
thread.
"""

from __future__ import annotations

import _thread
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ..exceptions import FaultToleranceException
from .unpatched import get_ident, native, threads_are_real


def refuse_eventlet() -> None:
    """Raise an exception if eventlet has replaced threads.

    Raises:
        FaultToleranceException: It has.
    """
    patcher = sys.modules.get("eventlet.patcher")
    if patcher is not None and patcher.is_monkey_patched("thread"):
        raise FaultToleranceException(
            "eventlet has replaced threads; guarded calls do not run under it, but under gevent"
        )


def lock_here() -> Any:
    """Return a lock on which the running call may sleep, and which any thread may release."""
    if not threads_are_real():
        return _thread.allocate_lock()
    patcher = sys.modules.get("gevent.monkey")
    if patcher is not None and patcher.is_module_patched("time") and hub_here() is not None:
        return import_module("gevent.thread").allocate_lock()
    return native.allocate_lock()


def hub_here() -> Any:
    """Return the hub of gevent that the running thread has, or ``None``; without a hub it has no other greenlets."""
    get_hub = getattr(sys.modules.get("gevent._hub_local"), "get_hub_if_exists", None)
    return get_hub() if get_hub is not None else None


class GreenletTimer:
    """A callback that is due at a moment, in a greenlet of the thread that created it."""

    __slots__ = ("_callback", "_greenlet", "_ident")

    def __init__(self, when: float, callback: Callable[[], object]) -> None:
        self._callback: Callable[[], object] | None = callback
        self._ident = get_ident()
        self._greenlet = sys.modules["gevent"].spawn_later(max(0.0, when - native.monotonic()), self._run)

    def _run(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()  # gevent reports its failure

    def cancel(self) -> None:
        """Remove the callback if it has not started."""
        if self._callback is not None:
            self._callback = None
            if get_ident() == self._ident:  # on another thread, it runs out without effect
                self._greenlet.kill(block=False)
