"""The row of a fallback that may return the last good result of the same call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._call.core import recalls, where_set
from ..._call.row import Binding, Layer, Row, StrategyFactory, key_of
from ..._policy import ChronoUnit, Fallback, seconds

if TYPE_CHECKING:
    from .strategy import LastResults


def _results_of(name: str, policy: Fallback, _: object) -> LastResults | None:
    value: Any = policy.recalling
    if value is None:  # the policy has changed; its keys have had results
        return None
    from .strategy import LastResults

    return LastResults(seconds(value.max_age, ChronoUnit.MILLIS), value.max_entries)


def _renew(results: LastResults, policy: Fallback) -> None:
    value: Any = policy.recalling
    if value is not None:
        results.reconfigure(seconds(value.max_age, ChronoUnit.MILLIS), value.max_entries)


def _layer(policy: Fallback, binding: Binding) -> Layer:
    value: Any = policy.recalling
    from ..._signature.call_key import IdentityReference
    from .layer import Remembering

    return Remembering(binding.name, binding.strategies.get(Fallback), key_of(value.key, binding, IdentityReference))


def with_last_good(fallback: Row) -> Row:
    """Return the row of *fallback* with a strategy factory and a layer for ``last_good``."""
    factory, layer = StrategyFactory(_results_of, _renew, recalls), where_set(_layer, {Fallback: "recalling"})
    return fallback.__replace__(strategy_factory=factory, layer=layer)
