"""The tokens of a retry budget, for tests."""

from __future__ import annotations

from faulttolerance._strategy.retry_budget import RetryBudget


def tokens_of(budget: RetryBudget) -> float:
    """Return the number of tokens in *budget*."""
    return (budget._burst - budget.missing) / 10**9
