"""The rules of all policies, checked for each policy: X1, X2, X3, X6, X9 and X11."""

from __future__ import annotations

import ast
import asyncio
import gc
import weakref
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import faulttolerance as ft
from faulttolerance import Guard, guards, reload
from faulttolerance._call.order import ROWS, STRATEGY_FACTORIES
from faulttolerance._extensions.partition_by.policy import PartitionBy
from faulttolerance._guard.declare import registry
from faulttolerance._guard.declare.checks.definition import decorator_name
from faulttolerance._policy import ChronoUnit, Parameter, Policy, parameters, seconds
from faulttolerance.testing import configured, virtual_time
from kit.definition import refused

PACKAGE = Path(ft.__file__).parent
FLEET = [
    PACKAGE / "_extensions" / "fleet" / f"{name}.py" for name in ("circuit", "health", "limit", "protocol", "share")
]
STRATEGIES = sorted([*PACKAGE.glob("_strategy/*.py"), *PACKAGE.glob("_extensions/*/strategy.py"), *FLEET])
POLICIES = [one for one in Policy.__subclasses__() if one in ROWS]
DURATIONS = [(policy, one) for policy in POLICIES for one in parameters(policy).values() if one.kind.name == "duration"]
GIVEN: Mapping[str, Any] = {"duration": 1000, "text": "a name", "key": "item", "callable": lambda *_: lambda *_: 0}
"""What is given for a parameter that must be, by its kind."""
ONE_OF: Mapping[str, Any] = {
    "Fallback": {"value": ft.last_good(max_age=1000)},
    "RetryWhen": {"exception": lambda error: True},
    "FailWhen": {"exception": lambda error: True},
    "BeforeRetry": {"value": lambda context: None},
}
"""What is given for a policy that needs one of several."""
NOT_OFF = {("AdaptiveThrottle", "window"), ("RateLimit", "window")}
"""Durations that are what the policy is about: without it there is nothing to switch off but the policy."""
OF_THE_SPECIFICATION = {
    "delay_unit", "duration_unit", "jitter_delay_unit", "max_delay_unit", "window_unit", "min_spacing_unit", "unit"
}  # fmt: skip


def values_of(policy: type[Policy], **values: Any) -> dict[str, Any]:
    """Return the values that make a policy, with *values* among them."""
    required = {one.name: GIVEN[one.kind.name] for one in parameters(policy).values() if not one.has_default}
    return {**required, **ONE_OF.get(policy.annotation, {}), **values}


def guarded(policy: type[Policy], name: str = "") -> Guard:
    """Return a guard with the policy, and with the policies that it needs."""
    partner = ROWS[policy].modifies
    kinds = [policy, *([partner] if partner is not None else [])]
    return Guard(name=name, **{decorator_name(kind): kind(**values_of(kind)) for kind in kinds})  # type: ignore[arg-type]


def name_of(case: Any) -> str:
    return f"{case[0].annotation}.{case[1].name}" if isinstance(case, tuple) else str(getattr(case, "annotation", case))


# X1


@pytest.mark.parametrize("case", DURATIONS, ids=name_of)
def test_a_duration_is_milliseconds_a_timedelta_or_text(case: tuple[type[Policy], Parameter]) -> None:
    """By rule X1: 1500, 1500 ms, 1.5 s, PT1.5S and a timedelta mean the same, and 0 is taken."""
    policy, one = case
    beside = dict.fromkeys({"max_duration", "max_delay"} & parameters(policy).keys(), "1h")
    if one.kind.unit:
        beside[one.kind.unit] = "MILLIS"
    spellings = [1500, 1500.0, "1500ms", "1.5s", "PT1.5S", timedelta(milliseconds=1500)]
    made = [policy(**values_of(policy, **{**beside, one.name: given})) for given in spellings]

    assert {seconds(getattr(each, one.name), ChronoUnit.MILLIS) for each in made} == {1.5}
    assert one.kind.unit in {"", *OF_THE_SPECIFICATION}
    if (policy.annotation, one.name) not in NOT_OFF:
        policy(**values_of(policy, **{one.name: 0}))


# X2


STATEFUL = [policy for policy in STRATEGY_FACTORIES if policy is not PartitionBy]


def strategies(name: str) -> list[Any]:
    """Return the strategies of the states with the name."""
    states = [state for state in registry.every_state() if state.name == name]
    return [strategy for state in states for _, strategy in state.strategies.items()]


async def served(guard: Guard) -> None:
    async def body() -> None: ...

    await guard.call_async(body)


@pytest.mark.parametrize("policy", STATEFUL, ids=name_of)
def test_a_state_survives_a_reload_and_goes_with_its_guard(policy: type[Policy]) -> None:
    """By rule X2: a reload keeps the same strategies; another guard has others, and a closed one has none."""
    one, other = guarded(policy, "acme.x2.one"), guarded(policy, "acme.x2.other")
    asyncio.run(served(one))
    asyncio.run(served(other))
    before, apart = strategies(one.name), strategies(other.name)
    reload()
    with configured({f"{policy.annotation}/enabled": "false"}):
        pass

    assert before
    assert list(map(id, strategies(one.name))) == list(map(id, before))
    assert not {*map(id, before)} & {*map(id, apart)}
    assert all(hasattr(strategy, "reset_after_fork") for strategy in before)
    reference, name = weakref.ref(one._resolver), one.name
    one.close()
    other.close()
    del one, before
    gc.collect()
    assert reference() is None
    assert strategies(name) == []


# X3

