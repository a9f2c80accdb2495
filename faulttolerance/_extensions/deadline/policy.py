"""The policy of ``@deadline``."""

from __future__ import annotations

from typing import final

from ..._policy.kind import SHORT, duration, kinds
from ..._policy.parameter import Policy
from ...typing import Duration


@final
class Deadline(Policy, is_observable=True):
    """Limit a whole call: its attempts, the delays between them, and all waiting.

    Args:
        value: The longest duration of a call, in milliseconds; 0 for no limit.
    """

    _kinds = kinds(
        value=duration(note=" (0: no limit)", plausible=SHORT),
    )

    value: Duration
