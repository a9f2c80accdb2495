"""Deadlines of blocks of code, which run in a frame of the application.

A block may belong to a generator or a coroutine. Its caller continues while it is suspended, and it may even resume in
another thread. So the deadline interrupts nothing but the block. Blocks of generators end in any order.
"""

from __future__ import annotations

import dis
import sys
from math import inf
from types import FrameType

from ..._platform.frames import module_of
from .chain import RESUMABLE, BlockDeadline, Entry, ThreadDeadlines, deadlines_here, effective_entry
from .roles import is_ours

_ASYNC_GENERATOR = 0x200
NO_BLOCK = BlockDeadline((inf, None))
"""Replaces the deadline of a block that has started none."""
_OPENING = ("__enter__", "__aenter__")


def block_deadline(entry: Entry) -> BlockDeadline:
    """Return *entry* as the deadline of the block that is being entered."""
    due, outer, *rest = entry
    # Skip a block that ended under a call which then restored it: it stands there until the next block starts.
    deadline = BlockDeadline((due, effective_entry(outer), *rest))
    deadline.holder = holder_of_block(sys._getframe(1))
    return deadline


def end_block(deadlines: ThreadDeadlines, entry: Entry) -> None:
    """Remove *entry* from its chain, at any place; repeatable, and on any thread."""
    entry.is_over = True
    entry.holder = None
    if deadlines is deadlines_here():
        deadlines.innermost = effective_entry(deadlines.innermost)


def holder_of_block(frame: FrameType) -> FrameType | None:
    """Return the frame whose block is entered in *frame*, past the frames of context managers that enter it for others.

    The last frame of the stack enters its blocks itself. So does the generator of a context manager that no block
    enters: its ``__enter__`` is a job, as of a pool of threads, which goes on to the next one. An object that a job
    enters has no such frame: its block interrupts nothing.
    """
    is_opened, generator, inner = False, None, frame
    while frame.f_back is not None:
        if not is_ours(frame):
            if not _opens_for_another(frame):
                break
            is_opened = True
            generator = frame if frame.f_code.co_flags & RESUMABLE else generator
        inner, frame = frame, frame.f_back
    return frame if not is_opened or inner.f_code.co_name != "__enter__" or _enters(frame) else generator


def _enters(frame: FrameType) -> bool:
    """Return whether *frame* is at the beginning of a ``with`` block, or calls an ``__enter__`` by this name."""
    code, at = frame.f_code.co_code, frame.f_lasti
    # Up to 3.13 the first is at the place itself, from 3.14 on the second before its call.
    opens = {dis.opname[code[at]], dis.opname[code[at - 2]]} & {"BEFORE_WITH", "LOAD_SPECIAL"}
    return bool(opens) or "__enter__" in frame.f_code.co_names


def _opens_for_another(frame: FrameType) -> bool:
    if module_of(frame) == "contextlib" or frame.f_code.co_name in _OPENING:
        return True
    caller = frame.f_back
    return caller is not None and bool(frame.f_code.co_flags & RESUMABLE) and module_of(caller) == "contextlib"


def has_yielded(frame: FrameType | None) -> bool:
    """Return whether *frame* is of an asynchronous generator that has yielded a value and awaits nothing."""
    if frame is None or not frame.f_code.co_flags & _ASYNC_GENERATOR or frame.f_back is not None:
        return False
    code, after = frame.f_code.co_code, frame.f_lasti
    if dis.opname[code[after]] == "YIELD_VALUE":  # from 3.13 on, a suspended frame stands behind it already
        after += 2
    return dis.opname[code[after]] == "RESUME" and code[after + 1] & 3 == 1
