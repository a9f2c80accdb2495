"""The events in words and as attributes, for the log and for spans."""

# No ``from __future__ import annotations``: every import would compile the annotations of a named tuple.

from collections.abc import Mapping
from typing import Any, NamedTuple

from .. import _event as events
from .._event import Event, error_type


class Description(NamedTuple):
    """The description of a kind of event."""

    name: str
    """The name of the span event."""
    text: str
    """The text of the log record, with the names of fields as they are in log records."""
    attributes: Mapping[str, str] = {}
    """The names of attributes that differ from those of most events."""


def describe(event: Event) -> Description:
    """Return the description of *event*."""
    return _OPENED if isinstance(event, events.StateChanged) and event.new == "open" else _DESCRIPTIONS[type(event)]


def attributes_of(event: Event, description: Description) -> dict[str, Any]:
    """Return the values of *event* by attribute; of a failure its class, because its message may contain arguments."""
    names = {"failure": "error.type", "attempts": "ft.attempt", **description.attributes}
    return {
        names.get(field, f"ft.{field}"): error_type(value) if field == "failure" else value
        for field, value in event._asdict().items()
    }


_OPENED = Description(
    "ft.circuitbreaker.state", "circuit breaker opened: %(ft_reason)s", {"old": "ft.state.old", "new": "ft.state.new"}
)
_DESCRIPTIONS: dict[type[Event], Description] = {
    events.RetryScheduled: Description(
        "ft.retry", "attempt %(ft_attempt)d failed (%(ft_error_type)s), the next one in %(ft_delay).3f s"
    ),
    events.TimedOut: Description("ft.timeout", "attempt %(ft_attempt)d timed out after %(ft_limit)g s"),
    events.Rejected: Description("ft.rejection", "attempt %(ft_attempt)d was refused by %(ft_policy)s"),
    events.FallbackApplied: Description("ft.fallback", "falling back after %(ft_error_type)s"),
    events.Recovered: Description("ft.recovery", "succeeded at attempt %(ft_attempt)d"),
    events.HedgeSent: Description("ft.hedge", "hedge %(ft_hedge)d sent after %(ft_delay).3f s"),
    events.StateChanged: _OPENED._replace(text="circuit breaker %(ft_state_new)s, was %(ft_state_old)s"),
    events.LimitChanged: Description(
        "ft.bulkhead.limit",
        "limit lowered to %(ft_limit_new)d, was %(ft_limit_old)d",
        {"old": "ft.limit.old", "new": "ft.limit.new"},
    ),
    events.FleetLost: Description(
        "ft.fleet.lost", "%(ft_namespace)s does not answer, and this process decides alone: %(ft_reason)s"
    ),
    events.FleetRegained: Description("ft.fleet.regained", "%(ft_namespace)s answers again, after %(ft_seconds).3f s"),
    events.GaveUp: Description(
        "ft.give_up",
        "gave up after attempt %(ft_attempt)d in %(ft_elapsed).3f s (%(ft_stop_reason)s): %(ft_error_type)s",
        {"reason": "ft.stop_reason"},
    ),
}
