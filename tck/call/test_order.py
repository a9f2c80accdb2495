"""The order of the policies: one row for each, from which everything else follows."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import pytest

from faulttolerance import Guard, policies
from faulttolerance._call.order import RANK, ROWS, STRATEGY_FACTORIES, Strategies
from faulttolerance._call.state import State, StateDraft
from faulttolerance._extensions.keywords import GuardPolicies
from faulttolerance._guard.declare.checks.definition import decorator_name
from faulttolerance._metrics.counters import Ledger
from faulttolerance._policy import Fallback, Policy
from faulttolerance.policies import Bulkhead, CircuitBreaker, RateLimit, Retry, Timeout

GUARD_PARAMETERS = [name for name in inspect.signature(Guard).parameters if name not in ("given", "name")]


def test_every_policy_has_one_row() -> None:
    """A policy without a row would be configured, and never nested."""
    assert sorted(kind.__name__ for kind in ROWS) == sorted(policy.__name__ for policy in Policy.__subclasses__())


def test_policies_nest_as_the_specification_says() -> None:
    """asynchronous, fallback, retry, circuit breaker, SmallRye's rate limit, timeout, bulkhead."""
    nested = [Fallback, Retry, CircuitBreaker, RateLimit, Timeout, Bulkhead]

    assert sorted(nested, key=RANK.__getitem__) == nested


def test_a_policy_that_modifies_another_policy_stands_behind_it() -> None:
    """A reader finds it there, and `explain` lists it there."""
    assert all(RANK[row.modifies] < RANK[kind] for kind, row in ROWS.items() if row.modifies)


@pytest.mark.parametrize("name", GUARD_PARAMETERS)
def test_a_guard_takes_policies_under_the_names_of_their_decorators(name: str) -> None:
    """A reader who knows one way to write a policy knows the other."""
    assert hasattr(policies, name)


def test_a_guard_takes_every_policy_that_has_a_row() -> None:
    """A guard has all the policies of decorators; only the way of a call is up to its callers (rule G1)."""
    rows = [decorator_name(kind) for kind in ROWS]

    assert [name for name in rows if not name.startswith("asynchronous")] == GUARD_PARAMETERS


def test_type_checkers_know_every_policy_that_a_guard_takes() -> None:
    """A row without its line in `GuardPolicies` would be refused by mypy, and taken by Python (rule G1)."""
    kinds = {decorator_name(kind): kind | None for kind in ROWS}

    assert get_type_hints(GuardPolicies) == {name: kinds[name] for name in GUARD_PARAMETERS}


def test_the_signature_of_a_class_with_a_constructor_of_its_own_is_that_of_the_constructor() -> None:
    """A guard does not have the signature of its class either: it is called with a function."""

    class Limited(Guard):
        def __init__(self, limit: int) -> None:
            super().__init__(bulkhead=Bulkhead(limit))

    assert list(inspect.signature(Limited).parameters) == ["limit"]
    assert list(inspect.signature(Limited(1)).parameters) == ["function"]


def test_a_guard_refuses_a_keyword_that_is_no_policy_of_a_guard() -> None:
    """A guard refuses an unknown keyword, as any function does."""
    unknown: dict[str, Any] = {"timeuot": Timeout(1)}

    with pytest.raises(TypeError, match="unexpected keyword argument 'timeuot'"):
        Guard(**unknown)


def test_a_draft_makes_the_state_of_its_policies_and_keeps_existing_state() -> None:
    """A circuit outlives a reload that adds a bulkhead."""
    state = State("acme.call")
    state.strategies = StateDraft(state, {CircuitBreaker: CircuitBreaker()}, Ledger()).strategies

    strategies = StateDraft(state, {Bulkhead: Bulkhead(3)}, Ledger()).strategies

    assert strategies.get(CircuitBreaker) is state.circuit_breaker is not None
    assert dict(strategies.items()).keys() == {CircuitBreaker, Bulkhead}
    assert strategies.get(RateLimit) is None


def test_a_time_out_has_state_only_where_it_may_leave_a_body_behind_or_adapts() -> None:
    """Most time-outs do neither."""

    def remembered(policy: Timeout, *, detached: bool) -> object:
        return StateDraft(State("acme.call"), {Timeout: policy}, Ledger(), detached=detached).strategies.get(Timeout)

    assert remembered(Timeout(10), detached=False) is None
    assert remembered(Timeout(10), detached=True) is not None
    assert remembered(Timeout(10, adaptive=True), detached=False) is not None


def test_new_values_reach_each_strategy_that_has_state() -> None:
    """A reload passes new values by the row alone."""
    old: dict[type[Policy], Policy] = {CircuitBreaker: CircuitBreaker(), RateLimit: RateLimit(3), Bulkhead: Bulkhead(3)}
    state = State("acme.call")
    state.strategies = StateDraft(state, old, Ledger()).strategies
    assert isinstance(state.strategies, Strategies)
    assert STRATEGY_FACTORIES.keys() >= old.keys()

    state.policies = CircuitBreaker(delay=7, request_volume_threshold=2), RateLimit(1), Bulkhead(2)
    state.update_strategies()

    breaker, bulkhead = state.circuit_breaker, state.strategies.get(Bulkhead)
    assert breaker is not None
    assert (breaker.values.delay, breaker.values.request_volume_threshold, bulkhead.limit) == (0.007, 2, 2)
