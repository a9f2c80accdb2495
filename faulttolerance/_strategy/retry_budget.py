"""How many retries and hedges are made beside the calls: those that help are free, others are paid for (rule B1).

It is the retry quota of the AWS SDKs (``botocore``, standard mode) with numbers that fit methods with few calls: there
is no clock and no window, and nothing is for nothing. A retry that fails costs 1, and only calls that go well at once
earn that again; a retry that succeeds costs nothing in the end.
"""

from __future__ import annotations

import threading
from typing import Final

from .condition import Condition

__all__ = ["RetryBudget"]

_TOKEN: Final = 10**9
"""All counting is in whole billionths of a token: ten times 0.1 is 1, however it is added up."""


class RetryBudget:
    """A number of tokens, at first *burst* and never more; it asks nothing of those who have not taken any.

    Whoever goes on after something failed takes one first. A call that goes well is told only where that is of any
    use::

        if budget.missing:
            budget.succeed()

    Any thread may do anything: what changes the number holds a short lock, within which nothing is called.

    Args:
        ratio: What a call earns that succeeds without a retry, 0 to 1.
        burst: The tokens that there are at first, and at most; at least 1.
        is_shared: Whether several guards have it.
    """

    __slots__ = ("__weakref__", "_burst", "_lock", "_ratio", "is_shared", "missing")

    def __init__(self, ratio: float, burst: float, *, is_shared: bool = False) -> None:
        self.is_shared = is_shared
        self._ratio = round(ratio * _TOKEN)
        self._burst = round(burst * _TOKEN)
        self.missing = 0
        """How much was taken and is not earned again; 0: it is full, and success changes nothing."""
        # Reentrant: a signal handler or a finalizer may call a guarded function while its thread is in here.
        self._lock = threading.RLock()

    @property
    def tokens(self) -> float:
        """How many there are, from 0 to ``burst``."""
        with self._lock:
            return (self._burst - self.missing) / _TOKEN

    @property
    def burst(self) -> float:
        """How many there are at most."""
        return self._burst / _TOKEN

    @property
    def ratio(self) -> float:
        """What a call earns that succeeds without a retry."""
        return self._ratio / _TOKEN

    def take(self) -> bool:
        """Take 1 for a retry or a hedge; false where less is left, and nothing is taken."""
        with self._lock:
            # From reading to storing nothing is called, so that no signal handler comes between (here and below).
            missing = self.missing + _TOKEN
            if missing > self._burst:
                return False
            self.missing = missing
        return True

    def give_back(self) -> None:
        """Give back the 1 that was taken for a retry which has succeeded, or which was not made."""
        self._earn(_TOKEN)

    def succeed(self) -> None:
        """Give *ratio* for a call that has succeeded without a retry."""
        if self.missing:
            self._earn(self._ratio)

    def renew(self, ratio: float, burst: float) -> None:
        """Take new values: the tokens stay, as far as there is room for them."""
        share, most = round(ratio * _TOKEN), round(burst * _TOKEN)
        with self._lock:
            missing = most - self._burst + self.missing
            self._ratio, self._burst, self.missing = share, most, missing if missing > 0 else 0

    def condition(self, now: float) -> Condition:
        """How it stands."""
        with self._lock:
            burst, tokens = self._burst, self._burst - self.missing
        return Condition(f"{_shown(tokens)} of {_shown(burst)} tokens", is_impaired=tokens < _TOKEN)

    def is_idle(self, now: float) -> bool:
        """Whether nothing is lost if who has it is forgotten: a new one is as full, or others have it, too."""
        return self.is_shared or not self.missing

    def is_at_rest(self, now: float) -> bool:
        """Return whether nobody is refused for long if it is forgotten: always."""
        return True

    def keep_only(self, ident: int) -> None:
        """Keep the tokens in the child of a fork; replace the lock, which another thread may have held then."""
        self._lock = threading.RLock()

    def _earn(self, amount: int) -> None:
        with self._lock:
            missing = self.missing - amount
            self.missing = missing if missing > 0 else 0


def _shown(amount: int) -> str:
    """Write an *amount* in tenths of tokens, and never more than there are; it may be too large for a float."""
    tokens, tenths = divmod(amount * 10 // _TOKEN, 10)
    return f"{tokens}.{tenths}" if tenths else f"{tokens}"
