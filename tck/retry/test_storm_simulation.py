"""The end of a storm of retries, by simulation."""

from __future__ import annotations

import math

import pytest

from simulation import storm

pytestmark = pytest.mark.stress


class TestStorm:
    """Target G8: a spike of five seconds, and the retries that follow."""

    @pytest.mark.parametrize("seed", [1, 2])
    def test_a_limit_and_a_budget_end_it_at_once(self, seed: int) -> None:
        """By rule A2, and because retries that do not help are paid for."""
        assert storm.aftermath(storm.OURS, seed).recovered <= 2

    def test_without_them_it_never_ends(self) -> None:
        seen = storm.aftermath(storm.ALONE, 1)

        assert seen.recovered == math.inf
        assert seen.after <= 0.01
