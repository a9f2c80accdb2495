"""Whether a fleet answers, and when it is asked of the link's own accord: times and chances are numbers (rule F5)."""

from __future__ import annotations

import threading

import pytest

from faulttolerance._extensions.fleet.health import FleetHealth

LAST = 1 - 2**-53
"""The highest chance there is."""


@pytest.mark.parametrize(("chance", "due"), [(0.0, 99.0), (0.5, 110.0 - 0.0), (LAST, 121.0)])
def test_circuits_are_read_at_intervals_give_or_take_a_tenth(chance: float, due: float) -> None:
    health = FleetHealth(110.0, 0.0)
    assert health.next_read_at == 0.0  # at once, so that the first call finds a connection

    health.record_read(0.0, chance)
    assert health.next_read_at == pytest.approx(due)


def test_a_lost_fleet_is_asked_at_once_and_then_more_and_more_seldom() -> None:
    health = FleetHealth(1.0, 0.0)
    health.record_loss("gone", 100.0, 0.5)
    waits = [health.next_read_at - 100.0]
    for _ in range(7):
        health.record_miss("still gone", 0.0, 0.5)
        waits.append(health.next_read_at)

    assert waits == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 0.8, 0.8, 0.8])


@pytest.mark.parametrize("outage", [0.1, 1.0, 4.0, 8.0, 30.0, 3600.0])
@pytest.mark.parametrize("chance", [0.0, 0.5, LAST])
@pytest.mark.parametrize("takes", [0.0, 0.5, 1.0], ids=["refused", "silent", "nowhere"])
def test_it_is_shared_again_within_two_seconds_after_any_outage(outage: float, chance: float, takes: float) -> None:
    """Target G9: also where each question in vain takes as long as it takes to connect in vain."""
    health, now = FleetHealth(1.0, 0.0), 100.0
    health.record_loss("gone", now, chance)
    back = now + outage
    while (now := health.next_read_at) < back:
        now += takes
        health.record_miss("still gone", now, chance)

    assert health.next_read_at - back < 2.0


@pytest.mark.parametrize(("chance", "wait"), [(0.0, 0.04), (0.5, 0.05), (LAST, 0.06)])
def test_processes_do_not_ask_all_at_once(chance: float, wait: float) -> None:
    """Give or take a fifth."""
    health = FleetHealth(1.0, 0.0)
    health.record_loss("gone", 100.0, chance)

    assert health.next_read_at - 100.0 == pytest.approx(wait)


def test_one_that_is_found_again_and_lost_is_asked_at_once_again() -> None:
    health = FleetHealth(1.0, 0.0)
    health.record_loss("gone", 10.0, 0.5)
    health.record_miss("still gone", 11.0, 0.5)
    assert health.reason == "still gone"
    assert health.record_recovery(13.5) == 3.5
    assert health.is_up
    assert health.reason == ""

    health.record_loss("again", 20.0, 0.5)
    assert health.next_read_at == 20.05


def test_one_that_is_lost_as_soon_as_it_is_found_is_asked_more_and_more_seldom() -> None:
    """As one that refuses a question that no other one stands for: it is no news twenty times a second."""
    health, waits = FleetHealth(1.0, 0.0), []
    for _ in range(6):
        health.record_loss("refused", 100.0, 0.5)
        waits.append(health.next_read_at - 100.0)
        health.record_recovery(100.0)

    assert waits == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 0.8])


def test_it_is_news_to_the_first_one_only() -> None:
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
