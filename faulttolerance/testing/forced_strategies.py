"""Strategies in a state that tests impose from outside, and the return to their own state.

A strategy that refuses everything is the same object under another class, so that every guard that is bound to it uses
that class. Its counts, permits and promises stay where they were, and go on: calls in flight end, values are renewed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from .. import _policy as policies
from .._call.order import ROWS
from .._deadline.clock import clock
from .._guard.resolve.circuit_breakers import deliver_transitions
from .._policy import Policy
from .._strategy.bulkhead import Bulkhead, Waiter
from .._strategy.circuit_breaker import HALF_OPEN, CircuitBreaker, HalfOpen, StateName
from .._strategy.condition import Condition
from .._strategy.rate_limit import RateLimit, TurnWaiter
from .._strategy.retry_budget import RetryBudget


class ExhaustedBulkhead(Bulkhead):
    """A bulkhead without a permit; calls that run and calls that wait stay."""

    __slots__ = ()

    limit = property(lambda self: 0, vars(Bulkhead)["limit"].__set__)

    def enter(self, waiter: Waiter) -> Waiter | None:
        """Reject the call.

        Raises:
            BulkheadException: Always.
        """
        raise self.refusal("full")


class ExhaustedRateLimit(RateLimit):
    """A rate limit whose window is used up; the stated wait of its refusals is the length of the window."""

    __slots__ = ()

    follows_fleet = False

    def admit(self, now: float) -> None:
        """Reject the call.

        Raises:
            RateLimitException: Always.
        """
        raise self.refusal(self.window.length / 1e9)

    def request_turn(self, waiter: TurnWaiter, now: float) -> float:
        """Reject the call, however long it may wait.

        Raises:
            RateLimitException: Always.
        """
        self.leave(waiter, now)
        raise self.refusal(self.window.length / 1e9)

    def condition(self, now: float) -> Condition:
        """Return the condition of the limit."""
        return Condition("used up", is_impaired=True)


class ExhaustedRetryBudget(RetryBudget):
    """A retry budget without tokens, to which successful calls add none."""

    __slots__ = ()

    @property
    def tokens(self) -> float:
        """The number of tokens: none."""
        return 0.0

    def take(self) -> bool:
        """Return false: there is no token."""
        return False

    def succeed(self) -> None:
        """Ignore the success."""

    def condition(self, now: float) -> Condition:
        """Return the condition of the budget."""
        return Condition(f"0 of {self.burst:g} tokens", is_impaired=True)


EXHAUSTED: Final[Mapping[type[Policy], type]] = {
    policies.Bulkhead: ExhaustedBulkhead,
    policies.RateLimit: ExhaustedRateLimit,
    policies.RetryBudget: ExhaustedRetryBudget,
    **{kind: row.exhausted() for kind, row in ROWS.items() if row.exhausted is not None},
}
"""The class of each policy's strategy while it is used up."""


def change_class(strategy: Any, kind: type) -> Callable[[], None]:
    """Change the class of *strategy* to *kind*; return a function that ends this."""
    end = partial(setattr, strategy, "__class__", type(strategy))
    strategy.__class__ = kind
    return end


def exhaust_strategy(strategy: Any) -> Callable[[], object]:
    """Change *strategy* so that it refuses every call; return a function that ends this."""
    kind = type(strategy)
    end_change = change_class(
        strategy, next((used_up for used_up in EXHAUSTED.values() if kind in used_up.__bases__), kind)
    )

    def end() -> None:
        end_change()
        if isinstance(strategy, Bulkhead):
            strategy.admit_waiters()  # permits may have come back meanwhile

    return end


_KEPT: Final = ("state", "opened_total", "message", "last_failure", "_spent", "_entered")


def force_breaker(breaker: CircuitBreaker, state: StateName) -> Callable[[], object]:
    """Move *breaker* to *state*, and keep it open or closed; return a function that restores it.

    The state that was there is put aside with its window: calls that it admitted count in it when it is back.
    """
    with breaker.lock:
        found = {name: getattr(breaker, name) for name in (*_KEPT, "values")}
        moment = clock.monotonic()
        if state != HALF_OPEN:
            breaker.force(moment, state)
        else:
            breaker.message = breaker.message or f"{breaker.name}: circuit breaker is open"
            current = HalfOpen(moment)
            current.is_forced = True  # its probes are local to this process, and decisions of a fleet do not move it
            breaker._move_locked(current, moment)
    deliver_transitions(breaker)

    def end() -> None:
        with breaker.lock:
            _restore_locked(breaker, found, clock.monotonic())
        deliver_transitions(breaker)

    return end


def _restore_locked(breaker: CircuitBreaker, found: Mapping[str, Any], now: float) -> None:
    state = found["state"]
    breaker._move_locked(state, now, "as it was before it was forced")
    if isinstance(state, HalfOpen):
        # Nobody knows which probes have ended meanwhile: they lose their place, and their verdicts still count.
        state.overdue.update(state.probes)
        state.probes.clear()
    for name in _KEPT:
        setattr(breaker, name, found[name])
    if breaker.values != found["values"]:
        breaker.reconfigure(breaker.values, now)
