"""The health of a fleet, and when the link asks of its own accord: times and chances are numbers (rule F5)."""

from __future__ import annotations

import threading

import pytest

from faulttolerance._extensions.fleet.health import FleetHealth

LAST = 1 - 2**-53
"""The highest chance there is."""


@pytest.mark.parametrize(("chance", "due"), [(0.0, 99.0), (0.5, 110.0 - 0.0), (LAST, 121.0)])
def test_circuits_are_read_at_intervals_that_vary_by_a_tenth(chance: float, due: float) -> None:
    health = FleetHealth(110.0, 0.0)
    assert health.next_read_at == 0.0  # at once, so that the first call finds a connection

    health.record_read(0.0, chance)
    assert health.next_read_at == pytest.approx(due)


def test_a_lost_fleet_is_asked_at_once_and_then_more_and_more_seldom() -> None:
    health = FleetHealth(1.0, 0.0)
    health.record_loss("gone", 100.0, 0.5)
    waits = [health.next_read_at - 100.0]
    for _ in range(7):
        health.record_loss("still gone", 0.0, 0.5)
        waits.append(health.next_read_at)

    assert waits == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 0.8, 0.8, 0.8])


@pytest.mark.parametrize("outage", [0.1, 1.0, 4.0, 8.0, 30.0, 3600.0])
@pytest.mark.parametrize("chance", [0.0, 0.5, LAST])
@pytest.mark.parametrize("takes", [0.0, 0.5, 1.0], ids=["refused", "silent", "nowhere"])
def test_the_fleet_is_shared_again_within_two_seconds_after_any_outage(
    outage: float, chance: float, takes: float
) -> None:
    """Target G9: this holds even if each question in vain takes as long as a connection in vain."""
    health, now = FleetHealth(1.0, 0.0), 100.0
    health.record_loss("gone", now, chance)
    back = now + outage
    while (now := health.next_read_at) < back:
        now += takes
        health.record_loss("still gone", now, chance)

    assert health.next_read_at - back < 2.0


@pytest.mark.parametrize(("chance", "wait"), [(0.0, 0.04), (0.5, 0.05), (LAST, 0.06)])
def test_processes_do_not_ask_all_at_once(chance: float, wait: float) -> None:
    """Their waits vary by a fifth."""
    health = FleetHealth(1.0, 0.0)
    health.record_loss("gone", 100.0, chance)

    assert health.next_read_at - 100.0 == pytest.approx(wait)


def test_a_fleet_that_is_found_and_lost_again_is_asked_at_once() -> None:
    health = FleetHealth(1.0, 0.0)
    health.record_loss("gone", 10.0, 0.5)
    health.record_loss("still gone", 11.0, 0.5)
    assert health.reason == "still gone"
    assert health.record_recovery(13.5) == 3.5
    assert health.is_up
    assert health.reason == ""

    health.record_loss("again", 20.0, 0.5)
    assert health.next_read_at == 20.05


def test_a_fleet_that_is_lost_as_soon_as_it_is_found_is_asked_more_and_more_seldom() -> None:
    """A fleet that refuses only the questions of calls is lost so; it is no news twenty times a second."""
    health, waits = FleetHealth(1.0, 0.0), []
    for _ in range(6):
        health.record_loss("refused", 100.0, 0.5)
        waits.append(health.next_read_at - 100.0)
        health.record_recovery(100.0)

    assert waits == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 0.8])


def test_a_loss_is_news_to_the_first_thread_only() -> None:
    health = FleetHealth(1.0, 0.0)
    barrier = threading.Barrier(16)
    news: list[bool] = []

    def record_loss() -> None:
        barrier.wait()
        news.append(health.record_loss("gone", 1.0, 0.5))

    threads = [threading.Thread(target=record_loss) for _ in range(16)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

    assert news.count(True) == 1
    assert not health.is_up
