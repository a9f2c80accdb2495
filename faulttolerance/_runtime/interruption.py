"""Deadlines of the running thread: how a call begins one, what it comes to, and what holds it back.

The driver of a call restores ``slot.top = ticket.outer`` itself, by a plain store, as the first thing after the body.
"""

from __future__ import annotations

import signal
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from ..exceptions import TimeoutException
from . import safe_point
from .clock import clock, next_deadline, raise_if_expired
from .slot import Entry, Slot, slots
from .task_deadline import TaskDeadline, current
from .watchdog import Interrupted, _raise_in, handle_signal, watchdog

if TYPE_CHECKING:
    from .ticket import Ticket

__all__ = [
    "Interrupted",
    "Slot",
    "add_uninterruptible_modules",
    "begin",
    "begin_late",
    "call_at",
    "conclude",
    "interrupt",
    "next_deadline",
    "raise_if_expired",
    "remaining",
    "reset",
    "set_interrupt_signal",
    "settle",
    "sleep",
    "slots",
    "uninterruptible",
    "watchdog",
]

call_at = watchdog.call_at
add_uninterruptible_modules = safe_point.add_modules

_may_install = True


def begin(ticket: Ticket, now: float, seconds: float) -> None:
    """Put the running thread under a deadline that passes *seconds* after *now*."""
    slot = slots.slot
    ticket.slot = slot
    ticket.outer = outer = slot.top
    ticket.entry = entry = (now + seconds, outer)
    ticket.limited = True
    slot.top = entry
    if entry[0] < watchdog.next:
        watchdog.wake()
    if _may_install and slot.is_main:
        _install()


def begin_late(ticket: Ticket, now: float, seconds: float) -> None:
    """Note a deadline that does not interrupt: a call that ends later ends in ``TimeoutException``."""
    slot = slots.slot
    ticket.slot = slot
    ticket.outer = outer = slot.top
    ticket.entry = entry = (now + seconds, outer, False)
    ticket.limited = True
    slot.top = entry


def settle(slot: Slot, entry: Entry) -> None:
    """Withdraw the interruption that is on its way to this thread for *entry*, which is over."""
    if slot.fired is not entry:
        return
    while watchdog.busy is slot:
        time.sleep(0)
    if slot.fired is entry:
        if not slot.is_main:
            _raise_in(slot.ident, None)
        slot.fired = None
        if slot.top is not None:
            watchdog.wake()


def conclude(ticket: Ticket, error: BaseException | None, message: str) -> BaseException | None:
    """What an attempt comes to whose deadline was taken back: *error*, nothing, or ``TimeoutException``."""
    slot, entry = ticket.slot, ticket.entry
    assert slot is not None
    try:
        if slot.fired is not None:
            settle(slot, entry)
        ended = clock.monotonic()
    except Interrupted as interrupted:
        error = interrupted
        ended = clock.monotonic()
    if error is None:
        if ended < entry[0]:
            return None
    elif isinstance(error, Interrupted):
        if error.owner is not entry:
            return error
    elif ended < entry[0] or not isinstance(error, Exception):
        return error
    ticket.timed_out = True
    late = TimeoutException(message)
    late.__cause__ = error
    late.add_note(f"faulttolerance: ended {ended - entry[0]:.3f} s after its deadline")
    return late


def interrupt(slot: Slot, entry: Entry) -> None:
    """Ask for ``Interrupted`` in the thread of *slot* while *entry* stands in its chain, whatever the clock says."""
    slot.asked += (entry,)
    watchdog.wake()


class uninterruptible:  # noqa: N801
    """Hold back the deadlines that run when the block begins; the one that passed meanwhile interrupts at its end."""

    __slots__ = ("_held", "_mask", "_slot")

    def __enter__(self) -> None:
        slot = self._slot = slots.slot
        self._mask = slot.top = [-1.0, slot.top, True]
        self._held: list[TaskDeadline] = []
        deadline = current.get()
        while deadline is not None:
            deadline.held += 1
            self._held.append(deadline)
            deadline = deadline.previous

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        slot, mask = self._slot, self._mask
        mask[2] = False
        if slot.top is mask:
            slot.top = mask[1]
        owed = False
        for deadline in self._held:
            deadline.held -= 1
            if deadline.owed and not deadline.held:
                deadline.owed, deadline.expired = False, True
                owed = True
        if error is not None:
            return
        if owed:
            raise sys.modules["asyncio"].CancelledError
        raise_if_expired(clock.monotonic())


def remaining() -> float | None:
    """Seconds left to the innermost deadline of the running call; 0.0 once it has passed, ``None`` without one."""
    found: list[float] = []
    entry = slots.slot.top
    while entry is not None:
        if type(entry) is tuple:
            found.append(entry[0])
        entry = entry[1]
    deadline = current.get()
    while deadline is not None:
        found.append(deadline.when)
        deadline = deadline.previous
    return max(0.0, min(found) - clock.monotonic()) if found else None


def sleep(seconds: float) -> None:
    """Sleep, on any thread, until *seconds* have passed or a deadline of the running call interrupts.

    Raises:
        Interrupted: A deadline passed, or the call was cancelled.
        ValueError: *seconds* is negative or no number.
    """
    if not seconds >= 0:
        raise ValueError(f"cannot sleep for {seconds!r} s; allowed: a number >= 0")
    if seconds:
        clock.sleep(seconds)
    else:
        raise_if_expired(clock.monotonic())


def set_interrupt_signal(signum: int | None) -> None:
    """Interrupt blocking calls of the main thread by this signal; ``None``: not at all."""
    global _may_install
    watchdog.signum = signum
    _may_install = True


def reset() -> None:
    """Go back to the default signal, and interrupt again the modules that the application exempted."""
    safe_point.forget_added_modules()
    set_interrupt_signal(getattr(signal, "SIGURG", None))


def _install() -> None:
    global _may_install
    _may_install = False
    signum = watchdog.signum
    if signum is not None and signal.getsignal(signum) is signal.SIG_DFL:
        signal.signal(signum, handle_signal)

