"""A concurrency limit that keeps nine in ten calls within a target latency (rules A1 to A4).

The limit follows additive increase and multiplicative decrease, as in TCP. A call within the target raises the limit by
``1 / limit`` while half of the limit is in use. More than a tenth of late calls lower the limit, at most once per round
trip: only calls that began after the last decrease count, so a burst of late answers counts once. The decrease starts
from the part of the limit that was in use, not from the limit itself (RFC 5681, equation 4: the flight size). Later
calls lower the limit further.
"""

from __future__ import annotations

import math
from typing import Final

_LATE_PART: Final = 0.1
"""The part of the calls that may be late."""
_MIN_COUNT: Final = 20
"""The least number of calls that the tenth is taken of: fewer calls count as this many."""
_MAX_COUNT: Final = 200
"""The number of calls after which all counts are halved."""
_UNBOUNDED: Final = 2**30 - 1
"""More than any number of running calls; the interpreter compares it with another number in one step."""
_REST_SECONDS: Final = 60.0
_RECENT_SECONDS: Final = 10.0
"""Seconds after a decrease for which the callee receives only necessary calls."""
_UNREACHABLE_AFTER: Final = 60.0
"""Seconds at a limit of 1 after which a target counts as wrong if calls that run alone still exceed it."""


class AdaptiveLimit:
    """A limit that moves between 1 and a ceiling and begins at the ceiling.

    It is not safe under threads: the lock of the bulkhead protects it. All durations and moments are in seconds of one
    monotonic clock.

    Args:
        ceiling: The highest limit.
        latency: The target.
    """

    def __init__(self, ceiling: int, latency: float) -> None:
        self.ceiling = ceiling
        self.latency = latency
        self.exact_limit: float = ceiling  # no conversion to float: the ceiling may be any number of calls
        """The limit with its fraction."""
        self.quiet_below = _UNBOUNDED
        """A success in time moves nothing while fewer other attempts run; it is only counted."""
        self.uncounted: list[int] = []
        """The number of other attempts that ran at the end of each uncounted success; appended to without a lock."""
        self._since = -math.inf
        self._at_one_since = math.inf
        """The moment since which the limit is 1 and no call was in time."""
        # Counts of the current epoch: attempts, late attempts, seconds of the late attempts, most permits in use.
        self._count = self._over = self._late = 0.0
        self._most = 0

    @property
    def limit(self) -> int:
        """The number of calls that may run."""
        return int(self.exact_limit)

    def count(self) -> None:
        """Count the successes in ``uncounted``."""
        number = len(self.uncounted)
        batch = self.uncounted[:number]  # no call between this line and the next: a signal handler may run at a call
        del self.uncounted[:number]
        if batch:
            self._count += number
            self._most = max(self._most, max(batch) + 1)
            self._at_one_since = math.inf
            self._halve()

    def end(self, began: float, ended: float, running: int, *, is_success: bool = True, is_sample: bool = True) -> None:
        """Record an ended attempt; call ``count`` first.

        Args:
            began: The moment at which the attempt got its permit.
            ended: The moment at which the attempt ended.
            running: The permits that were held at the end, including the attempt's own.
            is_success: Whether the attempt did not fail.
            is_sample: Whether the attempt counts even if it was not late, as every success and every time-out does.
        """
        if ended < self._since:
            self._since = -math.inf  # by another clock: a virtual time is over
        elapsed = ended - began
        if began >= self._since and (is_sample or elapsed > self.latency):
            self._count += 1
            self._most = max(self._most, running)
            if elapsed > self.latency:
                self._count_late(elapsed, ended, running)
            elif is_success:
                self._at_one_since = math.inf
                if 2 * running >= self.exact_limit:
                    self.exact_limit = min(self.ceiling, self.exact_limit + 1 / self.exact_limit)
            self._halve()
        if ended - self._since < self.latency:
            self.quiet_below = 0  # an attempt that ends in time may have begun before the epoch
        else:
            self.quiet_below = _UNBOUNDED if self.exact_limit >= self.ceiling else math.ceil(self.exact_limit / 2) - 1

    def has_just_fallen(self, now: float) -> bool:
        """Return whether the limit was lowered within the last ten seconds."""
        return 0.0 <= now - self._since < _RECENT_SECONDS

    def is_at_rest(self, now: float) -> bool:
        """Return whether the limit was not lowered for a minute."""
        return now - self._since >= _REST_SECONDS

    def is_target_unreachable(self, began: float, ended: float, running: int) -> bool:
        """Return whether a recorded call shows that the target is wrong (rule A4): the call ran alone and was late."""
        return running == 1 and ended - began > self.latency and ended - self._at_one_since >= _UNREACHABLE_AFTER

    def reconfigure(self, ceiling: int, latency: float) -> None:
        """Replace the values; the learned limit stays as far as it lies below the new ceiling."""
        if latency != self.latency:
            self._at_one_since = math.inf
        self.ceiling = ceiling
        self.latency = latency
        self.exact_limit = min(self.exact_limit, ceiling)
        self.quiet_below = 0  # until the next attempt ends

    def _count_late(self, elapsed: float, now: float, running: int) -> None:
        # Calls of a signal handler may begin an epoch between any two steps: values that belong together stay local.
        over, late = self._over + 1, self._late + elapsed
        if over > _LATE_PART * max(_MIN_COUNT, self._count):
            part = min(0.9, max(0.5, self.latency * over / late))
            self.exact_limit = max(1.0, min(self.exact_limit, max(self._most, running)) * part)
            self._since = now
            self._count = self._over = self._late = 0.0
            self._most = 0
        else:
            self._over, self._late = over, late
        self._at_one_since = min(self._at_one_since, now) if self.limit == 1 else math.inf

    def _halve(self) -> None:
        while self._count >= _MAX_COUNT:
            self._count -= _MAX_COUNT / 2
            self._over /= 2
            self._late /= 2
