"""Every policy at once under ``testing.simulate``: actions of callers, and invariants for every order of them."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import faulttolerance
from faulttolerance import (
    asynchronous,
    bulkhead,
    circuit_breaker,
    coalesce,
    hedge,
    rate_limit,
    retry,
    retry_budget,
    timeout,
)
from faulttolerance._execution.pool import pool
from faulttolerance._extensions.coalesce.policy import Coalesce
from faulttolerance._guard.declare import registry
from faulttolerance._policy import Bulkhead, CircuitBreaker, RetryBudget
from faulttolerance._strategy.circuit_breaker import HalfOpen
from faulttolerance.testing import Simulation, SimulationFailed, simulate

__all__ = ["EXPECTED", "LINES", "SCENARIOS", "main"]

DECISIONS: Final = tuple(
    f"faulttolerance._extensions.{name}.strategy"
    for name in ("adaptive_throttle", "coalesce", "hedge", "last_good", "observe", "partition_by")
)
"""The decisions of extensions."""
LINES: Final = ("faulttolerance._strategy", *DECISIONS, "faulttolerance._call.attempt")
"""The modules between whose lines the callers are switched: decisions, and the attempt."""
PERMITS: Final = 2
PROBES: Final = 2
BURST: Final = 3
_DELAYS: Final = (0.0, 0.05, 0.1, 0.2, 0.4)
"""How long bodies take, in seconds; the last one is beyond their time-out, and the others meet timers."""

_queueing = bulkhead(PERMITS, waiting_task_queue=2, max_wait=200)
_breaking = circuit_breaker(request_volume_threshold=4, failure_ratio=0.5, delay=100, success_threshold=PROBES)
_retrying = retry(
    max_retries=2, delay=50, jitter=0, max_duration=0, retry_on=(ConnectionError, faulttolerance.TimeoutException)
)
_paying = retry_budget(ratio=0.5, burst=BURST)


class Shop:
    """A backend behind all policies, in each way of calling."""

    def __init__(self, chance: Callable[[], random.Random]) -> None:
        self._chance = chance
        self.failing = 0.4
        self.running = self.begun = 0

    @contextmanager
    def _body(self) -> Iterator[float]:
        self.running += 1
        self.begun += 1
        try:
            yield self._chance().choice(_DELAYS if self.failing else _DELAYS[:2])
            if self._chance().random() < self.failing:
                raise ConnectionError
        finally:
            self.running -= 1

    @_retrying
    @_paying
    @_breaking
    @rate_limit(6, window=200, window_unit="millis")
    @timeout(300)
    @_queueing
    def pay(self) -> str:
        with self._body() as seconds:
            faulttolerance.sleep(seconds)
            if self.failing and self._chance().random() < 0.1:
                raise KeyboardInterrupt
        return "paid"

    @bulkhead(1, waiting_task_queue=10, max_wait="1h")
    def queue(self) -> None:
        with self._body() as seconds:
            faulttolerance.sleep(seconds)

    @retry(max_retries=2, delay=50, jitter=0, max_duration=0, retry_on=ConnectionError)
    @retry_budget(burst=BURST)
    def spend(self) -> None:
        self.begun += 1
        raise ConnectionError

    @bulkhead(1, waiting_task_queue=10)
    @asynchronous
    def order(self) -> faulttolerance.Future[int]:
        with self._body() as seconds:
            faulttolerance.sleep(seconds)
        return faulttolerance.completed_future(1)

    @coalesce(key=lambda _, article: article)
    def look_up(self, article: int) -> int:
        with self._body() as seconds:
            faulttolerance.sleep(seconds)
            if self._chance().random() < 0.2:
                raise KeyboardInterrupt
        return article

    @coalesce(key=lambda _, article: article)
    @_retrying
    @_paying
    @hedge(delay=80, quantile=0)
    @_breaking
    @timeout(300)
    @_queueing
    async def price(self, article: int) -> int:
        with self._body() as seconds:
            await asyncio.sleep(seconds)
        return article

    @_retrying
    @_paying
    @hedge(delay=80, quantile=0)
    @_breaking
    @rate_limit(6, window=200, window_unit="millis")
    @timeout(300)
    @_queueing
    @asynchronous
    def stock(self) -> faulttolerance.Future[int]:
        with self._body() as seconds:
            faulttolerance.sleep(seconds)
        return faulttolerance.completed_future(1)


class _Watch:
    """The state of one method, checked after each step."""

    def __init__(self, method: str) -> None:
        self._name = f"{Shop.__module__}.{Shop.__qualname__}.{method}"
        self._state: Any = None

    @property
    def state(self) -> Any:
        if self._state is None:
            self._state = next((state for state in registry.every_state() if state.name == self._name), None)
        return self._state

    def strategy(self, policy: type) -> Any:
        return None if self.state is None else self.state.strategies.get(policy)

    def holds(self) -> bool:
        """Return whether queue and budget keep within their limits, and a half-open circuit within its places."""
        if self.state is None:
            return True
        permits, breaker, budget = map(self.strategy, (Bulkhead, CircuitBreaker, RetryBudget))
        if permits is not None and len(permits.waiting) > permits.queue:
            return False
        era = None if breaker is None else breaker.state
        if isinstance(era, HalfOpen) and era.successes + len(era.probes) > PROBES:
            return False
        return budget is None or 0 <= budget.missing <= budget._burst

    def counts(self) -> Callable[..., int]:
        """Return a function that sums up the series of a metric that have certain tags, as of now."""
        series = {} if self.state is None else self.state.counts()

        def counted(metric: str, **tags: str) -> int:
            return round(
                sum(
                    value
                    for (name, pairs), value in series.items()
                    if name == metric and tags.items() <= dict(pairs).items()
                )
            )

        return counted

    def check_at_rest(self, calls: int, bodies: int, is_exact: bool) -> None:
        """Check that nothing is held, and that the counts add up for so many calls and bodies of this method."""
        permits, breaker, flights = map(self.strategy, (Bulkhead, CircuitBreaker, Coalesce))
        assert not permits.held, "a permit was not given back"
        assert not len(permits.waiting), "a waiter is left"
        if isinstance(era := breaker.state, HalfOpen):
            assert not era.probes, f"a probe's place was not given back: {era.probes}"
        assert flights is None or not len(flights), "a flight goes on"
        counted = self.counts()
        coalesced = counted("ft.coalesce.calls.total", role="follower")
        counts = {name: counted(name) + coalesced for name in ("ft.invocations.total", "ft.retry.calls.total")}
        bodies_let_in = counted("ft.bulkhead.calls.total", bulkheadResult="accepted")
        if is_exact:
            assert counts == dict.fromkeys(counts, calls), "each call counts once"
            assert bodies == bodies_let_in, f"{bodies} bodies began, and {bodies_let_in} attempts were let in"
        else:  # a call that is cancelled in time counts nothing, or begins no body
            assert max(counts.values()) <= calls, "no call counts twice"
            assert bodies <= bodies_let_in, f"{bodies} bodies began, and {bodies_let_in} attempts were let in"
        permitted = counted("ft.ratelimit.calls.total", rateLimitResult="permitted")
        assert not permitted or permitted >= counted("ft.bulkhead.calls.total")


def _scenario(sim: Simulation, method: str, start: Callable[[Shop, int], object], callers: int) -> None:
    shop, watch = Shop(lambda: sim.random), _Watch(method)
    sim.always(lambda: 0 <= shop.running <= PERMITS, "at most two bodies run")
    sim.always(watch.holds, "limits, queues, probes and budgets are kept")
    for number in range(callers):
        start(shop, number)
        if sim.random.random() < 0.3:
            sim.sleep(sim.random.choice((0.05, 0.1)))
    sim.join()
    assert all(caller.done() for caller in sim.callers)
    if sim.callers:
        watch.check_at_rest(len(sim.callers), shop.begun, is_exact=method == "pay")
    _recovers(sim, shop, watch, start, callers)


def _recovers(sim: Simulation, shop: Shop, watch: _Watch, start: Callable[[Shop, int], object], before: int) -> None:
    """Check that the circuit closes once the backend is well again."""
    shop.failing = 0.0
    for again in range(3):  # the window may fill with the first successes, and open the circuit once more
        sim.sleep(0.5)
        for number in range(PROBES + 1):
            start(shop, before + again * (PROBES + 1) + number)
        sim.join()
    breaker = watch.strategy(CircuitBreaker)
    assert breaker is None or breaker.state.is_closed or not sim.callers, "the circuit does not close any more"


def threads(sim: Simulation) -> None:
    """Run callers on threads of their own."""
    _scenario(sim, "pay", lambda shop, _: sim.start(shop.pay), 5)


def queue(sim: Simulation) -> None:
    """Run callers that wait for a permit without a limit: as no permit is lost, the wait is short."""
    shop, other = Shop(lambda: sim.random), Shop(lambda: sim.random)
    shop.failing = other.failing = 0.1
    sim.always(lambda: 0 <= shop.running <= 1 and 0 <= other.running <= 1, "at most one body of each runs")
    for call in (shop.queue, other.order) * 3:
        sim.start(call)
        if sim.random.random() < 0.5:
            sim.sleep(sim.random.choice(_DELAYS[1:3]))  # come as another one leaves
    sim.join()
    assert sim.now < 60, "a waiter was not woken"


def shared(sim: Simulation) -> None:
    """Run callers of one key, one of which makes the call for all; if it is interrupted, another one does."""
    shops, watch = [Shop(lambda: sim.random) for _ in range(2)], _Watch("look_up")
    sim.always(lambda: all(shop.running <= 1 for shop in shops), "each is looked up once at a time")
    for number in range(5):
        sim.start(shops[number // 3].look_up, number // 3)
    sim.join()
    flights = watch.strategy(Coalesce)
    assert flights is None or not len(flights), "a flight goes on"


def spending(sim: Simulation) -> None:
    """Run callers that all fail at once: no more retries than there are tokens."""
    shop = Shop(lambda: sim.random)
    for _ in range(4):
        sim.start(shop.spend)
    sim.join()
    assert shop.begun <= len(sim.callers) + BURST, "the retry budget is overdrawn"


def tasks(sim: Simulation) -> None:
    """Run tasks of one loop, some with the same key, and some of which are cancelled."""

    async def ask(shop: Shop, article: int) -> object:
        call = asyncio.ensure_future(shop.price(article))
        if shop.failing and sim.random.random() < 0.3:
            await asyncio.sleep(sim.random.choice(_DELAYS))
            call.cancel()
        return await call

    _scenario(sim, "price", lambda shop, number: sim.start(ask, shop, number // 2), 5)


def offloaded(sim: Simulation) -> None:
    """Run calls whose bodies are on threads of the pool, some of which are cancelled."""

    def ask(shop: Shop) -> faulttolerance.Future[int]:
        call = shop.stock()
        if shop.failing and sim.random.random() < 0.3:
            sim.sleep(sim.random.choice(_DELAYS))
            call.cancel()
        return call

    _scenario(sim, "stock", lambda shop, _: sim.start(ask, shop), 4)
    assert not pool.calls, "a call is kept"


EXPECTED: Final = (ConnectionError, KeyboardInterrupt)
SCENARIOS: Final = {
    "threads": threads,
    "queue": queue,
    "shared": shared,
    "spending": spending,
    "tasks": tasks,
    "offloaded": offloaded,
}


def main(name: str, seeds: int) -> str:
    """Return the failure of the scenario *name* within so many seeds, and whether it replays; or an empty text."""
    run = partial(simulate, SCENARIOS[name], switch_in=LINES, expected=EXPECTED)
    try:
        run(seeds=range(seeds))
    except SimulationFailed as failed:
        try:
            run(seeds=[failed.seed])
        except SimulationFailed as again:
            return f"{again}\n{'replayed' if again.schedule == failed.schedule else 'another failure'}"
        return f"{failed}\ndid not replay"
    return ""


if __name__ == "__main__":
    print(main(sys.argv[1], int(sys.argv[2])))
