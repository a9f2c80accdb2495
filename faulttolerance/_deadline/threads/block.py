"""Deadlines of blocks of code, which run in a frame of the application.

A block may belong to a generator or a coroutine, whose caller goes on while it is suspended, and which may even go on
in another thread: the deadline interrupts nobody but the block. And blocks of generators end in any order.
"""

from __future__ import annotations

import dis
import sys
from math import inf
from types import FrameType

from ..._platform.frames import module_of
from .chain import RESUMABLE, BlockDeadline, Entry, ThreadDeadlines, deadlines_here, standing_entry
from .roles import is_ours

_ASYNC_GENERATOR = 0x200
NO_BLOCK = BlockDeadline((inf, None))
"""Stands for the deadline of a block that has begun none."""
_OPENING = ("__enter__", "__aenter__")


def block_deadline(entry: Entry) -> BlockDeadline:
    """Make *entry* that of the block which is being entered."""
    due, outer, *rest = entry
    # Here, too: one that ended under a call, which then put it back, stands there until the next one begins.
    deadline = BlockDeadline((due, standing_entry(outer), *rest))
    deadline.holder = holder_of_block()
    return deadline


def end_block(deadlines: ThreadDeadlines, entry: Entry) -> None:
    """Take back *entry* wherever it stands in its chain; any number of times, and on any thread."""
    entry.is_over = True
    entry.holder = None
    if deadlines is deadlines_here():
        deadlines.innermost = standing_entry(deadlines.innermost)


def holder_of_block() -> FrameType | None:
    """Find the frame whose block is being entered: not that of a context manager, which enters it for another one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (is_ours(frame) or _opens_for_another(frame)):
        frame = frame.f_back
    return frame


def _opens_for_another(frame: FrameType) -> bool:
    if module_of(frame) == "contextlib" or frame.f_code.co_name in _OPENING:
        return True
    caller = frame.f_back
    return caller is not None and bool(frame.f_code.co_flags & RESUMABLE) and module_of(caller) == "contextlib"


def has_yielded(frame: FrameType | None) -> bool:
    """Tell whether *frame* is of an asynchronous generator that has given something, and awaits nothing."""
    if frame is None or not frame.f_code.co_flags & _ASYNC_GENERATOR or frame.f_back is not None:
        return False
    code, after = frame.f_code.co_code, frame.f_lasti
    if dis.opname[code[after]] == "YIELD_VALUE":  # from 3.13 on, what is suspended stands behind that already
        after += 2
    return dis.opname[code[after]] == "RESUME" and code[after + 1] & 3 == 1
