"""The shop under pytest-asyncio: each test has a loop of its own, which follows the clock where that is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from shop import Shop, answering

from faulttolerance.instrumentation import Event
from faulttolerance.testing import RecordedCall, VirtualClock, disabled, no_wait, recorded

LOST = ConnectionError("the parcel is lost")


@pytest.mark.parametrize("again", [1, 2])
async def test_shipping_is_tried_again(
    again: int, ft_clock: VirtualClock, ft_calls: Callable[[Any], list[RecordedCall]]
) -> None:
    calls, began = ft_calls(Shop.ship), ft_clock.monotonic()

    assert await Shop(answering(LOST, "shipped")).ship(7) == "shipped"

    assert calls[0].delays == (1.0,)
    assert ft_clock.monotonic() - began == pytest.approx(1.2)


async def test_orders_that_ship_at_once_are_told_apart(ft_events: list[Event]) -> None:
    with no_wait(), recorded(Shop.ship) as calls:
        outcomes = await asyncio.gather(
            *(Shop(answering(*[LOST] * order, "shipped")).ship(order) for order in range(4)), return_exceptions=True
        )

    assert outcomes == ["shipped", "shipped", "shipped", LOST]
    assert [len(call.attempts) for call in calls] == [1, 2, 3, 3]
    assert len(ft_events) == 1 + 2 + 2 + 3  # retries, recoveries, and one that gave up


@disabled("Retry")
async def test_what_the_carrier_says_comes_out() -> None:
    with pytest.raises(ConnectionError, match="the parcel is lost"):
        await Shop(answering(LOST, "shipped")).ship(7)
