"""One retry budget under many threads and tasks: the missing tokens are exactly those of retries without success."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import pytest

from faulttolerance import Guard, configure, guards
from faulttolerance._guard.declare import registry
from faulttolerance.policies import Retry, RetryBudget
from faulttolerance.testing import virtual_time
from kit.budget import tokens_of

pytestmark = pytest.mark.stress

THREADS, CALLS, TASKS, BURST = 64, 120, 10_000, 100_000
_names = count()


class Spending:
    """Two guards that share a budget, and the retries that did not succeed."""

    def __init__(self, burst: int, delay: float = 0, ratio: float = 0) -> None:
        self.name = f"spent {next(_names)}"
        budget = RetryBudget(ratio, burst, self.name)
        again = Retry(max_retries=3, delay=delay, jitter=0, retry_on=ConnectionError)
        self.guards = [Guard(retry=again, retry_budget=budget) for _ in range(2)]
        self.lost: list[None] = []
        """One for each retry that began and did not succeed."""

    def body(self, number: int, chance: random.Random) -> None:
        """Fail two times in five; *number* is that of the attempt."""
        if chance.random() < 0.4:
            if number > 1:
                self.lost.append(None)
            raise ConnectionError

    def call(self, seed: int, chance: random.Random) -> None:
        """Call through one of the two guards."""
        attempts = count(1)
        with suppress(ConnectionError):
            self.guards[seed % 2].call(lambda: self.body(next(attempts), chance))

    @property
    def budget(self) -> Any:
        """Return the budget of the two guards."""
        (budget,) = {
            strategy
            for state in registry.every_state()
            for policy, strategy in state.strategies.items()
            if policy is RetryBudget and any(guard.name == state.name for guard in self.guards)
        }
        return budget


@contextmanager
def switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("burst", [BURST, 5])
def test_threads_that_share_a_budget(burst: int) -> None:
    """By rule B1: never below 0 or above burst, and no token is lost or made up."""
    spending = Spending(burst)

    def calls(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(CALLS):
            spending.call(seed, chance)
            if seed % 8 == 0:
                assert 0 <= tokens_of(spending.budget) <= burst

    with switching(), ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(calls, range(THREADS)))

    assert tokens_of(spending.budget) == burst - len(spending.lost)
    assert bool(burst - len(spending.lost)) == (burst == BURST)


def test_tasks_that_are_cancelled_anywhere() -> None:
    """By rule B3: a retry that is cancelled during its delay costs nothing, one that began is paid."""

    async def main() -> Spending:
        spending, chance = Spending(BURST, delay=20), random.Random(3)

        async def body(attempts: Iterator[int]) -> None:
            number = next(attempts)
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                if number > 1:
                    spending.lost.append(None)
                raise
            spending.body(number, chance)

        async def one(number: int) -> None:
            call = asyncio.ensure_future(spending.guards[number % 2].call_async(body, count(1)))
            await asyncio.sleep(chance.random() * 0.1)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

        await asyncio.gather(*map(one, range(TASKS)))
        return spending

    with virtual_time() as clock:
        spending = clock.run(main())

    assert len(spending.lost) > 1000
    assert tokens_of(spending.budget) == BURST - len(spending.lost)


def test_reloads_in_the_middle() -> None:
    """By rule X2: the tokens stay within the values, which change meanwhile."""
    spending = Spending(20, ratio=0.2)
    for number in range(2):
        spending.call(number, random.Random(number))  # a guard that is not in use shows no tokens
    over: list[None] = []

    def calls(seed: int) -> None:
        chance = random.Random(seed)
        while not over:
            spending.call(seed, chance)

    with switching(), ThreadPoolExecutor(8) as pool:
        done = [pool.submit(calls, seed) for seed in range(8)]
        try:
            for number in range(60):
                configure(properties={"RetryBudget/burst": str(1 + number * 7 % 20)})
                conditions = [one.conditions["RetryBudget"] for one in guards() if one.method in spending.guards]
                for words in conditions:
                    tokens, burst = words.removesuffix(" tokens").split(" of ")
                    assert 0 <= float(tokens) <= float(burst)
        finally:
            over.append(None)
        for future in done:
            future.result()
    configure(properties={})
