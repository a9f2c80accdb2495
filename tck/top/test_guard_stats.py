"""How guards stand in several processes together, and which of them hurts most."""

from __future__ import annotations

import pytest

pytest.importorskip("prometheus_client")

from faulttolerance._command.top.exposition import Exposition, parse_exposition
from faulttolerance._command.top.guard_stats import GuardStats, Severity, collect_stats, configurations, fleets
from faulttolerance._command.top.target import Target


def target(before: str, after: str, seconds: float = 2.0) -> Target:
    """One that has shown two pages."""
    made = Target("a")
    for at, text in ((10.0, before), (10.0 + seconds, after)):
        made.begin_scrape(at)
        made.record_answer(parse_exposition(text), at)
    return made


def counts(method: str, **increased: int) -> tuple[str, str]:
    """Two pages, between which each counter grew by so much."""
    named = {
        "calls": 'ft_invocations_total{result="valueReturned",fallback="notApplied",method="%s"}',
        "failures": 'ft_invocations_total{result="exceptionThrown",fallback="notApplied",method="%s"}',
        "fallbacks": 'ft_invocations_total{result="valueReturned",fallback="applied",method="%s"}',
        "retries": 'ft_retry_retries_total{method="%s"}',
        "refused": 'ft_bulkhead_calls_total{bulkheadResult="rejected",method="%s"}',
        "open": 'ft_circuitbreaker_state_total{state="open",method="%s"}',
        "closed": 'ft_circuitbreaker_state_total{state="closed",method="%s"}',
    }
    texts = [
        "".join(f"{named[name] % method} {7 + more * half}\n" for name, more in increased.items()) for half in (0, 1)
    ]
    return texts[0], texts[1]


def test_rates_of_processes_are_added() -> None:
    """Each over its own time."""
    slow = target(*counts("shop.pay", calls=10, failures=2), seconds=4)
    fast = target(*counts("shop.pay", calls=10, failures=2), seconds=1)

    [stats] = collect_stats([slow, fast])

    assert stats.rates == {"calls": 15, "failures": 2.5}


@pytest.mark.parametrize("gauge", ["ft_bulkhead_executionsRunning", "ft_bulkhead_limit", "ft_timeout_abandoned"])
def test_levels_of_processes_are_added(gauge: str) -> None:
    [stats] = collect_stats([target("", f'{gauge}{{method="m"}} {value}\n') for value in (2, 3)])

    assert list(stats.levels.values()) == [5]


@pytest.mark.parametrize("gauge", ["ft_throttle_probability", "ft_timeout_limit_seconds", "ft_hedge_delay_seconds"])
def test_of_levels_that_are_no_amounts_the_highest_counts(gauge: str) -> None:
    [stats] = collect_stats([target("", f'{gauge}{{method="m"}} {value}\n') for value in (0.2, 0.7, 0.1)])

    assert list(stats.levels.values()) == [0.7]


def test_circuits_are_told_by_the_part_of_the_time_in_each_state() -> None:
    """Of all processes together, however often these were asked."""
    always_open = target(*counts("m", open=2_000, closed=0))
    closed = target(*counts("m", open=0, closed=2_000))

    assert collect_stats([always_open])[0].states == {"open": 1, "closed": 0}
    assert collect_stats([always_open, closed, closed, closed])[0].states == {"open": 0.25, "closed": 0.75}
    assert collect_stats([target(*counts("m", open=0, closed=0))])[0].states == {}  # no time has passed


def test_what_is_not_counted_is_not_there() -> None:
    """That is not the same as 0."""
    [stats] = collect_stats([target(*counts("m", calls=4))])

    assert (stats.refused, stats.timed_out, stats.states) == (None, None, {})
    assert "retries" not in stats.rates


def test_the_one_that_hurts_most_stands_on_top() -> None:
    pages = [
        counts("idle", calls=0),
        counts("busy", calls=900),
        counts("less busy", calls=100),
        counts("repeats", calls=50, retries=5),
        counts("repeats more", calls=50, retries=9),
        counts("open, and nobody calls", calls=0, open=2_000, closed=0),
        counts("replaced", calls=1, fallbacks=1),
        counts("fails", calls=9, failures=1),
        counts("fails more", calls=0, failures=3),
    ]
    found = collect_stats([target("".join(one for one, _ in pages), "".join(other for _, other in pages))])

    assert [one.method for one in found] == [
        "fails more", "fails", "replaced", "open, and nobody calls", "repeats more", "repeats", "busy", "less busy",
        "idle",
    ]  # fmt: skip
    assert [one.severity for one in found] == sorted(one.severity for one in found)
    assert {one.severity for one in found} == set(Severity)


def test_guards_that_hurt_about_as_much_keep_their_places() -> None:
    """Rates differ a little at each look; who watches wants to find a guard where it was."""
    for calls in ((20, 22), (22, 20)):
        pages = [counts(method, calls=more) for method, more in zip(("a", "b"), calls, strict=True)]
        found = collect_stats([target("".join(one for one, _ in pages), "".join(other for _, other in pages))])

        assert [one.method for one in found] == ["a", "b"]


@pytest.mark.parametrize(
    ("rates", "levels", "rank"),
    [
        ({"timeouts": 0.1}, {}, Severity.STRAINED),
        ({"deadlines": 0.1}, {}, Severity.STRAINED),
        ({"throttle": 0.1}, {}, Severity.STRAINED),
        ({"calls": 1}, {"waiting": 1}, Severity.STRAINED),
        ({"calls": 1}, {"throttle_probability": 0.2}, Severity.STRAINED),
        ({"calls": 1}, {"abandoned": 1}, Severity.STRAINED),
        ({"calls": 0.0}, {"running": 2}, Severity.WELL),
        ({"calls": 1}, {"running": 0, "waiting": 0}, Severity.WELL),
        ({}, {}, Severity.IDLE),
    ],
)
def test_what_a_guard_suffers_ranks_it(rates: dict[str, float], levels: dict[str, float], rank: Severity) -> None:
    assert GuardStats("m", rates, {}, levels).severity is rank


def test_a_fleet_tells_who_is_alone() -> None:
    """One number of an address may stand for several workers, of which some are."""
    pages = [
        'ft_fleet_up{namespace="shop"} 3\nft_config_info{fingerprint="a"} 4\n',
        'ft_fleet_up{namespace="shop"} 0\nft_config_info{fingerprint="a"} 1\n',
        'ft_fleet_up{namespace="shop"} 0\n',
        'ft_fleet_up{namespace="b"} 1\n',
    ]

    assert fleets([target("", page) for page in pages]) == [("b", 1, 0), ("shop", 3, 3)]


def test_different_configurations_are_told() -> None:
    pages = [
        'ft_config_info{fingerprint="a"} 1\n',
        'ft_config_info{fingerprint="b"} 4\nft_config_info{fingerprint="c"} 0',
    ]

    assert configurations([target("", page + "\n") for page in pages]) == {"a", "b"}


def test_what_is_lost_counts_for_nothing() -> None:
    lost = target(*counts("m", calls=4))
    lost.begin_scrape(20)
    lost.record_failure("Connection refused", 20)
    silent = Target("b")
    silent.begin_scrape(0)
    silent.record_answer(Exposition({}), 0)

    assert collect_stats([lost, silent]) == []
