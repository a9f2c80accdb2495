"""Records in the standard library's logger ``faulttolerance``, which never change the outcome of a call.

Handlers and filters belong to the application. If a handler raises, only the record is lost. If a handler of our record
calls a guarded function, records of that call are dropped: the same handler would process them, without end.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

from ._shown import escaped

if TYPE_CHECKING:
    import logging
    from types import FrameType

NAME = "faulttolerance"

# The levels of ``logging``, which is imported when there is something to log.
DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40

_is_logging: ContextVar[bool] = ContextVar("faulttolerance_is_logging", default=False)
_failed: set[type[Exception]] = set()
_logged_errors: set[tuple[str, str, type[Exception]]] = set()


@cache
def logger() -> logging.Logger:
    """Return the library's logger.

    It has no handler, not even a ``NullHandler``: if neither the application nor its server configures logging,
    warnings and errors must reach standard error by ``logging.lastResort``. Otherwise an outage would leave no line.
    """
    import logging

    return logging.getLogger(NAME)


def log(
    level: int,
    message: str,
    *values: object,
    error: BaseException | None = None,
    fields: dict[str, Any] | None = None,
) -> None:
    """Log *message*. Control flow that a handler raises passes, but no other exception.

    Args:
        level: ``DEBUG`` and so on.
        message: The text, with a place for each of *values*.
        *values: The values for the text, or one mapping that contains them by name; an exception is replaced by its
            words, because a handler may keep the record.
        error: The exception whose traceback is added.
        fields: Attributes of the record.
    """
    try:
        ours = logger()
        if not ours.isEnabledFor(level) or _is_logging.get() or _is_in_own_handler():
            return
        try:
            _is_logging.set(True)  # inside try: a signal handler may raise as soon as set() returns
            values = tuple(map(_shown, values))
            ours.log(level, message, *values, exc_info=error, extra=fields, stacklevel=2)
        finally:
            _is_logging.set(False)
    except Exception as failure:  # noqa: BLE001  # application code in handlers
        _print_once(failure)


def _shown(value: object) -> object:
    """Return *value* for a single line: an exception as its words, a text with its control characters escaped."""
    if isinstance(value, BaseException):
        return str(value)
    if isinstance(value, dict):
        return {name: _shown(each) for name, each in value.items()}
    return escaped(value) if isinstance(value, str) and not value.isprintable() else value


def log_guard_error(name: str, consequence: str, error: Exception) -> None:
    """Log, once for each kind of *error*, that one guard fails to answer; a query of all guards goes on."""
    trouble = name, consequence, type(error)
    if trouble not in _logged_errors:
        _logged_errors.add(trouble)
        log(ERROR, "%s: %s", name, consequence, error=error)


def _is_in_own_handler() -> bool:
    """Return whether a handler of our own record led here, maybe on a thread of its own, behind a queue."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        # Reading the variables of another function would keep their objects alive until it returns.
        is_handler = code.co_name in _HANDLING and "record" in code.co_varnames
        if is_handler and getattr(frame.f_locals.get("record"), "name", None) == NAME:
            return True
        frame = frame.f_back
    return False


_HANDLING = frozenset({"emit", "handle"})


def _print_once(failure: Exception) -> None:
    """Print the error of a handler to standard error, as ``logging`` does for most errors; each class once."""
    with suppress(Exception):  # there is no further place to report it
        if type(failure) not in _failed:
            _failed.add(type(failure))
            import logging

            message = f"a handler or filter of the logger {NAME!r} failed, which is said once"
            logging.NullHandler().handleError(logging.makeLogRecord({"name": NAME, "msg": message}))
