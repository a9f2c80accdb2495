"""The meaning of an attempt's end: for exception sets, for a gate, for a deadline."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from ..exceptions import TimeoutException

Classes = tuple[type[BaseException], ...]
"""An exception set: classes, and other objects that ``isinstance`` accepts as a class (``caused_by``)."""

_control_flow: Classes = (KeyboardInterrupt, SystemExit, GeneratorExit)


def never_match(*classes: type[BaseException]) -> None:
    """Declare classes as control flow: no set contains an error of these classes, not even a set that names them.

    For the module that defines or first imports such a class; the three built-in classes need no declaration.
    """
    global _control_flow
    _control_flow = tuple(dict.fromkeys(_control_flow + classes))


def contains(classes: Classes, error: BaseException) -> bool:
    """Return whether *error* is an instance of one of *classes*, or a group of such instances only.

    An error that is no ``Exception`` is contained only where its own class is named, or a base of it that is no
    ``Exception`` either; ``BaseException`` names everything and therefore nothing. Control flow is never contained, and
    neither is a cancellation of asyncio.
    """
    if isinstance(error, Exception):
        return isinstance(error, classes) or (isinstance(error, ExceptionGroup) and _contains_members(classes, error))
    cancellation = getattr(sys.modules.get("asyncio"), "CancelledError", ())
    if isinstance(error, (_control_flow, cancellation)):
        return False
    return any(one is not BaseException and isinstance(error, one) for one in classes)


def matches(error: BaseException, include: Classes, exclude: Classes = ()) -> bool:
    """Return whether *include* contains *error* and *exclude* does not."""
    if not (isinstance(error, Exception) and isinstance(error, include)) and not contains(include, error):
        return False
    return not (exclude and contains(exclude, error))


def _contains_members(classes: Classes, group: BaseExceptionGroup[BaseException]) -> bool:
    """Return whether *classes* contain every member of *group*; a loop, because groups may be nested without end."""
    members = [*group.exceptions]
    while members:
        member = members.pop()
        if not isinstance(member, classes):
            if not isinstance(member, BaseExceptionGroup):
                return False
            members += member.exceptions
    return True


Verdict: TypeAlias = Literal["success", "failure", "neutral"]
"""The verdict on an attempt."""

SUCCESS: Final[Verdict] = "success"
FAILURE: Final[Verdict] = "failure"
NEUTRAL: Final[Verdict] = "neutral"
"""No verdict: the attempt ended by control flow, which is no evidence about the callee."""


def verdict_on(error: BaseException, fail_on: Classes, skip_on: Classes, fails: bool | None = False) -> Verdict:
    """Return the verdict on an attempt that raised *error*.

    Specification: *skip_on* goes before *fail_on*, the rest is success. An error that is no ``Exception`` is neutral
    unless one of the sets names it. *fails* is the answer of a predicate that stands beside *fail_on*.
    """
    if skip_on and contains(skip_on, error):
        return SUCCESS
    if fails or (isinstance(error, Exception) and isinstance(error, fail_on)) or contains(fail_on, error):
        return FAILURE
    return SUCCESS if isinstance(error, Exception) else NEUTRAL


def deadline_outcome(
    error: BaseException | None,
    ended: float,
    due: float,
    message: Callable[[], str],
    why: Callable[[], str],
    *,
    is_own: bool = False,
    was_interrupted: bool = False,
) -> BaseException | None:
    """Return the outcome of an attempt with a deadline: *error*, ``None``, or a ``TimeoutException`` with a note.

    Control flow passes as it is, however late (rule R0), except for the interruption by this very deadline.

    Args:
        error: The exception of the body; ``None``: it returned.
        ended: The moment at which the body ended.
        due: The moment of the deadline, past or future.
        message: Returns the message of a ``TimeoutException``.
        why: Returns why nothing interrupted a body that ended late, or an empty text.
        is_own: Whether *error* is the interruption by this deadline, whatever the clock says.
        was_interrupted: Whether this deadline interrupted the body, which may have gone on.
    """
    is_control_flow = error is not None and not isinstance(error, Exception)
    if not is_own and (is_control_flow or not (ended >= due or was_interrupted)):
        return error
    late = TimeoutException(message())
    late.__cause__ = error
    reason = ""
    if was_interrupted and not is_own:
        reason = "; it was interrupted and went on"
    elif not is_own and (obstacle := why()):
        reason = f"; it was not interrupted: {obstacle}"
    late.add_note(f"it ended {max(0.0, ended - due):.3f} s after its deadline{reason}")
    return late
