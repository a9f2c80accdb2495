"""The row of limits that adapt to latencies: those of ``@bulkhead(latency=...)`` and ``@timeout(adaptive=True)``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..._call.bound_policies import BoundPolicies
from ..._call.core import where_set
from ..._call.row import Binding, Row
from ..._policy import Bulkhead, Policy, Timeout, seconds


def _listener(kinds: frozenset[type[Policy]], binding: Binding) -> Callable[..., BoundPolicies] | None:
    timeout = binding.policies.get(Timeout) if Timeout in kinds and binding.is_enforced(Timeout) else None
    bulkhead = binding.policies.get(Bulkhead) if Bulkhead in kinds else None
    ceiling = seconds(timeout.value, timeout.unit) if isinstance(timeout, Timeout) and timeout.adaptive else 0.0
    is_limited = isinstance(bulkhead, Bulkhead) and bulkhead.latency
    if not (ceiling or is_limited):
        return None
    from .listener import AdaptivelyTimed, Limiter, ListenedPolicies

    limiter = Limiter(binding.name, binding.strategies.get(Bulkhead), binding.detached) if is_limited else None
    if not ceiling:
        return partial(ListenedPolicies, limiter=limiter)
    return partial(AdaptivelyTimed, limiter=limiter, time_limit=binding.strategies.get(Timeout).adaptive(ceiling))


ADAPTIVE = Row(beside=(Bulkhead, Timeout), listener=where_set(_listener, {Bulkhead: "latency", Timeout: "adaptive"}))
