"""What was heard from the backend and from the processes, and when.

All times are those of the monotonic clock, which is one for all processes of a machine; requests have the backend's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

KINDS = ("threads", "threads", "asyncio", "asyncio")
"""The processes of the fleet."""


class News(NamedTuple):
    """A process tells of its circuit or of the fleet."""

    at: float
    process: int
    now: str
    why: str = ""


@dataclass
class Record:
    """Everything that is known so far."""

    marks: dict[str, float] = field(default_factory=dict)
    """When what was done to whom."""
    requests: list[tuple[float, bool]] = field(default_factory=list)
    """When each came to the backend, and whether it failed."""
    told_until: float = 0.0
    """Up to when the backend has told of them."""
    counts: list[tuple[float, int, Counter[str]]] = field(default_factory=list)
    """How calls ended, from which process, in the half second before."""
    longest: list[tuple[float, int, float]] = field(default_factory=list)
    """Seconds that a guard held a call up, the most in that half second."""
    errors: list[str] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)
    """How many calls of a process have not ended."""
    circuits: list[News] = field(default_factory=list)
    fleet: list[News] = field(default_factory=list)

    def heard(self, process: int | None, said: dict[str, Any]) -> None:
        """Take down a line of a process, or of the backend (``None``)."""
        at: float = said["at"]
        if process is None:
            self.requests += [(when, is_failed) for when, is_failed in said["came"]]
            self.told_until = at
            return
        if "circuit" in said:
            self.circuits.append(News(at, process, said["circuit"]))
        if "fleet" in said:
            self.fleet.append(News(at, process, said["fleet"], said.get("why", "")))
        if "counts" in said:
            counts: dict[str, Any] = said["counts"]
            self.longest.append((at, process, counts.pop("longest")))
            self.open[process] = counts.pop("open")
            if error := counts.pop("error"):
                self.errors.append(error)
            self.counts.append((at, process, Counter(counts)))

    def seconds(self, since: float, until: float) -> list[int]:
        """Requests in each whole second between two moments."""
        counted = [0] * int(until - since)
        for at, _ in self.requests:
            if 0 <= at - since < len(counted):
                counted[int(at - since)] += 1
        return counted

    def failing(self, since: float, until: float) -> list[float]:
        """When requests came that were answered with an error."""
        return [at for at, is_failed in self.requests if is_failed and since <= at < until]

    def held(self, since: float, until: float) -> float:
        """The longest that a guard held a call up."""
        return max((longest for at, _, longest in self.longest if since <= at < until), default=0.0)

    def last(self, news: list[News]) -> list[str]:
        """What each process said last."""
        found = {one.process: one.now for one in news}
        return [found.get(process, "") for process in range(len(KINDS))]

    def lately(self, process: int) -> Counter[str]:
        """How the calls of a process ended in the last second that it told of: two counts."""
        last = [ends for _, one, ends in self.counts[-4 * len(KINDS) :] if one == process][-2:]
        return sum(last, Counter())
