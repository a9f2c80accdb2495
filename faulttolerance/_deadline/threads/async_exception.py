"""The exception that interrupts a call: sent to another thread, raised in the running thread, and withdrawn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from ..._platform.atomic import frames_of_threads, once, uncollected_once
from ..._platform.unpatched import get_ident, native
from ..._strategy.verdict import never_match
from .chain import Entry, ThreadDeadlines, deadlines_of_threads, is_open, prune, this_thread
from .pending_interrupt import PendingInterrupt
from .safe_point import is_dropped, position
from .sleeper import Sleeper
from .watchdog import watchdog


class Interrupted(BaseException):
    """The exception in the body of a guarded call when its deadline passes or it is cancelled; raised once for each.

    It is not an ``Exception``, so handlers of errors do not catch it. A body may catch it to clean up, and raise it
    again. A body that suppresses it continues, and its call still ends in ``TimeoutException``.
    """

    owner: Entry = None
    """The deadline that interrupts; ``None`` if the application raised the exception itself."""

    def __init__(self, *args: object) -> None:
        # For an exception that was sent, the interpreter creates the object in the interrupted thread.
        super().__init__(*args)
        deadlines = this_thread.deadlines
        entry = deadlines.in_flight
        if entry is not None and id(entry) in deadlines.sent:
            self.owner = entry
            deadlines.in_flight = None
            if is_dropped(sys._getframe(1)):
                del deadlines.sent[id(entry)]  # another must follow
            watchdog.look_after(deadlines)


never_match(Interrupted)


def interruption_for(deadlines: ThreadDeadlines, entry: Entry) -> Interrupted:
    """Return the exception that the running thread, which has *deadlines*, must raise for *entry*."""
    prune(deadlines)
    deadlines.sent[id(entry)] = entry
    interrupted = Interrupted.__new__(Interrupted)
    interrupted.owner = entry
    if deadlines.in_flight is entry:
        deadlines.in_flight = None
    watchdog.look_after(deadlines)
    return interrupted


def withdraw(deadlines: ThreadDeadlines) -> None:
    """Withdraw an interruption that is on its way to the running thread: raise it here, or else let its signal pass.

    An exception that was sent is raised where a function begins, or where a call of C code returns. It is never
    replaced by nothing: up to CPython 3.12, every thread would then look for an exception for ever, in each call.
    """
    while watchdog.busy is deadlines:
        native.sleep(0)
    if deadlines.in_flight is not None:
        deadlines.in_flight = None
        watchdog.look_after(deadlines)


_sender: Callable[[Any, Any], int] | None = None
"""``PyThreadState_SetAsyncExc``; ``None`` if it does not exist, and before its first use."""
_interrupted: Any = None


def find_sender() -> bool:
    """Load the function that ``send`` needs, if it is available; return whether it is."""
    # Not at import: it takes about 10 ms, which are better spent while the first deadline runs.
    global _sender, _interrupted
    if _sender is not None:
        return True
    try:
        import ctypes

        sender: Any = ctypes.pythonapi["PyThreadState_SetAsyncExc"]  # the attribute is shared with other libraries
    except (ImportError, AttributeError, OSError):  # the next call tries again: file descriptors may have been short
        return False
    sender.argtypes = [ctypes.c_ulong, ctypes.py_object]
    sender.restype = ctypes.c_int
    ctypes.pythonapi.PyThreadState_SetAsyncExc.errcheck = _note_sending
    _interrupted = ctypes.py_object(Interrupted)
    _sender = sender
    return True


def _note_sending(result: Any, _: object, arguments: tuple[Any, ...]) -> Any:
    """Record that other code has sent an exception to a thread: another one, sent before that is raised, replaces it.

    ``ctypes`` calls this after each call of the attribute that libraries share, and returns what this returns.
    """
    ident = getattr(arguments[0], "value", arguments[0]) % (2 * sys.maxsize + 2)  # may be negative where it has 32 bits
    for deadlines in deadlines_of_threads():
        if deadlines.ident == ident and (frame := frames_of_threads().get(ident)) is not None:
            is_withdrawn = arguments[1] is None
            deadlines.sent_by_other = None if is_withdrawn else (deadlines.innermost, position(frame))
            if (gate := deadlines.gate) is not None:
                gate()  # the exception ends a sleep in the library, too
    return result


_NO_SLEEPER: tuple[Iterable[Any], ...] = ((True,), (), (), ())
"""The steps of a wake-up for a thread that does not sleep."""


def send(deadlines: ThreadDeadlines, pending: PendingInterrupt, frame: FrameType, sleeper: Sleeper | None) -> bool:
    """Send the exception to a thread, unless it has left the place where it was seen; return whether it was sent."""
    assert _sender is not None
    assert pending.at is not None
    # The place of the examination, not the present place: nobody has checked whether the present place is safe.
    entry, (_, instruction) = pending.entry, pending.at
    if sleeper is not None and not sleeper.is_usual:
        return False
    ident = deadlines.ident
    prune(deadlines)
    # Created beforehand: after the look, threads are never switched between the steps.
    look = uncollected_once(sys._current_frames)
    # An exception that other code has sent, and that the thread has not noticed yet, interrupts in place of this one.
    is_other = deadlines.sent_by_other == (deadlines.innermost, pending.at)
    sending = iter((1,)) if is_other else once(_sender, ident, _interrupted)
    takes, leaves, wakes, gives = _NO_SLEEPER if sleeper is None else sleeper.steps()
    frames: dict[int, FrameType] = {}
    is_sent = False
    watchdog.busy = deadlines
    deadlines.in_flight = entry
    if is_open(deadlines, entry):
        deadlines.sent[id(entry)] = entry
        for frames in look:
            if ident in frames and frames[ident] is frame and frame.f_lasti == instruction:
                for is_free in takes:
                    if is_free:
                        try:
                            for _ in leaves:
                                break
                            for count in sending:
                                is_sent = count > 0
                                break
                            for _ in wakes:
                                break
                        except (RuntimeError, ValueError):
                            pass  # the sleeper was notified, and is about to continue by itself
                        for _ in gives:
                            break
                    break
            break
        if not is_sent:
            del deadlines.sent[id(entry)]
    if is_other or not is_sent:
        deadlines.in_flight = None
    watchdog.busy = None
    frames.clear()  # it holds the frame of this function, which would form a cycle
    if is_sent and sys.version_info < (3, 13):
        _end_search(_sender)
    return is_sent


class _Found(Exception):
    """The exception that ends a search."""


def _end_search(sender: Callable[[Any, Any], int]) -> None:
    """End the search of all threads for the exception that was sent to one: that one searches when it runs again.

    Up to CPython 3.12, each call of any thread searches until some thread raises an exception that was sent. Meanwhile
    calls take longer, and 3.11 enters no traced function: a debugger would stop while the thread waits in C code.
    """
    try:
        sender(get_ident(), _Found)
        for _ in range(10):  # the interpreter raises it here, at the first jump at the latest
            pass
    except _Found:
        pass
