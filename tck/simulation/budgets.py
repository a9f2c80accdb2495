"""Retry budgets that others use, and calls whose attempts fail: all of them, or a part.

Three retries, 50 to 150 ms after the failure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, Protocol

from .kernel import Load, Simulation
from .shipped import retry_budget

__all__ = ["KINDS", "OURS", "Budget", "Unlimited", "Window", "attempts_in_outage", "layered", "succeeding"]


class Budget(Protocol):
    """A budget that is told of calls and attempts, and decides about retries."""

    asks_late: bool
    """Whether it is asked after the delay instead of before."""

    def call(self, now: float) -> None:
        """Count a call."""

    def begin(self) -> None:
        """Count an attempt that begins."""

    def end(self, number: int, is_success: bool) -> None:
        """Count the end of the attempt with this *number*; the first is 1."""

    def take(self, now: float) -> bool:
        """Return whether one more retry may be made."""
        ...


class Unlimited:
    """No budget: every retry is granted."""

    asks_late = False

    def call(self, now: float) -> None:
        pass

    def begin(self) -> None:
        pass

    def end(self, number: int, is_success: bool) -> None:
        pass

    def take(self, now: float) -> bool:
        return True


class Window(Unlimited):
    """A part of the calls in ten seconds, and a number each second in any case (Finagle's RetryBudget)."""

    def __init__(self, ratio: float, per_second: int) -> None:
        self._ratio, self._least = ratio, per_second * 10
        self._calls, self._retries = deque[float](), deque[float]()

    def call(self, now: float) -> None:
        self._calls.append(now)

    def take(self, now: float) -> bool:
        for moments in (self._calls, self._retries):
            while moments and moments[0] <= now - 10.0:
                moments.popleft()
        if len(self._retries) >= int(self._ratio * len(self._calls)) + self._least:
            return False
        self._retries.append(now)
        return True


class Throttling(Unlimited):
    """Ten tokens; a failure costs 1, a success gives 0.1, no retry at five or less (gRPC, proposal A6)."""

    def __init__(self) -> None:
        self._tokens = 10.0

    def end(self, number: int, is_success: bool) -> None:
        self._tokens = min(10.0, self._tokens + 0.1) if is_success else max(0.0, self._tokens - 1)

    def take(self, now: float) -> bool:
        return self._tokens > 5.0


class Quota(Unlimited):
    """500 tokens; a retry costs 5 and returns them if it succeeds, a first attempt gives 1 (AWS SDKs, standard)."""

    def __init__(self) -> None:
        self._left = 500

    def end(self, number: int, is_success: bool) -> None:
        if is_success:
            self._left = min(500, self._left + (5 if number > 1 else 1))

    def take(self, now: float) -> bool:
        if self._left < 5:
            return False
        self._left -= 5
        return True


class InFlight(Unlimited):
    """A fifth of the attempts in flight may be retries, and three in any case (Envoy; failsafe-go asks late)."""

    def __init__(self, asks_late: bool) -> None:
        self.asks_late = asks_late
        self._running = self._retries = 0

    def begin(self) -> None:
        self._running += 1

    def end(self, number: int, is_success: bool) -> None:
        self._running -= 1
        self._retries -= number > 1

    def take(self, now: float) -> bool:
        if self._retries >= 3 and self._retries > 0.2 * max(1, self._running):
            return False
        self._retries += 1
        return True


class Shipped(Unlimited):
    """The budget of the library with its defaults, used as a guard uses it."""

    def __init__(self) -> None:
        self._budget = retry_budget()

    def end(self, number: int, is_success: bool) -> None:
        if is_success and number > 1:
            self._budget.give_back()
        elif is_success:
            self._budget.succeed()

    def take(self, now: float) -> bool:
        return self._budget.take()


class Retried(NamedTuple):
    """A call that is over."""

    began: float
    is_success: bool
    attempts: int


class Outage:
    """Calls whose attempts fail in part, as a function of the moment."""

    def __init__(
        self, budget: Budget, per_second: float, seconds: float, failing: Load, seconds_to_fail: float, seed: int
    ) -> None:
        self.simulation = Simulation(seed)
        self.ends: list[Retried] = []
        self._budget, self._failing, self._seconds_to_fail = budget, failing, seconds_to_fail
        self.simulation.arrivals(per_second, self._arrive)
        self.simulation.run(seconds)

    def _arrive(self) -> None:
        self._budget.call(self.simulation.now)
        self._attempt(self.simulation.now, 1)

    def _attempt(self, began: float, number: int) -> None:
        simulation, budget = self.simulation, self._budget
        fails = simulation.chance.random() < self._failing(simulation.now)
        budget.begin()

        def end() -> None:
            budget.end(number, not fails)
            if fails and number <= 3 and (budget.asks_late or budget.take(simulation.now)):
                simulation.after(0.05 + 0.1 * simulation.chance.random(), again)
            else:
                self.ends.append(Retried(began, not fails, number))

        def again() -> None:
            if not budget.asks_late or budget.take(simulation.now):
                self._attempt(began, number + 1)
            else:
                self.ends.append(Retried(began, is_success=False, attempts=number))

        simulation.after(self._seconds_to_fail if fails else 0.05, end)

    def attempts(self, begin: float, end: float) -> float:
        """Return the average number of attempts of the calls that came from *begin* to *end*."""
        span = [one for one in self.ends if begin <= one.began < end]
        return sum(one.attempts for one in span) / len(span)

    def succeeding(self, begin: float, end: float) -> float:
        """Return the part of the calls that succeeded."""
        span = [one for one in self.ends if begin <= one.began < end]
        return sum(one.is_success for one in span) / len(span)


OURS = "**`@retry_budget()`**"
KINDS: dict[str, Callable[[], Budget]] = {
    "none": Unlimited,
    "in flight: a fifth and 3, asked before the delay (Envoy)": lambda: InFlight(asks_late=False),
    "the same, asked after it (failsafe-go)": lambda: InFlight(asks_late=True),
    "gRPC: 10, 0.1": Throttling,
    "Finagle: 20 % and 10 a second": lambda: Window(0.2, 10),
    "the same with 1 a second": lambda: Window(0.2, 1),
    "AWS: 500, 5, 1": Quota,
    OURS: Shipped,
}


class Attempts(NamedTuple):
    """Attempts per call."""

    first: float
    """In the first 10 s of an outage."""
    later: float
    """From 20 s on."""

    def __str__(self) -> str:
        return f"{self.first:.2f} / {self.later:.2f}"


@cache
def attempts_in_outage(kind: str, per_second: float, seconds_to_fail: float, seed: int) -> Attempts:
    """Simulate an outage in which all attempts fail from one moment on."""
    run = Outage(KINDS[kind](), per_second, 100.0, lambda now: float(now > 60), seconds_to_fail, seed)
    return Attempts(run.attempts(60, 70), run.attempts(80, 95))


@cache
def succeeding(kind: str, part: float, seed: int) -> float:
    """Return the part of the calls that succeed while a *part* of the attempts fails at random."""
    return Outage(KINDS[kind](), 100.0, 120.0, lambda now: part, 0.05, seed).succeeding(30, 110)


def layered(kind: str, seed: int) -> float:
    """Return the attempts at the bottom of three layers per call at the top, when the bottom fails."""
    return attempts_in_outage(kind, 100.0, 0.002, seed).later ** 3
