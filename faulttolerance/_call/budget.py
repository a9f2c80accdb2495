"""Budgets that pay for retries and hedges: of one method, of one key, or shared by name."""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakValueDictionary

from .._metrics.catalogue import series_of_facts
from .._metrics.counters import Counters
from .._platform.fork import at_fork
from .._policy import RetryBudget
from .._strategy import retry_budget
from .._strategy.gate import OnRefusal


class _NamedBudgets:
    """The budgets that have a name, as long as a guard uses them."""

    def __init__(self) -> None:
        self._budgets: WeakValueDictionary[str, retry_budget.RetryBudget] = WeakValueDictionary()
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Replace the lock, which another thread may have held when the process forked."""
        # Reentrant: a signal handler or a finalizer may call a guarded function for the first time meanwhile.
        self._lock = threading.RLock()

    def forget(self) -> None:
        """Remove all budgets, so that new guards get new budgets; existing guards keep theirs."""
        with self._lock:
            self._budgets = WeakValueDictionary()

    def of(self, policy: RetryBudget) -> retry_budget.RetryBudget:
        """Return the budget with the name of *policy*; create it with the values of *policy* if there is none."""
        with self._lock:
            budget = self._budgets.get(policy.name)
            if budget is None:
                budget = retry_budget.RetryBudget(policy.ratio, policy.burst, is_shared=True)
                self._budgets[policy.name] = budget
            return budget


named_budgets = _NamedBudgets()
at_fork(child=named_budgets.reset_after_fork)


def budget_of(_: object, policy: RetryBudget, __: object) -> retry_budget.RetryBudget:
    """Return the budget of *policy*: the shared budget if it has a name, a new one otherwise."""
    return named_budgets.of(policy) if policy.name else retry_budget.RetryBudget(policy.ratio, policy.burst)


def charge(budget: Any, on_refusal: OnRefusal | None, counters: Counters | None, kind: str) -> bool | None:
    """Charge a retry or a hedge to the budget, and count it.

    Args:
        budget: The budget.
        on_refusal: Called for each refusal of a budget that is only observed (rule X7).
        counters: The counters of the method; ``None`` without metrics.
        kind: ``retry`` or ``hedge``.

    Returns:
        Whether the budget paid; ``None`` if it did not pay, but the attempt is made because the budget is only
        observed.
    """
    is_paid = budget.take()
    is_granted = is_paid or on_refusal is not None
    if counters is not None:
        counters.add(series_of_facts((("RetryBudget", f"{kind} {'granted' if is_granted else 'exhausted'}"),)))
    if on_refusal is not None and not is_paid:
        on_refusal()
        return None
    return is_paid  # type: ignore[no-any-return]
