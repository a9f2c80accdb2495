"""The row of limits that adapt to latencies: those of ``@bulkhead(latency=...)`` and ``@timeout(adaptive=True)``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..._call.bound_policies import BoundPolicies
from ..._call.row import Binding, Row
from ..._policy import Bulkhead, Policy, Timeout, seconds


def _listener(kinds: frozenset[type[Policy]], binding: Binding) -> Callable[..., BoundPolicies] | None:
    timeout, bulkhead = (binding.policies.get(kind) if kind in kinds else None for kind in (Timeout, Bulkhead))
    limiter = time_limit = None
    if isinstance(bulkhead, Bulkhead) and bulkhead.latency:
        from .limit_listener import Limiter

        limiter = Limiter(binding.name, binding.strategies.get(Bulkhead), detached=binding.detached)
    if isinstance(timeout, Timeout) and timeout.adaptive and timeout.value and binding.is_enforced(Timeout):
        time_limit = binding.strategies.get(Timeout).adaptive(seconds(timeout.value, timeout.unit))
    if limiter is None and time_limit is None:
        return None
    from .listener import AdaptivelyTimed, ListenedPolicies

    if time_limit is None:
        return partial(ListenedPolicies, limiter=limiter)
    return partial(AdaptivelyTimed, limiter=limiter, time_limit=time_limit)


ADAPTIVE = Row(beside=(Bulkhead, Timeout), listener=_listener)
