"""Names of parameters in other libraries, for the hint in an error. Loaded only for mistakes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .._shown import nearest
from .parameter import Values

_EQUIVALENTS: Final = {
    "max_retries": "attempts max_attempts max_retry_attempts max_tries stop tries",
    "factor": "base exp_base multiplier wait_exp_base",
    "min_delay": "base",
    "retry_on": "exceptions retry",
    "abort_on": "giveup ignore_exceptions",
    "max_duration": "max_time timeout",
    "jitter": "use_jitter wait_jitter",
    "max_delay": "max_value wait_max",
    "delay": "break_duration interval recovery_timeout reset_timeout wait wait_duration wait_duration_in_open_state"
    " wait_initial",
    "fail_on": "expected_exception record_exceptions",
    "skip_on": "exclude ignore_exceptions",
    "request_volume_threshold": "fail_max failure_threshold minimum_number_of_calls minimum_throughput"
    " sliding_window_size",
    "failure_ratio": "failure_rate_threshold",
    "success_threshold": "permitted_number_of_calls_in_half_open_state",
    "slow": "slow_call_duration_threshold",
    "value": "calls duration fallback_function limit_for_period max_calls max_concurrency max_concurrent"
    " max_concurrent_calls permit_limit seconds timeout timeout_duration",
    "window": "limit_refresh_period per period sampling_duration",
    "max_wait": "max_wait_duration timeout_duration",
    "waiting_task_queue": "queue queue_limit",
}
"""The names of each parameter in tenacity, stamina, backoff, pybreaker, circuitbreaker, resilience4j and Polly."""

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
