"""The order in which callers go on where several can: drawn from a seed, or as recorded."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

Switches: TypeAlias = Mapping[tuple[str, int], str]
"""The switches of a run: for a caller and the number of its point, the caller that was chosen there.

Without a recorded switch the run takes the plain way: a caller that can go on does, and otherwise the caller that has
been able to for longest.
"""

MAX_POINTS: Final = 1_000_000
"""The point at which a caller is stopped for good: its loop seems to have no end, and may wait for another caller."""
_RATES: Final = (0.0, 0.003, 0.01, 0.03, 0.1)
"""How often a caller that could go on is stopped: one rate for a whole run, so that few switches are tried, too."""


class Plan(NamedTuple):
    """The plan of one run; the same plan produces the same run."""

    seed: object
    """The source of the callers' random numbers, and of the order unless *switches* states it."""
    without: frozenset[int] = frozenset()
    """The numbers of the callers that are left out."""
    switches: Switches | None = None
    """The order; ``None``: drawn."""
    draw: int = 0
    """The number of the order among those that can be drawn from the seed."""
    is_serial: bool = False
    """Whether each caller ends before the next one begins."""


class Schedule:
    """The choices of one run, which are recorded as they are made."""

    def __init__(self, plan: Plan) -> None:
        self.switches: dict[tuple[str, int], str] = {}
        """The switches that were made so far."""
        self._given = plan.switches
        self._chance = random.Random(f"order {plan.draw} of {plan.seed!r}")
        self._rate = self._chance.choice(_RATES)

    def next_stop(self, who: str, point: int) -> int:
        """Return the next point after *point* at which the schedule decides whether *who* goes on."""
        if self._given is None:
            if not self._rate:
                return MAX_POINTS
            return point + 1 + int(math.log(1.0 - self._chance.random()) / math.log(1.0 - self._rate))
        return min((later for name, later in self._given if name == who and later > point), default=MAX_POINTS)

    def choose(self, who: str, point: int, names: Sequence[str], plain: int) -> int:
        """Choose one of *names*, of which *plain* would go on the plain way; *who* stands at its *point*."""
        if self._given is None:
            chosen = int(self._chance.random() * len(names))
        else:
            name = self._given.get((who, point))
            chosen = names.index(name) if name in names else plain
        if chosen != plain:
            self.switches[who, point] = names[chosen]
        return chosen
