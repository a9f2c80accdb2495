"""Throttles of other libraries, and a callee that takes a part of the calls and turns the others down.

A throttle is asked before each call, and is told 10 ms later whether the callee took it.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, Protocol

from .kernel import Load, Simulation
from .shipped import Gated, adaptive_throttle, circuit_breaker

__all__ = ["KINDS", "OURS", "Recovery", "TurnedDown", "dead", "degraded", "recovery"]


class Throttle(Protocol):
    """A throttle that lets calls pass, or not."""

    def admit(self, now: float) -> object | None:
        """Return an admission of a call that may pass, or ``None``."""
        ...

    def settle(self, admission: object, now: float, is_accepted: bool) -> None:
        """Record whether the callee took a call that passed."""


class Windowed:
    """Refuses with ``(requests - multiplier * accepted) / (requests + 1)`` over a window of buckets.

    Args:
        chance: Gives a random number.
        window: Seconds.
        multiplier: The multiplier of this formula.
        counts_refused: Whether a call that is refused here is a request, as in Google's book.
        most: The highest probability.
        least: Nothing is refused below this number of requests.
        buckets: Their number; with one bucket the window tumbles, as in forze.
    """

    def __init__(
        self, chance: Callable[[], float], window: float, multiplier: float = 2.0, *, counts_refused: bool = True,
        most: float = 1.0, least: int = 10, buckets: int = 10,
    ) -> None:  # fmt: skip
        self._chance, self._window, self._multiplier, self._most = chance, window, multiplier, most
        self._counts_refused, self._least = counts_refused, least
        self._width = window / buckets
        self._buckets: deque[list[float]] = deque([[0.0, 0, 0]])  # when it began, requests, accepted

    def admit(self, now: float) -> object | None:
        self._roll(now)
        requests = sum(requests for _, requests, _ in self._buckets)
        accepted = sum(accepted for _, _, accepted in self._buckets)
        probability = min(self._most, (requests - self._multiplier * accepted) / (requests + 1))
        passes = requests < self._least or self._chance() >= probability
        if passes or self._counts_refused:
            self._buckets[-1][1] += 1
        return self if passes else None

    def settle(self, admission: object, now: float, is_accepted: bool) -> None:
        self._roll(now)
        self._buckets[-1][2] += is_accepted

    def _roll(self, now: float) -> None:
        if now - self._buckets[-1][0] >= self._width:
            self._buckets.append([now - now % self._width, 0, 0])
        while len(self._buckets) > 1 and self._buckets[0][0] <= now - self._window:
            self._buckets.popleft()


class TurnedDown:
    """Calls at a callee that takes *capacity* of them a second."""

    def __init__(self, kind: str, per_second: float, seconds: float, capacity: Load, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.throttle = KINDS[kind](self.simulation)
        self.seconds, self._capacity = seconds, capacity
        self.ends: Counter[tuple[int, str]] = Counter()
        """The number of calls by the whole second in which they came, and by their end."""
        self._tokens, self._filled_at = 0.0, 0.0
        self.simulation.arrivals(per_second, self._arrive)
        self.simulation.run(seconds)

    def _arrive(self) -> None:
        now = self.simulation.now
        admission = self.throttle.admit(now)
        if admission is None:
            self.ends[int(now), "refused"] += 1
            return
        capacity = self._capacity(now)
        most = max(1.0, capacity / 10) if capacity else 0.0
        self._tokens = min(most, self._tokens + (now - self._filled_at) * capacity)
        self._filled_at = now
        is_accepted = self._tokens >= 1
        self._tokens -= is_accepted
        self.ends[int(now), "accepted" if is_accepted else "turned down"] += 1
        self.simulation.after(0.01, lambda: self.throttle.settle(admission, self.simulation.now, is_accepted))

    def per_second(self, end: str, first: int, last: int) -> float:
        """Return how many calls ended so in each second from *first* to before *last*."""
        return sum(self.ends[second, end] for second in range(first, last)) / (last - first)

    def sent(self, first: int, last: int) -> float:
        """Return how many calls were sent in each second."""
        return self.per_second("accepted", first, last) + self.per_second("turned down", first, last)

    def recovered(self, since: int) -> float:
        """Return the seconds from *since* until nineteen in twenty calls of two seconds are accepted."""
        for second in range(since, int(self.seconds) - 2):
            accepted = self.per_second("accepted", second, second + 2)
            if accepted >= 0.95 * (accepted + self.per_second("turned down", second, second + 2)
                                   + self.per_second("refused", second, second + 2)):  # fmt: skip
                return second - since
        return math.inf


OURS = "**`@adaptive_throttle()`**"
KINDS: dict[str, Callable[[Simulation], Throttle]] = {
    "`@circuit_breaker()`": lambda simulation: Gated(circuit_breaker()),
    "of Google's book: 120 s, sliding": lambda simulation: Windowed(simulation.chance.random, 120.0),
    "of forze: 120 s, tumbling": lambda simulation: Windowed(simulation.chance.random, 120.0, buckets=1),
    "of Envoy: 30 s, at most 0.8": lambda simulation: Windowed(
        simulation.chance.random, 30.0, 1 / 0.95, counts_refused=False, most=0.8, least=0
    ),
    "of failsafe-go: 60 s, at most 0.9": lambda simulation: Windowed(
        simulation.chance.random, 60.0, 1 / 0.9, counts_refused=False, most=0.9, least=0
    ),
    "of Google's book, but 10 s": lambda simulation: Windowed(simulation.chance.random, 10.0),
    OURS: lambda simulation: Gated(adaptive_throttle(simulation.chance.random)),
}
HEALTHY = 2000.0


class Sent(NamedTuple):
    """Calls per second."""

    sent: float
    accepted: float

    def __str__(self) -> str:
        return f"{self.sent:.0f}, {self.accepted:.0f}"


@cache
def degraded(kind: str, per_second: float, seed: int) -> Sent:
    """Return the calls that pass when a callee has begun to take 30 calls a second."""
    run = TurnedDown(kind, per_second, 160.0, lambda now: 30.0 if now > 60 else HEALTHY, seed)
    return Sent(run.sent(110, 160), run.per_second("accepted", 110, 160))


@cache
def dead(kind: str, seed: int) -> float:
    """Return the calls a second that are sent in the last 20 s of 120 s in which none is taken."""
    return TurnedDown(kind, 100.0, 180.0, lambda now: 0.0 if now > 60 else HEALTHY, seed).sent(160, 180)


class Recovery(NamedTuple):
    """Seconds until nineteen in twenty calls are accepted again."""

    short: float
    """After 10 s in which nothing was taken."""
    long: float
    """After 120 s in which nothing was taken."""
    partial: float
    """After 60 s in which 30 calls a second were taken."""

    def __str__(self) -> str:
        return " / ".join(f"{one:.0f}" for one in self)


@cache
def recovery(kind: str, seed: int, seconds: int = 900) -> Recovery:
    """Simulate this number of *seconds* in all, and return the times of recovery."""

    def run(end: int, capacity: float) -> float:
        load = lambda now: capacity if 60 < now < end else HEALTHY  # noqa: E731
        return TurnedDown(kind, 100.0, min(seconds, end + 700), load, seed).recovered(end)

    return Recovery(run(70, 0.0), run(180, 0.0), run(120, 30.0))
