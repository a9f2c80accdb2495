"""The cost of questions to every guard: the same for each, however many there are; it is counted in calls."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator

import pytest

from faulttolerance import Guard, circuit_breakers, configure, fingerprint, guards, health, reload, testing, validate
from faulttolerance._command.lints import lint
from faulttolerance._config import settings
from faulttolerance._metrics.counters import ledger
from faulttolerance.policies import Bulkhead, CircuitBreaker, FleetWide, Retry, RetryBudget, Timeout
from faulttolerance.web.reading import GuardFilter, guard_called, overview
from kit.garbage import collect_garbage


@pytest.fixture(autouse=True)
def nothing_else() -> Iterator[None]:
    """Remove guards of other tests, before and after."""
    collect_garbage()
    testing.reset()
    yield
    testing.reset()
    configure(properties={})


def service(number: int) -> Guard:
    guard = Guard(
        retry=Retry(max_retries=2),
        circuit_breaker=CircuitBreaker(),
        timeout=Timeout("2s"),
        bulkhead=Bulkhead(5),
        name=f"service {number}",
    )
    guard.call(int)
    return guard


def calls_of(action: Callable[[], object]) -> int:
    """Count the calls in *action*."""
    calls = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return calls


NUMBERS = itertools.count(100)
"""Values that nothing else has."""

ACTIONS: dict[str, Callable[[], object]] = {
    "a scrape": ledger.read,
    "a scrape after a reload": lambda: (configure(properties={"Retry/maxRetries": next(NUMBERS)}), ledger.read()),
    "fingerprint": fingerprint,
    "health": health,
    "guards": lambda: list(guards()),
    "guards of one name": lambda: list(guards("service 7")),
    "validate": validate,
    "check": lambda: list(lint(guards(), settings.snapshot)),
    "circuits": circuit_breakers.names,
    "the status page": lambda: overview((), GuardFilter(limit=100)),
    "a reload": reload,
}


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
@pytest.mark.parametrize("key", ["Retry/maxRetries", "service 1/Retry/maxRetries"])
def test_twice_as_many_guards_cost_twice_as_much(action: Callable[[], object], key: str) -> None:
    configure(properties={key: 3})
    kept = [service(number) for number in range(10)]
    action()
    few = calls_of(action)
    kept += [service(number) for number in range(10, 20)]
    action()
    many = calls_of(action)

    assert many <= 2.1 * few


@pytest.mark.parametrize("action", [health, lambda: list(guards())], ids=["health", "guards"])
def test_circuits_that_others_have_opened_cost_each_guard_the_same(action: Callable[[], object]) -> None:
    """Each guard is asked once, however many circuits of a shared server are open that this process does not have."""
    fleet = testing.MemoryFleet()
    configure(fleet=fleet)
    kept = [service(number) for number in range(20)]
    shared = Guard(circuit_breaker=CircuitBreaker(), fleet_wide=FleetWide(), name="shared")
    shared.call(int)

    def opened(numbers: range) -> int:
        for number in numbers:
            fleet.open(f"a circuit of others {number}", "1h")
        shared.call(int)
        action()
        return calls_of(action)

    few, many = opened(range(1)), opened(range(1, 80))
    configure(fleet=None)

    assert len(kept) == 20
    assert many - few < 1_000


def test_values_that_are_wrong_everywhere_cost_each_guard_the_same() -> None:
    kept = [service(number) for number in range(20)]

    def broken() -> None:
        with pytest.raises(ValueError, match="maxRetries"):
            configure(properties={f"{guard.name}/Retry/maxRetries": -5 for guard in kept})

    broken()
    few = calls_of(broken)
    kept += [service(number) for number in range(20, 40)]
    many = calls_of(broken)

    assert many <= 2.1 * few


def test_validating_looks_up_the_variables_that_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable in the environment costs a look-up for each guard, and not one for each of its parameters."""
    kept = [service(number) for number in range(20)]
    validate()
    without = calls_of(validate)
    monkeypatch.setenv("FAULTTOLERANCE_RETRY_MAXRETRIES", "11")
    reload()
    with_one = calls_of(validate)

    assert validate() == []
    assert len(kept) == 20
    assert with_one < 3 * without


def test_a_name_without_a_guard_costs_less_than_a_name_with_one() -> None:
    kept = [service(number) for number in range(40)]
    everything = calls_of(lambda: overview((), GuardFilter()))
    found, missed = (calls_of(lambda name=name: guard_called(name)) for name in ("service 7", "nothing"))

    assert guard_called("nothing") is None
    assert missed < found < everything / 4
    assert len(kept) == 40


def test_guards_are_found_by_name() -> None:
    """Several guards may have one name, as copies of a class do; others are not looked at."""
    kept = [service(number) for number in range(3)]
    found = [guard.method for guard in guards("service 1")]
    nothing = list(guards("service"))

    assert found == [kept[1]]
    assert nothing == []


def test_a_guard_that_joins_a_budget_costs_the_same_however_many_share_it() -> None:
    def sharing(number: int) -> Guard:
        return Guard(retry=Retry(), retry_budget=RetryBudget(name="shared"), name=f"sharing {number}")

    def join(number: int) -> int:
        kept.append(sharing(number))
        return calls_of(lambda: kept[-1].call(int))

    kept: list[Guard] = []
    costs = [join(number) for number in range(80)]

    assert costs[-1] <= costs[2]
