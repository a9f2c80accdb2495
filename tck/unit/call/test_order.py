"""The order of the policies: one row for each, from which everything else follows."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from faulttolerance import Bulkhead, CircuitBreaker, Guard, RateLimit, Retry, Timeout, decorators
from faulttolerance._call.order import MEMORIES, ORDER, RANK, GuardPolicies, Strategies
from faulttolerance._call.state import State, StateDraft
from faulttolerance._guard.checking.definition import decorator_name
from faulttolerance._metrics.ledger import Ledger
from faulttolerance._policy import Fallback, Policy

GUARD_PARAMETERS = list(GuardPolicies.__annotations__)


def test_every_policy_has_one_row() -> None:
    """What has none would be configured, and never nested."""
    assert sorted(row.policy.__name__ for row in ORDER) == sorted(policy.__name__ for policy in Policy.__subclasses__())


def test_policies_nest_as_the_specification_says() -> None:
    """asynchronous, fallback, retry, circuit breaker, SmallRye's rate limit, timeout, bulkhead."""
    nested = [Fallback, Retry, CircuitBreaker, RateLimit, Timeout, Bulkhead]

    assert sorted(nested, key=RANK.__getitem__) == nested


def test_what_modifies_another_policy_stands_behind_it() -> None:
    """A reader finds it there, and `explain` lists it there."""
    assert all(RANK[row.modifies] < RANK[row.policy] for row in ORDER if row.modifies)


@pytest.mark.parametrize("name", GUARD_PARAMETERS)
def test_a_guard_takes_policies_under_the_names_of_their_decorators(name: str) -> None:
    """Who knows one way to write a policy knows the other."""
    assert hasattr(decorators, name)
    assert name in [decorator_name(row.policy) for row in ORDER]


def test_the_signature_of_a_guard_shows_its_parameters_one_by_one() -> None:
    """An editor completes them; they stand in one place all the same."""
    assert list(inspect.signature(Guard).parameters) == [*GUARD_PARAMETERS, "name"]


def test_the_signature_of_a_class_with_a_constructor_of_its_own_is_that_of_the_constructor() -> None:
    """Nor has a guard the signature of its class: it is called with a function."""

    class Limited(Guard):
        def __init__(self, limit: int) -> None:
            super().__init__(bulkhead=Bulkhead(limit))

    assert list(inspect.signature(Limited).parameters) == ["limit"]
    assert list(inspect.signature(Limited(1)).parameters) == ["function"]


def test_a_guard_refuses_what_is_no_policy_of_a_guard() -> None:
    """As any function refuses a keyword that it does not have."""
    unknown: dict[str, Any] = {"timeuot": Timeout(1)}

    with pytest.raises(TypeError, match="unexpected keyword argument 'timeuot'"):
        Guard(**unknown)


def test_a_draft_makes_what_its_policies_remember_and_keeps_what_there_is() -> None:
    """A circuit outlives a reload that adds a bulkhead."""
    state = State("acme.call")
    state.strategies = StateDraft(state, {CircuitBreaker: CircuitBreaker()}, Ledger()).strategies

    strategies = StateDraft(state, {Bulkhead: Bulkhead(3)}, Ledger()).strategies

    assert strategies.get(CircuitBreaker) is state.circuit_breaker is not None
    assert dict(strategies.items()).keys() == {CircuitBreaker, Bulkhead}
    assert strategies.get(RateLimit) is None


def test_new_values_reach_each_strategy_that_remembers_something() -> None:
    """At a reload, by the row alone."""
    old: dict[type[Policy], Policy] = {CircuitBreaker: CircuitBreaker(), RateLimit: RateLimit(3), Bulkhead: Bulkhead(3)}
    state = State("acme.call")
    state.strategies = StateDraft(state, old, Ledger()).strategies
    assert isinstance(state.strategies, Strategies)
    assert MEMORIES.keys() >= old.keys()

    state.policies = CircuitBreaker(delay=7, request_volume_threshold=2), RateLimit(1), Bulkhead(2)
    state.follow()

    breaker, bulkhead = state.circuit_breaker, state.strategies.get(Bulkhead)
    assert breaker is not None
    assert (breaker.delay, breaker.request_volume_threshold, bulkhead.limit) == (0.007, 2, 2)
