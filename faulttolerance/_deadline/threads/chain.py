"""The deadlines of each thread, as a chain that its own calls extend and cut, and that everybody may read.

A deadline is an immutable tuple ``(when, outer)``; one that interrupts nothing, and only makes its call end late, has a
third element. That of a block of code is a ``BlockDeadline``. A mask, below which nothing is interrupted, is a list
``[-1.0, outer, alive]``. Taking the deadline of a call back is one store, of what encloses it, and that store also
drops whatever an inner call left behind.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import takewhile
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from weakref import ref

from ..._platform.atomic import uncollected
from ..._platform.unpatched import get_ident, get_native_id, local, native

if TYPE_CHECKING:
    from .cancels import Cancel
    from .pending_interrupt import PendingInterrupt

    class Heir(Protocol):
        """A deadline of this thread, as it counts for a call that the thread offloaded."""

        entry: Entry
        was_missed: bool

        def __hash__(self) -> int: ...


Entry: TypeAlias = Any
"""``(when, outer)``, ``(when, outer, why)`` or ``[-1.0, outer, alive]``; a recursive type would say no more."""

Depth: TypeAlias = int | FrameType
"""How far a call reaches down the stack: the number of the guard there, counted from the innermost, or, of a block,
the frame that it stands in."""

RESUMABLE = 0x20 | 0x80 | 0x200
"""The flags of the code of generators, coroutines and asynchronous generators; ``inspect`` takes long to import."""


class BlockDeadline(tuple[Any, ...]):  # noqa: SLOT001  # a tuple has no room for slots
    """The deadline of a block of code; it may end wherever it stands in its chain: generators leave theirs any time."""

    is_over = False
    is_ruling = False
    """Whether detached calls that are made in the block end with it (rule D4)."""
    holder: FrameType | None = None
    """The frame that the block belongs to; it may be suspended, and go on in another thread."""

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing of the block runs: it is over, or its generator or coroutine is suspended."""
        holder = self.holder
        if self.is_over or holder is None:
            return True
        is_resumable = bool(holder.f_code.co_flags & RESUMABLE)
        return is_resumable and uncollected(partial(getattr, holder, "f_back")) is None


class HandedOn(tuple[Any, ...]):
    """Says of the deadline that it encloses that detached calls end with it; interrupts nothing itself."""

    __slots__ = ()


def handed_on(entry: Entry) -> Entry:
    """Make what says that detached calls that are made from now on end with *entry* (rule D4)."""
    return HandedOn((entry[0], entry, "it stands for the deadline around it"))


HAS_GIL: bool = getattr(sys, "_is_gil_enabled", lambda: True)()


class ThreadDeadlines:
    """The deadlines of one thread, or of one greenlet, whose thread runs others as well."""

    def __init__(self, *, is_greenlet: bool = False) -> None:
        self.order: list[object] = []
        """Without the GIL: whoever stores something here and then looks for what another thread stored empties this in
        between. It is always empty; but emptying it is a single step that two threads take one after the other, so that
        the later one sees what the earlier one stored. A lock could be held where a signal handler or an exception
        comes in, and then be waited for by its own holder, or for ever."""
        self.innermost: Entry = None
        """The innermost deadline or mask. Written by the thread itself only."""
        self.in_flight: Entry = None
        """The deadline for which an interruption is on its way; cleared by whoever receives or withdraws it."""
        self.sent: dict[int, Entry] = {}
        """Deadlines whose interruption was sent, by identity: each interrupts once."""
        self.withdrawn: Entry = None
        """The last deadline that was over before the interruption arrived which had been sent for it."""
        self.cancelled: Entry = None
        """The last deadline for which the loop that ran inside its call was told to end."""
        self.requested: dict[int, tuple[Entry, float]] = {}
        """Entries to interrupt whatever the clock says, by identity, and since when."""
        self.gate: Callable[[], object] | None = None
        """The function that ends the sleep of the thread while it sleeps in this library."""
        self.pending_interrupt: PendingInterrupt | None = None
        """The deadline that could not interrupt the thread at once, if there is one; kept by the watchdog alone."""
        self.seen_blocked: tuple[int, int] | None = None
        """The frame and instruction at which the thread was seen to be blocked."""
        self.heirs: dict[Heir, None] = {}
        """The deadlines of this thread that count for calls which it offloaded, as long as those are under way."""
        self.cancels: dict[Cancel, None] = {}
        """What is to be called when a deadline passes, by the blocks of ``on_deadline`` that are not left yet."""
        self.called: Entry = None
        """The last deadline at which such a call was made."""
        self.hub_watch: Any = None
        """What interrupts a greenlet of gevent, once it was watched."""
        self.ident = get_ident()
        self.native_id = get_native_id()
        self.is_greenlet = is_greenlet
        """Whether this is of a greenlet beside the one with which its thread began; the watchdog does not see it."""
        self.is_main = self.ident == native.main_ident and not is_greenlet
        self.is_ready = not (self.is_main or is_greenlet)
        """Whether nothing is to be done before the thread can be interrupted; the main thread installs the handler, and
        a greenlet needs the hub's timer, or it is said that it cannot be."""
        if not is_greenlet:
            known: ref[ThreadDeadlines] = ref(self, _forget)
            _known[known] = None


