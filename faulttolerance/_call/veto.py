"""What the application says against a further attempt, asked at the moment at which it would be made (rule T7)."""

from __future__ import annotations

from collections.abc import Callable

from .._log import WARNING, log

__all__ = ["Ask", "objection_to", "vetoes"]

Ask = Callable[[BaseException], str | None]
"""Is given the failure, and gives the reason why nothing may follow it now; ``None``: there is none."""

vetoes: dict[object, Ask] = {}
"""Those who are asked, in the order in which they came; each under a key of its own."""

_told: set[object] = set()
"""The keys of those of whom it was logged that they failed."""


def objection_to(name: str, failure: BaseException) -> str:
    """Give the first reason against another attempt of the guard *name* after *failure*; empty where there is none."""
    try:
        for key, ask in [*vetoes.items()]:
            try:
                reason = ask(failure)
                if reason is not None and not isinstance(reason, str):
                    raise TypeError(f"gave {reason!r}; allowed: the reason as text, or None")
            except Exception as error:  # noqa: BLE001  # of who is asked, and never in place of the call's own failure
                if key not in _told:
                    _told.add(key)
                    log(WARNING, "%s: an error in %r, which was asked for a veto", name, ask, error=error)
            else:
                if reason:
                    return reason
        return ""
    finally:
        del failure  # its traceback may hold this frame
