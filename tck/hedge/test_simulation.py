"""The effect of hedges in simulated overloads."""

from __future__ import annotations

import pytest

from simulation import hedges

pytestmark = pytest.mark.stress


class TestHedge:
    """Target G6: `hedge()`."""

    @pytest.mark.parametrize("seed", [1, 2, 3])
    def test_few_hedges_take_most_of_the_tail_away(self, seed: int) -> None:
        """By rule H1 (trap 4): the delay is learned from all primaries."""
        hedged, alone = hedges.healthy(hedges.OURS, seed), hedges.healthy(hedges.NONE, seed)

        assert hedged.p99 <= 0.45 * alone.p99
        assert hedged.p999 <= 0.15 * alone.p999
        assert hedged.extra <= 0.06

    def test_hedges_do_not_add_to_a_hang(self) -> None:
        """By rule H2: the built-in budget is spent, and no call succeeds that would add to it."""
        assert hedges.hung(hedges.OURS, 3).extra <= 0.02
        assert hedges.hung("after 50 ms", 3).extra >= 0.98

    def test_hedges_do_not_double_the_load_where_all_is_slower(self) -> None:
        assert hedges.slowed(hedges.OURS, 2).extra <= 0.10
        assert hedges.slowed("after 50 ms", 2).extra >= 0.98

    def test_workers_that_are_nearly_full_are_not_pushed_over(self) -> None:
        """The workers drop cancelled attempts: the documentation names this condition."""
        hedged, alone = (hedges.busy(kind, 460.0, 5) for kind in (hedges.OURS, hedges.NONE))
        on_and_on = hedges.busy(hedges.OURS, 460.0, 5, drop=False)

        assert hedged.p99 <= alone.p99
        assert on_and_on.p99 > alone.p99