class _OrderedDeadlines(ThreadDeadlines):
    """Deadlines without the GIL: what is stored as the innermost one is seen before anything else is read."""

    @property
    def innermost(self) -> Entry:
        return self._innermost

    @innermost.setter
    def innermost(self, entry: Entry) -> None:
        self._innermost = entry
        self.order.clear()


_Deadlines = ThreadDeadlines if HAS_GIL else _OrderedDeadlines

_known: dict[ref[ThreadDeadlines], None] = {}
"""Those of all living threads; changed and copied by single C calls only."""
_forget: Callable[[ref[ThreadDeadlines]], None] = _known.pop


class _ThisThread(local):
    """``this_thread.deadlines`` are those of the running thread; ``deadlines_here()`` those of the running call."""

    def __init__(self) -> None:
        self.deadlines = _Deadlines()


this_thread = _ThisThread()

_OF_GREENLET = "__faulttolerance_deadlines__"


def deadlines_here() -> ThreadDeadlines:
    """Return the deadlines of the running call: calls of one thread overlap in greenlets, and each has its own.

    Where greenlet is not imported, this is ``this_thread.deadlines``.
    """
    greenlet = current_greenlet()
    if greenlet is None:
        here = this_thread.deadlines
        if here.is_ready and "gevent._hub_local" in sys.modules:
            here.is_ready = sys.modules["gevent._hub_local"].get_hub_if_exists() is None
        return here
    deadlines: ThreadDeadlines | None = greenlet.__dict__.get(_OF_GREENLET)
    if deadlines is None:
        deadlines = greenlet.__dict__[_OF_GREENLET] = _Deadlines(is_greenlet=True)
    return deadlines


def current_greenlet() -> Any:
    """Return the running greenlet; ``None`` where it is the one with which its thread began."""
    getcurrent = getattr(sys.modules.get("greenlet"), "getcurrent", None)
    greenlet = getcurrent() if getcurrent is not None else None
    return greenlet if greenlet is not None and greenlet.parent is not None else None


def deadlines_of_threads() -> list[ThreadDeadlines]:
    """Return the deadlines of all living threads that ever had one."""
    return [deadlines for known in list(_known) if (deadlines := known()) is not None]


def forget_other_threads() -> None:
    """Keep the deadlines of the running thread only: in the child of a fork there is no other thread."""
    mine = this_thread.deadlines
    mine.ident = native.main_ident = get_ident()
    mine.native_id = get_native_id()
    mine.is_main = True
    mine.is_ready = False
    mine.order = []
    for known in list(_known):
        if known() is not mine:
            _known.pop(known, None)


def chain(deadlines: ThreadDeadlines) -> Iterator[Entry]:
    """Give all deadlines and masks, from the innermost outwards."""
    entry = deadlines.innermost
    while entry is not None:
        yield entry
        entry = entry[1]


def standing_entry(entry: Entry) -> Entry:
    """Return the nearest one that is no block's which has ended: *entry*, or one around it."""
    while (type(entry) is BlockDeadline and entry.is_over) or (type(entry) is list and not entry[2]):
        entry = entry[1]
    return entry


def uncovered(deadlines: ThreadDeadlines) -> Iterator[Entry]:
    """Give the deadlines from the innermost to the first mask, but for those of blocks that are at rest."""
    for entry in chain(deadlines):
        if type(entry) is list:
            if entry[2]:
                return
        elif not (type(entry) is BlockDeadline and entry.is_at_rest):
            yield entry


def unmasked(deadlines: ThreadDeadlines) -> Iterator[Entry]:
    """Give the deadlines that may interrupt, from the innermost to the first mask."""
    return (entry for entry in uncovered(deadlines) if len(entry) == 2)


def is_open(deadlines: ThreadDeadlines, entry: Entry) -> bool:
    """Tell whether *entry* itself stands in the chain, and no mask above it; two deadlines may well be equal."""
    return any(other is entry for other in unmasked(deadlines))


def stands(deadlines: ThreadDeadlines, entry: Entry) -> bool:
    """Tell whether *entry* itself stands in the chain, held back or not."""
    return any(other is entry for other in chain(deadlines))


def depth(deadlines: ThreadDeadlines, entry: Entry) -> Depth:
    """Tell what stands outermost in the call of *entry*."""
    if type(entry) is BlockDeadline:
        return entry.holder or 0
    inner = takewhile(lambda other: other is not entry, chain(deadlines))
    return 1 + sum(type(other) is tuple for other in inner)


def due(deadlines: ThreadDeadlines, now: float) -> Entry:
    """Return the outermost deadline that is to interrupt the thread at *now* and has not done so, or ``None``."""
    outermost = None
    for entry in unmasked(deadlines):
        if (entry[0] <= now or id(entry) in deadlines.requested) and id(entry) not in deadlines.sent:
            outermost = entry
    return outermost


def lateness(deadlines: ThreadDeadlines, entry: Entry, now: float) -> float:
    """Return for how many seconds *entry* has been due, or for how long it has been requested to interrupt."""
    request = deadlines.requested.get(id(entry))
    return now - (entry[0] if request is None else request[1])


def prune(deadlines: ThreadDeadlines) -> None:
    """Forget what was sent for deadlines that are over; called from the thread itself and from the watchdog."""
    standing = {id(entry) for entry in chain(deadlines)}
    for key in list(deadlines.sent):
        if key not in standing:
            deadlines.sent.pop(key, None)
