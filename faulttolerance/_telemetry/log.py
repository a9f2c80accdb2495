"""Events as records of the standard library's logger ``faulttolerance``.

Fields are attributes of the record, named ``ft_...``. Arguments are never logged. Messages of failures are not logged
either, because they may contain arguments.
"""

from __future__ import annotations

from .._event import Event, FleetLost, FleetRegained, GaveUp, Question, StateChanged
from .._log import DEBUG, INFO, WARNING, log as write, logger, writes
from .description import attributes_of, describe


def log(event: Event) -> None:
    """Log *event*: state changes and give-ups for people, attempts at DEBUG."""
    level = _level_of(event)
    if not logger().isEnabledFor(level):
        return
    values = {f"ft_{name.removeprefix('ft.').replace('.', '_')}": value for name, value in attributes_of(event).items()}
    subject = "%(ft_method)s" if event.method else "fleet"
    fields = {name: value for name, value in values.items() if value != ""}
    write(level, f"{subject}: {describe(event).text}", values, fields=fields)


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
