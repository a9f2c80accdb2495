"""The policy of ``@retry_budget``."""

from __future__ import annotations

from typing import final

from .kind import integer, kinds, number, text
from .parameter import Policy


@final
class RetryBudget(Policy, is_observable=True):
    """Limit how many retries, and hedges, are made beside the calls that go well.

    A budget has *burst* tokens at first, and never more. A retry or a hedge costs 1, and is not made where less is
    left. A retry that succeeds gets its 1 back.

    Args:
        ratio: What a call gives that succeeds without a retry, in tokens; 0 to 1.
        burst: The tokens that there are at first, and at most; at least 1.
        name: All that give it share one budget, and say the same of it; no configuration changes it. Without one, each
            method has its own.
    """

    _kinds = kinds(
        ratio=number(0, 1),
        burst=integer(1),
        name=text("a name, or none", lambda name: True, is_configurable=False),
    )

    ratio: float = 0.2
    burst: int = 10
    name: str = ""
