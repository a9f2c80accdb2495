"""The goals that the throttle reaches in simulated overloads."""

from __future__ import annotations

import pytest

from simulation import throttles

pytestmark = pytest.mark.stress


class TestAdaptiveThrottle:
    """Target G4: `adaptive_throttle()`."""

    @pytest.mark.parametrize("per_second", [100.0, 1000.0])
    def test_a_callee_gets_twice_what_it_takes_whatever_is_offered(self, per_second: float) -> None:
        """By rule AT2."""
        seen = throttles.degraded(throttles.OURS, per_second, 1)

        assert seen.accepted >= 28
        assert seen.sent <= 65

    def test_a_dead_callee_is_asked_once_a_second(self) -> None:
        """By rule AT3."""
        assert throttles.dead(throttles.OURS, 1) <= 2

    @pytest.mark.parametrize(("seed", "seconds"), [(1, 200), (1, 900), (2, 900)])
    def test_a_recovery_is_believed_within_a_window(self, seed: int, seconds: int) -> None:
        """By rule AT3: the window of the book takes ten minutes after an outage of two."""
        assert max(throttles.recovery(throttles.OURS, seed, seconds)) <= 10
