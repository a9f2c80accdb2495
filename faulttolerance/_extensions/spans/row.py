"""The row of spans, one for each attempt, where ``configure(tracing="spans")`` asks for them (rule O1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..._call.row import AttemptBinding, Row
from ..._telemetry.connect import telemetry


def _around_attempt(function: Callable[..., Any], body: AttemptBinding) -> Callable[..., Any]:
    from .layer import spanned

    return spanned(function, body.binding.name, body.is_awaited)


SPANS = Row(around_attempt=_around_attempt, is_wanted=telemetry.creates_spans, numbers_retries=True)
