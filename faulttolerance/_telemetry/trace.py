"""Events on the current span of OpenTelemetry, if a span records."""

from __future__ import annotations

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
    TracedCall,
    error_type,
    nobody,
)


def trace(event: Event) -> bool:
    """Add *event* to the span that the application has made current; return whether there is one that records.

    No span records before the application has imported ``opentelemetry.trace``, so this function does not import it.
    """
    find = getattr(modules.get("opentelemetry.trace"), "get_current_span", None)
    span: Any = None if find is None else find()
    if span is None or not span.is_recording():
        return False
    name, attributes = _described(event)
    span.add_event(name, {"ft.method": event.method, **attributes} if event.method else attributes)
    return True


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


_tracer: Any = None
"""The module ``opentelemetry.trace``, once the application has imported it: finding it takes half as long as asking."""


def _is_traced(call: TracedCall | None) -> bool:
    """Return whether a span of the application records here; true also if its tracer fails.

    To ask takes long, and the answer is the same throughout a call, which remembers a no.
    """
    global _tracer
    if _tracer is None:
        if "opentelemetry.trace" not in modules:
            return False
        _tracer = modules.get("opentelemetry.trace")
    if call is not None and call.is_untraced:
        return False
    try:
        is_recording: bool = _tracer.get_current_span().is_recording()
    except Exception:  # noqa: BLE001  # the application's: ``trace`` meets it again, and that is logged
        return True
    if call is not None:
        call.is_untraced = not is_recording
    return is_recording


def _interest(_: type[Event], others: Question) -> Question:
    return _is_traced if others is nobody else lambda call: _is_traced(call) or others(call)


trace.interest = _interest  # type: ignore[attr-defined]  # where no span records, no event is created for it
