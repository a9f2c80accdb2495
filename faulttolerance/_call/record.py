"""How far a call has come that was not over after its first attempt."""

from __future__ import annotations

from .._strategy.back_off import Delays
from .._strategy.retry import UNASKED, Answer, Stop
from ..exceptions import (
    BulkheadException,
    CircuitBreakerOpenException,
    FaultToleranceException,
    RateLimitException,
    RefusedException,
    TimeoutException,
)

__all__ = ["CallRecord"]

_LONGEST_LIST = 8
"""So many changes of what an attempt failed with are told; of a call that is retried for ever, the latest."""


_NO_RUNS: list[tuple[int, int, type[BaseException]]] = []


class CallRecord:
    """How far a call has come that was not over after its first attempt."""

    __slots__ = ("_runs", "answer", "attempts", "began", "delays", "kind", "last", "refusal", "stop")

    def __init__(self, began: float) -> None:
        self.began = began
        self.answer: Answer = UNASKED
        """What a predicate that was awaited says of the last one."""
        self.attempts = 1
        """How many attempts have begun."""
        self.kind: type[BaseException] | None = None
        """What the last one failed with."""
        self.last: BaseException | None = None
        """The last failure that was no refusal."""
        self.delays: Delays | None = None
        self.stop: Stop | None = None
        """Why no further attempt is made."""
        self.refusal: FaultToleranceException | None = None
        """What stands for the last result that ``retry_when`` did not accept."""
        self._runs: list[tuple[int, int, type[BaseException]]] = _NO_RUNS  # attempts in a row that failed alike

    def turn(self, kind: type[BaseException]) -> None:
        """Note that an attempt failed with *kind*, and the one before with something else."""
        assert self.kind is not None
        first = self._runs[-1][1] + 1 if self._runs else 1
        self._runs = [*self._runs, (first, self.attempts - 1, self.kind)][-_LONGEST_LIST:]
        self.kind = kind

    def explain(self, failure: BaseException) -> None:
        """Let a refusal that ends the retries name the last failure of the method itself as its cause."""
        if isinstance(failure, RefusedException) and failure.__cause__ is None and self.last is not None:
            failure.__cause__ = self.last

    @property
    def kinds(self) -> str:
        """What each attempt failed with, in brackets; empty where it was the same each time."""
        if not self._runs or self.kind is None:
            return ""
        told = [] if self._runs[0][0] == 1 else ["..."]
        for first, last, kind in (*self._runs, (self._runs[-1][1] + 1, self.attempts, self.kind)):
            attempts = f"{first}" if first == last else f"{first}-{last}"
            told.append(f"{attempts}: {_WORDS.get(kind, kind.__name__)}")
        return f" ({', '.join(told)})"


_WORDS: dict[type[BaseException], str] = {
    BulkheadException: "bulkhead full",
    CircuitBreakerOpenException: "circuit open",
    RateLimitException: "rate limit exceeded",
    TimeoutException: "timed out",
    FaultToleranceException: "result refused",
}
