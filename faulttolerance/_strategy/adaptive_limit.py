"""How many calls may run at once, so that nine in ten take no longer than a target (rules A1 to A4).

Additive increase, multiplicative decrease, as in TCP. A call within the target, while half of the limit is in use,
raises the limit by ``1 / limit``. More than a tenth of late calls lower it, once per round trip: only calls that began
after the last decrease are looked at, so that a burst of late answers counts once. What is lowered is not the limit but
what was used of it (RFC 5681, equation 4: the flight size), and the more, the later the calls were.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = ["AdaptiveLimit"]

_PART: Final = 0.1
"""How many of the calls may be late."""
_ENOUGH: Final = 20
"""So few calls count as so many."""
_MEMORY: Final = 200
"""After so many calls all counts are halved."""
_ANY: Final = 2**30 - 1
"""More than ever run; a number that the interpreter compares in one step with another one."""
_REST: Final = 60.0
_JUST: Final = 10.0
"""For so many seconds a callee that was too slow is sent nothing that it need not do."""
_HOPELESS_AFTER: Final = 60.0
"""After so many seconds at a limit of 1 a target that calls alone exceed is wrong."""


class AdaptiveLimit:
    """A limit that moves between 1 and a ceiling, at which it begins. Not safe under threads: the bulkhead's lock is.

    All durations and moments are in seconds of one monotonic clock.

    Args:
        ceiling: The highest limit.
        latency: The target.
    """

    __slots__ = (
        "_at_one_since",
        "_count",
        "_late",
        "_most",
        "_over",
        "_since",
        "ceiling",
        "exact",
        "latency",
        "later",
        "quiet",
    )

    def __init__(self, ceiling: int, latency: float) -> None:
        self.ceiling = ceiling
        self.latency = latency
        self.exact: float = ceiling  # as it is: any number of calls may be allowed
        """The limit, with its fraction."""
        self.quiet = _ANY
        """While fewer others run, a success in time moves nothing, and only counts."""
        self.later: list[int] = []
        """How many others ran at the end of such ones, which are yet to be counted; appended without a lock."""
        self._since = -math.inf
        self._at_one_since = math.inf
        """Since when the limit is 1 and no call was in time."""
        # Those of the epoch: the attempts that were looked at, the late ones, their seconds, and the highest in use.
        self._count = self._over = self._late = 0.0
        self._most = 0

    @property
    def limit(self) -> int:
        """How many calls may run."""
        return int(self.exact)

    def count(self) -> None:
        """Count the attempts of ``later``."""
        number = len(self.later)
        batch = self.later[:number]  # nothing is called between this and the next line: a signal handler may come here
        del self.later[:number]
        if batch:
            self._count += number
            self._most = max(self._most, max(batch) + 1)
            self._at_one_since = math.inf
            self._halve()

    def end(self, began: float, ended: float, running: int, *, is_success: bool = True, is_sample: bool = True) -> bool:
        """Look at an attempt that is over, and tell whether the limit was lowered; ``count`` goes before.

        Args:
            began: When it got its permit.
            ended: When it ended.
            running: The permits that were held at that moment, its own included.
            is_success: Whether it did not fail.
            is_sample: Whether it counts also where it was not late, as every success does and every time-out.
        """
        if ended < self._since:
            self._since = -math.inf  # by another clock: a virtual time is over
        elapsed, was = ended - began, self._since
        if began >= was and (is_sample or elapsed > self.latency):
            self._count += 1
            self._most = max(self._most, running)
            if elapsed > self.latency:
                self._note_late(elapsed, ended, running)
            elif is_success:
                self._at_one_since = math.inf
                if 2 * running >= self.exact:
                    self.exact = min(self.ceiling, self.exact + 1 / self.exact)
            self._halve()
        if ended - self._since < self.latency:
            self.quiet = 0  # one that ends in time may have begun before the epoch
        else:
            self.quiet = _ANY if self.exact >= self.ceiling else math.ceil(self.exact / 2) - 1
        return self._since != was

    def has_just_fallen(self, now: float) -> bool:
        """Return whether it was lowered within the last ten seconds."""
        return 0.0 <= now - self._since < _JUST

    def is_at_rest(self, now: float) -> bool:
        """Return whether it was not lowered for a minute."""
        return now - self._since >= _REST

    def is_hopeless(self, began: float, ended: float, running: int) -> bool:
        """Whether a call that was looked at shows that the target is wrong (rule A4): one that ran alone was late."""
        return running == 1 and ended - began > self.latency and ended - self._at_one_since >= _HOPELESS_AFTER

    def reconfigure(self, ceiling: int, latency: float) -> None:
        """Take new values; what was learned stays, as far as it lies below the new ceiling."""
        if latency != self.latency:
            self._at_one_since = math.inf
        self.ceiling = ceiling
        self.latency = latency
        self.exact = min(self.exact, ceiling)
        self.quiet = 0  # until the next attempt ends

    def _note_late(self, elapsed: float, now: float, running: int) -> None:
        # A signal handler's calls may begin an epoch between any two steps: what belongs together is kept here.
        over, late = self._over + 1, self._late + elapsed
        if over > _PART * max(_ENOUGH, self._count):
            part = min(0.9, max(0.5, self.latency * over / late))
            self.exact = max(1.0, min(self.exact, max(self._most, running)) * part)
            self._since = now
            self._count = self._over = self._late = 0.0
            self._most = 0
        else:
            self._over, self._late = over, late
        self._at_one_since = min(self._at_one_since, now) if self.limit == 1 else math.inf

    def _halve(self) -> None:
        while self._count >= _MEMORY:
            self._count -= _MEMORY / 2
            self._over /= 2
            self._late /= 2
