"""What a terminal shows, at each width."""

from __future__ import annotations

import io

import pytest

pytest.importorskip("prometheus_client")
pytest.importorskip("rich")
from rich.cells import cell_len
from rich.console import Console

from faulttolerance._command.top.exposition import parse_exposition
from faulttolerance._command.top.guard_stats import GuardStats, collect_stats
from faulttolerance._command.top.table import circuit, details, format_number, percentage, permits, render, shortened
from faulttolerance._command.top.target import Target

PAGE = """
ft_invocations_total{{method="{0}",result="valueReturned",fallback="notApplied"}} {1}
ft_invocations_total{{method="{0}",result="exceptionThrown",fallback="notApplied"}} {2}
ft_invocations_total{{method="{0}",result="valueReturned",fallback="applied"}} {3}
ft_retry_retries_total{{method="{0}"}} {3}
ft_timeout_calls_total{{method="{0}",timedOut="true"}} {3}
ft_circuitbreaker_state_total{{method="{0}",state="open"}} {3}
ft_circuitbreaker_state_total{{method="{0}",state="closed"}} {1}
ft_circuitbreaker_calls_total{{method="{0}",circuitBreakerResult="circuitBreakerOpen"}} {3}
ft_bulkhead_calls_total{{method="{0}",bulkheadResult="rejected"}} {2}
ft_bulkhead_executionsRunning{{method="{0}"}} 3
ft_bulkhead_executionsWaiting{{method="{0}"}} 2
ft_bulkhead_limit{{method="{0}"}} 8
ft_throttle_probability{{method="{0}"}} 0.25
ft_fleet_up{{namespace="shop"}} 0
"""


def target(*methods: str, url: str = "http://a:8000/metrics") -> Target:
    made = Target(url)
    for at, half in ((10.0, 0), (12.0, 1)):
        made.begin_scrape(at)
        pages = (PAGE.format(one, 60 * half, 20 * half, 40 * half) for one in methods)
        made.record_answer(parse_exposition("".join(dict.fromkeys("".join(pages).splitlines(keepends=True)))), at)
    return made


def drawn(targets: list[Target], width: int, height: int = 0, first: int = 0) -> str:
    console = Console(file=io.StringIO(), width=width, height=height or 25, color_system=None)
    console.print(render(targets, collect_stats(targets), 15.0, width, height, first))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def lost(url: str, reason: str) -> Target:
    made = Target(url)
    made.begin_scrape(3)
    made.record_failure(reason, 3)
    return made


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (60, ["guard", "calls/s", "failed", "circuit", "refused"]),
        (80, ["guard", "calls/s", "failed", "circuit", "refused", "fallback"]),
        (120, ["guard", "calls/s", "failed", "circuit", "refused", "fallback", "retries", "timed", "out", "bulkhead"]),
        (
            200,
            ["guard", "calls/s", "failed", "circuit", "refused", "fallback", "retries", "timed", "out", "bulkhead",
             "throttle", "more"],
        ),
    ],
)  # fmt: skip
def test_what_there_is_room_for_is_shown(width: int, titles: list[str]) -> None:
    """What matters most is shown at any width; no line is folded."""
    lines = drawn([target("acme.storefront.Storefront.recommendations", "acme.pay")], width).splitlines()
    header = next(line for line in lines if line.startswith("guard"))

    assert header.split()[: len(titles)] == titles
    assert all(cell_len(line) <= width for line in lines)
    assert len(lines) == 5
    assert any("recommendations" in line for line in lines)
    assert all("open 40 %" in line for line in lines if "40 %" in line)


def test_a_column_that_says_nothing_leaves_its_room() -> None:
    one = Target("a")
    for at, calls in ((1.0, 0), (2.0, 5)):
        one.begin_scrape(at)
        one.record_answer(parse_exposition(f'ft_invocations_total{{method="m",result="valueReturned"}} {calls}\n'), at)

    assert drawn([one], 120).split("\n")[1].split() == ["guard", "calls/s"]


def test_who_does_not_answer_is_named() -> None:
    """With the reason, and for how long."""
    targets = [target("m"), lost("http://b:1/metrics", "Connection refused"), Target("http://c:1/metrics")]
    targets[0].answer_seconds = 2.25
    text = drawn(targets, 80)

    assert "1 of 3 answer, 1 guards, 1 failing" in text
    assert "lost  b:1 for 12 s: Connection refused" in text
    assert "slow  a:8000: 2.2 s" in text
    assert "fleet  shop: 0 share, 1 alone" in text
    assert "c:1" not in text  # nothing is wrong with it yet


