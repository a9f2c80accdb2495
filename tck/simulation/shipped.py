"""What the library ships, under the names that the scenarios call the others by."""

from __future__ import annotations

from collections.abc import Callable

from faulttolerance._strategy import adaptive_limit as limit_strategy, adaptive_throttle as throttle_strategy
from faulttolerance._strategy.circuit_breaker import CircuitBreaker
from faulttolerance._strategy.gate import Era
from faulttolerance._strategy.latencies import Latencies
from faulttolerance._strategy.retry_budget import RetryBudget
from faulttolerance._strategy.verdict import FAILURE, NEUTRAL, SUCCESS
from faulttolerance.exceptions import RefusedException


class Gated:
    """The circuit breaker or the adaptive throttle, asked as an attempt asks it."""

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
        assert isinstance(era, Era)
        if not is_accepted or not era.is_clean:
            self._gate.settle(era, permit, SUCCESS if is_accepted else FAILURE, now)

    def refuse(self, admission: object, now: float) -> None:
        """Hear that a policy further inside refused one: a failure to the breaker, nothing to the throttle."""
        if self._gate.judges_refusals:
            self.settle(admission, now, is_accepted=False)
        else:
            self.leave(admission, now)

    def leave(self, admission: object, now: float) -> None:
        """Hear that one ended by control flow."""
        assert isinstance(admission, tuple)
        era, permit = admission
        if not era.is_closed:
            self._gate.settle(era, permit, NEUTRAL, now)


def circuit_breaker(results: int = 20) -> CircuitBreaker:
    """Give the specification's, by its defaults, over so many *results*."""
    return CircuitBreaker("", 5.0, results, 0.5, 1, now=0.0)


def adaptive_throttle(
    chance: Callable[[], float], tier: Callable[[], int] = lambda: 0
) -> throttle_strategy.AdaptiveThrottle:
    """Give the throttle with its defaults."""
    return throttle_strategy.AdaptiveThrottle("", 2.0, 10.0, 10, chance, tier)


def retry_budget(ratio: float = 0.2, burst: float = 10.0) -> RetryBudget:
    """Give the budget with its defaults."""
    return RetryBudget(ratio, burst)


class Quantile:
    """One quantile of the latencies that attempts are measured by."""

    def __init__(self, part: float) -> None:
        self._part, self._latencies = part, Latencies()
        self.add = self._latencies.add

    def value(self) -> float | None:
        return self._latencies.quantile(self._part)


class AdaptiveTimeout:
    """The limit of a time-out of a second that adapts, asked as a guard asks it."""

    def __init__(self) -> None:
        self._latencies = Latencies()

    def seconds(self) -> float:
        found = self._latencies.quantile(0.99)
        return 1.0 if found is None else min(1.0, max(0.01, 3 * found))

    def learn(self, seconds: float, is_success: bool) -> None:
        self._latencies.add(seconds)


class Hedging:
    """Sends a hedge as the library does, with its defaults."""

    def __init__(self, has_budget: bool) -> None:
        self._latencies = Latencies()
        self._budget = retry_budget(0.1, 10.0) if has_budget else None

    def delay(self) -> float | None:
        return self._latencies.quantile(0.95)

    def take(self) -> bool:
        return self._budget is None or self._budget.take()

    def learn(self, winner: str, waited: float, since_hedge: float) -> None:
        self._latencies.add(waited)
        if winner and self._budget is not None:
            self._budget.succeed()


class AdaptiveLimit:
    """The limit of a bulkhead with a *latency*, asked as a guard asks it; a time-out is a sample and no success."""

    def __init__(self, ceiling: int, latency: float) -> None:
        self._strategy = limit_strategy.AdaptiveLimit(ceiling, latency)

    @property
    def limit(self) -> float:
        return self._strategy.limit

    def admits(self, running: int) -> bool:
        return running < self._strategy.limit

    def observe(self, now: float, began: float, running: int, is_late: bool) -> None:
        self._strategy.end(began, now, running, is_success=not is_late)
