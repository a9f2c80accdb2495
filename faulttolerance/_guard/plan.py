"""What holds for one guard and one concrete class: the outcome of declaring and configuring."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from weakref import ref

from .._config import Declared, Effective
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
from .._record import Record

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
"""How policies are listed, outermost first; ``compose`` is what nests them."""


class Plan(Record):
    """What holds for one guard and one concrete class.

    Args:
        name: The method as metrics and messages name it: ``module.Class.method`` with the concrete class.
        function: What runs; where nothing guards it, that is all.
        declared: What the annotations say; empty where the method runs plainly.
        effective: The same with configuration applied, in the same order.
        homes: The class that declares each of them, held weakly; empty for a function.
    """

    name: str
    function: Callable[..., Any]
    declared: tuple[Declared, ...] = ()
    effective: tuple[Effective, ...] = ()
    interceptors: tuple[Any, ...] = ()
    homes: Mapping[type[Policy], ref[type]] = MappingProxyType({})

    def home(self, kind: type[Policy]) -> type | None:
        """The class that declares the policy of this *kind*."""
        return self.homes[kind]() if kind in self.homes else None

    @property
    def policies(self) -> dict[type[Policy], Policy]:
        """The policies that are in force."""
        return {type(one.policy): one.policy for one in self.effective if one.enabled}


def in_order(declared: list[Declared]) -> list[Declared]:
    """*declared* as policies nest, outermost first."""
    return sorted(declared, key=lambda one: ORDER.index(type(one.policy)))
