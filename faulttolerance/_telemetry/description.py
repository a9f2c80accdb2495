"""The events in words and as attributes, for the log and for spans."""

# No ``from __future__ import annotations``: every import would compile the annotations of a named tuple.

from typing import Any, NamedTuple

from .. import _event as events
from .._event import Event, error_type


class Field(NamedTuple):
    """A field of an event."""

    name: str
    attribute: str
    """The name of the attribute of a span event."""
    key: str
    """The name of the attribute of a log record."""

    def value_in(self, event: Event) -> Any:
        """Return the value; of a failure its class, because its message may contain arguments."""
        value = getattr(event, self.name)
        return error_type(value) if self.name == "failure" else value


class Description(NamedTuple):
    """The description of a kind of event."""

    name: str
    """The name of the span event."""
    text: str
    """The text of the log record."""
    in_text: tuple[Field, ...]
    """The fields whose values the text contains, in this order."""
    further: tuple[Field, ...] = ()
    """The other fields; they are omitted where they are empty."""


def describe(event: Event) -> Description:
    """Return the description of *event*."""
    if isinstance(event, events.StateChanged) and event.new == "open":
        return _OPENED
    return _GAVE_UP_AT_ONCE if isinstance(event, events.GaveUp) and event.attempts == 1 else _DESCRIPTIONS[type(event)]


def _field(name: str, attribute: str = "", key: str = "") -> Field:
    return Field(name, f"ft.{attribute or name}", f"ft_{key or name}")


_ATTEMPT, _ATTEMPTS = _field("attempt"), _field("attempts", "attempt")
_DELAY, _REASON, _NAMESPACE = _field("delay"), _field("reason"), _field("namespace")
_FAILURE = Field("failure", "error.type", "ft_error_type")
_STOP = _field("reason", "stop_reason", "stop_reason")
_OLD_STATE, _NEW_STATE = _field("old", "state.old", "old_state"), _field("new", "state.new", "new_state")
_OLD_LIMIT, _NEW_LIMIT = _field("old", "limit.old", "old_limit"), _field("new", "limit.new", "new_limit")

_OPENED = Description("ft.circuitbreaker.state", "circuit breaker opened: %s", (_REASON,), (_OLD_STATE, _NEW_STATE))
_GAVE_UP = Description(
    "ft.give_up",
    "gave up after %d attempts in %.3f s (%s): %s",
    (_ATTEMPTS, _field("elapsed"), _STOP, _FAILURE),
)
_GAVE_UP_AT_ONCE = _GAVE_UP._replace(text=_GAVE_UP.text.replace("attempts", "attempt"))
_DESCRIPTIONS: dict[type[Event], Description] = {
    events.RetryScheduled: Description(
        "ft.retry", "attempt %d failed (%s), the next one in %.3f s", (_ATTEMPT, _FAILURE, _DELAY)
    ),
    events.TimedOut: Description("ft.timeout", "attempt %d timed out after %g s", (_ATTEMPT, _field("limit"))),
    events.Rejected: Description(
        "ft.rejection", "attempt %d was refused by %s", (_ATTEMPT, _field("policy")), (_FAILURE,)
    ),
    events.FallbackApplied: Description("ft.fallback", "falling back after %s", (_FAILURE,)),
    events.Recovered: Description("ft.recovery", "succeeded at attempt %d", (_ATTEMPTS,)),
    events.HedgeSent: Description("ft.hedge", "hedge %d sent after %.3f s", (_field("hedge"), _DELAY)),
    events.StateChanged: _OPENED._replace(
        text="circuit breaker %s, was %s", in_text=(_NEW_STATE, _OLD_STATE), further=(_REASON,)
    ),
    events.LimitChanged: Description("ft.bulkhead.limit", "limit lowered to %d, was %d", (_NEW_LIMIT, _OLD_LIMIT)),
    events.FleetLost: Description(
        "ft.fleet.lost", "%s does not answer, and this process decides alone: %s", (_NAMESPACE, _REASON)
    ),
    events.FleetRegained: Description(
        "ft.fleet.regained", "%s answers again, after %.3f s", (_NAMESPACE, _field("seconds"))
    ),
    events.GaveUp: _GAVE_UP,
}
