"""The interpreter's own threads, locks and clock, even if other libraries have replaced them.

gevent replaces threads by greenlets, and locks by locks that switch between greenlets. Test tools stop the clock. The
library's work beside its calls needs the real objects: a watchdog that is a greenlet interrupts nothing, and a watchdog
that sleeps on a real lock, in a greenlet of the main thread, stops everything for ever. A call itself, for example its
wait for the next attempt, uses the names of the standard library, and so their replacements.
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
    """Return the attribute *name* of *module* from before any replacement."""
    patcher = sys.modules.get("gevent.monkey")
    if patcher is not None:
        return patcher.get_original(module.__name__, name)
    return getattr(module, name)


def _from_clock(name: str) -> Any:
    """Return a function of ``time``, from another copy of that module if the function was replaced."""
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
    """The originals, read once; attributes of an object, because tools that replace functions search modules."""

    __slots__ = ("allocate_lock", "main_ident", "monotonic", "sleep", "start_joinable_thread", "start_thread")

    def __init__(self) -> None:
        self.allocate_lock: Callable[[], Any] = _original(_thread, "allocate_lock")
        self.start_thread: Callable[[Callable[[], object], tuple[()]], int] = _original(_thread, "start_new_thread")
        self.start_joinable_thread: Any = None
        if sys.version_info >= (3, 13):
            self.start_joinable_thread = _original(_thread, "start_joinable_thread")
        # Up to CPython 3.12, the other clock of Windows moves once in 16 ms: a quick call may seem to exceed its limit.
        self.monotonic: Callable[[], float] = _from_clock("perf_counter" if sys.platform == "win32" else "monotonic")
        self.sleep: Callable[[float], None] = _from_clock("sleep")
        self.main_ident = threading.main_thread().ident
        """The ident of the main thread, as ``get_ident`` returns it."""
        if get_ident is not _thread.get_ident:  # ``threading`` then stores the ident of the main thread's greenlet
            is_main = threading.current_thread() is threading.main_thread()
            self.main_ident = get_ident() if is_main else None


get_ident: Callable[[], int] = _original(_thread, "get_ident")
"""Returns the ident of the running thread, for all of its greenlets."""
get_native_id: Callable[[], int] = _thread.get_native_id
if not TYPE_CHECKING:
    local = _original(_thread, "_local")
native = _Native()


allows_watching: bool = getattr(_thread, "daemon_threads_allowed", lambda: True)()
"""False in an isolated sub-interpreter: no thread may outlive a call there, and reading frames corrupts memory."""


def wall_time() -> float:
    """Return the seconds since 1970, for dates of servers; a test that stops the clock stops this value, too."""
    return time.time()  # noqa: TID251  # no duration


def threads_are_real() -> bool:
    """Return whether ``threading`` starts real threads, and not greenlets; a debugger replaces the function, too."""
    if _thread.start_new_thread is native.start_thread:
        return True
    patcher = sys.modules.get("gevent.monkey")
    return patcher is None or not patcher.is_object_patched("_thread", "start_new_thread")


def run_on_thread(function: Callable[[], object]) -> None:
    """Run *function* on a new thread, and wait until it has started if that matters; run it here if there is no thread.

    Before Python 3.12 an exception that is sent to a thread reaches the thread that it has started last, as long as
    that has not started to run. So code to which an exception may be sent must not continue before.
    """
    begun = native.allocate_lock()
    begun.acquire()

    def run() -> None:
        begun.release()
        function()

    try:
        if not allows_watching:
            raise RuntimeError("no thread may outlive a call here")
        native.start_thread(run, ())
    except RuntimeError:  # the interpreter is ending, or no thread is available
        run()
    if sys.version_info < (3, 12) and not sys.is_finalizing():  # then no thread starts any more
        begun.acquire()
