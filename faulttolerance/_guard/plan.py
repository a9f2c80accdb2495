"""What holds for one guard and one concrete class: the outcome of declaring and configuring."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._config import Declared, Effective, Switches
from .._policy import (
    Asynchronous,
    AsynchronousNonBlocking,
    BeforeRetry,
    Bulkhead,
    CircuitBreaker,
    CircuitBreakerName,
    CustomBackoff,
    ExponentialBackoff,
    Fallback,
    FibonacciBackoff,
    Policy,
    RateLimit,
    Retry,
    RetryWhen,
    Timeout,
)

__all__ = ["ORDER", "Plan", "in_order"]

ORDER: Sequence[type[Policy]] = (
    Asynchronous,
    AsynchronousNonBlocking,
    Fallback,
    Retry,
    ExponentialBackoff,
    FibonacciBackoff,
    CustomBackoff,
    RetryWhen,
    BeforeRetry,
    CircuitBreaker,
    CircuitBreakerName,
    RateLimit,
    Timeout,
    Bulkhead,
)
"""How policies are listed, outermost first; ``attempt`` is what nests them."""


_RANK: Mapping[type[Policy], int] = {kind: rank for rank, kind in enumerate(ORDER)}
_NO_HOMES: Mapping[type[Policy], type] = {}
_ALL_ON = Switches()


class Plan:
    """What holds for one guard and one concrete class; found anew for whoever asks.

    Args:
        name: The method as metrics and messages name it: ``module.Class.method`` with the concrete class.
        function: What runs; where nothing guards it, that is all.
        declared: What the annotations say; empty where the method runs plainly.
        effective: The same with configuration applied, in the same order.
        interceptors: Those that stand around it, the outermost first.
        homes: The class that declares each policy; empty for a function.
        switches: Those for the whole application.
        counted_as: What metrics name it, if that is something else: what several guards have in common.
    """

    __slots__ = (
        "counted_as",
        "declared",
        "effective",
        "function",
        "homes",
        "interceptors",
        "name",
        "policies",
        "switches",
    )

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        declared: Sequence[Declared] = (),
        effective: Sequence[Effective] = (),
        interceptors: tuple[Any, ...] = (),
        homes: Mapping[type[Policy], type] = _NO_HOMES,
        switches: Switches = _ALL_ON,
        counted_as: str = "",
    ) -> None:
        self.name = name
        self.function = function
        self.declared = declared
        self.effective = effective
        self.interceptors = interceptors
        self.homes = homes
        self.switches = switches
        self.counted_as = counted_as or name
        self.policies = {type(one.policy): one.policy for one in effective if one.enabled}
        """The policies that are in force."""


def in_order(declared: list[Declared]) -> list[Declared]:
    """*declared* as policies nest, outermost first."""
    return sorted(declared, key=lambda one: _RANK[type(one.policy)])
