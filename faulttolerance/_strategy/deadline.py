"""The decision whether an attempt ended too late; every way of calling asks here."""

from __future__ import annotations

from collections.abc import Callable

from ..exceptions import TimeoutException


def conclude(
    error: BaseException | None,
    ended: float,
    due: float,
    message: Callable[[], str],
    why: Callable[[], str],
    *,
    is_own: bool = False,
    was_interrupted: bool = False,
) -> BaseException | None:
    """Decide the outcome of an attempt with a deadline: *error*, nothing, or a ``TimeoutException`` with a note.

    Control flow passes as it is, however late (rule R0), but for the interruption by this very deadline.

    Args:
        error: What the body raised; ``None``: it returned.
        ended: When the body ended.
        due: When the deadline passed, or will.
        message: Gives what a ``TimeoutException`` is to say.
        why: Gives why nothing interrupted a body that ended late, or an empty text.
        is_own: Whether *error* is the interruption by this deadline, whatever the clock says.
        was_interrupted: Whether this deadline interrupted the body, which may have gone on.
    """
    if not is_own:
        is_control_flow = error is not None and not isinstance(error, Exception)
        if is_control_flow or (ended < due and not was_interrupted):
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
