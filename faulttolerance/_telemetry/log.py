"""Events as records of the standard library's logger ``faulttolerance``.

Fields are attributes of the record, named ``ft_...``. Arguments are never logged. Messages of failures are not logged
either, because they may contain arguments.
"""

from __future__ import annotations

from .._event import Event, FleetLost, FleetRegained, GaveUp, Question, StateChanged
from .._log import DEBUG, INFO, WARNING, log as write, logger, writes
from .description import describe


def log(event: Event) -> None:
    """Log *event*: state changes and give-ups for people, attempts at DEBUG."""
    level = _level_of(event)
    if not logger().isEnabledFor(level):
        return
    description = describe(event)
    values = [field.value_in(event) for field in description.in_text]
    fields = {"ft_method": event.method} if event.method else {}
    fields |= {field.key: value for field, value in zip(description.in_text, values, strict=True)}
    fields |= {field.key: value for field in description.further if (value := field.value_in(event))}
    write(level, f"%s: {description.text}", event.method or "fleet", *values, fields=fields)


def _level_of(event: Event) -> int:
    """Return the level at which *event* is logged."""
    if isinstance(event, GaveUp):
        return WARNING if event.is_news else DEBUG
    if isinstance(event, StateChanged):
        return WARNING if event.new == "open" else INFO
    return _LEVELS.get(type(event), DEBUG)


def _interest(kind: type[Event], others: Question) -> Question:
    return writes(_LEVELS.get(kind, DEBUG), others)


_LEVELS = {StateChanged: WARNING, GaveUp: WARNING, FleetLost: WARNING, FleetRegained: INFO}
"""The highest level at which events of a kind are logged."""


log.interest = _interest  # type: ignore[attr-defined]  # called first: a retry must not pay for unread text
