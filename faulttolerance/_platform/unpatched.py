"""The interpreter's own threads, locks and clock, whoever has put something else in their place.

gevent and eventlet let greenlets stand for threads, and locks that switch between greenlets for locks. Tools of tests
stop the clock. What the library does beside its calls needs the real ones: a watchdog that is a greenlet interrupts
nobody, and one that sleeps on a real lock, on a greenlet of the main thread, stops everything for ever. What a call
itself does, as waiting for its next attempt, goes by the names of the standard library, and so by what was put there.
"""

from __future__ import annotations

import _thread
import sys
import threading
import time
from collections.abc import Callable
from types import BuiltinFunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    local = threading.local


def _original(module: ModuleType, name: str) -> Any:
    """Give what *module* had as *name* before anybody replaced it."""
    patcher = sys.modules.get("gevent.monkey")
    if patcher is not None:
        return patcher.get_original(module.__name__, name)
    patcher = sys.modules.get("eventlet.patcher")
    if patcher is not None:
        return getattr(patcher.original(module.__name__), name)
    return getattr(module, name)


def _from_clock(name: str) -> Any:
    """Give a function of ``time``; from another copy of that module where somebody has replaced it."""
    function = getattr(time, name)
    if isinstance(function, BuiltinFunctionType):
        return function
    import _imp
    from importlib.machinery import BuiltinImporter

    spec = BuiltinImporter.find_spec("time")
    assert spec is not None
    copy = _imp.create_builtin(spec)
    _imp.exec_builtin(copy)
    return getattr(copy, name)


class _Native:
    """The originals, taken once; attributes of an object, because tools that replace functions look through modules."""

    __slots__ = ("allocate_lock", "main_ident", "monotonic", "sleep", "start_joinable_thread", "start_thread")

    def __init__(self) -> None:
        self.allocate_lock: Callable[[], Any] = _original(_thread, "allocate_lock")
        self.start_thread: Callable[[Callable[[], object], tuple[()]], int] = _original(_thread, "start_new_thread")
        self.start_joinable_thread: Any = None
        if sys.version_info >= (3, 13):
            self.start_joinable_thread = _original(_thread, "start_joinable_thread")
        self.monotonic: Callable[[], float] = _from_clock("monotonic")
        self.sleep: Callable[[float], None] = _from_clock("sleep")
        self.main_ident = threading.main_thread().ident
        """The main thread, as ``get_ident`` names it."""
        if get_ident is not _thread.get_ident:  # so that is what the main thread's greenlet is called
            is_main = threading.current_thread() is threading.main_thread()
            self.main_ident = get_ident() if is_main else None


get_ident: Callable[[], int] = _original(_thread, "get_ident")
"""Gives the ident of the running thread, whichever greenlet it runs."""
get_native_id: Callable[[], int] = _thread.get_native_id
if not TYPE_CHECKING:
    local = _original(_thread, "_local")
native = _Native()


allows_watching: bool = getattr(_thread, "daemon_threads_allowed", lambda: True)()
"""False in an isolated sub-interpreter: no thread may outlive a call there, and looking at frames corrupts memory."""


def wall_time() -> float:
    """Seconds since 1970, for dates of servers; whoever stops the clock of a test stops them too."""
    return time.time()  # noqa: TID251  # no duration


def threads_are_real() -> bool:
    """Tell whether what ``threading`` starts is a thread, and no greenlet."""
    return _thread.start_new_thread is native.start_thread


def start_and_await(function: Callable[[], object]) -> None:
    """Run *function* on a new thread, and wait until that has begun where that matters.

    Before Python 3.12 an exception that is sent to a thread reaches the one that it has started last, as long as that
    has not begun: code that a deadline may interrupt must not go on before.

    Raises:
        RuntimeError: No thread is to be had.
    """
    if sys.version_info >= (3, 12) or sys.is_finalizing():  # then no thread begins any more
        native.start_thread(function, ())
        return
    begun = native.allocate_lock()
    begun.acquire()

    def run() -> None:
        begun.release()
        function()

    native.start_thread(run, ())
    begun.acquire()
