"""When a second attempt is sent beside the first one, and which of them gives the result (rules H1, H2, H4).

A hedge is sent for what takes longer than nearly all first attempts do, so that few are. How long they take is learned
from all of them: one that lost to its hedge, or timed out, counts as long as it was waited for. Learning from those
that win alone would bend the delay down, and send ever more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import inf
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

from ..._strategy.condition import Condition
from ..._strategy.gate import Era, Gate, GateWrapper
from ..._strategy.latencies import EVERY, Latencies
from ..._strategy.retry_budget import RetryBudget
from ..._strategy.verdict import NEUTRAL, Verdict

if TYPE_CHECKING:
    pass

__all__ = ["RESULTS", "DeafGate", "Hedge", "Race"]

RATIO: Final = 0.1
BURST: Final = 10
"""Those of the budget of a method that declares none."""

Result: TypeAlias = Literal["notHedged", "primary", "hedge", "failed"]
"""What came of a race: no hedge was sent; the first attempt won, or a hedge; or none did."""
RESULTS: Final[tuple[Result, ...]] = ("notHedged", "primary", "hedge", "failed")


class Hedge:
    """What hedging remembers of one method between calls: how long first attempts take, and what hedges cost.

    All durations are in seconds.

    Args:
        max_hedges: The hedges of one race at most.
        quantile: The part of first attempts that end before a hedge is sent; 0.0: *delay* alone decides.
        delay: The shortest delay of a hedge; 0.0: none is sent before enough is known.
    """

    __slots__ = ("_delay", "_latencies", "_max_hedges", "_quantile", "budget")

    def __init__(self, max_hedges: int, quantile: float, delay: float) -> None:
        self._latencies = Latencies()
        self.budget = RetryBudget(RATIO, BURST)
        """Grants hedges where the method has no budget of its own."""
        self.reconfigure(max_hedges, quantile, delay)

    def reconfigure(self, max_hedges: int, quantile: float, delay: float) -> None:
        """Take new values; what was learned stays."""
        self._max_hedges = max_hedges
        self._quantile = quantile
        self._delay = delay

    @property
    def delay(self) -> float:
        """How long a race waits for its first hedge; 0.0: none is sent."""
        learned = self._latencies.quantile(self._quantile) if self._quantile else None
        return self._delay if learned is None else max(self._delay, learned)

    def begin(self, now: float, until: float = inf) -> Race:
        """Begin a race, whose enclosing deadline is at *until*."""
        return Race(self, now, self.delay, self._max_hedges, until)

    def learn(self, elapsed: float) -> None:
        """Take note of a first attempt that succeeded, timed out, or lost after so long."""
        self._latencies.add(elapsed)
        if len(self._latencies.fresh) >= EVERY:
            self._latencies.quantile(self._quantile)

    def condition(self, now: float) -> Condition:
        """How it stands."""
        delay = self.delay
        return Condition(
            f"hedging after {round(1000 * delay, 1):g} ms" if delay else "learning when to hedge", is_impaired=False
        )

    def is_idle(self, now: float) -> bool:
        """Whether nothing is lost if it is forgotten, but for what was learned."""
        return self.budget.is_idle(now)

    def is_at_rest(self, now: float) -> bool:
        """Return whether nobody is refused for long if it is forgotten: always."""
        return True

    def reset_after_fork(self, ident: int) -> None:
        """Keep what was learned in the child of a fork."""
        self._latencies.reset_after_fork(ident)
        self.budget.reset_after_fork(ident)


class Race:
    """The attempts of one call that run side by side: number 0 is the first one, the others are hedges.

    Not safe under threads: whoever waits for the attempts decides, one step at a time. Only what ends or begins adds to
    ``sent``, and rings, from wherever it is.
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
        """Whether nobody waits for the attempts any more that still run."""
        self.sent: dict[int, None] = {}
        """The hedges that really began: those that no policy of ours refused."""
        self.paid: set[int] = set()
        """The hedges for which something was taken from the budget."""
        self.due = inf
        """When the next hedge may be sent; infinity where none may any more."""
        self.wake: Callable[[], object] = _nobody
        """Wakes who waits for the attempts, from any thread."""
        self._hedge = hedge
        self._delay = delay
        self._max_hedges = max_hedges
        self._until = until
        self._turn = 0
        self._failures: dict[int, BaseException] = {}
        if delay > 0.0:
            self._look_forward()

    def take_turn(self) -> int:
        """Give the number of the hedge that is due; whether or not it is granted, the next one comes after it."""
        self._look_forward()
        return self._turn - 1

    def succeed(self, number: int, now: float) -> None:
        """Note that an attempt succeeded, the first one to do so."""
        self.winner = number
        if 0 not in self._failures:  # it won, or it lost (rule X4)
            self._hedge.learn(now - self.began)

    def fail(self, number: int, failure: BaseException, now: float, *, timed_out: bool = False) -> None:
        """Note that an attempt failed, by its own time-out or not; a hedge that was never there leaves no trace."""
        if number == 0 or number in self.sent:
            self._failures[number] = failure
        if number == 0 and timed_out:
            self._hedge.learn(now - self.began)

    def failure(self) -> BaseException:
        """Give what the call fails with, once no attempt runs: the first one's failure, the others' as notes."""
        primary = self._failures[0]
        others = [(number, failure) for number, failure in sorted(self._failures.items()) if failure is not primary]
        if others:
            texts = (f"faulttolerance: hedge {number} failed, too: {_shown(failure)}" for number, failure in others)
            _note(primary, [_Note(text, id(self._hedge)) for text in texts], id(self._hedge))
        return primary

    def ring(self) -> None:
        """Tell who waits for the attempts that one of them has ended."""
        if not self.is_over:
            self.wake()

    def end(self) -> None:
        """Note that nobody waits any more, and refer to no failure: their tracebacks may refer to the race."""
        self.is_over = True
        self.wake = _nobody
        self._failures.clear()

    @property
    def result(self) -> Result:
        """What came of it."""
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


