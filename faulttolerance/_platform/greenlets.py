"""Waiting where gevent or eventlet have put greenlets in the place of threads: others run meanwhile.

A call waits by what its thread waits by. The library's own watchdog stays a thread, but nothing of a call may happen
there: a lock that switches between greenlets, or a thread that is none, belongs to the thread on which it was made.
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
    """A lock by which the running call may sleep, and which any thread may open."""
    if not threads_are_real():
        return _thread.allocate_lock() if "gevent" in sys.modules else _EventletLock()
    patcher = sys.modules.get("gevent.monkey")
    if patcher is not None and patcher.is_module_patched("time") and _has_hub():
        return import_module("gevent.thread").allocate_lock()
    return native.allocate_lock()


def _has_hub() -> bool:
    """Tell whether the running thread may have other greenlets: it need not, where threads were left as they are."""
    return import_module("gevent._hub_local").get_hub_if_exists() is not None


class _EventletLock:
    """A lock of eventlet's that other threads may open, too: left alone they would switch to greenlets not theirs."""

    __slots__ = ("_ident", "_lock", "_mailbox", "acquire")

    def __init__(self) -> None:
        self._ident = get_ident()
        self._mailbox = _mailboxes.get(self._ident) or _Mailbox()
        self._lock = _thread.allocate_lock()
        self.acquire = self._lock.acquire

    def release(self) -> None:
        """Open it; from another thread: soon."""
        if get_ident() == self._ident:
            self._lock.release()
        else:
            self._mailbox.post(self._lock.release)


class _Mailbox:
    """What other threads want to be called where greenlets of eventlet run, in one of them."""

    def __init__(self) -> None:
        self._posted: deque[Callable[[], object]] = deque()
        eventlet: Any = import_module("eventlet")
        self._ring, self._bell = eventlet.patcher.original("socket").socketpair()
        self._ring.setblocking(False)
        self._bell.setblocking(False)
        _mailboxes[get_ident()] = self
        eventlet.spawn(self._serve, eventlet.hubs.trampoline)

    def post(self, callback: Callable[[], object]) -> None:
        """Let *callback* be called soon."""
        self._posted.append(callback)
        with suppress(BlockingIOError):  # it rings already
            self._ring.send(b".")

    def _serve(self, wait: Callable[..., object]) -> None:
        while True:
            wait(self._bell.fileno(), read=True)
            if _mailboxes.get(get_ident()) is not self:
                return  # in the child of a fork, where the bell is the parent's
            with suppress(BlockingIOError):
                self._bell.recv(4096)
            while self._posted:
                with suppress(RuntimeError):  # it is open
                    self._posted.popleft()()


_mailboxes: dict[int, _Mailbox] = {}
"""By thread."""
at_fork(child=_mailboxes.clear)  # a child rings for itself


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