def test_rates_of_guards_are_not_added_to_one_another() -> None:
    """One may stand inside another: its callers are no customers, and a failure of both is one failure."""
    inner, outer = "shop.wholesaler", "shop.place"
    head = drawn([target(inner, outer, "shop.search")], 120).splitlines()[0]

    assert head == "top  1 of 1 answer, 3 guards, 3 failing"
    assert drawn([Target("a")], 120).splitlines()[0] == "top  0 of 1 answer, 0 guards, 0 failing"


def test_a_long_address_does_not_hide_what_is_wrong() -> None:
    """Its end is kept, and the whole reason."""
    text = drawn([lost("https://metrics.eu-west-1.shop.example/internal/orders/metrics", "Connection refused")], 60)

    assert "….example/internal/orders for 12 s: Connection refused\n" in text


def test_nothing_that_is_shown_reaches_the_terminal_as_a_command() -> None:
    """Neither a colour of rich's, nor an escape sequence, nor a line break."""
    text = drawn(
        [target("[red]a[/red]\\n\x1b[2Jb\u202ec"), lost("http://[::1]:1/\x1b[2J", "[bold]no[/bold]\n\x07")], 160
    )

    assert "[red]a[/red]\\n\\x1b[2Jb\\u202ec" in text
    assert "[bold]no[/bold]\\n\\x07" in text
    assert all(line.isprintable() for line in text.splitlines())


def test_rows_that_do_not_fit_can_be_scrolled() -> None:
    one = target(*(f"m{number:02}" for number in range(30)))

    top, further, end = (drawn([one], 80, 12, first) for first in (0, 8, 29))

    assert all(len(text.splitlines()) <= 12 for text in (top, further, end))
    assert "m00" in top
    assert "22 more" in top
    assert "m08" in further
    assert "m07" not in further
    assert "m29" in end
    assert "more" not in end


def test_many_that_are_lost_leave_room_for_guards() -> None:
    targets = [target("m"), *(lost(f"http://b{number}:1/metrics", "Connection refused") for number in range(40))]
    text = drawn(targets, 80, 12)

    assert len(text.splitlines()) <= 12
    assert "37 more lines about addresses" in text
    assert "\nm  " in text


def test_before_the_first_answer_there_is_no_table() -> None:
    assert "No guard has been called yet" in drawn([Target("a")], 60)
    assert drawn([target("m")], 12)  # too narrow for anything, but no error


@pytest.mark.parametrize(
    ("name", "width", "expected"),
    [
        ("acme.pay", 8, "acme.pay"),
        ("acme.pay", 5, "….pay"),
        ("支付服务", 8, "支付服务"),
        ("支付服务", 6, "…服务"),
        ("", 3, ""),
    ],
)
def test_a_long_name_keeps_its_end(name: str, width: int, expected: str) -> None:
    assert shortened(name, width) == expected


def test_numbers_are_short() -> None:
    texts = [format_number(value) for value in (0.0, 0.01, 0.5, 9.94, 9.96, 999.4, 999.6, 9_960, 999_600, 1e9, 1e30)]

    assert texts == ["0", "<0.1", "0.5", "9.9", "10", "999", "1.0k", "10k", "1.0M", "many", "many"]
    assert [percentage(value) for value in (0, 0.001, 0.5, 0.999, 1)] == ["0 %", "1 %", "50 %", "99 %", "100 %"]


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({}, ""),
        ({"open": 0.0, "half-open": 0.0, "closed": 1.0}, "closed"),
        ({"open": 1.0}, "open"),
        ({"half-open": 1.0}, "half-open"),
        ({"open": 0.25, "closed": 0.75}, "open 25 %"),
        ({"open": 0.001, "half-open": 0.1, "closed": 0.899}, "half-open 10 %"),
    ],
)
def test_a_circuit_is_named_by_its_worst_state(states: dict[str, float], expected: str) -> None:
    assert circuit(GuardStats("m", {}, states, {})) == expected


def test_permits_and_details_tell_what_there_is() -> None:
    plain = GuardStats("m", {}, {}, {"running": 3})
    rates = {"circuit": 2, "rate_limit": 1, "chaos": 3, "shared": 0}
    adaptive = GuardStats("m", rates, {}, {"running": 3, "limit": 8, "waiting": 2, "abandoned": 1})

    assert (permits(plain), permits(adaptive), permits(GuardStats("m", {}, {}, {}))) == ("3", "3/8 +2", "")
    assert details(adaptive) == "refused by circuit 2.0, rate limit 1.0; chaos 3.0; 1 left behind"
    assert details(plain) == ""
