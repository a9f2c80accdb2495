"""Whether a fleet answers, and when it is asked something that no call wants to know (rules F1 and F5)."""

from __future__ import annotations

__all__ = ["BATCH", "Contact"]

BATCH = 128
"""The most questions that are asked at once."""
_SHORTEST, _LONGEST = 0.05, 0.8
"""Seconds until a lost fleet is asked for the first time whether it is there again, and at most between two times.

Connecting in vain takes up to a second; so it is asked at least every two.
"""
_STEADY = 5.0
"""A fleet that is lost so many seconds after it was found again, or sooner, is asked as seldom as before."""


def _jittered(seconds: float, part: float, chance: float) -> float:
    """Give *seconds*, more or less by up to a *part* of them."""
    return seconds * (1 - part + 2 * part * chance)


class Contact:
    """What a process knows of one fleet: whether it is reached, and when it is next asked of the lane's own accord.

    Moments are seconds of one clock. Chances are numbers in [0, 1), by which the processes do not ask all at once.

    Args:
        poll: Seconds after which the circuits are read again.
        now: The circuits are read at once, so that the first call finds a connection.
    """

    __slots__ = ("_pause", "_poll", "_reached", "due", "reason", "since")

    def __init__(self, poll: float, now: float) -> None:
        self.due = now
        """When the circuits are to be read; of a lost fleet: when it is to be asked whether it is there again."""
        self.since = now
        """When it was lost, or found again."""
        self.reason = ""
        """Why it was lost, for people."""
        self._poll = poll
        self._pause = _SHORTEST / 2
        # Empty while it is lost: several threads may find that out at once, and the one that empties it was the first.
        self._reached = [None]

    @property
    def is_up(self) -> bool:
        """Whether it answers, as far as is known."""
        return bool(self._reached)

    def read(self, now: float, chance: float) -> None:
        """Note that the circuits were read."""
        self.due = now + _jittered(self._poll, 0.1, chance)

    def lose(self, reason: str, now: float, chance: float) -> bool:
        """Take it for lost; tell whether that is news."""
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
        """Note that a lost fleet is still not there."""
        self.reason = reason
        self._pause = min(2 * self._pause, _LONGEST)
        self._ping_later(now, chance)

    def regain(self, now: float) -> float:
        """Note that a lost fleet has answered; give the seconds for which it was lost."""
        seconds = now - self.since
        self.since, self.reason = now, ""
        self._reached.append(None)
        return seconds

    def _ping_later(self, now: float, chance: float) -> None:
        self.due = now + _jittered(self._pause, 0.2, chance)
