"""Where an exception may be raised in code that does not expect one (rule R2a).

In the application's own code it comes where nothing is in hand: where a loop goes round, where a function begins, and
behind a call whose result is dropped. In all other code it ends a call that blocks, and nothing else: an exception may
come there anyway, and the author of that code had to think of it. Installed code that gives something back is left in
peace altogether. Where the application itself takes something or gives it back, an exception waits for a while only,
since a thread may stand there for ever.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from itertools import takewhile
from types import FrameType
from typing import TypeAlias

from ..._platform.atomic import variables_of
from ..._platform.frames import module_of
from .application import is_application, is_exempt, is_standard
from .chain import BlockDeadline, Depth
from .instructions import (
    ACQUIRE_RELEASE,
    ENDS,
    GIVES,
    RETURNS,
    SKIPS,
    TAKES,
    USES,
    acquire_release_at,
    ahead,
    blocks_at,
    handles_failure,
    is_checked,
    jumps_out,
    may_call,
    uses_result_at,
)
from .pending_interrupt import OURS
from .roles import calls_what_is_guarded, has_deadline, is_attempt, is_ours, is_timed_attempt, looks_at_threads
from .sleeper import is_in_condition_wait, sleeps_in_condition_wait

Stack: TypeAlias = tuple[FrameType, ...]
"""The frames of a thread, the innermost one first; taken at once, as those of another thread must be."""

IS_EXACT = sys.version_info < (3, 13)
"""Whether an exception sent to a thread is raised where the thread stands; else at the next place where it can be."""

_PUTTING_BACK = frozenset({"__exit__", "_acquire_restore", "release"})
"""Functions that may wait themselves, but are needed for everything that follows an exception."""
_GIVING_BACK = frozenset({"__aexit__", "__exit__", "aclose", "close", "putconn", "release"})
"""Functions of installed code that give something back; whoever called them forgets about it."""
_PATIENCE = 1.0
"""Seconds for which a call that takes or gives back something holds an interruption back."""
_LONG_PATIENCE = 3.0
"""The same where the thread only passes there again and again; it is likely to be met elsewhere as well."""

_THREAD_START = threading.Thread.start.__code__


def place(frame: FrameType) -> tuple[int, int]:
    """Return what tells whether a thread has moved."""
    return id(frame), frame.f_lasti


def reason_unsafe(
    stack: Stack,
    late_by: float,
    *,
    exact: bool,
    asleep: bool = False,
    blocked: bool = False,
    standing: bool = False,
    blind: bool = False,
    depth: Depth = 1,
) -> str | None:
    """Return why no exception may be raised in a thread; ``None`` where one may.

    Args:
        stack: Its frames.
        late_by: How long the exception has been due, in seconds.
        exact: Whether it is raised in this place, else at the next one where it can be.
        asleep: Whether the thread has stood there for a while.
        blocked: Whether it waits in a call that the exception ends.
        standing: Whether it does not come on by itself, and so may stay there for ever.
        blind: Whether nobody can tell if it is *blocked*, while it may well be.
        depth: How far down the call reaches whose deadline has passed.
    """
    frame = stack[0]
    if depth == 0 or (isinstance(depth, FrameType) and depth not in stack):
        return "its block was suspended, or ran elsewhere"
    waits = blocked
    if is_ours(frame):
        # Where a function written in C is what is guarded, the frame that calls it is the innermost one.
        if not (blocked and calls_what_is_guarded(frame)):
            return OURS
    elif is_in_condition_wait(frame):
        # It sleeps where a ``finally`` puts everything back in order; that must not be interrupted itself.
        waits = asleep or blocked
        if not (waits and sleeps_in_condition_wait(frame)) or _starts_thread(stack):
            return f"it was in {_name_of(frame)}"
    elif blocked:
        if frame.f_code.co_name in _PUTTING_BACK:
            return f"it was in {_name_of(frame)}"
    elif not is_application(frame):
        if not (blocks_at(frame.f_code, frame.f_lasti) and (exact or asleep)):
            return f"it was in {_name_of(frame)}"
    else:
        is_patient = late_by < (_PATIENCE if standing else _LONG_PATIENCE)
        why = _reason_here(stack, is_patient, standing, exact, blind)
        if why is not None:
            return why
    if late_by < (_PATIENCE if standing or waits else _LONG_PATIENCE):
        step = _acquire_release_on_the_way(stack, depth, waits)
        if step is not None:
            return f"it was acquiring or releasing something in {_name_of(step)}"
    for step in frames_of_call(stack, depth):
        if is_exempt(step):
            return f"it was in {_name_of(step)}, or in what that called"
        if _gives_back(step, is_patient=late_by < _PATIENCE):
            return f"it was giving something back in {_name_of(step)}"
    return _reason_on_the_way(stack)


def _gives_back(frame: FrameType, *, is_patient: bool) -> bool:
    """Return whether *frame* gives something back in installed code, or, while one *is_patient*, handles a failure.

    The standard library is none of it: what gives back there waits for others for ever, as a pool of threads does.
    """
    code = frame.f_code
    if not (code.co_name in _GIVING_BACK or (is_patient and handles_failure(code, frame.f_lasti))):
        return False
    return not (is_ours(frame) or is_standard(frame) or is_application(frame))


def _reason_here(stack: Stack, is_patient: bool, standing: bool, exact: bool, blind: bool) -> str | None:
    """Return why the innermost frame is to be left in peace; some of it counts only while one *is_patient*."""
    frame = stack[0]
    code, offset = frame.f_code, frame.f_lasti
    kind = acquire_release_at(code, offset)
    # Behind a call that takes something, the exception would come before that is known to anybody, and is lost.
    if (kind is TAKES and not blind) or (kind is not None and is_patient and not (exact and kind is ENDS)):
        return f"it was acquiring or releasing something in {_name_of(frame)}"
    if jumps_out(code, offset):
        return f"it was at the end of a loop in {_name_of(frame)}, where an exception skips the block around it"
    if exact and (is_checked(code, offset) or blind):
        # Who stands still waits for a call, and what that returns would be lost; the next place is a better one.
        if uses_result_at(code, offset) and (is_patient or standing) and not blind:
            return f"it was about to use what a call returned in {_name_of(frame)}"
    else:
        coming = _coming(stack)
        if coming in (TAKES, SKIPS) or (coming is GIVES and is_patient) or (coming is USES and is_patient):
            return f"it was about to acquire or release something in {_name_of(frame)}"
    return None


def _acquire_release_on_the_way(stack: Stack, depth: Depth, waits: bool) -> FrameType | None:
    """Return the innermost frame, down to the guard, that takes something or gives it back, itself or by what it calls.

    Where the thread *waits*, code that is made for waiting has taken nothing yet.
    """
    callee: FrameType | None = None
    for step in frames_of_call(stack, depth):
        code = step.f_code
        if not (is_ours(step) or (waits and _is_made_for_waiting(step))):
            if code.co_name in ACQUIRE_RELEASE:
                return step
            # What leaves a block of this library's may be interrupted where that calls the application.
            is_waiting = callee is None or is_ours(callee) or (waits and _is_made_for_waiting(callee))
            if not is_waiting and acquire_release_at(code, step.f_lasti):
                return step
        callee = step
    return None


def frames_of_call(stack: Stack, depth: Depth) -> Iterator[FrameType]:
    """Return the frames down to *depth*."""
    for step in stack:
        if step is depth:
            yield step
            return
        if isinstance(depth, int) and is_ours(step):
            depth -= has_deadline(step)
            if depth <= 0:
                return
        yield step


def cleans_up(stack: Stack, depth: Depth) -> bool:
    """Tell whether the call that reaches down to *depth* handles a failure of its own, down to the guard."""
    return any(
        not is_ours(step) and handles_failure(step.f_code, step.f_lasti) for step in frames_of_call(stack, depth)
    )


def _starts_thread(stack: Stack) -> bool:
    """Tell whether a thread is to begin, which would not be known to anybody then; that takes never long.

    On 3.11 an exception would even be raised in that thread, which goes by the identifier of this one until it runs.
    """
    callers = takewhile(lambda step: module_of(step) == "threading", stack[1:])
    return any(step.f_code is _THREAD_START for step in callers)


def _is_made_for_waiting(frame: FrameType) -> bool:
    return is_standard(frame) and module_of(frame) != "contextlib"


def _reason_on_the_way(stack: Stack) -> str | None:
    guarded = False
    # The collector loses what its callbacks raise, and may have come amidst a call that holds a lock.
    collecting = [getattr(callback, "__code__", None) for callback in gc.callbacks]
    for number, step in enumerate(stack):
        code = step.f_code
        if code in collecting:
            return "it was in a callback of the garbage collector"
        if code.co_name == "__del__" or (number and module_of(step) == "weakref"):
            return "it was in a finalizer"
        if not number:
            continue
        if is_ours(step):
            if looks_at_threads(step):
                return OURS  # the handler of the signal looks at what it has come upon
            guarded = True
        elif not guarded and not may_call(code, step.f_lasti):
            return f"it was in something that the interpreter called amidst {_name_of(step)}"
    return None


def is_of_call(stack: Stack, entry: object) -> bool:
    """Tell whether the call that began the deadline *entry* stands on *stack*: greenlets have their own."""
    if type(entry) is BlockDeadline:
        return entry.holder in stack
    return any(value is entry for step in stack if is_timed_attempt(step) for value in variables_of(step).values())


def _name_of(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"


def _coming(stack: Stack) -> str | None:
    """Return what may come before the next place where an exception can be raised; ``None``: nothing that matters."""
    for step, caller in zip(stack[:10], (*stack[1:11], None), strict=False):
        ways = ahead(step.f_code, step.f_lasti)
        for one in (TAKES, SKIPS, GIVES, USES):
            if one in ways:
                return one
        if RETURNS not in ways:
            return None
        # The function may return to its caller before anything is checked.
        if caller is None or is_attempt(caller) or calls_what_is_guarded(caller):
            return None
        if is_ours(caller) or not is_application(caller):
            return GIVES
    return GIVES
