"""The policy of ``@fleet_wide``."""

from __future__ import annotations

from typing import final

from ..._policy.parameter import Policy


@final
class FleetWide(Policy):
    """Share the circuit and the rate limit with every process of the fleet, under the name of the guard."""
