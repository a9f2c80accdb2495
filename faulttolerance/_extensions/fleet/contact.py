"""The contact to a fleet: whether it answers, and when it is asked without a call (rules F1 and F5)."""

from __future__ import annotations

__all__ = ["BATCH", "Contact"]

BATCH = 128
"""The maximum number of questions in one batch."""
_SHORTEST, _LONGEST = 0.05, 0.8
"""The seconds until a lost fleet is tried for the first time, and the longest pause between two trials.

A failing connection takes up to a second; so there is a trial at least every two seconds.
"""
_STEADY = 5.0
"""A fleet that is lost again within so many seconds is tried as seldom as before."""


def _jittered(seconds: float, part: float, chance: float) -> float:
    """Return *seconds*, changed at random by up to the fraction *part*."""
    return seconds * (1 - part + 2 * part * chance)


class Contact:
    """The knowledge of a process about one fleet: whether it is reachable, and when the lane next asks it by itself.

    Moments are seconds of one clock. Chances are numbers in [0, 1); they spread the questions of the processes.

    Args:
        poll: The seconds after which the circuits are read again.
        now: The time of the first read, so that the first call finds a connection.
    """

    __slots__ = ("_pause", "_poll", "_reached", "due", "reason", "since")

    def __init__(self, poll: float, now: float) -> None:
        self.due = now
        """The time of the next read of the circuits; for a lost fleet, the time of the next trial."""
        self.since = now
        """The time when the fleet was lost, or found again."""
        self.reason = ""
        """The reason of the loss, for people."""
        self._poll = poll
        self._pause = _SHORTEST / 2
        # Empty while the fleet is lost: several threads may notice the loss at once, and only the first can empty it.
        self._reached = [None]

    @property
    def is_up(self) -> bool:
        """Whether the fleet answers, as far as is known."""
        return bool(self._reached)

    def read(self, now: float, chance: float) -> None:
        """Record that the circuits were read."""
        self.due = now + _jittered(self._poll, 0.1, chance)

    def lose(self, reason: str, now: float, chance: float) -> bool:
        """Record the loss of the fleet; return whether it was not known yet."""
        try:
            self._reached.pop()
        except IndexError:
            return False
        lasted = now - self.since
        self.reason, self.since = reason, now
        self._pause = _SHORTEST if lasted > _STEADY else min(2 * self._pause, _LONGEST)
        self._ping_later(now, chance)
        return True

    def miss(self, reason: str, now: float, chance: float) -> None:
        """Record that a lost fleet still does not answer."""
        self.reason = reason
        self._pause = min(2 * self._pause, _LONGEST)
        self._ping_later(now, chance)

    def regain(self, now: float) -> float:
        """Record that a lost fleet has answered; return the seconds without it."""
        seconds = now - self.since
        self.since, self.reason = now, ""
        self._reached.append(None)
        return seconds

    def _ping_later(self, now: float, chance: float) -> None:
        self.due = now + _jittered(self._pause, 0.2, chance)
