"""The refusal of a share of calls while the callee rejects a share of them (Google, Site Reliability Engineering).

Over a sliding window with R requests, of which A were accepted, the next call is refused with the probability ``max(0,
(R - multiplier * A) / (R + 1))``. A refused call counts as a request at once, so the callee gets *multiplier* times the
number of calls that it accepts, for any load. An admitted call counts when it ends, so calls that last half a window do
not make the throttle shed a healthy callee.

There are three additions. If no call was admitted for a second, the next call is. If any call was accepted, the
probability falls to 0 within one window after the last failure: the throttle trusts a recovery, and ramps up. And the
window slides by tenths, even when only time passes.

The probability is over all calls. Of several tiers, the lowest tier is refused first, and completely before a higher
tier loses a call (rule K2). For this, the shares of the tiers are counted while calls are refused.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable
from typing import ClassVar, Final

from ..._strategy.condition import Condition
from ..._strategy.gate import GateState, lasting_state
from ..._strategy.rolling_window import TimeWindow
from ..._strategy.verdict import FAILURE, SUCCESS, Verdict
from ...exceptions import ThrottleException

_GRAINS: Final = 10
"""The number of moments at which calls of a full window leave it."""
_PROBE: Final = 1.0
"""The seconds without an admitted call after which the next call is admitted."""
_FOLD: Final = 128
"""The maximum number of successes that wait to be counted."""


_CALM: Final = lasting_state(is_closed=True)
"""Everything in the window was accepted: the passing of time alone cannot cause a refusal."""
WATCHING: Final = lasting_state(is_closed=False)
"""The window contains a failure or a refusal: each call must request admission."""


class AdaptiveThrottle:
    """A ``Gate`` that refuses a share of the calls, depending on the share that the callee rejects.

    A successful call appends a moment; all other work happens under a short lock. The decision is still exact: while no
    success leaves the window, only a failure or a refusal can raise the probability, and each of them is counted at
    once, together with the waiting successes.

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
        "_chance",
        "_idle_until",
        "_last_failure",
        "_lock",
        "_message",
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
        self._chance = chance
        self._tier = tier
        self.state: GateState = _CALM
        """The state that admits attempts now."""
        self.transitions: tuple[()] = ()  # no class attribute: it is read for each call
        self._successes: list[float] = []  # the ends of successes that are not counted yet
        # The lock guards all attributes below, except that calls admitted without it write _passed.
        self._window = TimeWindow(min_requests, window, _GRAINS)
        self._arrivals: dict[int, TimeWindow] = {}  # by tier, the calls that came while calls were refused
        self._last_failure = -math.inf
        self._passed = -math.inf  # the moment of the last admission
        self._idle_until = -math.inf  # no refusal is possible up to this moment, or another failure
        # Reentrant: a signal handler or a finalizer may call the guarded function while its thread is in here.
        self._lock = threading.RLock()

    def admit(self, permit: Hashable, ident: int, now: float) -> GateState:
        """Admit or refuse an attempt; called only while the window contains a failure or a refusal.

        Raises:
            ThrottleException: If the attempt is refused.
        """
        if now <= self._idle_until:
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
            self._window.record(True, now)
            self._idle_until = -math.inf
        raise self.refusal(0.0)

    def settle(self, state: GateState, permit: Hashable, verdict: Verdict, now: float, failure: str = "") -> None:
        """Count an admitted attempt that has ended; a neutral attempt does not count."""
        if verdict == SUCCESS:
            successes = self._successes
            successes.append(now)
            if len(successes) >= _FOLD:
                with self._lock:
                    self._review_locked(now)
        elif verdict == FAILURE:
            with self._lock:
                if self.state is _CALM:
                    self._passed = max(self._passed, now)  # up to now, attempts passed without admit()
                self._review_locked(now)  # first the successes before it
                self._window.record(True, now)
                self._last_failure = max(self._last_failure, now)
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

    def has_room_to_spare(self, now: float, permits: int) -> bool:
        """Return whether no call would be refused, so that a hedge takes nothing from others."""
        return self.is_idle(now)

    def refusal(self, wait: float) -> ThrottleException:
        """Return the exception for a refused call; the moment of the next admission is unknown."""
        return ThrottleException(self._message)

    def reconfigure(self, multiplier: float, window: float, min_requests: int, now: float) -> None:
        """Apply new values; the counts within the new window are kept."""
        with self._lock:
            self._review_locked(now)
            self._multiplier = multiplier
            for one in (self._window, *self._arrivals.values()):
                one.resize(min_requests, window, now)
            self._review_locked(now)

    def reset_after_fork(self, ident: int) -> None:
        """Replace the lock, which another thread may have held when the process forked. Call it in the child only."""
        self._lock = threading.RLock()

    def _of_tier_locked(self, tier: int, probability: float, now: float) -> float:
        """Count a call of *tier*, and return its probability of refusal, from the *probability* over all tiers.

        Refused calls count in the shares too: shares of admitted calls alone would drift to the upper tiers.
        """
        if tier not in self._arrivals:
            self._arrivals[tier] = TimeWindow(0, self._window.expires, _GRAINS)
        self._arrivals[tier].record(True, now)
        counts = {other: arrivals.held(now)[0] for other, arrivals in self._arrivals.items()}
        own, lower = max(1, counts[tier]), sum(count for other, count in counts.items() if other < tier)
        return min(1.0, max(0.0, (probability * sum(counts.values()) - lower) / own))

    def _review_locked(self, now: float) -> float:
        """Count the waiting successes, remove what is too old, and return the new probability."""
        window, successes = self._window, self._successes
        count = len(successes)
        batch = successes[:count]  # no call between this and the next line, so no signal handler runs
        del successes[:count]
        if batch:
            window.succeed(batch)
        requests, failures = window.held(now)
        excess = requests - self._multiplier * (requests - failures)
        self._idle_until = window.next_expiry if excess <= 0.0 else -math.inf  # more successes make it smaller still
        self.state = WATCHING if failures else _CALM
        if not window.is_full or excess <= 0.0:
            return 0.0
        probability = excess / (requests + 1)
        if failures < requests:
            probability *= min(1.0, max(0.0, 1.0 - (now - self._last_failure) / window.expires))
        return probability