def _nobody() -> None:
    """Wake nobody: nobody waits."""


class _Note(str):
    """A note of ours: text to whoever reads or pickles it."""

    __slots__ = ("owner",)

    owner: int
    """The identity of the ``Hedge`` whose attempts failed."""

    def __new__(cls, text: str, owner: int) -> Self:
        note = super().__new__(cls, text)
        note.owner = owner
        return note

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def _shown(failure: BaseException) -> str:
    kind = type(failure).__name__
    try:
        text = str(failure)
    except Exception:  # noqa: BLE001  # the application's
        return kind
    return f"{kind}: {text}" if text else kind


def _note(failure: BaseException, ours: list[_Note], owner: int) -> None:
    """Put *ours* on *failure*, in place of those of a race before: an object may be raised again and again."""
    try:
        kept = [note for note in getattr(failure, "__notes__", ()) if type(note) is not _Note or note.owner != owner]
        # Not by assignment: a frozen dataclass that is an exception refuses it.
        BaseException.__setattr__(failure, "__notes__", [*kept, *ours])
    except Exception:  # noqa: BLE001  # a failure that takes no note is the application's all the same
        pass


class DeafGate(GateWrapper):
    """A circuit breaker, or an adaptive throttle, that does not hear what attempts come to that have lost (rule H5).

    Args:
        gate: Lets attempts in, and hears of all others.
        has_lost: Tells whether the attempt that asks has lost.
    """

    __slots__ = ("_has_lost",)

    def __init__(self, gate: Gate, has_lost: Callable[[], bool]) -> None:
        super().__init__(gate)
        self._has_lost = has_lost

    @property
    def state(self) -> Era:
        """That of the gate."""
        return self._gate.state

    def admit(self, permit: Hashable, ident: int, now: float) -> Era:
        """Let the attempt in if the gate does."""
        return self._gate.admit(permit, ident, now)

    def settle(self, era: Era, permit: Hashable, verdict: Verdict, now: float, failure: str = "") -> None:
        """Tell the gate how an attempt ended; of one that has lost, only that it did."""
        if self._has_lost():
            verdict, failure = NEUTRAL, ""
        self._gate.settle(era, permit, verdict, now, failure)
