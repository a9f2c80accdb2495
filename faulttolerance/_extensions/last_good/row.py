"""The row of a fallback that may return the last good result of the same call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..._call.row import Binding, Layer, Row, StrategyFactory, key_of
from ..._policy import ChronoUnit, Fallback, recalling_handler_in, seconds
from .policy import LastGood

if TYPE_CHECKING:
    from .strategy import LastResults


def _value_in(policy: Fallback) -> LastGood | None:
    handler = recalling_handler_in(policy)
    return handler if isinstance(handler, LastGood) else None


def _results_of(name: str, policy: Fallback, _: object) -> LastResults | None:
    value = _value_in(policy)
    if value is None:
        return None
    from .strategy import LastResults

    return LastResults(seconds(value.max_age, ChronoUnit.MILLIS), value.max_entries)


def _renew(results: LastResults | None, policy: Fallback) -> None:
    value = _value_in(policy)
    if results is not None and value is not None:
        results.reconfigure(seconds(value.max_age, ChronoUnit.MILLIS), value.max_entries)


def _layer(policy: Fallback, binding: Binding) -> Layer | None:
    value = _value_in(policy)
    if value is None:
        return None
    from ..._signature.call_key import IdentityReference
    from .layer import Remembering

    return Remembering(binding.name, binding.strategies.get(Fallback), key_of(value.key, binding, IdentityReference))


def with_last_good(fallback: Row) -> Row:
    """Return the row of *fallback* with a strategy factory for ``last_good``."""
    bind_fallback = fallback.bind
    assert bind_fallback is not None

    def bind(policy: Fallback, binding: Binding) -> Mapping[str, Any]:
        bound = bind_fallback(policy, binding)
        if _value_in(policy) is None:
            return bound
        from ..._signature.call_key import UnsuitableKeyError

        # Else the next fallback would answer, and the function never run.
        return {**bound, "no_fallback_on": (*bound["no_fallback_on"], UnsuitableKeyError)}

    return fallback.__replace__(bind=bind, strategy_factory=StrategyFactory(_results_of, _renew), layer=_layer)
