"""The deadlines of each thread, as a chain that only its own calls change and that every thread may read.

A deadline is an immutable tuple ``(when, outer)``. A deadline that interrupts nothing, and only makes its call end
late, has a third element. The deadline of a block of code is a ``BlockDeadline``. A mask, below which nothing is
interrupted, is a list ``[-1.0, outer, alive]``. A call removes its deadline with one store of the enclosing entry. That
store also drops everything that an inner call left behind.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import takewhile
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ref

from ..._platform.atomic import uncollected
from ..._platform.unpatched import get_ident, get_native_id, local, native

if TYPE_CHECKING:
    from .callbacks import DeadlineCallback
    from .pending_interrupt import PendingInterrupt


Entry: TypeAlias = Any
"""``(when, outer)``, ``(when, outer, why)`` or ``[-1.0, outer, alive]``; a recursive type would add nothing."""

Depth: TypeAlias = int | FrameType
"""The extent of a call on the stack.

It is the number of the call's guard, counted from the innermost guard, or, for a block, the frame of the block."""

RESUMABLE = 0x20 | 0x80 | 0x200
"""The flags of the code of generators, coroutines and asynchronous generators; ``inspect`` takes long to import."""


class BlockDeadline(tuple[Any, ...]):  # noqa: SLOT001  # a tuple has no room for slots
    """The deadline of a block; it may end at any place in its chain, as generators leave their blocks at any time."""

    is_over = False
    is_binding = False
    """Whether detached calls that are made in the block end with it (rule D4)."""
    holder: FrameType | None = None
    """The frame of the block; it may be suspended, and resume on another thread."""

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing of the block runs: it is over, or its generator or coroutine is suspended."""
        holder = self.holder
        if self.is_over or holder is None:
            return True
        is_resumable = bool(holder.f_code.co_flags & RESUMABLE)
        return is_resumable and uncollected(partial(getattr, holder, "f_back")) is None


class BindingMark(tuple[Any, ...]):
    """An entry which marks that the deadline around it ends detached calls; it interrupts nothing itself."""

    __slots__ = ()


def binding_mark(entry: Entry) -> Entry:
    """Return the entry which records that detached calls that are made from now on end with *entry* (rule D4)."""
    return BindingMark((entry[0], entry, "it represents the deadline around it"))


class ThreadDeadlines:
    """The deadlines of one thread, or of one greenlet, whose thread also runs other greenlets."""

    def __init__(self, *, is_greenlet: bool = False) -> None:
        self.innermost: Entry = None
        """The innermost deadline or mask; only the thread itself writes it."""
        self.in_flight: Entry = None
        """The deadline for which an interruption is on its way; cleared on receipt and on withdrawal."""
        self.sent: dict[int, Entry] = {}
        """The deadlines whose interruption was sent, by identity: each interrupts once."""
        self.sent_by_other: tuple[Entry, tuple[int, int]] | None = None
        """The innermost entry and the position of the thread when other code last sent an exception to it."""
        self.cancelled: Entry = None
        """The last deadline for which the loop inside its call was cancelled."""
        self.requested: dict[int, tuple[Entry, float]] = {}
        """The entries that interrupt regardless of the clock, by identity, each with the moment of the request."""
        self.gate: Callable[[], object] | None = None
        """The function that ends the thread's sleep while it sleeps in the library."""
        self.pending_interrupt: PendingInterrupt | None = None
        """The deadline that could not interrupt the thread at once, if there is one; only the watchdog uses it."""
        self.seen_blocked: tuple[int, int] | None = None
        """The frame and instruction at which the thread was seen to be blocked."""
        self.dependents: dict[Any, None] = {}
        """The ``ParentDeadline`` of each deadline that counts for offloaded calls, as long as those are under way."""
        self.callbacks: dict[DeadlineCallback, None] = {}
        """The calls to make when a deadline passes, of the ``on_deadline`` blocks that were not left yet."""
        self.called: Entry = None
        """The last deadline at which one of these calls was made."""
        self.hub_watch: Any = None
        """The watch that interrupts a greenlet of gevent, once it exists."""
        self.ident = get_ident()
        self.native_id = get_native_id()
        self.is_greenlet = is_greenlet
        """Whether they belong to a greenlet other than its thread's first, which the watchdog does not see."""
        self.is_main = self.ident == native.main_ident and not is_greenlet
        self.is_ready = not (self.is_main or is_greenlet)
        """Whether the thread can be interrupted without preparation.

        The main thread must install the signal's handler. A greenlet needs the timer of a hub, or a log line that no
        deadline can interrupt it."""
        if not is_greenlet:
            known: ref[ThreadDeadlines] = ref(self, _forget)
            _known[known] = None


_known: dict[ref[ThreadDeadlines], None] = {}
"""The deadlines of all living threads; changed and copied only by single C calls."""
_forget: Callable[[ref[ThreadDeadlines]], None] = _known.pop


class _ThisThread(local):
    """The deadlines of the running thread, as ``deadlines``; ``deadlines_here()`` returns those of the running call."""

    def __init__(self) -> None:
        self.deadlines = ThreadDeadlines()


