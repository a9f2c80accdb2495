"""Names of parameters in other libraries, for the hint in an error. Loaded only for mistakes."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .parameter import Values

_EQUIVALENTS: Final = {
    # retries: tenacity, stamina, backoff, resilience4j, Polly
    "attempts": "max_retries",
    "base": "factor min_delay",
    "exceptions": "retry_on",
    "giveup": "abort_on",
    "ignore_exceptions": "abort_on skip_on",
    "interval": "delay",
    "max_attempts": "max_retries",
    "max_retry_attempts": "max_retries",
    "max_time": "max_duration",
    "max_tries": "max_retries",
    "retry": "retry_on",
    "stop": "max_retries",
    "tries": "max_retries",
    "use_jitter": "jitter",
    "wait": "delay",
    "wait_duration": "delay",
    "wait_exp_base": "factor",
    "wait_initial": "delay",
    "wait_jitter": "jitter",
    "wait_max": "max_delay",
    "max_value": "max_delay",
    "exp_base": "factor",
    "multiplier": "factor",
    # circuits: pybreaker, circuitbreaker, resilience4j, Polly
    "break_duration": "delay",
    "exclude": "skip_on",
    "expected_exception": "fail_on",
    "fail_max": "request_volume_threshold",
    "failure_rate_threshold": "failure_ratio",
    "failure_threshold": "request_volume_threshold",
    "minimum_number_of_calls": "request_volume_threshold",
    "minimum_throughput": "request_volume_threshold",
    "permitted_number_of_calls_in_half_open_state": "success_threshold",
    "record_exceptions": "fail_on",
    "recovery_timeout": "delay",
    "reset_timeout": "delay",
    "sampling_duration": "window",
    "sliding_window_size": "request_volume_threshold",
    "slow_call_duration_threshold": "slow",
    "wait_duration_in_open_state": "delay",
    # other policies
    "calls": "value",
    "duration": "value",
    "fallback_function": "value",
    "limit_for_period": "value",
    "limit_refresh_period": "window",
    "max_calls": "value",
    "max_concurrency": "value",
    "max_concurrent": "value",
    "max_concurrent_calls": "value",
    "max_wait_duration": "max_wait",
    "per": "window",
    "period": "window",
    "permit_limit": "value",
    "queue": "waiting_task_queue",
    "queue_limit": "waiting_task_queue",
    "seconds": "value",
    "timeout": "max_duration value",
    "timeout_duration": "value max_wait",
}
"""A name in other libraries, and the nearest of our parameters."""

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
            near += [
                ours for ours in (*_EQUIVALENTS.get(name, "").split(), f"retry_{name}", f"fail_{name}") if ours in known
            ]
            near += get_close_matches(name.lower(), known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise TypeError(f"@{kind.annotation} has no parameter {name!r}; it has {', '.join(known) or 'none'}{hint}")
