"""The policy of ``@retry_budget``."""

from __future__ import annotations

from typing import final

from .kind import kinds, number, text
from .parameter import Policy


@final
class RetryBudget(Policy, is_observable=True):
    """Limit the number of retries and hedges in proportion to successful calls.

    A budget starts with *burst* tokens, which is also its maximum. A retry or a hedge costs 1 token, and does not start
    if fewer are left. A successful retry returns its token.

    Args:
        ratio: The tokens that a call adds if it succeeds without a retry; 0 to 1.
        burst: The number of tokens at the start, and the maximum; at least 1.
        name: All policies with the same name share one budget, and must have equal values; configuration cannot change
            the name. Without a name, each method has its own budget.
    """

    _kinds = kinds(
        ratio=number(0, 1),
        name=text("a name, or none", lambda name: True, is_configurable=False),
    )

    ratio: float = 0.2
    burst: int = 10
    name: str = ""
