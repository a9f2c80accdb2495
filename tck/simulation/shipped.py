"""The policies of the library, under the names by which the scenarios call those of others."""

from __future__ import annotations

from collections.abc import Callable

from faulttolerance._extensions.adaptive.listener import Limiter
from faulttolerance._extensions.adaptive_throttle import strategy as throttle_strategy
from faulttolerance._extensions.hedge.strategy import Hedge
from faulttolerance._strategy import adaptive_timeout
from faulttolerance._strategy.bulkhead import Bulkhead
from faulttolerance._strategy.circuit_breaker import CircuitBreaker, CircuitValues
from faulttolerance._strategy.gate import GateState
from faulttolerance._strategy.latencies import SUCCEEDED, TIMED_OUT, Latencies
from faulttolerance._strategy.retry_budget import RetryBudget
from faulttolerance._strategy.verdict import FAILURE, NEUTRAL, SUCCESS
from faulttolerance.exceptions import BulkheadException, RefusedException

from .kernel import Simulation


class Gated:
    """The circuit breaker or the adaptive throttle, used as an attempt uses it."""

    def __init__(self, gate: CircuitBreaker | throttle_strategy.AdaptiveThrottle) -> None:
        self._gate = gate

    def admit(self, now: float) -> object | None:
        permit = object()
        era = self._gate.state
        try:
            if not era.is_closed:
                era = self._gate.admit(permit, 1, now)
        except RefusedException:
            return None
        return era, permit

    def settle(self, admission: object, now: float, is_accepted: bool) -> None:
        assert isinstance(admission, tuple)
        era, permit = admission
        assert isinstance(era, GateState)
        if not is_accepted or not era.is_clean:
            self._gate.settle(era, permit, SUCCESS if is_accepted else FAILURE, now)

    def refuse(self, admission: object, now: float) -> None:
        """Settle an attempt that an inner policy refused: a failure to the breaker, nothing to the throttle."""
        if self._gate.judges_refusals:
            self.settle(admission, now, is_accepted=False)
        else:
            self.leave(admission, now)

    def leave(self, admission: object, now: float) -> None:
        """Settle an attempt that ended by control flow."""
        assert isinstance(admission, tuple)
        era, permit = admission
        if not era.is_closed:
            self._gate.settle(era, permit, NEUTRAL, now)


def circuit_breaker(results: int = 20) -> CircuitBreaker:
    """Return the circuit breaker of the specification with its defaults, over this number of *results*."""
    return CircuitBreaker("", CircuitValues(5.0, results, 0.5, 1), now=0.0)


def adaptive_throttle(
    chance: Callable[[], float], tier: Callable[[], int] = lambda: 0
) -> throttle_strategy.AdaptiveThrottle:
    """Return the throttle with its defaults."""
    return throttle_strategy.AdaptiveThrottle("", 2.0, 10.0, 10, chance, tier)


def retry_budget(ratio: float = 0.2, burst: float = 10.0) -> RetryBudget:
    """Return the budget with its defaults."""
    return RetryBudget(ratio, burst)


class Quantile:
    """A quantile of the latencies of attempts."""

    def __init__(self, part: float) -> None:
        self._part, self._latencies = part, Latencies()
        self.add = self._latencies.add

    def value(self) -> float | None:
        return self._latencies.quantile(self._part)


class AdaptiveTimeout:
    """A time-out of a second that adapts, used as a guard uses it."""

    def __init__(self) -> None:
        self._strategy = adaptive_timeout.AdaptiveTimeout(1.0)

    def seconds(self) -> float:
        return self._strategy.seconds

    def learn(self, seconds: float, is_success: bool) -> None:
        self._strategy.record(seconds, SUCCEEDED if is_success else TIMED_OUT)


class Hedging:
    """The state of hedging with its defaults, used as a race of attempts uses it."""

    def __init__(self, has_budget: bool) -> None:
        self._hedge = Hedge(1, 0.95, 0.0)
        self._has_budget = has_budget

    def delay(self) -> float | None:
        return self._hedge.delay or None

    def take(self) -> bool:
        return not self._has_budget or self._hedge.budget.take()

    def learn(self, winner: str, waited: float, since_hedge: float) -> None:
        self._hedge.learn(waited)
        if winner:
            self._hedge.budget.succeed()


class AdaptiveLimit:
    """A bulkhead with a *latency*, used as a guard uses it."""

    def __init__(self, simulation: Simulation, ceiling: int, latency: float) -> None:
        self._bulkhead = Bulkhead(ceiling, 0, latency=latency, now=lambda: simulation.now)
        self._limiter = Limiter("a replica", self._bulkhead, detached=False)
        self._number = 0

    def admits(self, running: int) -> bool:
        self._number += 1
        try:
            self._bulkhead.acquire(self._number, 1)
        except BulkheadException:
            return False
        return True

    def observe(self, now: float, began: float, running: int, is_late: bool) -> None:
        assert len(self._bulkhead.held) == running
        self._bulkhead.release(next(iter(self._bulkhead.held)))  # one is like the other
        self._limiter.record(now - began, TIMED_OUT if is_late else SUCCEEDED)
