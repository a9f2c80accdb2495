"""The policy of ``@deadline``."""

from __future__ import annotations

from typing import final

from ..._policy.kind import SHORT, duration, kinds
from ..._policy.parameter import Policy
from ...typing import Duration


@final
class Deadline(Policy, is_observable=True):
    """Bound a whole call: its attempts, the delays between them, and whatever waits.

    Args:
        value: How long a call may take, in milliseconds; 0 for no limit.
    """

    _kinds = kinds(
        value=duration(note=" (0: no limit)", plausible=SHORT),
    )

    value: Duration
