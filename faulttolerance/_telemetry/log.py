"""Events as records of the standard library's logger ``faulttolerance``.

Fields are attributes of the record, named ``ft_...``. Arguments are never logged. Messages of failures are not logged
either, because they may contain arguments.
"""

from __future__ import annotations

from collections.abc import Mapping

from .._event import (
    Event,
    FallbackApplied,
    FleetLost,
    FleetRegained,
    GaveUp,
    HedgeSent,
    LimitChanged,
    Question,
    Recovered,
    Rejected,
    RetryScheduled,
    StateChanged,
    TimedOut,
    error_type,
)
from .._log import DEBUG, INFO, WARNING, is_written, log as write, writes


def log(event: Event) -> None:
    """Log *event*: state changes and give-ups for people, attempts at DEBUG."""
    level = _level_of(event)
    if not is_written(level):
        return
    text, values, further = _described(event)
    where = {"ft_method": event.method} if event.method else {}
    write(level, f"%s: {text}", event.method or "fleet", *values.values(), fields={**where, **values, **further})


def _level_of(event: Event) -> int:
    """Return the level at which *event* is logged."""
    if isinstance(event, GaveUp):
        return WARNING if event.is_news else DEBUG
    if isinstance(event, StateChanged):
        return WARNING if event.new == "open" else INFO
    return _LEVELS.get(type(event), DEBUG)


def _described(event: Event) -> tuple[str, Mapping[str, object], Mapping[str, object]]:
    """Return the text, the fields whose values it contains in this order, and further fields."""
    match event:
        case RetryScheduled(_, attempt, delay, failure):
            values = {"ft_attempt": attempt, "ft_error_type": error_type(failure), "ft_delay": delay}
            return "attempt %d failed (%s), the next one in %.3f s", values, {}
        case TimedOut(_, attempt, limit):
            return "attempt %d timed out after %g s", {"ft_attempt": attempt, "ft_limit": limit}, {}
        case Rejected(_, attempt, policy, failure):
            values = {"ft_attempt": attempt, "ft_policy": policy}
            return "attempt %d was refused by %s", values, {"ft_error_type": error_type(failure)}
        case FallbackApplied(_, failure):
            return "falling back after %s", {"ft_error_type": error_type(failure)}, {}
        case Recovered(_, attempts):
            return "succeeded at attempt %d", {"ft_attempts": attempts}, {}
        case HedgeSent(_, hedge, delay):
            return "hedge %d sent after %.3f s", {"ft_hedge": hedge, "ft_delay": delay}, {}
        case StateChanged(_, old, "open", reason):
            states = {"ft_old_state": old, "ft_new_state": "open"}
            return "circuit breaker opened: %s", {"ft_reason": reason}, states
        case StateChanged(_, old, new):
            return "circuit breaker %s, was %s", {"ft_new_state": new, "ft_old_state": old}, {}
        case LimitChanged(_, old, new):
            return "limit lowered to %d, was %d", {"ft_new_limit": new, "ft_old_limit": old}, {}
        case FleetLost(namespace, reason):
            values = {"ft_namespace": namespace, "ft_reason": reason}
            return "%s does not answer, and this process decides alone: %s", values, {}
        case FleetRegained(namespace, seconds):
            values = {"ft_namespace": namespace, "ft_seconds": seconds}
            return "%s answers again, after %.3f s", values, {}
        case GaveUp(_, attempts, elapsed, reason, failure):
            values = {
                "ft_attempts": attempts,
                "ft_elapsed": elapsed,
                "ft_stop_reason": reason,
                "ft_error_type": error_type(failure),
            }
            text = f"gave up after %d attempt{'s' * (attempts != 1)} in %.3f s, because of %s: %s"
            return text, values, {}


def _interest(kind: type[Event], others: Question) -> Question:
    return writes(_LEVELS.get(kind, DEBUG), others)


_LEVELS = {StateChanged: WARNING, GaveUp: WARNING, FleetLost: WARNING, FleetRegained: INFO}
"""The highest level at which events of a kind are logged."""


log.interest = _interest  # type: ignore[attr-defined]  # called first: a retry must not pay for unread text
