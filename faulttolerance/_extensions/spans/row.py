"""The row of spans, one for each attempt, where ``configure(tracing="spans")`` asks for them (rule O1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..._call.row import AttemptBinding, Row
from ..._telemetry.connect import telemetry

if TYPE_CHECKING:
    from ..._call.bound_policies import BoundPolicies


def _around_attempt(function: Callable[..., Any], body: AttemptBinding) -> Callable[..., Any]:
    if not telemetry.creates_spans:
        return function
    from .layer import spanned

    return spanned(function, body.binding.name, body.is_awaited)


def _number_attempts(policies: BoundPolicies) -> None:
    """Pass the number of each attempt but the first to its span."""
    if not telemetry.creates_spans or policies.retry is None:
        return
    from .layer import ATTEMPT

    def numbered(attempt: Any) -> Any:
        return lambda args, kwargs, record: attempt(args, {**kwargs, ATTEMPT: record.attempts}, record)

    policies.wrap_retries(numbered)


SPANS = Row(around_attempt=_around_attempt, composed=_number_attempts)
