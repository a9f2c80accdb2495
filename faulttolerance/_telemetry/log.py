"""Events as records of the standard library's logger ``faulttolerance``.

Fields are attributes of the record, named ``ft_...``. Arguments are never logged, nor are messages of failures, which
may hold some.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from .._event import Event, FallbackApplied, GaveUp, Recovered, Rejected, RetryScheduled, StateChanged, TimedOut

__all__ = ["log"]

_logger = logging.getLogger("faulttolerance")
# As libraries do: an application that has not set logging up gets nothing on its standard error.
_logger.addHandler(logging.NullHandler())


def log(event: Event) -> None:
    """Log *event*: state changes and give-ups for people, attempts at DEBUG."""
    match event:
        case RetryScheduled(method, attempt, delay, failure):
            _debug(
                "%s: attempt %d failed (%s), the next one in %.3f s",
                method,
                attempt,
                _class(failure),
                delay,
                ft_attempt=attempt,
                ft_delay=delay,
                ft_error_type=_class(failure),
            )
        case TimedOut(method, attempt, limit):
            _debug("%s: attempt %d timed out after %g s", method, attempt, limit, ft_attempt=attempt, ft_limit=limit)
        case Rejected(method, attempt, policy, failure):
            _debug(
                "%s: attempt %d was refused by %s",
                method,
                attempt,
                policy,
                ft_attempt=attempt,
                ft_policy=policy,
                ft_error_type=_class(failure),
            )
        case FallbackApplied(method, failure):
            _debug("%s: falling back after %s", method, _class(failure), ft_error_type=_class(failure))
        case Recovered(method, attempts):
            _debug("%s: succeeded at attempt %d", method, attempts, ft_attempts=attempts)
        case StateChanged(method, old, new):
            level = logging.WARNING if new == "open" else logging.INFO
            _log(level, "%s: circuit breaker %s, was %s", method, new, old, ft_old_state=old, ft_new_state=new)
        case GaveUp(method, attempts, elapsed, reason, failure):
            _log(
                logging.WARNING if event.is_news else logging.DEBUG,
                "%s: gave up after %d attempts in %.3f s, because of %s: %s",
                method,
                attempts,
                elapsed,
                reason,
                _class(failure),
                ft_attempts=attempts,
                ft_elapsed=elapsed,
                ft_stop_reason=reason,
                ft_error_type=_class(failure),
            )


def _debug(message: str, method: str, *values: object, **fields: Any) -> None:
    _log(logging.DEBUG, message, method, *values, **fields)


def _log(level: int, message: str, method: str, *values: object, **fields: Any) -> None:
    if _logger.isEnabledFor(level):
        _logger.log(level, message, method, *values, extra={"ft_method": method, **fields})


def _class(failure: BaseException) -> str:
    kind = type(failure)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _interest(kind: type[Event]) -> Callable[[], bool]:
    return partial(_logger.isEnabledFor, logging.WARNING if kind is StateChanged or kind is GaveUp else logging.DEBUG)


log.interest = _interest  # type: ignore[attr-defined]  # asked first: a retry is not to pay for text that nobody reads
