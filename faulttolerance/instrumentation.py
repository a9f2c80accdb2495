"""Events of the guards for the application: retries, time-outs, rejections, state changes, fallbacks.

>>> def count(event: Event) -> None:
...     if isinstance(event, RetryScheduled):
...         print(event.method, event.attempt, event.delay)
>>> set_event_sinks([*get_event_sinks(), count])

By default, events go to the standard library's logger ``faulttolerance``, and to the current span of OpenTelemetry if
that is recording. Metrics need no events; ``configure(prometheus_registry=..., meter_provider=...)`` sets their
destination.
"""

from __future__ import annotations

from collections.abc import Iterable

from ._event import (
    Degradation,
    Event,
    FallbackApplied,
    FleetLost,
    FleetRegained,
    GaveUp,
    HedgeSent,
    LimitChanged,
    Recovered,
    Rejected,
    RetryScheduled,
    StateChanged,
    TimedOut,
    sinks as _sinks,
)
from .typing import EventSink

__all__ = [
    "Degradation",
    "Event",
    "FallbackApplied",
    "FleetLost",
    "FleetRegained",
    "GaveUp",
    "HedgeSent",
    "LimitChanged",
    "Recovered",
    "Rejected",
    "RetryScheduled",
    "StateChanged",
    "TimedOut",
    "get_event_sinks",
    "set_event_sinks",
]


def set_event_sinks(sinks: Iterable[EventSink] | None) -> None:
    """Notify these sinks of every event from now on, and no others; ``None`` restores logging and tracing.

    A sink is called on the thread of the call, in its event loop if it has one, outside every lock, and is not awaited:
    it should be quick. A sink that raises is logged once and changes nothing. A sink is not notified of guarded calls
    that it makes itself.

    Raises:
        FaultToleranceDefinitionException: If a sink cannot be called, or is a coroutine function.
    """
    from ._guard.declare.checks.definition import never_awaited_faults
    from ._shown import one_or_several
    from .exceptions import raise_faults

    chosen = None if sinks is None else one_or_several(sinks)
    place = "set_event_sinks(sinks)"
    raise_faults([fault for sink in chosen or () for fault in never_awaited_faults(place, sink, "event")])
    _sinks.set(chosen)


def get_event_sinks() -> tuple[EventSink, ...]:
    """Return the sinks in use."""
    from ._telemetry import connect  # noqa: F401  # it finds the default sinks

    return _sinks.get()
