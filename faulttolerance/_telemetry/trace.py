"""Events on the current span of OpenTelemetry, if a span records."""

from __future__ import annotations

from functools import partial
from sys import modules
from typing import Any

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


def trace(event: Event) -> None:
    """Add *event* to the span that the application has made current."""
    span = _recording_span()
    if span is not None:
        name, attributes = _described(event)
        where = {"ft.method": event.method} if event.method else {}
        span.add_event(name, {**where, **attributes})


def is_traced() -> bool:
    """Return whether a span of the application records here; true also if its tracer fails."""
    try:
        return _recording_span() is not None
    except Exception:  # noqa: BLE001  # the application's: ``trace`` meets it again, and that is logged
        return True


def _recording_span() -> Any:
    """Return the current span if it records, else ``None``.

    No span records before the application has imported ``opentelemetry.trace``, so this function does not import it.
    """
    find = getattr(modules.get("opentelemetry.trace"), "get_current_span", None)
    span = None if find is None else find()
    return span if span is not None and span.is_recording() else None


def _described(event: Event) -> tuple[str, dict[str, str | int | float]]:
    match event:
        case RetryScheduled(_, attempt, delay, failure):
            return "ft.retry", {"ft.attempt": attempt, "ft.delay": delay, "error.type": error_type(failure)}
        case TimedOut(_, attempt, limit):
            return "ft.timeout", {"ft.attempt": attempt, "ft.limit": limit}
        case Rejected(_, attempt, policy, failure):
            return "ft.rejection", {"ft.attempt": attempt, "ft.policy": policy, "error.type": error_type(failure)}
        case StateChanged(_, old, new, reason):
            states = {"ft.state.old": old, "ft.state.new": new}
            return "ft.circuitbreaker.state", {**states, "ft.reason": reason} if reason else {**states}
        case LimitChanged(_, old, new):
            return "ft.bulkhead.limit", {"ft.limit.old": old, "ft.limit.new": new}
        case FallbackApplied(_, failure):
            return "ft.fallback", {"error.type": error_type(failure)}
        case GaveUp(_, attempts, elapsed, reason, failure):
            return "ft.give_up", {
                "ft.attempt": attempts,
                "ft.elapsed": elapsed,
                "ft.stop_reason": reason,
                "error.type": error_type(failure),
            }
        case HedgeSent(_, hedge, delay):
            return "ft.hedge", {"ft.hedge": hedge, "ft.delay": delay}
        case FleetLost(namespace, reason):
            return "ft.fleet.lost", {"ft.namespace": namespace, "ft.reason": reason}
        case FleetRegained(namespace, seconds):
            return "ft.fleet.regained", {"ft.namespace": namespace, "ft.seconds": seconds}
        case Recovered(_, attempts):
            return "ft.recovery", {"ft.attempt": attempts}


def _interest(_: type[Event], others: Question) -> Question:
    is_here = partial(modules.__contains__, "opentelemetry.trace")
    return is_here if others is bool else lambda: is_here() or others()


trace.interest = _interest  # type: ignore[attr-defined]  # without a tracer, no event is created for it
