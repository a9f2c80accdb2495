"""Every way of calling comes to the same, in each scenario of the table."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import pytest

from faulttolerance import testing
from faulttolerance.testing import virtual_time
from kit import VirtualClock
from kit.scenario import Differs
from kit.scenarios import SCENARIOS
from kit.ways import WAYS, Policies, Run, Way


class Seen(NamedTuple):
    """What can be seen of a scenario; see ``Run``."""

    outcomes: list[Any]
    attempts: int
    left: list[float | None]
    counts: dict[Any, int]
    state: str | None
    log: list[tuple[str, str]]


@cache
def seen(name: str, way: Way) -> Seen:
    """What the scenario comes to in *way*."""
    scenario = SCENARIOS[name]
    testing.reset()
    with virtual_time() as virtual:
        run = Run(way, VirtualClock(virtual), scenario.policies, scenario.body).drive(scenario.scene)
    return Seen(*(getattr(run, aspect) for aspect in Seen._fields))


@cache
def policies_of(name: str) -> Policies:
    """What guards the body in *name*."""
    scenario = SCENARIOS[name]
    return scenario.policies(Run(WAYS[0], None, lambda _: {}, scenario.body))  # type: ignore[arg-type]


def brief(outcome: Any) -> Any:
    """An outcome as the table writes it."""
    if not isinstance(outcome, tuple):
        return outcome
    return outcome[1] if outcome[0] == "returned" else outcome[0]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize("name", SCENARIOS)
def test_outcome_is_the_same_in_every_way_of_calling(name: str, way: Way) -> None:
    """Outcome, attempts, counts, ``remaining()``, the breaker's state and the log, but for what a rule varies."""
    scenario, policies = SCENARIOS[name], policies_of(name)
    if not way.takes(policies):
        pytest.skip("a Guard does not take these policies")
    model = next(way for way in WAYS if way.takes(policies) and scenario.difference(way) is None)
    run, other = seen(name, way), seen(name, model)
    differs = scenario.difference(way) or Differs("")

    assert tuple(map(brief, run.outcomes)) == (differs.outcomes or scenario.outcomes)
    assert run.attempts == (differs.attempts or scenario.attempts)
    if differs.outcomes is None:
        for aspect in {"outcomes", "left", "counts", "state", "log"}.difference(differs.leaves_out):
            assert getattr(run, aspect) == getattr(other, aspect), aspect
