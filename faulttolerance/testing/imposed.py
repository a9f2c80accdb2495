"""Strategies that are given a state from outside, and go back to their own: what tests put into the way of calls.

A strategy that refuses everybody is the same object under another class, so that whoever is bound to it asks that one.
What it has counted, lent and promised stays where it was, and goes on: calls in flight end, values are renewed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

from .._extensions.adaptive_throttle.strategy import WATCHING, AdaptiveThrottle
from .._strategy.bulkhead import Bulkhead, Waiter
from .._strategy.circuit_breaker import CLOSED, OPEN, CircuitBreaker, HalfOpen, StateName
from .._strategy.condition import Condition
from .._strategy.gate import Era
from .._strategy.rate_limit import NOBODY, Place, RateLimit, ticks, wait_for
from .._strategy.retry_budget import RetryBudget

__all__ = ["become", "exhaust", "force"]


class ExhaustedBulkhead(Bulkhead):
    """A bulkhead without a permit; those that run and those that wait stay."""

    __slots__ = ()

    limit = property(lambda self: 0, vars(Bulkhead)["limit"].__set__)

    def enter(self, waiter: Waiter) -> Waiter | None:
        """Refuse everybody.

        Raises:
            BulkheadException: Always.
        """
        raise self.refusal("full")


class ExhaustedRateLimit(RateLimit):
    """A rate limit whose window is used up; a window's time is what it says that calls have to wait."""

    __slots__ = ()

    follows_fleet = False

    def admit(self, now: float) -> None:
        """Refuse the call.

        Raises:
            RateLimitException: Always.
        """
        raise self.refusal(self.window.length / 1e9)

    def ask(self, place: Place, now: float) -> float:
        """Refuse the call, however long it may wait; one that was in the line before stays there as long as it may.

        Raises:
            RateLimitException: Else always.
        """
        with self.lock:
            if place in self.waiting and place.until is not None and place.until > ticks(now):
                place.asks_at = place.until
                return wait_for(now, place.until)
        self.leave(place, now)
        raise self.refusal(self.window.length / 1e9)

    def condition(self, now: float) -> Condition:
        """How it stands."""
        return Condition("used up", is_impaired=True)


class ExhaustedRetryBudget(RetryBudget):
    """A retry budget with nothing in it, and to which calls that go well give nothing."""

    __slots__ = ()

    @property
    def tokens(self) -> float:
        """None."""
        return 0.0

    def take(self) -> bool:
        """Give nothing."""
        return False

    def succeed(self) -> None:
        """Take nothing."""

    def condition(self, now: float) -> Condition:
        """How it stands."""
        return Condition(f"0 of {self.burst:g} tokens", is_impaired=True)


class ExhaustedThrottle(AdaptiveThrottle):
    """A throttle that refuses every call."""

    __slots__ = ()

    state = property(  # pyright: ignore[reportAssignmentType]
        lambda self: WATCHING, vars(AdaptiveThrottle)["state"].__set__
    )

    def admit(self, permit: Hashable, ident: int, now: float) -> Era:
        """Refuse the attempt.

        Raises:
            ThrottleException: Always.
        """
        raise self.refusal(0.0)

    def probability(self, now: float) -> float:
        """Certainty."""
        return 1.0


_EXHAUSTED: Final[dict[type, type]] = {
    Bulkhead: ExhaustedBulkhead,
    RateLimit: ExhaustedRateLimit,
    RetryBudget: ExhaustedRetryBudget,
    AdaptiveThrottle: ExhaustedThrottle,
}


_layers: dict[int, list[_Layer]] = {}  # guarded by _lock: of each object, by its id, the lowest first
_lock = threading.RLock()  # a handler of a signal may enter a block of its own


class _Layer:
    """What was put over an object, and what was there before: threads may end theirs in any order.

    Who ends one that is not on top leaves the object as it is, and what it has found to the one above.
    """

    def __init__(self, strategy: object, found: Any) -> None:
        self._strategy = strategy  # kept: another object could have its id
        self._found = found
        _layers.setdefault(id(strategy), []).append(self)

    def end_locked(self) -> Any:
        """Give what was there before; ``None`` where that does not come back yet."""
        layers = _layers[id(self._strategy)]
        place = layers.index(self)
        del layers[place]
        if place < len(layers):
            layers[place]._found = self._found
            return None
        if not layers:
            del _layers[id(self._strategy)]
        return self._found


def become(strategy: Any, kind: type) -> Callable[[], None]:
    """Let *strategy* be of another class, *kind*; give what ends that."""
    with _lock:
        layer = _Layer(strategy, type(strategy))
        strategy.__class__ = kind

    def end() -> None:
        with _lock:
            found = layer.end_locked()
            if found is not None:
                strategy.__class__ = found

    return end


def exhaust(strategy: Any, now: Callable[[], float]) -> Callable[[], object]:
    """Let *strategy* refuse everybody; give what ends that."""
    end_layer = become(strategy, _EXHAUSTED.get(type(strategy), type(strategy)))

    def end() -> None:
        end_layer()
        if isinstance(strategy, Bulkhead):
            strategy.admit_waiters()  # permits may have come back meanwhile
        elif isinstance(strategy, RateLimit):
            strategy.leave(NOBODY, now())  # the first of the line looks whether its turn has come

    return end


_KEPT: Final = ("state", "opened_total", "message", "last_failure", "_spent", "_entered")
_VALUES: Final = ("delay", "request_volume_threshold", "failure_ratio", "success_threshold", "window", "max_delay")


def force(breaker: CircuitBreaker, state: StateName, now: Callable[[], float]) -> Callable[[], object]:
    """Move *breaker* to *state*, where it stays if that is open or closed; give what brings back how it was.

    The era that was there is put aside with its window: calls that it admitted count in it when it is back.
    """
    with breaker.lock:
        with _lock:
            layer = _Layer(breaker, {name: getattr(breaker, name) for name in (*_KEPT, *_VALUES)})
        moment = now()
        if state == OPEN:
            breaker.force_open(moment)
        elif state == CLOSED:
            breaker.force_closed(moment)
        else:
            breaker.message = breaker.message or f"{breaker.name}: circuit breaker is open"
            era = HalfOpen(moment)
            era.is_forced = True  # its probes are this process's own, and what a fleet decides does not move it
            breaker._move_locked(era, moment)

    def end() -> None:
        with breaker.lock:
            with _lock:
                found = layer.end_locked()
            if found is not None:
                _bring_back_locked(breaker, found, now())

    return end


def _bring_back_locked(breaker: CircuitBreaker, found: Mapping[str, Any], now: float) -> None:
    era = found["state"]
    breaker._move_locked(era, now, "as it was before it was forced")
    if isinstance(era, HalfOpen):
        # Nobody knows which of them have ended meanwhile: those give their place up, and verdicts still count.
        era.overdue.update(era.probes)
        era.probes.clear()
    for name in _KEPT:
        setattr(breaker, name, found[name])
    renewed: dict[str, Any] = {name: getattr(breaker, name) for name in _VALUES}
    if any(renewed[name] != found[name] for name in _VALUES):
        breaker.reconfigure(**renewed, now=now)
