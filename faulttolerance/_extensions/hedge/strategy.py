"""The decisions on hedges: the moment of their start, and the attempt that determines the result (rules H1, H2, H4).

A hedge starts if a first attempt takes longer than nearly all first attempts, so hedges are rare. All first attempts
count in this statistic: an attempt that lost to its hedge, or timed out, counts with the time until then. If only the
winners counted, the delay would become shorter, and ever more hedges would start.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from math import inf
from typing import Final

from ..._shown import error_text
from ..._strategy.condition import Condition
from ..._strategy.gate import Gate, GateState, GateWrapper
from ..._strategy.latencies import EVERY, Latencies
from ..._strategy.retry_budget import RetryBudget
from ..._strategy.verdict import NEUTRAL, Verdict
from ...exceptions import TimeoutException

RATIO: Final = 0.1
BURST: Final = 10
"""The values of the budget of a method that declares none."""


class Hedge:
    """The state of hedging for one method: the durations of first attempts, and the budget of hedges.

    All durations are in seconds.

    Args:
        max_hedges: The maximum number of hedges in one race.
        quantile: The share of first attempts that end before a hedge starts; with 0.0, only *delay* decides.
        delay: The shortest delay of a hedge; with 0.0, no hedge starts before enough is known.
    """

    __slots__ = ("_delay", "_latencies", "_max_hedges", "_quantile", "budget")

    def __init__(self, max_hedges: int, quantile: float, delay: float) -> None:
        self._latencies = Latencies()
        self.budget = RetryBudget(RATIO, BURST)
        """Pays for hedges if the method has no budget, or its budget must not pay for hedges that are only observed."""
        self.reconfigure(max_hedges, quantile, delay)

    def reconfigure(self, max_hedges: int, quantile: float, delay: float) -> None:
        """Apply new values; the statistic is kept."""
        self._max_hedges = max_hedges
        self._quantile = quantile
        self._delay = delay

    @property
    def delay(self) -> float:
        """The delay of a race before its first hedge; 0.0 if none starts."""
        learned = self._latencies.quantile(self._quantile) if self._quantile else None
        return self._delay if learned is None else max(self._delay, learned)

    def begin(self, now: float, until: float = inf) -> Race:
        """Return a new race, whose enclosing deadline is at *until*."""
        return Race(self, now, self.delay, self._max_hedges, until)

    def learn(self, elapsed: float) -> None:
        """Record the duration of a first attempt that succeeded, timed out, or lost."""
        self._latencies.add(elapsed)
        if len(self._latencies.fresh) >= EVERY:
            self._latencies.quantile(self._quantile)

    def condition(self, now: float) -> Condition:
        """Return the delay before hedges."""
        delay = self.delay
        return Condition(f"hedging after {round(1000 * delay, 1):g} ms" if delay else "learning when to hedge")

    def is_idle(self, now: float) -> bool:
        """Return whether the state can be removed without loss, except for the statistic."""
        return self.budget.is_idle(now)

    def is_at_rest(self, now: float) -> bool:
        """Return whether the state can be removed without a long refusal of calls: always."""
        return True

    def reset_after_fork(self, ident: int) -> None:
        """Keep the statistic in the child of a fork."""
        self._latencies.reset_after_fork(ident)
        self.budget.reset_after_fork(ident)


class Race:
    """The parallel attempts of one call: number 0 is the first attempt, the others are hedges.

    Not safe under threads: the code that waits for the attempts decides, one step at a time. Only starting and ending
    attempts add to ``sent``, and call ``ring``, from any thread.
    """

    __slots__ = (
        "_delay", "_failures", "_hedge", "_max_hedges", "_turn", "_until",
        "began", "due", "is_over", "paid", "sent", "wake", "winner",
    )  # fmt: skip

    def __init__(self, hedge: Hedge, began: float, delay: float, max_hedges: int, until: float) -> None:
        self.began = began
        self.winner: int | None = None
        """The attempt that succeeded first."""
        self.is_over = False
        """Whether the call no longer waits for the attempts that still run."""
        self.sent: dict[int, None] = {}
        """The hedges that really started: those that no policy of the guard refused."""
        self.paid: set[int] = set()
        """The hedges that the budget paid for, without those whose price was returned."""
        self.due = inf
        """The moment of the next hedge; infinity if there is none."""
        self.wake: Callable[[], object] = bool
        """Wakes the call that waits for the attempts, from any thread; does nothing while no call waits."""
        self._hedge = hedge
        self._delay = delay
        self._max_hedges = max_hedges
        self._until = until
        self._turn = 0
        self._failures: dict[int, BaseException] = {}
        if delay > 0.0:
            self._look_forward()

    def take_turn(self) -> int:
        """Return the number of the due hedge; the next hedge comes after it, whether or not this hedge is granted."""
        self._look_forward()
        return self._turn - 1

    def succeed(self, number: int, now: float) -> None:
        """Record the success of an attempt, the first success of the race."""
        self.winner = number
        if 0 not in self._failures:  # it won, or it lost (rule X4)
            self._hedge.learn(now - self.began)

    def fail(self, number: int, failure: BaseException, now: float, limit: float = 0.0) -> None:
        """Record a failure, perhaps the time-out of an attempt after *limit*; a hedge that never started is ignored."""
        if number == 0 or number in self.sent:
            self._failures[number] = failure
        if number == 0 and isinstance(failure, TimeoutException) and 0.0 < limit <= now - self.began:
            self._hedge.learn(now - self.began)

    def failure(self) -> BaseException:
        """Return the failure of the call, after all attempts: that of the first, with those of the others as notes."""
        primary = self._failures[0]
        for number, failure in sorted(self._failures.items()):
            if failure is not primary:
                note = f"faulttolerance: hedge {number} failed, too: {error_text(failure)}"
                with suppress(Exception):  # a failure that accepts no note is still the application's
                    if note not in getattr(primary, "__notes__", ()):  # the object may be raised again
                        primary.add_note(note)
        return primary

    def ring(self) -> None:
        """Notify the waiting call that an attempt has ended."""
        if not self.is_over:
            self.wake()

    def end(self) -> None:
        """End the waiting, and drop all failures: their tracebacks may refer to the race."""
        self.is_over = True
        self.wake = bool
        self._failures.clear()

    @property
    def result(self) -> str:
        """The outcome of the race: no hedge started; the first attempt won, or a hedge won; or none won."""
        if not self.sent:
            return "notHedged"
        if self.winner is None:
            return "failed"
        return "hedge" if self.winner else "primary"

    def _look_forward(self) -> None:
        self._turn += 1
        self.due = self.began + self._turn * self._delay
        if self._turn > self._max_hedges or self.due >= self._until:
            self.due = inf


class DeafGate(GateWrapper):
    """A circuit breaker or an adaptive throttle that ignores the outcomes of attempts that have lost (rule H5).

    Args:
        gate: Admits attempts, and receives the outcomes of all others.
        has_lost: Returns whether the current attempt has lost.
    """

    __slots__ = ("_has_lost",)

    def __init__(self, gate: Gate, has_lost: Callable[[], bool]) -> None:
        super().__init__(gate)
        self._has_lost = has_lost

    def settle(self, state: GateState, permit: Hashable, verdict: Verdict, now: float, failure: str = "") -> None:
        """Report the outcome of an attempt to the gate; for an attempt that has lost, only its end."""
        if self._has_lost():
            verdict, failure = NEUTRAL, ""
        self._gate.settle(state, permit, verdict, now, failure)
