"""The effect of an adaptive limit in simulated overloads (targets G1 and G2)."""

from __future__ import annotations

import pytest

from simulation import overload

pytestmark = pytest.mark.stress

LATENCY = overload.LATENCY


class TestAdaptiveLimit:
    """Targets G1 and G2: `bulkhead(latency=…)`."""

    @pytest.mark.parametrize("seed", [1, 2])
    @pytest.mark.parametrize("load", [1.2, 2.0, 3.0])
    def test_an_overload_costs_neither_goodput_nor_time(self, load: float, seed: int) -> None:
        """By rule A2 (trap 11): late answers of one round trip are one decrease."""
        seen = overload.loaded(overload.OURS, load, seed)

        assert seen.goodput >= 0.98
        assert seen.p99 <= 1.5 * LATENCY

    def test_an_overload_of_400_seconds_teaches_nothing_wrong(self) -> None:
        """By rule A2 (trap 14): there is no baseline that could learn from the incident."""
        seen = overload.long_overload(overload.OURS)

        assert seen.goodput >= 0.98
        assert seen.p99 <= 1.5 * LATENCY

    @pytest.mark.parametrize("seed", [1, 2])
    @pytest.mark.parametrize("load", [0.5, 0.9])
    def test_hardly_a_call_is_refused_below_the_capacity(self, load: float, seed: int) -> None:
        """By rule A1 (trap 16): no probe measures a baseline."""
        assert overload.loaded(overload.OURS, load, seed).refused <= 0.002

    @pytest.mark.parametrize("times", [2.0, 4.0])
    @pytest.mark.parametrize("place", overload.PLACES, ids=lambda place: place.name)
    def test_the_constants_hold_for_other_backends(self, place: overload.Place, times: float) -> None:
        """By rule A1: with a target of at least twice the p90 without load, fast or slow, small or large.

        Two workers behind four replicas, each of which must be allowed one call, are the exception.
        """
        worst, is_tiny = overload.swept(place, times, 1), place.workers == 2

        assert worst.goodput >= 0.97
        assert worst.p90 <= (1.65 if is_tiny else 1.2)
        assert worst.refused <= (0.036 if is_tiny else 0.001)

    def test_fifty_replicas_agree_without_messages(self) -> None:
        """By rule A2 (trap 12): a fall begins from the permits in use, so limits far above it come down at once."""
        first, later = overload.fleet(overload.OURS)

        assert first.goodput >= 0.90
        assert later.goodput >= 0.98

    def test_a_backend_that_becomes_slower_is_left_alone(self) -> None:
        assert overload.slower(overload.OURS).refused <= 0.02

    def test_a_hang_is_forgotten_soon(self) -> None:
        """By rule A1 (trap 15): a time-out is a sample; a few of them suffice, and so do a few successes later."""
        assert overload.hang(overload.OURS) <= 5.0

    @pytest.mark.parametrize("kind", ["none", "60 per replica"])
    def test_without_it_the_same_overload_leaves_nothing(self, kind: str) -> None:
        assert overload.loaded(kind, 2.0, 1).goodput <= 0.02

    def test_a_limit_that_learns_from_the_past_alone_fails_a_fleet(self) -> None:
        """A user gives the target as a number for this reason (trap 14); no controller sheds at random (trap 17)."""
        first, later = overload.fleet("Gradient2 of Netflix, from 1 on")

        assert max(first.goodput, later.goodput) <= 0.05
        assert overload.loaded("PID, gains 5, 5, 0.5", 2.0, 1).goodput <= 0.05
