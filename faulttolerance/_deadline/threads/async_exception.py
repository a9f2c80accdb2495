"""The exception that interrupts a call: how it is sent to another thread, raised in this one, and taken back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from ..._platform.atomic import once, uncollected_once
from ..._platform.unpatched import native
from ..._strategy.verdict import never_match
from .chain import HAS_GIL, Entry, ThreadDeadlines, is_open, prune, this_thread
from .pending_interrupt import PendingInterrupt
from .sleeper import Sleeper
from .watchdog import watchdog


class Interrupted(BaseException):
    """Raised in the body of a guarded call when its deadline passes, or when the call is cancelled; once for each.

    It is no ``Exception``, so that handlers of errors let it pass. A body may catch it to put things in order and raise
    it on; one that swallows it goes on, and its call still ends in ``TimeoutException``.
    """

    owner: Entry = None
    """The deadline that interrupts; ``None`` where an application raised this itself."""

    def __init__(self, *args: object) -> None:
        # The interpreter makes it, in the thread that is interrupted, where it was sent to that thread.
        super().__init__(*args)
        deadlines = this_thread.deadlines
        entry = deadlines.in_flight
        if entry is not None and id(entry) in deadlines.sent:
            self.owner = entry
            deadlines.in_flight = None
            watchdog.look_after(deadlines)


never_match(Interrupted)


def interruption_for(deadlines: ThreadDeadlines, entry: Entry) -> Interrupted:
    """Return what the running thread, which has *deadlines*, is to raise for *entry*."""
    prune(deadlines)
    deadlines.sent[id(entry)] = entry
    interrupted = Interrupted.__new__(Interrupted)
    interrupted.owner = entry
    if deadlines.in_flight is entry:
        deadlines.in_flight = None
    watchdog.look_after(deadlines)
    return interrupted


def withdraw(deadlines: ThreadDeadlines) -> None:
    """Take back what is on its way to the running thread, which has *deadlines*, unless it is raised from here."""
    while watchdog.busy is deadlines:
        native.sleep(0)
    entry = deadlines.in_flight
    if entry is None:
        return
    if deadlines.sent.pop(id(entry), None) is not None:
        deadlines.withdrawn = entry
        if _sender is not None:
            _sender(deadlines.ident, _nothing)
    deadlines.in_flight = None
    watchdog.look_after(deadlines)


_sender: Callable[[Any, Any], int] | None = None
"""``PyThreadState_SetAsyncExc``; ``None`` where there is none, and before it was first needed."""
_was_sought = False
_nothing: Any = None
_interrupted: Any = None


def find_sender() -> None:
    """Make ``send`` work where that is possible."""
    # Not at import: it takes some 10 ms, which are better spent while the first deadline runs.
    global _sender, _nothing, _interrupted, _was_sought
    if _was_sought or sys.implementation.name != "cpython":
        return
    _was_sought = True
    try:
        import ctypes

        sender = ctypes.pythonapi.PyThreadState_SetAsyncExc
    except (ImportError, AttributeError):
        return
    sender.argtypes = [ctypes.c_ulong, ctypes.py_object]
    sender.restype = ctypes.c_int
    _nothing, _interrupted = ctypes.py_object(), ctypes.py_object(Interrupted)
    _sender = sender


def can_send() -> bool:
    """Tell whether ``send`` works."""
    return HAS_GIL and _sender is not None


_NO_SLEEPER: tuple[Iterable[Any], ...] = ((True,), (), (), ())
"""The steps by which a sleeper is woken, where the thread does not sleep."""


def send(deadlines: ThreadDeadlines, pending: PendingInterrupt, frame: FrameType, sleeper: Sleeper | None) -> bool:
    """Send the exception to a thread, unless it has left the place where it was seen; return whether it was sent."""
    assert _sender is not None
    assert pending.at is not None
    # Where it was seen, and not where it stands by now: nobody has looked whether it may be interrupted there.
    entry, (_, instruction) = pending.entry, pending.at
    if sleeper is not None and not sleeper.is_usual:
        return False
    ident = deadlines.ident
    prune(deadlines)
    # Made beforehand: from the look on, every step is one of those between which threads are never switched.
    look = uncollected_once(sys._current_frames)
    sending = once(_sender, ident, _interrupted)
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
                            pass  # it was notified, and is about to go on by itself
                        for _ in gives:
                            break
                    break
            break
        if not is_sent:
            del deadlines.sent[id(entry)]
    if not is_sent:
        deadlines.in_flight = None
    watchdog.busy = None
    frames.clear()  # it holds the frame of this function, and that would hold it
    return is_sent
