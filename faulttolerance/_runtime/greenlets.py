"""Waiting where gevent or eventlet have put greenlets in the place of threads: others run meanwhile.

A call waits by what its thread waits by. The library's own watchdog stays a thread, but nothing of a call may happen
there: a lock that switches between greenlets, or a thread that is none, belongs to the thread on which it was made.
"""

from __future__ import annotations

import _thread
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from .._log import ERROR, log
from ..typing import Timer
from .native import get_ident, native, threads_are_real


def lock_here() -> Any:
    """A lock by which the running call may sleep."""
    if not threads_are_real():
        return _thread.allocate_lock()
    patcher = sys.modules.get("gevent.monkey")
    if patcher is not None and patcher.is_module_patched("time") and _has_hub():
        return import_module("gevent.thread").allocate_lock()
    return native.allocate_lock()


def _has_hub() -> bool:
    """Tell whether the running thread may have other greenlets: it need not, where threads were left as they are."""
    return import_module("gevent._hub_local").get_hub_if_exists() is not None


class _GreenletTimer:
    """A callback that is due at a moment, in a greenlet of the thread that asked for it."""

    __slots__ = ("_callback", "_cancel", "_ident")

    def __init__(self, when: float, callback: Callable[[], object]) -> None:
        self._callback: Callable[[], object] | None = callback
        self._ident = get_ident()
        seconds = max(0.0, when - native.monotonic())
        if "gevent" in sys.modules:
            greenlet = sys.modules["gevent"].spawn_later(seconds, self._run)
            self._cancel: Callable[[], object] = lambda: greenlet.kill(block=False)
        else:
            self._cancel = sys.modules["eventlet"].spawn_after(seconds, self._run).cancel

    def _run(self) -> None:
        callback, self._callback = self._callback, None
        if callback is None:
            return
        try:
            callback()
        except Exception as error:
            log(ERROR, "a timer's callback failed", error=error)

    def cancel(self) -> None:
        """Forget the callback if it has not begun."""
        if self._callback is not None:
            self._callback = None
            if get_ident() == self._ident:  # from elsewhere it only does nothing when it is due
                self._cancel()


def timer_here(when: float, callback: Callable[[], object]) -> Timer | None:
    """Run a short callback at *when* on the running thread; ``None`` where threads are threads."""
    if threads_are_real() or not ("gevent" in sys.modules or "eventlet" in sys.modules):
        return None
    return _GreenletTimer(when, callback)
