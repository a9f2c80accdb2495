"""The effect of the retry budget in simulated overloads."""

from __future__ import annotations

import pytest

from simulation import budgets


class TestRetryBudget:
    """Target G5: `retry_budget()`."""

    @pytest.mark.parametrize("seconds_to_fail", [0.002, 1.0])
    def test_an_outage_is_not_made_worse(self, seconds_to_fail: float) -> None:
        """Trap 9: fast failures and slow ones alike, and nothing is free."""
        attempts = budgets.attempts_in_outage(budgets.OURS, 100.0, seconds_to_fail, 1)

        assert max(attempts) <= 1.03

    def test_a_method_with_two_calls_a_second_soon_stops_retrying(self) -> None:
        """Trap 35: there are no free retries by the second."""
        assert budgets.attempts_in_outage(budgets.OURS, 2.0, 0.002, 1).first <= 1.6
        assert budgets.attempts_in_outage("Finagle: 20 % and 10 a second", 2.0, 0.002, 1).later >= 3.9

    def test_layers_do_not_multiply(self) -> None:
        """Three layers of three retries."""
        assert budgets.layered(budgets.OURS, 1) <= 1.1
        assert budgets.layered("none", 1) == 64

    @pytest.mark.parametrize(("part", "succeeding"), [(0.1, 0.999), (0.2, 0.998)])
    def test_retries_that_help_are_free(self, part: float, succeeding: float) -> None:
        """Trap 35: a tenth or a fifth of the attempts may fail for ever."""
        assert budgets.succeeding(budgets.OURS, part, 2) >= succeeding
