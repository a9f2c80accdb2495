"""Attempts of one call that run side by side: which of them nobody waits for any more."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, NamedTuple

__all__ = ["RaceAttempt", "current_attempt", "has_lost", "has_lost_as_first"]


class RaceAttempt(NamedTuple):
    """One attempt of a race."""

    race: Any
    """The race; nobody waits any more for the attempts that still run once it ``is_over``."""
    number: int
    """0 for the first attempt; else the number of the hedge."""
    guard: str
    """The name of the guard whose attempt it is."""


current_attempt: ContextVar[RaceAttempt | None] = ContextVar("faulttolerance_race", default=None)
"""The attempt that runs in this context."""


def has_lost() -> bool:
    """Return whether nobody waits any more for the attempt that runs in this context."""
    own = current_attempt.get()
    return own is not None and own.race.is_over


def has_lost_as_first(guard: str) -> bool:
    """Return whether nobody waits any more for the first attempt of a race of *guard*, which runs in this context.

    The context of another guard's attempt may be that of calls inside, and of tasks that outlive it.
    """
    own = current_attempt.get()
    return own is not None and own.guard == guard and not own.number and own.race.is_over
