"""Strategies that are given a state from outside, and go back to their own: what tests put into the way of calls.

A strategy that refuses everybody is the same object under another class, so that whoever is bound to it asks that one.
What it has counted, lent and promised stays where it was, and goes on: calls in flight end, values are renewed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from .adaptive_throttle import WATCHING, AdaptiveThrottle
from .bulkhead import Bulkhead, Waiter
from .circuit_breaker import CLOSED, OPEN, CircuitBreaker, HalfOpen, StateName
from .condition import Condition
from .gate import Era
from .rate_limit import Place, RateLimit
from .retry_budget import RetryBudget

__all__ = ["exhaust", "force"]


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

    def admit(self, now: float) -> None:
        """Refuse the call.

        Raises:
            RateLimitException: Always.
        """
        raise self.refusal(self.window.length / 1e9)

    def ask(self, place: Place, now: float) -> float:
        """Refuse the call, however long it may wait.

        Raises:
            RateLimitException: Always.
        """
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


def exhaust(strategy: Any) -> Callable[[], object]:
    """Let *strategy* refuse everybody; give what ends that."""
    found = type(strategy)
    strategy.__class__ = _EXHAUSTED.get(found, found)

    def end() -> None:
        strategy.__class__ = found
        if isinstance(strategy, Bulkhead):
            strategy.admit_waiters()  # permits may have come back meanwhile

    return end


_KEPT: Final = ("state", "opened_total", "message", "last_failure", "_spent", "_entered")
_VALUES: Final = ("delay", "request_volume_threshold", "failure_ratio", "success_threshold", "window", "max_delay")


def force(breaker: CircuitBreaker, state: StateName, now: Callable[[], float]) -> Callable[[], object]:
    """Move *breaker* to *state*, where it stays if that is open or closed; give what brings back how it was.

    The era that was there is put aside with its window: calls that it admitted count in it when it is back.
    """
    with breaker.lock:
        kept = {name: getattr(breaker, name) for name in _KEPT}
        values = {name: getattr(breaker, name) for name in _VALUES}
        moment = now()
        if state == OPEN:
            breaker.force_open(moment)
        elif state == CLOSED:
            breaker.force_closed(moment)
        else:
            breaker.message = breaker.message or f"{breaker.name}: circuit breaker is open"
            breaker._move_locked(HalfOpen(moment), moment)

    def end() -> None:
        era = kept["state"]
        with breaker.lock:
            breaker._move_locked(era, now(), "as it was before it was forced")
            if isinstance(era, HalfOpen):
                # Nobody knows which of them have ended meanwhile: those give their place up, and verdicts still count.
                era.overdue.update(era.probes)
                era.probes.clear()
            for name, value in kept.items():
                setattr(breaker, name, value)
            renewed: dict[str, Any] = {name: getattr(breaker, name) for name in _VALUES}
            if renewed != values:
                breaker.reconfigure(**renewed, now=now())

    return end
