"""The deadlines of each thread, as a chain that its own calls extend and cut, and that everybody may read.

A deadline is an immutable tuple ``(when, outer)``; one that interrupts nothing, and only makes its call end late, has a
third element. A mask, below which nothing is interrupted, is a list ``[-1.0, outer, alive]``. ``Slot.top`` is the
innermost of them. Taking a deadline back is one store, and that store also drops whatever an inner call left behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias
from weakref import ref

__all__ = ["Entry", "Slot", "all_slots", "contains", "expired", "forget_other_slots", "slots", "unmasked"]

Entry: TypeAlias = Any
"""``(when, outer)``, ``(when, outer, False)`` or ``[-1.0, outer, alive]``; a recursive type would say no more."""


class Slot:
    """What is known of one thread."""

    __slots__ = ("__weakref__", "asked", "fired", "gate", "ident", "is_main", "seen_blocked", "sent", "top")

    def __init__(self) -> None:
        self.top: Entry = None
        """The innermost deadline or mask. Written by the thread itself only."""
        self.fired: Entry = None
        """The deadline for which an interruption is on its way; cleared by whoever receives or withdraws it."""
        self.sent: tuple[Entry, ...] = ()
        """Deadlines whose interruption was sent, so that each is interrupted once."""
        self.asked: tuple[Entry, ...] = ()
        """Entries to interrupt whatever the clock says."""
        self.gate: Callable[[], object] | None = None
        """What ends the sleep of the thread while it sleeps in this library."""
        self.seen_blocked: tuple[int, int] | None = None
        """The frame and instruction at which the watchdog saw the thread blocked."""
        self.ident = threading.get_ident()
        self.is_main = self.ident == threading.main_thread().ident
        _known[ref(self, _known.pop)] = None


_known: dict[ref[Slot], None] = {}
"""Every slot of a living thread; changed and copied by single C calls only."""


class _Slots(threading.local):
    """``slots.slot`` is the slot of the running thread."""

    def __init__(self) -> None:
        self.slot = Slot()


slots = _Slots()


def all_slots() -> list[Slot]:
    """The slots of all living threads that ever had a deadline."""
    return [slot for one in list(_known) if (slot := one()) is not None]


def forget_other_slots() -> None:
    """Keep the slot of the running thread only: in the child of a fork there is no other thread."""
    mine = slots.slot
    mine.ident = threading.get_ident()
    mine.is_main = True
    for one in list(_known):
        if one() is not mine:
            _known.pop(one, None)


def unmasked(top: Entry) -> Iterator[Entry]:
    """The deadlines that may interrupt, from the innermost to the first mask."""
    while top is not None:
        if type(top) is list:
            if top[2]:
                return
        elif len(top) == 2:
            yield top
        top = top[1]


def contains(entries: tuple[Entry, ...], entry: Entry) -> bool:
    """Whether *entry* itself is among *entries*; two deadlines may well be equal."""
    return any(one is entry for one in entries)


def expired(slot: Slot, now: float) -> Entry:
    """The outermost deadline of the thread that is to interrupt it and has not done so, or ``None``."""
    found = None
    for entry in unmasked(slot.top):
        if (entry[0] <= now or contains(slot.asked, entry)) and not contains(slot.sent, entry):
            found = entry
    return found
