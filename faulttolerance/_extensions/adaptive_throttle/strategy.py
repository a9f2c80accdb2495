"""Refusing a part of the calls while the callee turns a part of them down (Google, Site Reliability Engineering).

Over a sliding window, where R requests were made and A of them accepted, the next one is refused with the probability
``max(0, (R - multiplier * A) / (R + 1))``. What is refused counts as a request at once, so that the callee gets a
*multiplier* of what it accepts, whatever is offered; what is let through counts when it ends, so that calls which last
half a window do not shed a healthy callee.

Three things are added. While nothing was let through for a second, the next call is. Where something was accepted, the
probability falls to 0 within one window after the last failure: a recovery is believed, and ramps up. And the window
consists of ten buckets that expire one by one, also when nothing but time passes.

The probability is over all calls. Of several tiers the lowest is refused first, and entirely before a higher one loses
a call (rule K2); for that, their shares of the calls are counted while anything is refused.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Hashable
from itertools import groupby
from typing import ClassVar, Final

from ..._strategy.condition import Condition
from ..._strategy.gate import Era
from ..._strategy.verdict import FAILURE, SUCCESS, Verdict
from ...exceptions import ThrottleException

__all__ = ["WATCHING", "AdaptiveThrottle"]

_BUCKETS: Final = 10
_PROBE: Final = 1.0
"""After so many seconds without a call that was let through, one is."""
_FOLD: Final = 128
"""So many successes wait at most before they are counted."""


class _Admitting(Era):
    """One of the two eras of a throttle, which all throttles share."""

    __slots__ = ()

    def __init__(self, is_closed: bool) -> None:
        self.is_closed = is_closed
        self.is_clean = False  # each success counts
        self.until = -math.inf


_CALM: Final = _Admitting(True)
"""Everything in the window was accepted: no passing of time can make anything be refused."""
WATCHING: Final = _Admitting(False)
"""Something failed or was refused: who wants to come in has to ask."""


class _Buckets:
    """Requests and those of them that were accepted, in ten spans of time that follow one another.

    Not safe under threads: the throttle's lock covers it. Nothing is summed up but by adding ten numbers, so that no
    interruption between two steps can leave a sum that is wrong for ever.
    """

    __slots__ = ("accepted", "newest", "requests", "width")

    def __init__(self, width: float) -> None:
        self.width = width
        self.newest = -sys.maxsize
        """The number of the newest bucket, counted from the beginning of time."""
        self.requests = [0] * _BUCKETS
        self.accepted = [0] * _BUCKETS

    def expire(self, now: float) -> None:
        """Forget what is older than the window."""
        newest = int(now // self.width)
        if newest > self.newest:
            for number in range(max(self.newest + 1, newest + 1 - _BUCKETS), newest + 1):
                self.requests[number % _BUCKETS] = self.accepted[number % _BUCKETS] = 0
            self.newest = newest

    def add(self, moment: float, requests: int, accepted: int) -> None:
        """Count what happened at a *moment*, which may be a little earlier than the one before."""
        self.expire(moment)
        number = int(moment // self.width)
        if number > self.newest - _BUCKETS:
            self.requests[number % _BUCKETS] += requests
            self.accepted[number % _BUCKETS] += accepted

    def accept(self, moments: list[float]) -> None:
        """Count what was accepted at *moments*, mostly all of them in one bucket."""
        moments.sort()  # as they nearly are: quicker than to look for the first and the last
        if moments[0] // self.width == moments[-1] // self.width:
            self.add(moments[-1], len(moments), len(moments))
        else:
            for _, alike in groupby(moments, lambda moment: moment // self.width):
                together = list(alike)
                self.add(together[-1], len(together), len(together))

    def over(self, width: float, now: float) -> _Buckets:
        """Give buckets of another *width* with the same counts, each at the end of its old span."""
        buckets = _Buckets(width)
        for number in range(self.newest + 1 - _BUCKETS, self.newest + 1):
            if requests := self.requests[number % _BUCKETS]:
                buckets.add(min((number + 1) * self.width, now), requests, self.accepted[number % _BUCKETS])
        return buckets


class AdaptiveThrottle:
    """Refuses a part of the calls, as large as what the callee turns down asks for; it is a ``Gate``.

    A call that goes well appends a moment; all else is done under a short lock. What is decided is exact all the same:
    only a failure or a refusal can make the probability rise within a bucket's time, and each of them is counted at
    once, together with what waits.

    All durations and moments are in seconds of one monotonic clock.

    Args:
        name: Whose throttle it is, for the message of a refusal.
        multiplier: Requests that are let through for each one that is accepted.
        window: How long a request counts.
        min_requests: Nothing is refused below so many requests in the window.
        chance: Gives a number in [0, 1); asked only where a call may be refused.
        tier: Gives how important the call is; asked only there, too.
    """

    __slots__ = (
        "_arrivals",
        "_buckets",
        "_chance",
        "_is_idle",
        "_last_failure",
        "_lock",
        "_message",
        "_min_requests",
        "_multiplier",
        "_passed",
        "_successes",
        "_tier",
        "_window",
        "state",
        "transitions",
    )

    judges_refusals: ClassVar = False

    def __init__(
        self,
        name: str,
        multiplier: float,
        window: float,
        min_requests: int,
        chance: Callable[[], float],
        tier: Callable[[], int] = lambda: 0,
    ) -> None:
        self._message = f"{name}: throttled, because the callee turns calls down"
        self._multiplier = multiplier
        self._window = window
        self._min_requests = min_requests
        self._chance = chance
        self._tier = tier
        self.state: Era = _CALM
        """The era that admits attempts now."""
        self.transitions: tuple[()] = ()  # no attribute of the class: it is read for each call
        self._successes: list[float] = []  # when those ended that are not counted yet
        # All guarded by the lock, but that who is let through without it says so in _passed.
        self._buckets = _Buckets(window / _BUCKETS)
        self._arrivals: dict[int, _Buckets] = {}  # by tier, those that came while anything was refused
        self._last_failure = -math.inf
        self._passed = -math.inf  # when a call was let through
        self._is_idle = True  # nothing can be refused before the newest bucket is over, or something more goes wrong
        # Reentrant: a signal handler or a finalizer may call the guarded function while its thread is in here.
        self._lock = threading.RLock()

    def admit(self, permit: Hashable, ident: int, now: float) -> Era:
        """Let an attempt in, or not; asked only while something in the window failed or was refused.

        Raises:
            ThrottleException: It is one of those that are refused.
        """
        buckets = self._buckets
        if self._is_idle and now // buckets.width <= buckets.newest:
            self._passed = now
            return self.state
        with self._lock:
            probability = self._review_locked(now)
            if probability:
                probability = self._of_tier_locked(self._tier(), probability, now)
            if not probability or now - self._passed >= _PROBE:
                self._passed = max(self._passed, now)
                return self.state
        if self._chance() >= probability:  # the application may have chosen the source: not under the lock
            self._passed = max(self._passed, now)
            return self.state
        with self._lock:
            self._buckets.add(now, 1, 0)
            self._is_idle = False
        raise self.refusal(0.0)

    def settle(self, era: Era, permit: Hashable, verdict: Verdict, now: float, failure: str = "") -> None:
        """Count an attempt that was let in and is over; a neutral one not at all."""
        if verdict is SUCCESS:
            successes = self._successes
            successes.append(now)
            if len(successes) >= _FOLD:
                with self._lock:
                    self._review_locked(now)
        elif verdict is FAILURE:
            with self._lock:
                self._buckets.add(now, 1, 0)
                self._last_failure = max(self._last_failure, now)
                if self.state is _CALM:
                    self._passed = max(self._passed, now)  # nobody asked: this one did pass, some time ago
                self._review_locked(now)

    def probability(self, now: float) -> float:
        """With which probability a call is refused now; also right when nobody has called for long."""
        with self._lock:
            return self._review_locked(now)

    def condition(self, now: float) -> Condition:
        """How it stands."""
        probability = self.probability(now)
        return Condition(f"refusing {100 * probability:.0f} % of the calls", is_impaired=probability > 0)

    def is_idle(self, now: float) -> bool:
        """Whether nothing is lost if it is forgotten: no call would be refused."""
        return not self.probability(now)

    def refusal(self, wait: float) -> ThrottleException:
        """Make what a caller is told who is refused; when another one would be let in, nobody knows."""
        return ThrottleException(self._message)

    def reconfigure(self, multiplier: float, window: float, min_requests: int, now: float) -> None:
        """Take new values; what was counted stays counted, as far as it lies in the new window."""
        with self._lock:
            self._review_locked(now)
            self._multiplier = multiplier
            self._min_requests = min_requests
            if window != self._window:
                self._window = window
                self._buckets = self._buckets.over(window / _BUCKETS, now)
                self._arrivals = {tier: old.over(window / _BUCKETS, now) for tier, old in self._arrivals.items()}
            self._review_locked(now)

    def keep_only(self, ident: int) -> None:
        """Replace the lock, which another thread may have held when the process forked. Call it in the child only."""
        self._lock = threading.RLock()

    def _of_tier_locked(self, tier: int, probability: float, now: float) -> float:
        """Count a call of *tier*, and give with which probability it is refused, where all together are with another.

        Refused calls count in the shares as well: those of calls that are let through alone drift to the upper tiers.
        """
        self._arrivals.setdefault(tier, _Buckets(self._buckets.width)).add(now, 1, 0)
        counts = {}
        for other, arrivals in self._arrivals.items():
            arrivals.expire(now)
            counts[other] = sum(arrivals.requests)
        own, lower = max(1, counts[tier]), sum(count for other, count in counts.items() if other < tier)
        total = sum(counts.values())
        if own >= total:
            return probability
        return min(1.0, max(0.0, (probability * total - lower) / own))

    def _review_locked(self, now: float) -> float:
        """Count what waits, forget what is over, and find the probability anew."""
        buckets, successes = self._buckets, self._successes
        count = len(successes)
        batch = successes[:count]  # nothing is called between this and the next line: a signal handler may come here
        del successes[:count]
        if batch:
            buckets.accept(batch)
        buckets.expire(now)
        requests, accepted = sum(buckets.requests), sum(buckets.accepted)
        excess = requests - self._multiplier * accepted
        self._is_idle = excess <= 0.0  # more successes make it smaller still
        self.state = _CALM if requests == accepted else WATCHING
        if requests < self._min_requests or excess <= 0.0:
            return 0.0
        probability = excess / (requests + 1)
        if accepted:
            probability *= min(1.0, max(0.0, 1.0 - (now - self._last_failure) / self._window))
        return probability
