"""Calls of C code between which no other thread runs, no signal is handled and no garbage is collected.

The interpreter switches threads after calls, at the start of a function and at the jump back of a loop. It does not
switch inside C code that calls nothing but C code, nor where a ``for`` takes the next item of an iterator in C. So the
steps that must happen at once are put into such an iterator, and a ``for`` that ends after the first item runs them.

Before Python 3.12 the collector runs wherever memory is allocated, and its finalizers switch threads as well. If frames
of another thread are followed at that moment, they may be gone (CPython issue 106883). So only the functions below read
such frames.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate, chain, repeat, takewhile
from operator import call, is_not, itemgetter
from types import FrameType
from typing import Any, TypeVar, cast

from .unpatched import get_ident

T = TypeVar("T")


def once(function: Callable[..., T], *arguments: Any) -> Iterator[T]:
    """Return an iterator that calls *function*, which is written in C, when its only item is requested."""
    return map(call, (function,), *zip(arguments, strict=True))


def uncollected_once(function: Callable[[], T]) -> Iterator[T]:
    """Return an iterator as ``once`` does, which disables garbage collection meanwhile, unseen by other threads."""
    return map(itemgetter(2), _steps(function, []))


def _steps(function: Callable[[], T], undo: list[Callable[[], object]]) -> Iterator[tuple[Any, Any, T, Any]]:
    way_back = map((bool, gc.enable).__getitem__, once(gc.isenabled))
    return zip(map(undo.append, way_back), once(gc.disable), once(function), map(call, undo), strict=True)


def uncollected(function: Callable[[], T]) -> T:
    """Call *function*, which is written in C, with garbage collection disabled; return its result."""
    undo: list[Callable[[], object]] = []
    try:
        return next(_steps(function, undo))[2]
    except BaseException:
        for collect_again in undo:
            collect_again()
        raise


def frames_of_threads() -> dict[int, FrameType]:
    """Return the innermost frame of each other thread, by the identifier of the thread."""
    frames = uncollected(sys._current_frames)
    # The frame of this function would keep the mapping alive, and with it the objects on all stacks.
    frames.pop(get_ident(), None)
    return frames


def stack_of(frame: FrameType) -> tuple[FrameType, ...]:
    """Return *frame*, which may be of another thread, and the frames outside it, the outermost last."""
    get_attribute = cast("Callable[[Any, Any], Any]", getattr)
    walk = accumulate(chain((frame,), repeat("f_back")), get_attribute)
    return uncollected(partial(tuple, takewhile(partial(is_not, None), walk)))


def variables_of(frame: FrameType) -> dict[str, Any]:
    """Return the local variables of *frame*, which may be of another thread."""
    return uncollected(partial(getattr, frame, "f_locals"))
