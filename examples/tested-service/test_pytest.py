"""The shop under pytest, alone or with pytest-xdist: each fixture, and each helper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from shop import Shop, answering

from faulttolerance import (
    BulkheadException,
    CircuitBreakerOpenException,
    RateLimitException,
    TimeoutException,
    circuit_breakers,
    explain,
    health,
)
from faulttolerance.instrumentation import Event, FallbackApplied, GaveUp, RetryScheduled
from faulttolerance.testing import RecordedCall, VirtualClock, disabled, exhaust, force, no_wait

Calls = Callable[[Any], list[RecordedCall]]
DOWN = ConnectionError("the bank is down")


def test_a_payment_is_tried_again(ft_clock: VirtualClock, ft_calls: Calls) -> None:
    calls, began = ft_calls(Shop.pay), ft_clock.monotonic()

    assert Shop(answering(DOWN, DOWN, "paid")).pay(7) == "paid"

    assert calls[0].delays == (0.2, 0.2)
    assert [attempt.outcome for attempt in calls[0].attempts] == ["raised", "raised", "returned"]
    assert ft_clock.monotonic() - began == pytest.approx(0.4)


@no_wait(attempts=2)
def test_an_order_is_kept_while_the_bank_is_down(ft_calls: Calls, ft_events: list[Event]) -> None:
    calls = ft_calls(Shop.pay)

    assert Shop(answering(DOWN)).pay(7) == "order 7 is kept for later"

    assert (calls[0].stop, calls[0].fallback) == ("max_retries reached", True)
    assert [type(event) for event in ft_events] == [RetryScheduled, GaveUp, FallbackApplied]


@disabled("Fallback")
@disabled(Shop.pay, "Retry")
def test_what_the_bank_says_comes_out() -> None:
    with pytest.raises(ConnectionError, match="the bank is down"):
        Shop(answering(DOWN)).pay(7)


@pytest.mark.parametrize("again", [1, 2, 3])
def test_the_circuit_opens_and_no_other_test_hears_of_it(again: int, ft_clock: VirtualClock) -> None:
    shop, name = Shop(answering(DOWN, DOWN, "3 left")), "shop.Shop.stock"
    for _ in range(2):
        with pytest.raises(ConnectionError):
            shop.stock("north")

    assert circuit_breakers.state(name, "north") == "open"
    assert circuit_breakers.state(name, "south") == "closed"
    ft_clock.advance(30)
    assert shop.stock("north") == "3 left"
    assert circuit_breakers.state(name, "north") == "closed"


def test_nobody_waits_for_a_bank_whose_circuit_is_open(ft_calls: Calls) -> None:
    calls = ft_calls(Shop.pay)
    with force(Shop.pay, "open"), no_wait(attempts=1):
        assert Shop(answering("paid")).pay(7) == "order 7 is kept for later"
        assert health("shop.Shop.pay").status == "down"

    assert calls[0].refusals == ("CircuitBreaker",)
    assert health("shop.Shop.pay").status == "up"


@force(Shop.stock, "half-open")
def test_one_probe_closes_the_circuit_of_a_host() -> None:
    assert Shop(answering("3 left")).stock("north") == "3 left"
    assert circuit_breakers.state("shop.Shop.stock", "north") == "closed"


def test_the_shop_under_overload(ft_events: list[Event]) -> None:
    shop = Shop(answering("fine"))
    with exhaust(Shop.pay, "Bulkhead"), disabled("Fallback", "Retry"), pytest.raises(BulkheadException):
        shop.pay(7)
    with exhaust(Shop.search), pytest.raises(RateLimitException) as refused:
        shop.search("tea")

    assert refused.value.retry_after == pytest.approx(0.5, abs=0.5)  # its window is a second
    assert shop.search("tea") == "fine"
    assert len(ft_events) == 2


@pytest.mark.ft_clock(seed=7)
def test_a_search_for_everything_is_ended(ft_clock: VirtualClock) -> None:
    began = ft_clock.monotonic()
    with pytest.raises(TimeoutException):
        Shop(answering("")).search("everything")

    assert ft_clock.monotonic() - began == pytest.approx(0.5)


def test_values_of_production(ft_configured: Callable[[Mapping[str, Any]], None], ft_calls: Calls) -> None:
    ft_configured({"shop.Shop/pay/Retry/maxRetries": 1, "Retry/delay": 0})
    calls = ft_calls(Shop.pay)
    Shop(answering(DOWN)).pay(7)

    assert len(calls[0].attempts) == 2
    policies = {policy["annotation"]: policy for policy in explain(Shop.pay).as_dict()["policies"]}
    assert policies["Retry"]["parameters"]["maxRetries"]["value"] == 1


def test_a_reset_in_the_middle(ft_reset: None) -> None:
    with force(Shop.stock, "open"), pytest.raises(CircuitBreakerOpenException):
        Shop(answering("3 left")).stock("north")
    assert Shop(answering("3 left")).stock("north") == "3 left"
