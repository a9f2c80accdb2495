"""The number of retries and hedges beside the calls: those that help are free, others are paid for (rule B1).

It is the retry quota of the AWS SDKs (``botocore``, standard mode) with numbers that fit methods with few calls: there
is no clock, no window, and no free allowance. A retry that fails costs 1, and only calls that succeed at once earn that
again; a retry that succeeds costs nothing in the end.
"""

from __future__ import annotations

import threading
from typing import Final

from .condition import Condition

_TOKEN: Final = 10**9
"""All counting is in whole billionths of a token: ten times 0.1 is 1, in whatever order it is added."""


class RetryBudget:
    """A number of tokens, at first *burst* and never more; a call that has taken none pays nothing.

    A guard takes a token before it goes on after a failure. A successful call is recorded only where that changes
    anything::

        if budget.missing:
            budget.succeed()

    Any thread may call any method: changes of the number hold a short lock, within which nothing is called.

    Args:
        ratio: The earning of a call that succeeds without a retry, 0 to 1.
        burst: The number of tokens at first, and at most; at least 1.
        is_shared: Whether several guards share the budget.
    """

    def __init__(self, ratio: float, burst: float, *, is_shared: bool = False) -> None:
        self.is_shared = is_shared
        self._ratio = round(ratio * _TOKEN)
        self._burst = round(burst * _TOKEN)
        self.missing = 0
        """The amount that was taken and is not earned again; 0: the budget is full, and success changes nothing."""
        # Reentrant: a signal handler or a finalizer may call a guarded function while its thread holds the lock.
        self._lock = threading.RLock()

    def take(self) -> bool:
        """Spend 1 token on a retry or a hedge; return false, and spend nothing, where less is left."""
        with self._lock:
            # From reading to storing nothing is called, so that no signal handler comes between (here and below).
            missing = self.missing + _TOKEN
            if missing > self._burst:
                return False
            self.missing = missing
        return True

    def give_back(self) -> None:
        """Return the 1 token that was taken for a retry which has succeeded, or which was not made."""
        self._earn(_TOKEN)

    def succeed(self) -> None:
        """Add *ratio* tokens for a call that has succeeded without a retry."""
        if self.missing:
            self._earn(self._ratio)

    def renew(self, ratio: float, burst: float) -> None:
        """Replace the values: the tokens stay, as far as there is room for them."""
        share, most = round(ratio * _TOKEN), round(burst * _TOKEN)
        with self._lock:
            missing = most - self._burst + self.missing
            self._ratio, self._burst, self.missing = share, most, missing if missing > 0 else 0

    def condition(self, now: float) -> Condition:
        """Return the condition of the budget."""
        with self._lock:
            burst, tokens = self._burst, self._burst - self.missing
        return Condition(f"{_shown(tokens)} of {_shown(burst)} tokens", is_impaired=tokens < _TOKEN)

    def is_idle(self, now: float) -> bool:
        """Return whether its guard can be dropped without loss: a new budget is as full, or other guards share it."""
        return self.is_shared or not self.missing

    def is_at_rest(self, now: float) -> bool:
        """Return whether no call is refused for long if the budget is dropped: always true."""
        return True

    def reset_after_fork(self, ident: int) -> None:
        """Keep the tokens in the child of a fork; replace the lock, which another thread may have held then."""
        self._lock = threading.RLock()

    def _earn(self, amount: int) -> None:
        with self._lock:
            missing = self.missing - amount
            self.missing = missing if missing > 0 else 0


def _shown(amount: int) -> str:
    """Format an *amount* in tenths of tokens, rounded down; it may be too large for a float."""
    tokens, tenths = divmod(amount * 10 // _TOKEN, 10)
    return f"{tokens}.{tenths}" if tenths else f"{tokens}"