CLOCKS_AND_LOOPS = {"asyncio", "concurrent.futures", "queue", "random", "sched", "select", "signal", "time"}
BASE = {"exceptions", "typing", "_cause", "_log", "_record", "_shown", "_strategy"}


def test_no_strategy_knows_a_clock_a_thread_or_a_loop() -> None:
    """By rule X3: they import neither, but a lock around their arithmetic, and no module of the rooms that wait."""
    for path in STRATEGIES:
        imported, of_threading = imports_of(ast.parse(path.read_text(encoding="utf-8")))

        assert not imported & CLOCKS_AND_LOOPS, path.name
        assert of_threading <= {"Lock", "RLock"}, path.name
        outside = {name.lstrip(".").partition(".")[0] for name in imported if name.startswith("..")}
        assert outside <= BASE, path.name


def imports_of(tree: ast.AST) -> tuple[set[str], set[str]]:
    """Return the imported modules, and the names imported from ``threading``."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{'.' * node.level}{node.module or alias.name}" for alias in node.names}
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "threading"
    }
    return found, used


# X6


CALLED = [
    one
    for one in POLICIES
    if (ROWS[one].bind or ROWS[one].strategy_factory) and one.annotation not in ("Hedge", "Asynchronous")
]
"""Those that guard a call on its own thread."""


@pytest.mark.parametrize("policy", CALLED, ids=name_of)
def test_control_flow_is_counted_as_nothing_and_leaves_nothing(policy: type[Policy]) -> None:
    """By rule X6: no policy counts it as a success or a failure, and each stands as before."""
    guard = guarded(policy)

    def call(failure: type[BaseException] | None) -> None:
        def body(item: str) -> None:
            if failure is not None:
                raise failure

        guard.call(body, "x")

    def standing() -> dict[str, str]:
        (found,) = [one for one in guards() if one.method is guard]
        return {name: words for name, words in found.conditions.items() if name != "RateLimit"}

    call(None)
    (found,) = [one for one in guards() if one.method is guard]
    before, counted = standing(), found.counts
    for kind in (KeyboardInterrupt, asyncio.CancelledError, GeneratorExit, SystemExit):
        with pytest.raises(kind):
            call(kind)

    assert standing() == before
    more = {
        (name, *(value for _, value in tags))
        for (name, tags), count in found.counts.items()
        if count > counted.get((name, tags), 0) and "state" not in name
    }
    assert more <= {
        ("ft.invocations.total", "exceptionThrown", "notDefined"),
        ("ft.invocations.total", "exceptionThrown", "notApplied"),
        ("ft.retry.calls.total", "false", "exceptionNotRetryable"),
        ("ft.timeout.calls.total", "false"),
        ("ft.bulkhead.calls.total", "accepted"),
        ("ft.ratelimit.calls.total", "permitted"),
        ("ft.coalesce.calls.total", "leader"),
        ("ft.deadline.calls.total", "false"),
    }


# X9


@pytest.mark.parametrize("policy", [one for one in POLICIES if parameters(one)], ids=name_of)
def test_a_wrong_value_is_refused_by_name(policy: type[Policy]) -> None:
    """By rule X9: the message has the parameter and the allowed values."""
    for one in parameters(policy).values():
        with refused(f"@{policy.annotation}({one.name}) is", one.kind.allowed):
            policy(**values_of(policy, **{one.name: object()}))


@pytest.mark.parametrize("policy", [one for one in POLICIES if ROWS[one].modifies], ids=name_of)
def test_a_policy_that_does_nothing_alone_is_refused_alone(policy: type[Policy]) -> None:
    """By rule X9: the error names the missing policy."""
    partner = ROWS[policy].modifies
    assert partner is not None

    with refused(f"@{policy.annotation} is used without @{partner.annotation}"):
        Guard(**{decorator_name(policy): policy(**values_of(policy))})  # type: ignore[arg-type]


# X11


def story(seed: int) -> list[tuple[float, str]]:
    """Return times and outcomes of a minute of calls under every policy that depends on time or chance."""
    with virtual_time(seed=seed) as clock:
        guard = Guard(
            retry=ft.policies.Retry(max_retries=3, delay=100, jitter=50),
            retry_budget=ft.policies.RetryBudget(),
            exponential_backoff=ft.policies.ExponentialBackoff(),
            adaptive_throttle=ft.policies.AdaptiveThrottle(window=2000),
            rate_limit=ft.policies.RateLimit(20, window="1s", max_wait=300),
            timeout=ft.policies.Timeout(500),
            bulkhead=ft.policies.Bulkhead(2, max_wait=100),
        )
        told: list[tuple[float, str]] = []
        began = clock.monotonic()

        async def body(number: int) -> str:
            await asyncio.sleep(0.9 if number % 7 == 0 else 0.05)
            if number % 3 == 0:
                raise ConnectionError
            return "served"

        async def one(number: int) -> None:
            await asyncio.sleep(number * 0.03)
            try:
                outcome = await guard.call_async(body, number)
            except Exception as error:
                outcome = type(error).__name__
            told.append((clock.monotonic() - began, outcome))

        async def main() -> None:
            await asyncio.gather(*map(one, range(300)))

        clock.run(main())
    return told


def test_virtual_time_moves_everything_and_a_seed_repeats_it() -> None:
    """By rule X11: windows, waits, delays and chance are those of the shared clock."""
    first, again, other = story(1), story(1), story(2)

    assert first == again != other
    assert {outcome for _, outcome in first} >= {"served", "ConnectionError", "TimeoutException"}
    assert first[-1][0] > 9
