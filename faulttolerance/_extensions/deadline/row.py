"""The row of ``@deadline``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from ..._call.bound_policies import BoundPolicies, conclude_of
from ..._call.row import Binding, Layer, Row
from ..._metrics.catalogue import Metric, PolicyMetrics
from ..._policy import ChronoUnit, Policy, seconds
from .policy import Deadline

if TYPE_CHECKING:
    from .decorator import WholeCall


def _bind(policy: Deadline, binding: Binding) -> Mapping[str, Any]:
    limit = seconds(policy.value, ChronoUnit.MILLIS)
    ends = limit and binding.is_enforced(Deadline)
    return {"seconds": limit or inf, "conclude": conclude_of(binding.asynchronous) if ends else None}


def _layer(policy: Deadline, binding: Binding) -> Layer | None:
    if not policy.value:
        return lambda call, _: call  # its seconds must not be those of the attempts
    if not binding.is_enforced(Deadline):
        return None
    from .layer import under_deadline

    return partial(under_deadline, binding.name)


def _listener(kinds: frozenset[type[Policy]], binding: Binding) -> Callable[..., BoundPolicies] | None:
    from .layer import WholeCallPolicies

    return WholeCallPolicies


def _decorator() -> type[WholeCall]:
    from .decorator import WholeCall

    return WholeCall


_SERIES = PolicyMetrics(
    Deadline,
    "passed",
    (
        Metric(
            "ft.deadline.calls.total",
            "counter",
            "The number of calls that were made under a deadline, and of those that exceeded it",
            ("exceeded",),
            {"passed": ("false",), "timedOut": ("true",)},
        ),
    ),
)

DEADLINE = Row(
    Deadline,
    _bind,
    layer=_layer,
    listener=_listener,
    series=_SERIES,
    block_fault=("bounds whole calls", "`with deadline(...)` around the block, or around its loop"),
    decorator=_decorator,
)
