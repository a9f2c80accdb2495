"""The default receivers of events: the log, and the current span of OpenTelemetry, if a span records.

Records of the standard library's logger ``faulttolerance`` have fields as attributes, named ``ft_...``. Arguments are
never logged. Messages of failures are not logged either, because they may contain arguments.
"""

from __future__ import annotations

from sys import modules
from typing import Any

from .._event import Event, FleetLost, FleetRegained, GaveUp, Question, StateChanged, TracedCall, nobody
from .._log import DEBUG, INFO, WARNING, log as write, logger
from .._shown import escaped
from .description import attributes_of, describe


def log(event: Event) -> None:
    """Log *event*: state changes and give-ups for people, attempts at DEBUG."""
    level = _level_of(event)
    if not logger().isEnabledFor(level):
        return
    description = describe(event)
    attributes = attributes_of(event, description)
    values = {f"ft_{name.removeprefix('ft.').replace('.', '_')}": value for name, value in attributes.items()}
    subject = "%(ft_method)s" if event.method else "fleet"
    fields = {name: value for name, value in values.items() if value != ""}
    write(level, f"{subject}: {description.text}", values, fields=fields)


def _level_of(event: Event) -> int:
    """Return the level at which *event* is logged."""
    if isinstance(event, GaveUp):
        return WARNING if event.is_news else DEBUG
    if isinstance(event, StateChanged):
        return WARNING if event.new == "open" else INFO
    return _LEVELS.get(type(event), DEBUG)


_LEVELS = {StateChanged: WARNING, GaveUp: WARNING, FleetLost: WARNING, FleetRegained: INFO}
"""The highest level at which events of a kind are logged."""


def _log_interest(kind: type[Event], others: Question) -> Question:
    ours, level = logger(), _LEVELS.get(kind, DEBUG)

    def may_be_logged(call: TracedCall | None) -> bool:
        # Nearly always the level forbids the record, and reading the level is faster than calling isEnabledFor.
        if (ours.level or ours.parent.level) > level:  # type: ignore[union-attr]
            return others(call)
        return ours.isEnabledFor(level) or others(call)

    return may_be_logged


log.interest = _log_interest  # type: ignore[attr-defined]  # called first: a retry must not pay for unread text


def trace(event: Event) -> bool:
    """Add *event* to the span that the application has made current; return whether there is one that records.

    No span records before the application has imported ``opentelemetry.trace``, so this function does not import it.
    """
    find = getattr(modules.get("opentelemetry.trace"), "get_current_span", None)
    span: Any = None if find is None else find()
    if span is None or not span.is_recording():
        return False
    description = describe(event)
    # A text that cannot be encoded would end the export of a whole batch of spans.
    attributes = {
        name: escaped(value) if isinstance(value, str) else value
        for name, value in attributes_of(event, description).items()
        if value != ""
    }
    span.add_event(description.name, attributes)
    return True


_tracer: Any = None
"""The module ``opentelemetry.trace``, once the application has imported it: finding it takes half as long as asking."""
_context: Any = None
"""The module ``opentelemetry.context``; the current context is empty where there is no span."""
_find_span: Any = None
"""OpenTelemetry's own function for the current span, which reads that context; a test may replace it in the module."""


def _is_traced(call: TracedCall | None) -> bool:
    """Return whether a span of the application records here; true also if its tracer fails.

    To ask takes long, and the answer is the same throughout a call, which remembers a no.
    """
    global _tracer, _context, _find_span
    if _tracer is None:
        if "opentelemetry.trace" not in modules:
            return False
        _context = modules.get("opentelemetry.context")
        _find_span = getattr(modules.get("opentelemetry.trace.propagation"), "get_current_span", None)
        _tracer = modules.get("opentelemetry.trace")
    if call is not None and call.is_untraced:
        return False
    try:
        find = _tracer.get_current_span
        is_recording = False
        if find is not _find_span:
            is_recording = find().is_recording()
        elif context := _context.get_current():
            is_recording = find(context).is_recording()
    except Exception:  # noqa: BLE001  # the application's: ``trace`` meets it again, and that is logged
        return True
    if call is not None:
        call.is_untraced = not is_recording
    return is_recording


def _trace_interest(_: type[Event], others: Question) -> Question:
    return _is_traced if others is nobody else lambda call: _is_traced(call) or others(call)


trace.interest = _trace_interest  # type: ignore[attr-defined]  # where no span records, no event is created for it
