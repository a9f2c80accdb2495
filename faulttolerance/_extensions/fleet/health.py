"""The health of a fleet: whether it answers, and when it is asked without a call (rules F1 and F5)."""

from __future__ import annotations

MAX_BATCH = 128
"""The maximum number of requests in one batch."""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 0.8
"""The seconds until a lost fleet is tried for the first time, and the longest pause between two trials.

A failing connection takes up to a second; so there is a trial at least every two seconds.
"""
_STEADY_SECONDS = 5.0
"""A fleet that is lost again within so many seconds is tried as seldom as before."""


class FleetHealth:
    """The knowledge of a process about one fleet: whether it is reachable, and when the link next asks it by itself.

    Moments are seconds of one clock. Chances are numbers in [0, 1); they spread the requests of the processes.

    Args:
        poll: The seconds after which the circuits are read again.
        now: The time of the first read, so that the first call finds a connection.
    """

    def __init__(self, poll: float, now: float) -> None:
        self.next_read_at = now
        """The time of the next read of the circuits; for a lost fleet, the time of the next trial."""
        self.since = now
        """The time when the fleet was lost, or found again."""
        self.reason = ""
        """The reason of the loss, for people."""
        self._poll = poll
        self._pause = _SHORTEST_PAUSE / 2
        # Empty while the fleet is lost: several threads may notice the loss at once, and only the first can empty it.
        self._reached = [None]

    @property
    def is_up(self) -> bool:
        """Whether the fleet answers, as far as is known."""
        return bool(self._reached)

    def record_read(self, now: float, chance: float) -> None:
        """Record that the circuits were read."""
        self.next_read_at = now + self._poll * (0.9 + 0.2 * chance)

    def record_loss(self, reason: str, now: float, chance: float) -> bool:
        """Record that the fleet does not answer; return whether that was not known yet."""
        self.reason, lasted, is_new = reason, now - self.since, True
        try:
            self._reached.pop()
            self.since = now
        except IndexError:
            is_new = False
        is_steady = is_new and lasted > _STEADY_SECONDS
        self._pause = _SHORTEST_PAUSE if is_steady else min(2 * self._pause, _LONGEST_PAUSE)
        self.next_read_at = now + self._pause * (0.8 + 0.4 * chance)
        return is_new

    def record_recovery(self, now: float) -> float:
        """Record that a lost fleet has answered; return the seconds without it."""
        seconds = now - self.since
        self.since, self.reason = now, ""
        self._reached.append(None)
        return seconds
