"""What changed between two answers: numbers in, numbers out; no time passes."""

from __future__ import annotations

import pytest

pytest.importorskip("prometheus_client")

from faulttolerance._command.top.exposition import Exposition, Sample
from faulttolerance._command.top.target import PATIENCE, Target

CALLS: Sample = ("ft_invocations", frozenset({("method", "shop.charge")}))
RETRIES: Sample = ("ft_retry_retries", frozenset({("method", "shop.charge")}))


def told(target: Target, at: float, calls: float | None, started: float | None = None, took: float = 0.0) -> None:
    """Let it answer at a time."""
    target.begin_scrape(at - took)
    target.record_answer(Exposition({} if calls is None else {CALLS: calls}, started), at)


def test_rates_need_two_answers() -> None:
    target = Target("a")
    told(target, 10, 100)

    assert dict(target.rates()) == {}
    assert target.levels() == {CALLS: 100}

    told(target, 14, 120)

    assert dict(target.rates()) == {CALLS: 5}


@pytest.mark.parametrize(
    ("before", "after", "started", "rate"),
    [
        (100, 30, (None, None), 15),  # a counter that is lower began anew: all of it has come since
        (100, 130, (1.0, 2.0), 65),  # a process that began anew has counted all of it since
        (100, 130, (1.0, 1.0), 15),
        (100, 100, (None, None), 0),
        (None, 8, (None, None), 4),  # the first calls of a method
    ],
)
def test_a_counter_that_begins_anew_never_goes_back(
    before: float | None, after: float, started: tuple[float | None, float | None], rate: float
) -> None:
    target = Target("a")
    told(target, 10, before, started[0])
    told(target, 12, after, started[1])

    assert dict(target.rates()) == {CALLS: rate}
    assert not target.is_mixed


def test_processes_that_answer_in_turn_are_noticed() -> None:
    """Behind one address, without a folder for several processes: no two answers can be compared."""
    target = Target("a")
    for at, calls, started in ((10, 100, 1.0), (12, 5000, 2.0), (14, 110, 1.0), (16, 5100, 2.0)):
        told(target, at, calls, started)

    assert target.is_mixed
    assert dict(target.rates()) == {}

    told(target, 18, 5120, 2.0)

    assert dict(target.rates()) == {CALLS: 10}


def test_what_is_lost_says_nothing_until_it_is_back() -> None:
    """The time between is that between its answers."""
    target = Target("a")
    told(target, 10, 100)
    told(target, 12, 110)
    target.begin_scrape(14)
    target.record_failure("Connection refused", 14)
    target.begin_scrape(16)
    target.record_failure("answered 502", 16)

    assert (target.trouble, target.lost_for(20)) == ("answered 502", 6)
    assert (dict(target.rates()), target.levels()) == ({}, {})

    told(target, 22, 150)

    assert (target.trouble, target.lost_for(22)) == ("", 0)
    assert dict(target.rates()) == {CALLS: 4}


def test_an_answer_that_comes_too_late_is_none() -> None:
    target = Target("a")
    told(target, 10, 100)
    target.begin_scrape(12)
    target.check_time_out(12 + PATIENCE)

    assert not target.trouble

    target.check_time_out(12.1 + PATIENCE)

    assert "no answer" in target.trouble
    assert target.is_pending  # its thread still waits, and no other one is to

    target.record_answer(Exposition({CALLS: 120}), 12 + 2 * PATIENCE)

    assert target.trouble
    assert not target.is_pending
    assert target.levels() == {}

    told(target, 40, 130, took=2.0)

    assert (target.trouble, target.answer_seconds) == ("", 2.0)


def test_answers_of_one_moment_have_no_rate() -> None:
    target = Target("a")
    told(target, 10, 100)
    told(target, 10, 120)

    assert dict(target.rates()) == {}
