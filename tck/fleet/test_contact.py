"""Whether a fleet answers, and when it is asked of the lane's own accord: times and chances are numbers (rule F5)."""

from __future__ import annotations

import threading

import pytest

from faulttolerance._extensions.fleet.contact import Contact

LAST = 1 - 2**-53
"""The highest chance there is."""


@pytest.mark.parametrize(("chance", "due"), [(0.0, 99.0), (0.5, 110.0 - 0.0), (LAST, 121.0)])
def test_circuits_are_read_at_intervals_give_or_take_a_tenth(chance: float, due: float) -> None:
    contact = Contact(110.0, 0.0)
    assert contact.due == 0.0  # at once, so that the first call finds a connection

    contact.read(0.0, chance)
    assert contact.due == pytest.approx(due)


def test_a_lost_fleet_is_asked_at_once_and_then_more_and_more_seldom() -> None:
    contact = Contact(1.0, 0.0)
    contact.lose("gone", 100.0, 0.5)
    waits = [contact.due - 100.0]
    for _ in range(7):
        contact.miss("still gone", 0.0, 0.5)
        waits.append(contact.due)

    assert waits == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 0.8, 0.8, 0.8])


@pytest.mark.parametrize("outage", [0.1, 1.0, 4.0, 8.0, 30.0, 3600.0])
@pytest.mark.parametrize("chance", [0.0, 0.5, LAST])
@pytest.mark.parametrize("takes", [0.0, 0.5, 1.0], ids=["refused", "silent", "nowhere"])
def test_it_is_shared_again_within_two_seconds_after_any_outage(outage: float, chance: float, takes: float) -> None:
    """Target G9: also where each question in vain takes as long as it takes to connect in vain."""
    contact, now = Contact(1.0, 0.0), 100.0
    contact.lose("gone", now, chance)
    back = now + outage
    while (now := contact.due) < back:
        now += takes
        contact.miss("still gone", now, chance)

    assert contact.due - back < 2.0


@pytest.mark.parametrize(("chance", "wait"), [(0.0, 0.04), (0.5, 0.05), (LAST, 0.06)])
def test_processes_do_not_ask_all_at_once(chance: float, wait: float) -> None:
    """Give or take a fifth."""
    contact = Contact(1.0, 0.0)
    contact.lose("gone", 100.0, chance)

    assert contact.due - 100.0 == pytest.approx(wait)


def test_one_that_is_found_again_and_lost_is_asked_at_once_again() -> None:
    contact = Contact(1.0, 0.0)
    contact.lose("gone", 10.0, 0.5)
    contact.miss("still gone", 11.0, 0.5)
    assert contact.reason == "still gone"
    assert contact.regain(13.5) == 3.5
    assert contact.is_up
    assert contact.reason == ""

    contact.lose("again", 20.0, 0.5)
    assert contact.due == 20.05


def test_one_that_is_lost_as_soon_as_it_is_found_is_asked_more_and_more_seldom() -> None:
    """As one that refuses a question that no other one stands for: it is no news twenty times a second."""
    contact, waits = Contact(1.0, 0.0), []
    for _ in range(6):
        contact.lose("refused", 100.0, 0.5)
        waits.append(contact.due - 100.0)
        contact.regain(100.0)

    assert waits == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 0.8])


def test_it_is_news_to_the_first_one_only() -> None:
    contact = Contact(1.0, 0.0)
    barrier = threading.Barrier(16)
    news: list[bool] = []

    def lose() -> None:
        barrier.wait()
        news.append(contact.lose("gone", 1.0, 0.5))

    threads = [threading.Thread(target=lose) for _ in range(16)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

    assert news.count(True) == 1
    assert not contact.is_up
