"""Queues of a bulkhead under an overload: that of the library and those of others.

A bulkhead of ten over a backend of 200 calls per second: log-normal service, 50 ms on average. A caller gives up after
500 ms, waiting included; a body is interrupted then, and its permit is free.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache
from typing import Literal, NamedTuple, Protocol

from faulttolerance._strategy import bulkhead as strategy
from faulttolerance._strategy.bulkhead import Waiter
from faulttolerance.exceptions import BulkheadException
from faulttolerance.policies import Criticality

from .kernel import Load, Simulation, lognormal, quantile

__all__ = ["CAPACITY", "KINDS", "LONG", "MEAN", "OURS", "PATIENCE", "PERMITS", "Queued", "queued"]

PERMITS, MEAN, PATIENCE = 10, 0.05, 0.5
CAPACITY = PERMITS / MEAN
WARM, SECONDS = 5.0, 25.0


class End(NamedTuple):
    """The end of one call."""

    began: float
    tier: int
    end: str
    seconds: float


Make = Callable[[Callable[[], float]], "Bulkhead"]


class Bulkhead(Protocol):
    """Permits and a queue; the bulkhead of the library describes the methods."""

    max_wait: float

    @property
    def running(self) -> int: ...
    def enter(self, waiter: Waiter) -> Waiter | None: ...
    def release(self, attempt_id: Hashable) -> None: ...
    def expire(self, waiter: Waiter) -> None: ...


class ControlledDelay:
    """CoDel: once its queue was not empty for an interval, a waiter that waited longer than a target is refused.

    Before, the interval is the target. *newest_first*: the order of a queue that was not empty for an interval.
    """

    max_wait = 0.0

    def __init__(self, target: float, newest_first: bool, now: Callable[[], float]) -> None:
        self.running = 0
        self._target, self._newest_first, self._now = target, newest_first, now
        self._waiting: dict[Hashable, tuple[Waiter, float]] = {}
        self._empty_at = 0.0

    def enter(self, waiter: Waiter) -> Waiter | None:
        if self.running < PERMITS:
            self.running += 1
            return None
        if not self._waiting:
            self._empty_at = self._now()
        if len(self._waiting) == 100:
            if not (self._newest_first and self._is_congested()):
                raise BulkheadException("", 0.0, "full")
            self._refuse(next(iter(self._waiting)), "displaced")
        self._waiting[waiter.attempt_id] = waiter, self._now()
        return waiter

    def release(self, attempt_id: Hashable) -> None:
        if self._waiting.pop(attempt_id, None) is not None:
            return
        self.running -= 1
        most = self._target if self._is_congested() else 0.1
        for one in [one for one, (_, since) in self._waiting.items() if self._now() - since > most]:
            self._refuse(one, "waited")
        if self._waiting:
            last = self._newest_first and self._is_congested()
            waiter, _ = self._waiting.pop(next(reversed(self._waiting)) if last else next(iter(self._waiting)))
            self.running += 1
            waiter.admitted = True
            if waiter.wake is not None:
                waiter.wake()
        if not self._waiting:
            self._empty_at = self._now()

    def expire(self, waiter: Waiter) -> None:
        pass

    def _is_congested(self) -> bool:
        return self._now() - self._empty_at > 0.1

    def _refuse(self, attempt_id: Hashable, reason: Literal["waited", "displaced"]) -> None:
        waiter, _ = self._waiting.pop(attempt_id)
        waiter.reason = reason
        if waiter.wake is not None:
            waiter.wake()


class Queued:
    """Calls at a bulkhead; each ends once, and no more run than there are permits."""

    def __init__(self, make: Make, load: float | Load, seed: int, tiers: bool = False) -> None:
        """*load* is in capacities; with *tiers* each tier has a quarter of the calls."""
        self.simulation = Simulation(seed)
        self.bulkhead = make(lambda: self.simulation.now)
        self.ends: dict[int, End] = {}
        self.woken: dict[int, int] = {}
        self.running = 0
        self._tiers = tiers
        self._service = lognormal(MEAN, 0.6)
        self._number = 0
        rate = (lambda now: load(now) * CAPACITY) if callable(load) else load * CAPACITY
        self.simulation.arrivals(rate, self._arrive)
        self.simulation.run(SECONDS)

    def _arrive(self) -> None:
        self._number += 1
        me, now = self._number, self.simulation.now
        tier = self.simulation.chance.choice(list(Criticality)) if self._tiers else Criticality.NORMAL
        waiter = Waiter(me, 1, lambda: self._go_on(waiter, now), tier)
        try:
            waits = self.bulkhead.enter(waiter)
        except BulkheadException as refusal:
            self._end(waiter, now, refusal.reason)
            return
        if waits is None:
            self._start(waiter, now)
            return
        if self.bulkhead.max_wait:
            self.simulation.after(self.bulkhead.max_wait, lambda: self.bulkhead.expire(waiter))
        self.simulation.after(PATIENCE, lambda: self._give_up(waiter, now))

    def _go_on(self, waiter: Waiter, began: float) -> None:
        me = waiter.attempt_id
        assert isinstance(me, int)
        self.woken[me] = self.woken.get(me, 0) + 1
        if waiter.admitted:
            self._start(waiter, began)
        else:
            self._end(waiter, began, waiter.reason)

    def _start(self, waiter: Waiter, began: float) -> None:
        self.running += 1
        assert self.running <= PERMITS
        left = max(0.0, began + PATIENCE - self.simulation.now)
        seconds = self._service(self.simulation.chance)
        self.simulation.after(min(seconds, left), lambda: self._finish(waiter, began, in_time=seconds <= left))

    def _finish(self, waiter: Waiter, began: float, in_time: bool) -> None:
        self.running -= 1
        self._end(waiter, began, "served" if in_time else "late")
        self.bulkhead.release(waiter.attempt_id)

    def _give_up(self, waiter: Waiter, began: float) -> None:
        if not waiter.admitted and not waiter.reason:
            self.bulkhead.release(waiter.attempt_id)
            self._end(waiter, began, "late")

    def _end(self, waiter: Waiter, began: float, end: str) -> None:
        me = waiter.attempt_id
        assert isinstance(me, int)
        assert me not in self.ends
        self.ends[me] = End(began, waiter.tier, end, self.simulation.now - began)

    @property
    def counted(self) -> list[End]:
        """The ends of the calls that came when the system was warm, and had the time to end."""
        return [end for end in self.ends.values() if WARM <= end.began < SECONDS - 1]

    @property
    def served(self) -> list[float]:
        """The durations of the calls that were served."""
        return [end.seconds for end in self.counted if end.end == "served"]

    @property
    def goodput(self) -> float:
        """Calls that were served per second, in capacities."""
        return len(self.served) / (SECONDS - 1 - WARM) / CAPACITY

    def part_served(self, tier: Criticality) -> float:
        """Return the part of the calls of *tier* that were served."""
        ends = [end.end for end in self.counted if end.tier == tier]
        return ends.count("served") / len(ends)

    def __str__(self) -> str:
        times = f", {quantile(self.served, 0.5) * 1e3:.0f}/{quantile(self.served, 0.99) * 1e3:.0f} ms"
        return f"{self.goodput:.2f}{times}"


def shipped(queue: int, max_wait: float = 0.0) -> Make:
    """Return a maker of the bulkhead of the library."""
    return lambda now: strategy.Bulkhead(PERMITS, queue, max_wait=max_wait, now=now)


def controlled(target: float, newest_first: bool) -> Make:
    """Return a maker of a bulkhead with a queue of 100 under CoDel."""
    return lambda now: ControlledDelay(target, newest_first, now)


OURS, LONG = "**`bulkhead(10, 100, max_wait=200)`**", "`bulkhead(10, 1000)`"
KINDS: dict[str, Make] = {
    "nobody waits": shipped(0),
    "`bulkhead(10, 10)`: the default": shipped(10),
    LONG: shipped(1000),
    "CoDel, 5 and 100 ms, 100 wait": controlled(0.005, newest_first=False),
    "CoDel, 20 and 100 ms, newest first, 100 wait": controlled(0.02, newest_first=True),
    OURS: shipped(100, 0.2),
}


def bursts(now: float) -> float:
    """Return the load of bursts: twice the capacity for 0.4 s of every two, 0.88 on average."""
    return 2.0 if now % 2.0 < 0.4 else 0.6


@cache
def queued(kind: str, load: float | Load, seed: int, tiers: bool = False) -> Queued:
    """Simulate a kind once for all tests and tables."""
    return Queued(KINDS[kind], load, seed, tiers)
