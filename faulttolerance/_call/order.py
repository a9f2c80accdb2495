"""The order in which policies nest, independent of the order of their decorators, and tables derived from it.

The specification (chapters on interactions) and SmallRye's rate limit determine the order; the adaptive throttle has
the place of the circuit breaker:

    partition_by( coalesce( asynchronous( fallback( deadline( retry( hedge( circuit_breaker( rate_limit( timeout(
    bulkhead( method )))))))))))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from .._policy import Bulkhead, CircuitBreaker, Policy, RetryBudget, Timeout
from .._policy.rows import rows
from .row import Row, StrategyFactory

ORDER: tuple[Row, ...] = rows()
"""The rows of all policies and extensions, outermost first."""

ROWS: Mapping[type[Policy], Row] = {row.policy: row for row in ORDER if row.policy is not None}
"""The rows of policies, outermost first."""

RANK: Mapping[type[Policy], int] = {policy: rank for rank, policy in enumerate(ROWS)}
"""The place of each policy in the order."""

MODIFIED: Mapping[type[Policy], type[Policy]] = {kind: row.modifies for kind, row in ROWS.items() if row.modifies}
"""The policies that have no effect alone, each with the policy that it modifies."""

STRATEGY_FACTORIES: Mapping[type[Policy], StrategyFactory] = dict(
    sorted(
        ((kind, row.strategy_factory) for kind, row in ROWS.items() if row.strategy_factory is not None),
        key=lambda pair: pair[1].is_last,
    )
)
_FREQUENT = (CircuitBreaker, Timeout, Bulkhead)
_PLACES: Mapping[type[Policy], int] = {
    policy: place for place, policy in enumerate(sorted(STRATEGY_FACTORIES, key=lambda policy: policy not in _FREQUENT))
}
_BY_ORDER = [(policy, _PLACES[policy]) for policy in STRATEGY_FACTORIES]
_NESTING = [(kind, factory.nested) for kind, factory in STRATEGY_FACTORIES.items() if factory.nested is not None]


@cache
def rows_for(policies: frozenset[type[Policy]], *, is_observed: bool) -> Sequence[Row]:
    """Return the rows that do something for a function with *policies*, some of which may be observed."""
    return [
        row
        for row in ORDER
        if (
            row.policy in policies
            if row.policy is not None
            else (is_observed or not row.is_for_observed) and not (row.beside and policies.isdisjoint(row.beside))
        )
    ]


class Strategies(tuple[Any, ...]):
    """The strategies of a guard that have state: one for each row with a strategy factory, or ``None`` while it does
    not exist.

    Most methods have few strategies. A tuple takes a third of the memory of a dictionary, and ends behind the last
    existing strategy. Therefore the strategies that most methods have come first (``_PLACES``).
    """

    __slots__ = ()

    def get(self, policy: type[Policy]) -> Any:
        """Return the strategy of *policy*, or ``None``."""
        place = _PLACES.get(policy, len(self))
        return self[place] if place < len(self) else None

    def by_policy(self) -> dict[type[Policy], Any]:
        """Return the existing strategies by their policies, in the order of ``STRATEGY_FACTORIES``."""
        end = len(self)
        return {policy: self[place] for policy, place in _BY_ORDER if place < end and self[place] is not None}

    @classmethod
    def of(cls, by_policy: Mapping[type[Policy], Any]) -> Strategies:
        """Return the strategies of *by_policy*."""
        by_place = {_PLACES[policy]: strategy for policy, strategy in by_policy.items() if strategy is not None}
        return cls(map(by_place.get, range(max(by_place, default=-1) + 1)))

    @property
    def own(self) -> Strategies:
        """The strategies without those by which a test replaces some of them."""
        return self

    @property
    def partitions(self) -> Any:
        """The strategy that contains strategies for each key, if calls are divided by keys."""
        return next((strategy for kind, _ in _NESTING if (strategy := self.get(kind)) is not None), None)

    def nested(self) -> Iterator[Strategies]:
        """Yield the strategies of each key."""
        for kind, held_by in _NESTING:
            if (strategy := self.get(kind)) is not None:
                yield from held_by(strategy)

    def items(self) -> Iterator[tuple[type[Policy], Any]]:
        """Yield each existing strategy with its policy, including the strategies of each key."""
        yield from self.by_policy().items()
        for strategies in self.nested():
            yield from strategies.items()

    def in_use(self, in_force: Iterable[type[Policy]]) -> list[tuple[type[Policy], Any]]:
        """Return the strategies of the policies *in_force* through which calls pass, each with its policy.

        Where keys have strategies of their own, those of the guard serve the keys that find no place. They are left out
        while every key finds one.
        """
        own = {kind: strategy for kind in in_force if (strategy := self.get(kind)) is not None}
        of_keys = [one for strategies in self.of(own).nested() for one in strategies.items() if one[0] in own]
        if not any(getattr(strategy, "is_full", False) for strategy in own.values()):
            for kind, _ in of_keys:
                own.pop(kind, None)
        return [*own.items(), *of_keys]

    def to_read(self) -> Strategies:
        """Return the strategies that metrics read while there are counts: no budget, which goes with its guards."""
        return self if self.get(RetryBudget) is None else self.of({**self.by_policy(), RetryBudget: None})
