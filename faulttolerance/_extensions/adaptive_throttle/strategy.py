"""The refusal of a share of calls while the callee rejects a share of them (Google, Site Reliability Engineering).

Over a sliding window with R requests, of which A were accepted, the next call is refused with the probability ``max(0,
(R - multiplier * A) / (R + 1))``. A refused call counts as a request at once, so the callee gets *multiplier* times the
number of calls that it accepts, for any load. An admitted call counts when it ends, so calls that last half a window do
not make the throttle shed a healthy callee.

There are three additions. If no call was admitted for a second, the next call is. If any call was accepted, the
probability falls to 0 within one window after the last failure: the throttle trusts a recovery, and ramps up. And the
window consists of ten buckets that expire one by one, even when only time passes.

The probability is over all calls. Of several tiers, the lowest tier is refused first, and completely before a higher
tier loses a call (rule K2). For this, the shares of the tiers are counted while calls are refused.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Hashable
from itertools import groupby
from typing import ClassVar, Final

from ..._strategy.condition import Condition
from ..._strategy.gate import GateState, lasting_state
from ..._strategy.verdict import FAILURE, SUCCESS, Verdict
from ...exceptions import ThrottleException

_BUCKETS: Final = 10
_PROBE: Final = 1.0
"""The seconds without an admitted call after which the next call is admitted."""
_FOLD: Final = 128
"""The maximum number of successes that wait to be counted."""


_CALM: Final = lasting_state(is_closed=True)
"""Everything in the window was accepted: the passing of time alone cannot cause a refusal."""
WATCHING: Final = lasting_state(is_closed=False)
"""The window contains a failure or a refusal: each call must request admission."""


class _Buckets:
    """Requests, and the accepted requests among them, in ten consecutive spans of time.

    Not safe under threads: the throttle's lock guards it. Sums are always computed from the ten numbers, so no
    interruption between two steps can leave a sum that is wrong for ever.
    """

    __slots__ = ("accepted", "newest", "requests", "width")

    def __init__(self, width: float) -> None:
        self.width = width
        self.newest = -sys.maxsize
        """The number of the newest bucket, counted from the origin of the clock."""
        self.requests = [0] * _BUCKETS
        self.accepted = [0] * _BUCKETS

    def expire(self, now: float) -> None:
        """Remove the buckets that are older than the window."""
        newest = int(now // self.width)
        if newest > self.newest:
            for number in range(max(self.newest + 1, newest + 1 - _BUCKETS), newest + 1):
                self.requests[number % _BUCKETS] = self.accepted[number % _BUCKETS] = 0
            self.newest = newest

    def add(self, moment: float, requests: int, accepted: int) -> None:
        """Count requests at a *moment*, which may be a little earlier than the moment before."""
        self.expire(moment)
        number = int(moment // self.width)
        if number > self.newest - _BUCKETS:
            self.requests[number % _BUCKETS] += requests
            self.accepted[number % _BUCKETS] += accepted

    def accept(self, moments: list[float]) -> None:
        """Count accepted requests at *moments*, which are mostly in one bucket."""
        moments.sort()  # nearly sorted already: faster than a search for minimum and maximum
        if moments[0] // self.width == moments[-1] // self.width:
            self.add(moments[-1], len(moments), len(moments))
        else:
            for _, alike in groupby(moments, lambda moment: moment // self.width):
                together = list(alike)
                self.add(together[-1], len(together), len(together))

    def over(self, width: float, now: float) -> _Buckets:
        """Return buckets of another *width* with the same counts, each at the end of its old span."""
        buckets = _Buckets(width)
        for number in range(self.newest + 1 - _BUCKETS, self.newest + 1):
            if requests := self.requests[number % _BUCKETS]:
                buckets.add(min((number + 1) * self.width, now), requests, self.accepted[number % _BUCKETS])
        return buckets


class AdaptiveThrottle:
    """A ``Gate`` that refuses a share of the calls, depending on the share that the callee rejects.

    A successful call appends a moment; all other work happens under a short lock. The decision is still exact: only a
    failure or a refusal can raise the probability within the time of a bucket, and each of them is counted at once,
    together with the waiting successes.

    All durations and moments are in seconds of one monotonic clock.

    Args:
        name: The owner of the throttle, for the message of a refusal.
        multiplier: The number of requests that are admitted for each accepted request.
        window: The time for which a request counts.
        min_requests: The minimum number of requests in the window for a refusal.
        chance: Returns a number in [0, 1); called only if a call may be refused.
        tier: Returns the importance of the call; called only then, too.
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
        self._message = f"{name}: throttled, because the callee rejects calls"
        self._multiplier = multiplier
        self._window = window
        self._min_requests = min_requests
        self._chance = chance
        self._tier = tier
        self.state: GateState = _CALM
        """The state that admits attempts now."""
        self.transitions: tuple[()] = ()  # no class attribute: it is read for each call
        self._successes: list[float] = []  # the ends of successes that are not counted yet
        # The lock guards all attributes below, except that calls admitted without it write _passed.
        self._buckets = _Buckets(window / _BUCKETS)
        self._arrivals: dict[int, _Buckets] = {}  # by tier, the calls that came while calls were refused
        self._last_failure = -math.inf
        self._passed = -math.inf  # the moment of the last admission
        self._is_idle = True  # no refusal is possible before the newest bucket ends, or another failure
        # Reentrant: a signal handler or a finalizer may call the guarded function while its thread is in here.
        self._lock = threading.RLock()

    def admit(self, permit: Hashable, ident: int, now: float) -> GateState:
        """Admit or refuse an attempt; called only while the window contains a failure or a refusal.

        Raises:
            ThrottleException: If the attempt is refused.
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
        if self._chance() >= probability:  # the application may have set the source: not under the lock
            self._passed = max(self._passed, now)
            return self.state
        with self._lock:
            self._buckets.add(now, 1, 0)
            self._is_idle = False
        raise self.refusal(0.0)

    def settle(self, state: GateState, permit: Hashable, verdict: Verdict, now: float, failure: str = "") -> None:
        """Count an admitted attempt that has ended; a neutral attempt does not count."""
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
                    self._passed = max(self._passed, now)  # it passed without admit(), some time ago
                self._review_locked(now)

    def probability(self, now: float) -> float:
        """Return the probability with which a call is refused now; also right after a long time without calls."""
        with self._lock:
            return self._review_locked(now)

    def condition(self, now: float) -> Condition:
        """Return the share of calls that is refused."""
        probability = self.probability(now)
        return Condition(f"refusing {100 * probability:.0f} % of the calls", is_impaired=probability > 0)

    def is_idle(self, now: float) -> bool:
        """Return whether no call would be refused, so that the throttle can be removed without loss."""
        return not self.probability(now)

    has_room_to_spare = is_idle
    """Where no call would be refused, a hedge takes nothing from others."""

    def refusal(self, wait: float) -> ThrottleException:
        """Return the exception for a refused call; the moment of the next admission is unknown."""
        return ThrottleException(self._message)

    def reconfigure(self, multiplier: float, window: float, min_requests: int, now: float) -> None:
        """Apply new values; the counts within the new window are kept."""
        with self._lock:
            self._review_locked(now)
            self._multiplier = multiplier
            self._min_requests = min_requests
            if window != self._window:
                self._window = window
                self._buckets = self._buckets.over(window / _BUCKETS, now)
                self._arrivals = {tier: old.over(window / _BUCKETS, now) for tier, old in self._arrivals.items()}
            self._review_locked(now)

    def reset_after_fork(self, ident: int) -> None:
        """Replace the lock, which another thread may have held when the process forked. Call it in the child only."""
        self._lock = threading.RLock()

    def _of_tier_locked(self, tier: int, probability: float, now: float) -> float:
        """Count a call of *tier*, and return its probability of refusal, from the *probability* over all tiers.

        Refused calls count in the shares too: shares of admitted calls alone would drift to the upper tiers.
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
        """Count the waiting successes, remove expired buckets, and return the new probability."""
        buckets, successes = self._buckets, self._successes
        count = len(successes)
        batch = successes[:count]  # no call between this and the next line, so no signal handler runs
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
