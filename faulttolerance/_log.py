"""Records in the standard library's logger ``faulttolerance``, which never change the outcome of a call.

Handlers and filters are the application's. One may raise: the words are lost then, and nothing else. One may call a
guarded function: what is to be said of that call, while words of ours are being handled, is not said, or it would be
handled the same way, without end.
"""

from __future__ import annotations

import sys
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

from ._shown import escaped

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable
    from types import FrameType

NAME = "faulttolerance"

# The levels of ``logging``, which is loaded when there is something to say.
DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40

_is_logging: ContextVar[bool] = ContextVar("faulttolerance_is_logging", default=False)
_failed: set[type[Exception]] = set()
_troubles: set[tuple[str, str, type[Exception]]] = set()


@cache
def logger() -> logging.Logger:
    """Return the library's logger.

    It gets no handler, not even one that does nothing: where the application and its server set up no logging of theirs
    for it, warnings and errors reach standard error by ``logging.lastResort``, or an outage would leave no line.
    """
    import logging

    return logging.getLogger(NAME)


def writes(level: int, others: Callable[[], bool]) -> Callable[[], bool]:
    """Give the question whether records of *level* may be written, or *others* says yes; it raises nothing."""
    import logging

    ours = logger()
    is_plain = type(ours) is logging.Logger  # one of another class may want more than its level says

    def may_be_written() -> bool:
        try:
            # Nearly always a level says no, which is read in less time than it takes to ask.
            if is_plain and (ours.level or ours.parent.level) > level:  # type: ignore[union-attr]
                return others()
            return ours.isEnabledFor(level) or others()
        except Exception:  # noqa: BLE001  # the application's: where it cannot say, it is told
            return True

    return may_be_written


def is_written(level: int) -> bool:
    """Return whether records of *level* may be written; also where the application's logger cannot say."""
    try:
        return logger().isEnabledFor(level)
    except Exception:  # noqa: BLE001  # ``log`` meets it again, and shows it
        return True


def log(
    level: int,
    message: str,
    *values: object,
    error: BaseException | None = None,
    fields: dict[str, Any] | None = None,
) -> None:
    """Log *message*. Control flow that a handler raises passes, no other exception does.

    Args:
        level: ``DEBUG`` and so on.
        message: The text, with a place for each of *values*.
        *values: What goes into the text; of an exception, its words only: a handler may keep the record.
        error: The exception whose traceback is added.
        fields: Attributes of the record.
    """
    try:
        ours = logger()
        if not ours.isEnabledFor(level) or _is_logging.get() or _handles_our_words():
            return
        try:
            _is_logging.set(True)  # in here: a signal's handler may raise as soon as it has returned
            values = tuple(map(_shown, values))
            ours.log(level, message, *values, exc_info=error, extra=fields, stacklevel=2)
        finally:
            _is_logging.set(False)
    except Exception as failure:  # noqa: BLE001  # whatever the application's handlers do
        _say_once(failure)


def _shown(value: object) -> object:
    """Return *value* as a line shows it: of an exception its words, of text no line break, for names are anybody's."""
    if isinstance(value, BaseException):
        return str(value)
    return escaped(value) if isinstance(value, str) and not value.isprintable() else value


def tell_of_trouble(name: str, consequence: str, error: Exception) -> None:
    """Log, once for each kind of *error*, that one guard cannot be asked: that is not to end what asks all of them."""
    trouble = name, consequence, type(error)
    if trouble not in _troubles:
        _troubles.add(trouble)
        log(ERROR, "%s: %s", name, consequence, error=error)


def _handles_our_words() -> bool:
    """Tell whether a handler that was given words of ours led here, maybe on a thread of its own, behind a queue."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name in _HANDLING and getattr(frame.f_locals.get("record"), "name", None) == NAME:
            return True
        frame = frame.f_back
    return False


_HANDLING = frozenset({"emit", "handle"})


def _say_once(failure: Exception) -> None:
    """Show on standard error what a handler raised, as ``logging`` does with most of it; each class once."""
    import logging

    if type(failure) in _failed or not logging.raiseExceptions or sys.stderr is None:
        return
    _failed.add(type(failure))
    try:
        import traceback

        traceback.print_exception(failure, file=sys.stderr)
        sys.stderr.write(f"A handler or filter of the logger {NAME!r} failed, which is said once.\n")
    except Exception:  # noqa: BLE001  # nowhere is left to say it
        pass