this_thread = _ThisThread()

_OF_GREENLET = "__faulttolerance_deadlines__"


def deadlines_here() -> ThreadDeadlines:
    """Return the deadlines of the running call: each greenlet has its own, because calls overlap in greenlets.

    Without an imported greenlet, this is ``this_thread.deadlines``.
    """
    greenlet = current_greenlet()
    if greenlet is None:
        here = this_thread.deadlines
        get_hub = getattr(sys.modules.get("gevent._hub_local"), "get_hub_if_exists", None)
        if here.is_ready and get_hub is not None:
            here.is_ready = get_hub() is None
        return here
    deadlines: ThreadDeadlines | None = greenlet.__dict__.get(_OF_GREENLET)
    if deadlines is None:
        deadlines = greenlet.__dict__[_OF_GREENLET] = ThreadDeadlines(is_greenlet=True)
    return deadlines


def latest_of(entered: list[Any], holder: FrameType) -> Any:
    """Return the latest of *entered*, the blocks of one context manager, that the frame *holder* has entered.

    If it has entered none, return the latest of the running call, or else of any.
    """
    here = deadlines_here()
    own = [one for one in entered if one.holder is holder] or [one for one in entered if one.deadlines is here]
    return (own or entered)[-1]


def current_greenlet() -> Any:
    """Return the running greenlet; ``None`` if it is the first greenlet of its thread."""
    getcurrent = getattr(sys.modules.get("greenlet"), "getcurrent", None)
    greenlet = getcurrent() if getcurrent is not None else None
    return greenlet if greenlet is not None and greenlet.parent is not None else None


def deadlines_of_threads() -> list[ThreadDeadlines]:
    """Return the deadlines of all living threads that ever had one."""
    return [deadlines for known in list(_known) if (deadlines := known()) is not None]


def forget_other_threads() -> None:
    """Remove the deadlines of all threads but the running thread: the child of a fork has no other thread."""
    mine = this_thread.deadlines
    mine.ident = native.main_ident = get_ident()
    mine.native_id = get_native_id()
    mine.is_main = True
    mine.is_ready = False
    for known in list(_known):
        if known() is not mine:
            _known.pop(known, None)


def chain(deadlines: ThreadDeadlines) -> Iterator[Entry]:
    """Yield all deadlines and masks, from the innermost outwards."""
    entry = deadlines.innermost
    while entry is not None:
        yield entry
        entry = entry[1]


def effective_entry(entry: Entry) -> Entry:
    """Return the nearest entry that is not over: *entry*, or an entry around it."""
    while (type(entry) is BlockDeadline and entry.is_over) or (type(entry) is list and not entry[2]):
        entry = entry[1]
    return entry


def uncovered(deadlines: ThreadDeadlines) -> Iterator[Entry]:
    """Yield the deadlines from the innermost to the first mask, except those of blocks that are at rest."""
    for entry in chain(deadlines):
        if type(entry) is list:
            if entry[2]:
                return
        elif not (type(entry) is BlockDeadline and entry.is_at_rest):
            yield entry


def unmasked(deadlines: ThreadDeadlines) -> Iterator[Entry]:
    """Return an iterator of the deadlines that may interrupt, from the innermost to the first mask."""
    return (entry for entry in uncovered(deadlines) if len(entry) == 2)


def is_open(deadlines: ThreadDeadlines, entry: Entry) -> bool:
    """Return whether *entry* itself stands in the chain without a mask above it; an equal deadline does not count."""
    return any(other is entry for other in unmasked(deadlines))


def is_in_chain(deadlines: ThreadDeadlines, entry: Entry) -> bool:
    """Return whether *entry* itself stands in the chain, held back or not; a block that is over only seems to."""
    is_over = type(entry) is BlockDeadline and entry.is_over  # it was left on another thread
    return not is_over and any(other is entry for other in chain(deadlines))


def depth(deadlines: ThreadDeadlines, entry: Entry) -> Depth:
    """Return the extent of the call of *entry* on the stack."""
    if type(entry) is BlockDeadline:
        return entry.holder or 0
    inner = takewhile(lambda other: other is not entry, chain(deadlines))
    return 1 + sum(type(other) is tuple for other in inner)


def due(deadlines: ThreadDeadlines, now: float) -> Entry:
    """Return the outermost deadline that must interrupt the thread at *now* and has not done so, or ``None``."""
    outermost = None
    for entry in unmasked(deadlines):
        if (entry[0] <= now or id(entry) in deadlines.requested) and id(entry) not in deadlines.sent:
            outermost = entry
    return outermost


def lateness(deadlines: ThreadDeadlines, entry: Entry, now: float) -> float:
    """Return for how many seconds *entry* has been due, or has been requested to interrupt."""
    request = deadlines.requested.get(id(entry))
    return now - (entry[0] if request is None else request[1])


def prune(deadlines: ThreadDeadlines) -> None:
    """Remove the records of sent interruptions whose deadlines are over; called by the thread and by the watchdog."""
    standing = {id(entry) for entry in chain(deadlines)}
    for key in list(deadlines.sent):
        if key not in standing:
            deadlines.sent.pop(key, None)
