"""Vetoes of the application against a further attempt, requested just before it would start (rule T7)."""

from __future__ import annotations

from collections.abc import Callable

from .._log import WARNING, log

__all__ = ["VetoFunction", "veto_reason_for", "vetoes"]

VetoFunction = Callable[[BaseException], str | None]
"""Takes the failure, and returns the reason against a further attempt now, or ``None``."""

vetoes: dict[object, VetoFunction] = {}
"""The functions to call, in the order of their registration, each under its own key."""

_logged: set[object] = set()
"""The keys of the functions whose errors have been logged."""


def veto_reason_for(name: str, failure: BaseException) -> str:
    """Return the first reason against another attempt of the guard *name* after *failure*, or an empty string."""
    try:
        for key, ask in [*vetoes.items()]:
            try:
                reason = ask(failure)
                if reason is not None and not isinstance(reason, str):
                    raise TypeError(f"returned {reason!r}; allowed: the reason as text, or None")
            except Exception as error:  # noqa: BLE001  # its error must not replace the failure of the call
                if key not in _logged:
                    _logged.add(key)
                    log(WARNING, "%s: the veto function %r failed", name, ask, error=error)
            else:
                if reason:
                    return reason
        return ""
    finally:
        del failure  # its traceback may refer to this frame
