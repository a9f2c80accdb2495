"""Names of parameters in other libraries, for the hint in an error. Loaded only for mistakes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .._shown import nearest
from .parameter import Values

_EQUIVALENTS: Final = {
    "max_retries": "attempts max_attempts max_tries stop tries",
    "factor": "base exp_base multiplier wait_exp_base",
    "min_delay": "base",
    "retry_on": "exceptions retry",
    "abort_on": "giveup",
    "max_duration": "max_time timeout",
    "jitter": "wait_jitter",
    "max_delay": "max_value wait_max",
    "delay": "interval recovery_timeout reset_timeout timeout_duration wait wait_initial",
    "fail_on": "expected_exception",
    "skip_on": "exclude",
    "request_volume_threshold": "fail_max failure_threshold",
    "value": "calls fallback_function max_calls max_concurrency max_concurrent seconds timeout",
    "window": "per period",
    "waiting_task_queue": "queue",
}
"""The names of each parameter in tenacity, stamina, backoff, pybreaker, circuitbreaker and other Python libraries."""

_REPLACEMENTS: Final = {
    ("Fallback", "default"): "fallback(lambda context: ...)",
    ("Retry", "backoff"): "exponential_backoff(factor=...) beside it",
}
"""A parameter that a user may look for, and the decorator or argument to write in its place."""


def refuse_unknown(kind: type[Values], named: Iterable[str]) -> None:
    """Raise an error for parameters that *kind* does not have, with the nearest that it has."""
    known = kind._parameters
    for name in named:
        if name not in known:
            near = [_REPLACEMENTS[kind.annotation, name]] if (kind.annotation, name) in _REPLACEMENTS else []
            near += [ours for ours, others in _EQUIVALENTS.items() if ours in known and name in others.split()]
            near += [ours for ours in (f"retry_{name}", f"fail_{name}") if ours in known]
            near.append(nearest(name.lower(), known))
            hint = f"; did you mean {near[0]}?" if near[0] else ""
            raise TypeError(f"{kind.where} has no parameter {name!r}; it has {', '.join(known) or 'none'}{hint}")
