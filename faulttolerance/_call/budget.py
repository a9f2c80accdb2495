"""What retries and hedges are paid from: budgets of one method, of one key, or of all that give a name."""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakValueDictionary

from .._metrics.catalogue import advanced
from .._metrics.counters import Counters
from .._platform.fork import at_fork
from .._policy import RetryBudget
from .._strategy import retry_budget
from .._strategy.gate import Tell


class _Named:
    """The budgets that have a name, as long as anything is guarded by them."""

    def __init__(self) -> None:
        self._budgets: WeakValueDictionary[str, retry_budget.RetryBudget] = WeakValueDictionary()
        self.begin_anew()

    def begin_anew(self) -> None:
        """Replace the lock, which another thread may have held when the process forked."""
        # Reentrant: a signal handler or a finalizer may call a guarded function for the first time meanwhile.
        self._lock = threading.RLock()

    def forget(self) -> None:
        """Let those that come begin anew; guards keep what they have."""
        with self._lock:
            self._budgets = WeakValueDictionary()

    def of(self, policy: RetryBudget) -> retry_budget.RetryBudget:
        """Give the budget with the name of *policy*: where there is none yet, one with its values."""
        with self._lock:
            budget = self._budgets.get(policy.name)
            if budget is None:
                budget = retry_budget.RetryBudget(policy.ratio, policy.burst, is_shared=True)
                self._budgets[policy.name] = budget
            return budget


named_budgets = _Named()
at_fork(child=named_budgets.begin_anew)


def budget_of(_: object, policy: RetryBudget, __: object) -> retry_budget.RetryBudget:
    """Make the budget of *policy*, or find it, where others have it too."""
    return named_budgets.of(policy) if policy.name else retry_budget.RetryBudget(policy.ratio, policy.burst)


def take(budget: Any, tell: Tell | None, counters: Counters | None, kind: str) -> bool | None:
    """Take what a retry or a hedge costs, and count it.

    Args:
        budget: The budget.
        tell: Told of what would have been refused, where that is only observed (rule X7).
        counters: What counts it, if anything does.
        kind: ``retry`` or ``hedge``.

    Returns:
        Whether it was taken; ``None`` where it was not, and the attempt is to be made all the same.
    """
    is_paid = budget.take()
    is_granted = is_paid or tell is not None
    if counters is not None:
        counters.add(advanced((("RetryBudget", f"{kind} {'granted' if is_granted else 'exhausted'}"),)))
    if tell is not None and not is_paid:
        tell()
        return None
    return is_paid  # type: ignore[no-any-return]
