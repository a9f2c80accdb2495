"""The effect of a time-out that adapts, in simulated overloads."""

from __future__ import annotations

import pytest

from simulation import time_outs


class TestAdaptiveTimeout:
    """Target G7: `timeout(adaptive=True)`."""

    @pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.stress)])
    def test_hardly_an_attempt_is_ended_wrongly(self, seed: int) -> None:
        limit, wrongly = time_outs.healthy(time_outs.OURS, seed)

        assert limit <= 0.3
        assert wrongly <= 0.0005

    def test_a_breaker_of_twenty_opens_in_half_the_time(self) -> None:
        """That is after twenty time-outs."""
        _, seconds = time_outs.hung(time_outs.OURS, 4)

        assert seconds <= 0.6
        assert time_outs.hung(time_outs.FIXED, 4)[1] >= 1.2

    def test_it_follows_a_backend_that_is_ten_times_slower(self) -> None:
        """Trap 24: own time-outs are samples; learning from successes loses a third of the calls."""
        lost, fixed = time_outs.slowed(time_outs.OURS, 3), time_outs.slowed(time_outs.FIXED, 3)

        assert lost.first <= 0.12
        assert lost.later <= fixed.later + 0.001
        assert time_outs.slowed("twice the p99 of successes alone", 3).first >= 0.3
