"""Waits in greenlets, where gevent or eventlet have replaced threads: other greenlets run meanwhile.

A call waits with the primitives of its thread. The library's watchdog stays a real thread, but no part of a call may
run there: a lock that switches between greenlets, or a greenlet that replaces a thread, belongs to its creator's
thread.
"""

from __future__ import annotations

import _thread
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

from .._log import ERROR, log
from ..typing import Timer
from .fork import at_fork
from .unpatched import get_ident, native, threads_are_real


def lock_here() -> Any:
    """Return a lock on which the running call may sleep, and which any thread may release."""
    if not threads_are_real():
        return _thread.allocate_lock() if "gevent" in sys.modules else _EventletLock()
    patcher = sys.modules.get("gevent.monkey")
    if patcher is not None and patcher.is_module_patched("time") and _has_hub():
        return import_module("gevent.thread").allocate_lock()
    return native.allocate_lock()


def _has_hub() -> bool:
    """Return whether the running thread may have other greenlets; if threads were not patched, it need not."""
    return import_module("gevent._hub_local").get_hub_if_exists() is not None


class _EventletLock:
    """A lock of eventlet that other threads may release, too; a plain lock would switch them to foreign greenlets."""

    __slots__ = ("_ident", "_lock", "_mailbox", "acquire")

    def __init__(self) -> None:
        self._ident = get_ident()
        self._mailbox = _mailboxes.get(self._ident) or _Mailbox()
        self._lock = _thread.allocate_lock()
        self.acquire = self._lock.acquire

    def release(self) -> None:
        """Release the lock; from another thread: soon."""
        if get_ident() == self._ident:
            self._lock.release()
        else:
            self._mailbox.post(self._lock.release)


class _Mailbox:
    """Callbacks of other threads for a thread with greenlets of eventlet, which one of its greenlets calls."""

    def __init__(self) -> None:
        self._posted: deque[Callable[[], object]] = deque()
        eventlet: Any = import_module("eventlet")
        self._ring, self._bell = eventlet.patcher.original("socket").socketpair()
        self._ring.setblocking(False)
        self._bell.setblocking(False)
        _mailboxes[get_ident()] = self
        eventlet.spawn(self._serve, eventlet.hubs.trampoline)

    def post(self, callback: Callable[[], object]) -> None:
        """Schedule a call of *callback* soon."""
        self._posted.append(callback)
        with suppress(BlockingIOError):  # a wake-up is already pending
            self._ring.send(b".")

    def _serve(self, wait: Callable[..., object]) -> None:
        while True:
            wait(self._bell.fileno(), read=True)
            if _mailboxes.get(get_ident()) is not self:
                return  # in the child of a fork, where the socket is the parent's
            with suppress(BlockingIOError):
                self._bell.recv(4096)
            while self._posted:
                with suppress(RuntimeError):  # the lock is open already
                    self._posted.popleft()()


_mailboxes: dict[int, _Mailbox] = {}
"""The mailboxes, by thread."""
at_fork(child=_mailboxes.clear)  # a child creates its own


class _GreenletTimer:
    """A callback that is due at a moment, in a greenlet of the thread that created it."""

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
        """Remove the callback if it has not started."""
        if self._callback is not None:
            self._callback = None
            if get_ident() == self._ident:  # on another thread, it runs out without effect
                self._cancel()


def timer_here(when: float, callback: Callable[[], object]) -> Timer | None:
    """Run a short callback at *when* on the running thread; return ``None`` if threads are real threads."""
    if threads_are_real() or not ("gevent" in sys.modules or "eventlet" in sys.modules):
        return None
    return _GreenletTimer(when, callback)
