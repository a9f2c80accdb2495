"""All ways of calling have the same results, in each scenario of the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from faulttolerance import testing
from faulttolerance.testing import virtual_time
from kit import VirtualClock
from kit.scenario import Differs
from kit.scenarios import SCENARIOS
from kit.tiers import few_and_many
from kit.ways import WAYS, Policies, Run, Way


class Seen(NamedTuple):
    """The visible results of a scenario; see ``Run``."""

    outcomes: list[Any]
    attempts: int
    left: list[float | None]
    counts: dict[Any, int]
    state: str | None
    log: list[tuple[str, str]]


def seen(name: str, way: Way) -> Seen:
    """Run the scenario in *way*, and return its results."""
    scenario = SCENARIOS[name]
    testing.reset()
    with virtual_time() as virtual:
        run = Run(way, VirtualClock(virtual), scenario.policies, scenario.body).drive(scenario.scene)
    return Seen(*(getattr(run, aspect) for aspect in Seen._fields))


def policies_of(name: str) -> Policies:
    """Return the policies that guard the body in *name*."""
    scenario = SCENARIOS[name]
    return scenario.policies(Run(WAYS[0], None, lambda _: {}, scenario.body))  # type: ignore[arg-type]


def brief(outcome: Any) -> Any:
    """Return an outcome as the table writes it."""
    if not isinstance(outcome, tuple):
        return outcome
    return outcome[1] if outcome[0] == "returned" else outcome[0]


def unexpected(name: str, way: Way, run: Seen, other: Seen) -> dict[str, tuple[Any, Any]]:
    """Return each aspect in which *run* differs from the table or the *other* way, with both values."""
    scenario = SCENARIOS[name]
    differs = scenario.difference(way) or Differs("")
    compared: list[tuple[str, Any, Any]] = [
        ("outcomes in short", tuple(map(brief, run.outcomes)), differs.outcomes or scenario.outcomes),
        ("attempts", run.attempts, differs.attempts or scenario.attempts),
    ]
    if differs.outcomes is None:
        aspects = {"outcomes", "left", "counts", "state", "log"}.difference(differs.leaves_out)
        compared += [(aspect, getattr(run, aspect), getattr(other, aspect)) for aspect in aspects]
    return {aspect: (found, expected) for aspect, found, expected in compared if found != expected}


@pytest.mark.parametrize("name", SCENARIOS)
@few_and_many("ways", [way for way in WAYS if way.guard not in ("decorator", "name")], WAYS)
def test_outcome_is_the_same_in_every_way_of_calling(name: str, ways: Sequence[Way]) -> None:
    """Outcome, attempts, counts, ``remaining()``, state of the breaker and log are equal, unless a rule varies them.

    The ways that the tier default leaves out share all but their declaration with ``Guard.call``.
    """
    ways = [way for way in ways if way.takes(policies_of(name))]
    runs = {way: seen(name, way) for way in ways}
    model = next(way for way in ways if SCENARIOS[name].difference(way) is None)

    wrong = {way.name: unexpected(name, way, run, runs[model]) for way, run in runs.items()}

    assert {way: aspects for way, aspects in wrong.items() if aspects} == {}
