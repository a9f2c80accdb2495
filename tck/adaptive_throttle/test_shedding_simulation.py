"""The tiers that the adaptive throttle sheds, by simulation of the strategy that is shipped.

A hundred calls a second, a quarter of each tier, to a callee that takes a part of them and turns the others down.
"""

from __future__ import annotations

from collections import Counter

import pytest

from faulttolerance._extensions.adaptive_throttle.strategy import AdaptiveThrottle
from faulttolerance._strategy.verdict import FAILURE, SUCCESS
from faulttolerance.exceptions import ThrottleException
from faulttolerance.policies import Criticality
from simulation.kernel import Simulation

pytestmark = pytest.mark.stress

RATE, WARM, SECONDS = 100.0, 40.0, 160.0


class Callee:
    """A callee that takes *capacity* calls a second, and turns the others down after 10 ms."""

    def __init__(self, capacity: float, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.capacity = capacity
        self.tier = Criticality.NORMAL
        self.ends: Counter[tuple[Criticality, str]] = Counter()
        self._tokens, self._filled_at = 0.0, 0.0
        self.throttle = AdaptiveThrottle("", 2.0, 10.0, 10, self.simulation.chance.random, lambda: self.tier)
        self.simulation.arrivals(RATE, self._arrive)
        self.simulation.run(SECONDS)

    def _arrive(self) -> None:
        now, throttle = self.simulation.now, self.throttle
        tier = self.tier = self.simulation.chance.choice(list(Criticality))
        era = throttle.state
        try:
            if not era.is_closed:
                era = throttle.admit(None, 1, now)
        except ThrottleException:
            self._count(tier, "shed")
            return
        most = max(1.0, self.capacity / 10)
        self._tokens = min(most, self._tokens + (now - self._filled_at) * self.capacity)
        self._filled_at = now
        verdict = SUCCESS if self._tokens >= 1 else FAILURE
        self._tokens -= verdict == SUCCESS
        self._count(tier, verdict)
        self.simulation.after(0.01, lambda: throttle.settle(era, None, verdict, self.simulation.now))

    def _count(self, tier: Criticality, end: str) -> None:
        if self.simulation.now >= WARM:
            self.ends[tier, end] += 1

    def part_shed(self, tier: Criticality) -> float:
        """Return the part of the calls of *tier* that were not sent."""
        return self.ends[tier, "shed"] / sum(count for (one, _), count in self.ends.items() if one is tier)

    @property
    def accepted(self) -> float:
        """Calls that were accepted per second."""
        return sum(count for (_, end), count in self.ends.items() if end == SUCCESS) / (SECONDS - WARM)


BEST_EFFORT, DEGRADED, NORMAL, CRITICAL = Criticality


@pytest.mark.parametrize(
    ("capacity", "entirely", "in_part", "accepted"),
    [
        (40, [], BEST_EFFORT, 38),
        (20, [BEST_EFFORT, DEGRADED], NORMAL, 17),
        (5, [BEST_EFFORT, DEGRADED, NORMAL], CRITICAL, 2.5),
    ],
)
def test_lower_tiers_are_shed_entirely_before_a_higher_one_loses_a_call(
    capacity: float, entirely: list[Criticality], in_part: Criticality, accepted: float
) -> None:
    """By rule K2 (trap 23): the callee gets as many calls as it would without tiers."""
    seen = Callee(capacity, 3)

    assert all(seen.part_shed(tier) >= 0.99 for tier in entirely)
    assert 0.3 <= seen.part_shed(in_part) <= 0.9
    assert all(seen.part_shed(tier) <= 0.01 for tier in Criticality if tier > in_part)
    assert seen.accepted >= accepted
