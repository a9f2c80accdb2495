"""The safe points at which an exception may be raised in code that does not expect it (rule R2a).

In the application's own code these are places where the code holds nothing: the jump back of a loop, the start of a
function, and the place after a call whose result is dropped. In all other code the exception ends a call that blocks,
and nothing else: such a call may raise anyway, and the author of the code had to consider that; not if it is a client
that handles only an ``Exception``. Installed code that releases something is never interrupted. Where the application
itself acquires or releases something, an exception waits only for a while, since a thread may stand there for ever.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from types import FrameType
from typing import TypeAlias

from ..._platform.atomic import variables_of
from ..._platform.frames import module_of
from .application import is_application, is_exempt, is_standard
from .chain import BlockDeadline, Depth
from .instructions import (
    ACQUIRE_RELEASE,
    ACQUIRES,
    RELEASES,
    RETURNS,
    SKIPS,
    USES,
    acquire_release_at,
    ahead,
    blocks_at,
    callee_at,
    caught_at,
    handles_failure,
    is_checked,
    jumps_out,
    may_call,
    uses_result_at,
)
from .pending_interrupt import NOT_PYTHON, OURS
from .roles import calls_guarded_function, examines_threads, has_deadline, is_attempt, is_ours, is_timed_attempt
from .sleeper import is_asleep, is_in_condition_wait

Stack: TypeAlias = tuple[FrameType, ...]
"""The frames of a thread, the innermost first; read at one moment, as those of another thread must be."""

IS_EXACT = sys.version_info < (3, 13)
"""Whether an exception sent to a thread is raised at its place; otherwise it is raised at the next possible place."""

RESTORING = frozenset({"__exit__", "_acquire_restore", "release"})
"""Functions that may wait themselves, but must run in everything that follows an exception."""
_RELEASING = ("__aexit__", "__exit__", "aclose", "close", "destroy", "disconnect", "putconn", "release")
"""The beginnings of the names of functions that release something; their callers no longer refer to it."""
_PATIENCE = 1.0
"""Seconds for which a call that acquires or releases something holds back an interruption."""
_LONG_PATIENCE = 3.0
"""As ``_PATIENCE``, for a thread that only passes there repeatedly; looks probably meet it elsewhere as well."""

_CONTAINERS = (dict, list, set, bytearray, defaultdict, deque, OrderedDict)

_THREAD_START = threading.Thread.start.__code__


def position(frame: FrameType) -> tuple[int, int]:
    """Return the place of a thread; it changes when the thread moves."""
    return id(frame), frame.f_lasti


def reason_unsafe(
    stack: Stack,
    late_by: float,
    *,
    exact: bool,
    asleep: bool = False,
    blocked: bool = False,
    stuck: bool = False,
    may_wait: bool = False,
    blind: bool = False,
    depth: Depth = 1,
) -> str | None:
    """Return why no exception may be raised in a thread; ``None`` if it may.

    Args:
        stack: The frames of the thread.
        late_by: For how long the exception has been due, in seconds.
        exact: Whether the exception is raised at this place; otherwise at the next possible place.
        asleep: Whether the thread has stood there for a while.
        blocked: Whether the thread waits in a call that the exception ends.
        stuck: Whether the thread does not continue by itself, and so may stay there for ever.
        may_wait: Whether the thread may wait there: no two looks have shown that it goes round and passes there.
        blind: Whether it is unknown if the thread is *blocked*, which it may well be.
        depth: The extent of the call whose deadline has passed.
    """
    frame = stack[0]
    if depth == 0 or (isinstance(depth, FrameType) and depth not in stack):
        return "its block was suspended, or ran elsewhere"
    waits = blocked
    if is_ours(frame):
        # If the guarded function is written in C, the innermost frame is the frame that calls it.
        if not calls_guarded_function(frame):
            return OURS
        if not (blocked or blind):
            return NOT_PYTHON
    elif is_in_condition_wait(frame):
        # The thread sleeps where a ``finally`` restores everything; the ``finally`` itself must not be interrupted.
        waits = asleep or blocked
        if not (waits and is_asleep(frame)) or _starts_thread(stack):
            return f"it was in {_name_of(frame)}"
    elif blocked:
        if frame.f_code.co_name in RESTORING:
            return f"it was in {_name_of(frame)}"
    elif not is_application(frame):
        if not (blocks_at(frame.f_code, frame.f_lasti) and (exact or asleep)):
            return f"it was in {_name_of(frame)}"
    else:
        is_patient = late_by < (_PATIENCE if stuck else _LONG_PATIENCE)
        why = _reason_here(stack, is_patient, exact, may_wait, blind)
        if why is not None:
            return why
    if late_by < (_PATIENCE if stuck or waits else _LONG_PATIENCE):
        step = _acquire_release_on_the_way(stack, depth, waits)
        if step is not None:
            return f"it was acquiring or releasing something in {_name_of(step)}"
    waiter = next((step for step in frames_of_call(stack, depth) if not is_standard(step)), frame)
    for step in frames_of_call(stack, depth):
        if is_exempt(step):
            return f"it was in {_name_of(step)}, or in code that this called"
        if _releases(step, is_patient=late_by < _PATIENCE):
            return f"it was releasing something in {_name_of(step)}"
        if _handles_errors_only(step, waiter, sleeps=is_in_condition_wait(frame)):
            return f"it was in {_name_of(step)}, which only handles an Exception"
    return _reason_on_the_way(stack)


def _handles_errors_only(frame: FrameType, waiter: FrameType, *, sleeps: bool) -> bool:
    """Return whether *frame* runs installed code that handles an ``Exception`` in *waiter*, and no interruption.

    A pool would hand a connection to the thread that has left its queue, in which it *sleeps*; a client would keep a
    connection with half an answer, instead of closing it. Code that uses a client of another package only tidies up.
    """
    code = frame.f_code
    # A package may have a name of its own for it, as psycopg_pool has.
    named = [name for name in code.co_names if frame.f_globals.get(name, frame.f_builtins.get(name)) is Exception]
    if not named or is_application(frame):
        return False
    names = caught_at(code, frame.f_lasti)
    is_client = module_of(frame).partition(".")[0] == module_of(waiter).partition(".")[0]
    closes = is_client and any(name.startswith(_RELEASING) for name in names)
    return not names.isdisjoint(named) and (closes or (sleeps and frame is waiter))


def _releases(frame: FrameType, *, is_patient: bool) -> bool:
    """Return whether *frame* releases something in installed code, or handles a failure there while *is_patient*.

    The standard library does not count: its releasing code may wait for others for ever, as a pool of threads does.
    """
    code = frame.f_code
    if not (code.co_name.startswith(_RELEASING) or (is_patient and handles_failure(code, frame.f_lasti))):
        return False
    return not (is_ours(frame) or is_standard(frame) or is_application(frame))


def _reason_here(stack: Stack, is_patient: bool, exact: bool, may_wait: bool, blind: bool) -> str | None:
    """Return why the innermost frame may not be interrupted; some reasons count only while *is_patient*."""
    frame = stack[0]
    code, offset = frame.f_code, frame.f_lasti
    kind = acquire_release_at(code, offset)
    # After an acquiring call the exception would come before any code holds the acquired object, which is lost.
    if (kind is ACQUIRES and not blind) or (kind is not None and is_patient):
        return f"it was acquiring or releasing something in {_name_of(frame)}"
    if jumps_out(code, offset):
        return f"it was at the end of a loop in {_name_of(frame)}, where an exception skips the block around it"
    # A thread may also stand in the call, which is about to end, and would lose its result; the next place is better.
    may_be_in_call = (is_patient or may_wait) and not blind and uses_result_at(code, offset)
    if may_be_in_call and (exact or not _is_behind_call(frame)):
        return f"it was about to use what a call returned in {_name_of(frame)}"
    if not (exact and (is_checked(code, offset) or blind)):
        coming = _effect_ahead(stack)
        if coming in (ACQUIRES, SKIPS) or (coming is not None and is_patient):
            return f"it was about to acquire or release something in {_name_of(frame)}"
    return None


def _is_behind_call(frame: FrameType) -> bool:
    """Return whether the call is that of a method of a container, in which no other thread runs."""
    from inspect import getattr_static  # it takes long to import

    first, *attributes = callee_at(frame.f_code, frame.f_lasti)[0].split(".")
    owner = variables_of(frame).get(first, frame.f_globals.get(first))
    for name in attributes[:-1]:
        owner = getattr_static(owner, name, None)
    return type(owner) in _CONTAINERS


def _acquire_release_on_the_way(stack: Stack, depth: Depth, waits: bool) -> FrameType | None:
    """Return the innermost frame, down to the guard, that acquires or releases something, itself or in its callee.

    While the thread *waits*, code that is made for waiting has acquired nothing yet.
    """
    callee: FrameType | None = None
    passes = True
    for step in frames_of_call(stack, depth):
        code, callee_passes = step.f_code, passes
        passes = is_ours(step) or (waits and _is_made_for_waiting(step, callee))
        # The exit of a block of this library may be interrupted where it calls the application.
        if not passes and (
            code.co_name in ACQUIRE_RELEASE or (not callee_passes and acquire_release_at(code, step.f_lasti))
        ):
            return step
        callee = step
    return None


def frames_of_call(stack: Stack, depth: Depth) -> Iterator[FrameType]:
    """Yield the frames down to *depth*."""
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
    """Return whether the call whose extent is *depth* handles a failure of its own, above the guard."""
    return any(
        not is_ours(step) and handles_failure(step.f_code, step.f_lasti) for step in frames_of_call(stack, depth)
    )


def _starts_thread(stack: Stack) -> bool:
    """Return whether a thread is being started, which would be lost then; the start never takes long.

    On 3.11 an exception would even be raised in the new thread, which has the identifier of this thread until it runs.
    """
    return _THREAD_START in [step.f_code for step in stack[:3]]


def _is_made_for_waiting(frame: FrameType, callee: FrameType | None) -> bool:
    """Return whether *frame* runs code of the standard library, or enters a generator of installed code there."""
    if not is_standard(frame) or module_of(frame) != "contextlib":
        return is_standard(frame)
    return frame.f_code.co_name == "__enter__" and callee is not None and not is_application(callee)


def _reason_on_the_way(stack: Stack) -> str | None:
    guarded = False
    # The collector loses the exceptions of its callbacks, and may run in the middle of a call that holds a lock.
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
            if examines_threads(step):
                return OURS  # the signal's handler examines the stack that it interrupted
            guarded = True
        # From 3.15 on a name may run the module of a lazy import.
        elif not (guarded or may_call(code, step.f_lasti) or stack[number - 1].f_code.co_name == "_find_and_load"):
            return f"it was in code that the interpreter called in the middle of {_name_of(step)}"
    return None


def is_dropped(frame: FrameType | None) -> bool:
    """Return whether *frame* is in a finalizer of the guarded body that no code has called: Python drops exceptions."""
    while frame is not None and not is_ours(frame):
        caller = frame.f_back
        if frame.f_code.co_name == "__del__" and caller is not None:
            return not callee_at(caller.f_code, caller.f_lasti)[0].endswith("__del__")
        frame = caller
    return False


def is_of_call(stack: Stack, entry: object) -> bool:
    """Return whether the call that started the deadline *entry* is on *stack*: each greenlet has its own stack."""
    if type(entry) is BlockDeadline:
        return entry.holder in stack
    return any(value is entry for step in stack if is_timed_attempt(step) for value in variables_of(step).values())


def _name_of(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"


def _effect_ahead(stack: Stack) -> str | None:
    """Return the effect that may come before the next place of an exception; ``None`` if all effects are harmless."""
    for step, caller in zip(stack[:10], (*stack[1:11], None), strict=False):
        ways = ahead(step.f_code, step.f_lasti)
        for one in (ACQUIRES, SKIPS, RELEASES, USES):
            if one in ways:
                return one
        if RETURNS not in ways:
            return None
        # The function may return to its caller before the next check.
        if caller is None or is_attempt(caller) or calls_guarded_function(caller):
            return None
        if is_ours(caller) or not is_application(caller):
            return RELEASES
    return RELEASES
