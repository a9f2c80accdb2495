"""Events as records of the standard library's logger ``faulttolerance``.

Fields are attributes of the record, named ``ft_...``. Arguments are never logged, nor are messages of failures, which
may hold some.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from .._event import Event, FallbackApplied, GaveUp, Recovered, Rejected, RetryScheduled, StateChanged, TimedOut
from .._log import DEBUG, INFO, WARNING, log as write, logger
from .error_type import error_type

__all__ = ["log"]


def log(event: Event) -> None:
    """Log *event*: state changes and give-ups for people, attempts at DEBUG."""
    match event:
        case RetryScheduled(method, attempt, delay, failure):
            _debug(
                "%s: attempt %d failed (%s), the next one in %.3f s",
                method,
                attempt,
                error_type(failure),
                delay,
                ft_attempt=attempt,
                ft_delay=delay,
                ft_error_type=error_type(failure),
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
                ft_error_type=error_type(failure),
            )
        case FallbackApplied(method, failure):
            _debug("%s: falling back after %s", method, error_type(failure), ft_error_type=error_type(failure))
        case Recovered(method, attempts):
            _debug("%s: succeeded at attempt %d", method, attempts, ft_attempts=attempts)
        case StateChanged(method, old, "open", reason):
            text = "%s: circuit breaker opened: %s"
            _log(WARNING, text, method, reason, ft_old_state=old, ft_new_state="open", ft_reason=reason)
        case StateChanged(method, old, new):
            _log(INFO, "%s: circuit breaker %s, was %s", method, new, old, ft_old_state=old, ft_new_state=new)
        case GaveUp(method, attempts, elapsed, reason, failure):
            _log(
                WARNING if event.is_news else DEBUG,
                "%s: gave up after %d attempts in %.3f s, because of %s: %s",
                method,
                attempts,
                elapsed,
                reason,
                error_type(failure),
                ft_attempts=attempts,
                ft_elapsed=elapsed,
                ft_stop_reason=reason,
                ft_error_type=error_type(failure),
            )


def _debug(message: str, method: str, *values: object, **fields: Any) -> None:
    _log(DEBUG, message, method, *values, **fields)


def _log(level: int, message: str, method: str, *values: object, **fields: Any) -> None:
    write(level, message, method, *values, fields={"ft_method": method, **fields}, depth=2)


def _interest(kind: type[Event]) -> Callable[[], bool]:
    return partial(logger().isEnabledFor, WARNING if kind is StateChanged or kind is GaveUp else DEBUG)


log.interest = _interest  # type: ignore[attr-defined]  # asked first: a retry is not to pay for text that nobody reads
