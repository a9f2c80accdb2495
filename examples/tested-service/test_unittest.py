"""The shop under unittest: context managers in place of fixtures."""

from __future__ import annotations

import unittest

from shop import Shop, answering

from faulttolerance.testing import (
    captured_events,
    configured,
    disabled,
    exhaust,
    force,
    no_wait,
    recorded,
    reset,
    virtual_time,
)

DOWN = ConnectionError("the bank is down")


class TestShop(unittest.TestCase):
    def setUp(self) -> None:
        reset()
        self.addCleanup(reset)
        self.calls = self.enterContext(recorded(Shop))
        self.events = self.enterContext(captured_events())

    def test_a_payment_is_tried_again(self) -> None:
        clock = self.enterContext(virtual_time(seed=7))
        began = clock.monotonic()

        self.assertEqual(Shop(answering(DOWN, "paid")).pay(7), "paid")

        self.assertAlmostEqual(clock.monotonic() - began, 0.2)
        self.assertEqual(len(self.calls[0].attempts), 2)

    def test_an_order_is_shipped(self) -> None:
        clock = self.enterContext(virtual_time())

        self.assertEqual(clock.run(Shop(answering(DOWN, "shipped")).ship(7)), "shipped")
        self.assertEqual(self.calls[0].delays, (1.0,))

    @force(Shop.pay, "open")
    @no_wait()
    def test_an_order_is_kept_while_the_circuit_is_open(self) -> None:
        self.enterContext(configured({"Retry/maxRetries": 0}))

        self.assertEqual(Shop(answering("paid")).pay(7), "order 7 is kept for later")
        self.assertEqual(self.calls[0].refusals, ("CircuitBreaker",))

    @disabled("Fallback")
    def test_a_spent_budget_ends_the_retries(self) -> None:
        with exhaust(Shop.pay, "RetryBudget"), self.assertRaises(ConnectionError):
            Shop(answering(DOWN)).pay(7)
        self.assertEqual(self.calls[0].stop, "the retry budget is spent")
        self.assertEqual(len(self.events), 1)


class TestShipping(unittest.IsolatedAsyncioTestCase):
    async def test_shipping_is_tried_again(self) -> None:
        with no_wait(), recorded(Shop.ship) as calls:
            self.assertEqual(await Shop(answering(DOWN, "shipped")).ship(7), "shipped")
        self.assertEqual(len(calls[0].attempts), 2)


if __name__ == "__main__":
    unittest.main()
