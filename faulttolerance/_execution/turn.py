"""The wait of a call for its turn under a rate limit: on its thread, or in its environment (rule RL1)."""

from __future__ import annotations

from .._deadline.clock import Alarm, clock
from .._deadline.interruption import remaining
from .._platform.unpatched import get_ident
from .._strategy.rate_limit import RateLimit
from .environment import Environment


class _Turn:
    """One call's turn, with the decisions that both ways of waiting share."""

    __slots__ = ("_limit", "alarm", "now", "waiter")

    now: float
    """The moment of the last request."""

    def __init__(self, limit: RateLimit, may_block: bool = False) -> None:
        self.alarm = Alarm()
        """Rings when the call must repeat its request at once."""
        self._limit = limit
        self.waiter = limit.waiter_type(get_ident(), self.alarm.ring, may_block)

    def request(self) -> float:
        """Request admission; return the seconds to wait before the next request, or 0.0 if the call was admitted."""
        self.alarm.rings = False
        self.now = clock.monotonic()
        seconds = self._limit.request_turn(self.waiter, self.now)
        if seconds:
            left = remaining()
            if left is not None and left <= seconds:
                return self._limit.cut_short(self.waiter, self.now, seconds, left)
        return seconds

    def leave_queue(self) -> None:
        """Leave the queue, for any reason."""
        if self.waiter.until is not None:
            self._limit.leave(self.waiter, clock.monotonic())


def take_turn(limit: RateLimit) -> float:
    """Wait on this thread until *limit* admits the call; return that moment.

    Raises:
        RateLimitException: The limit does not admit it within the longest wait, or before the nearest deadline.
        Interrupted: A deadline of this thread passed.
    """
    turn = _Turn(limit, may_block=True)
    try:
        while seconds := turn.request():
            clock.sleep(seconds, turn.alarm)
    except BaseException:
        turn.leave_queue()
        raise
    return turn.now


async def take_turn_async(limit: RateLimit, environment: Environment) -> float:
    """Wait in *environment* until *limit* admits the call; return that moment.

    Raises:
        RateLimitException: The limit does not admit it within the longest wait, or before the nearest deadline.
    """
    turn = _Turn(limit)
    try:
        while seconds := turn.request():
            wait = environment.new_wait()
            turn.waiter.ident = wait.ident
            turn.alarm.ends(wait.wake)
            timer = environment.call_later(seconds, turn.alarm.ring, is_usual=seconds == turn.waiter.patience)
            try:
                if turn.alarm.rings:
                    wait.wake()
                await wait.awaitable
            finally:
                timer.cancel()
    except BaseException:
        turn.leave_queue()
        raise
    return turn.now
