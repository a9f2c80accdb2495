"""How a call waits for its turn under a rate limit: on its thread, or in the way of its environment (rule RL1)."""

from __future__ import annotations

from contextlib import suppress

from .._deadline.clock import Alarm, clock
from .._deadline.interruption import remaining
from .._platform.unpatched import get_ident
from .._strategy.rate_limit import RateLimit
from .environment import Environment


class _Turn:
    """One call's turn; both ways of waiting ask it what to do."""

    __slots__ = ("_limit", "alarm", "now", "place")

    now: float
    """When it asked last."""

    def __init__(self, limit: RateLimit, may_block: bool = False) -> None:
        self.alarm = Alarm()
        """Rings when the call is to ask again at once."""
        self._limit = limit
        self.place = limit.place(get_ident(), self.alarm.ring, may_block)

    def ask(self) -> float:
        """Give the seconds to wait before the call asks again; 0.0: it was let through."""
        self.alarm.rings = False
        self.now = clock.monotonic()
        seconds = self._limit.ask(self.place, self.now)
        if seconds:
            left = remaining()
            if left is not None and left <= seconds:
                return self._limit.cut_short(self.place, self.now, seconds, left)
        return seconds

    def ring(self) -> None:
        """Let the call ask again, if it still can."""
        with suppress(RuntimeError):  # its loop was closed
            self.alarm.ring()

    def give_back(self) -> None:
        """Leave the line, whatever was the reason."""
        if self.place.until is not None:
            self._limit.leave(self.place, clock.monotonic())


def take_turn(limit: RateLimit) -> float:
    """Wait on this thread until *limit* lets the call through; return the moment.

    Raises:
        RateLimitException: It does not within the longest wait, or before the nearest deadline.
        Interrupted: A deadline of this thread passed.
    """
    turn = _Turn(limit, may_block=True)
    try:
        while seconds := turn.ask():
            clock.sleep(seconds, turn.alarm)
    except BaseException:
        turn.give_back()
        raise
    return turn.now


async def take_turn_async(limit: RateLimit, environment: Environment) -> float:
    """Wait in *environment* until *limit* lets the call through; return the moment.

    Raises:
        RateLimitException: It does not within the longest wait, or before the nearest deadline.
    """
    turn = _Turn(limit)
    try:
        while seconds := turn.ask():
            waiting = environment.turn()
            turn.place.ident = waiting.ident
            turn.alarm.ends(waiting.wake)
            timer = environment.call_later(seconds, turn.ring, is_usual=seconds == turn.place.patience)
            try:
                if turn.alarm.rings:
                    waiting.wake()
                await waiting.comes
            finally:
                timer.cancel()
    except BaseException:
        turn.give_back()
        raise
    return turn.now
