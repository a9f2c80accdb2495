"""The record of a call that was not over after its first attempt."""

from __future__ import annotations

from collections.abc import Sequence

from .._strategy.back_off import Delays
from .._strategy.retry import UNASKED, Answer, Stop
from ..exceptions import FaultToleranceException, RefusedException

__all__ = ["CallRecord"]

_LONGEST_LIST = 8
"""So many changes of what an attempt failed with are told; of a call that is retried for ever, the latest."""


class CallRecord:
    """The progress of a call that was not over after its first attempt; made when that ends."""

    __slots__ = (
        "_last_kind",
        "_runs",
        "answer",
        "attempts",
        "began",
        "delays",
        "is_counted",
        "last",
        "refusal",
        "replaced",
        "stop",
    )

    def __init__(self, began: float) -> None:
        self.began = began
        self.answer: Answer = UNASKED
        """The answer of a predicate that was awaited, on the last attempt."""
        self.attempts = 1
        """How many attempts have begun."""
        self.delays: Delays | None = None
        self.stop: Stop | None = None
        """Why no further attempt is made."""
        self.last: BaseException | None = None
        """The last failure that was no refusal."""
        self.refusal: FaultToleranceException | None = None
        """The exception that stands for the last result that ``retry_when`` did not accept."""
        self.replaced: BaseException | None = None
        """The failure for which the fallback was asked."""
        self.is_counted = False
        self._last_kind: type[BaseException] | None = None
        self._runs: Sequence[tuple[int, int, type[BaseException]]] = ()  # attempts in a row that failed alike

    def add_failure(self, failure: BaseException) -> None:
        """Note what the last attempt failed with."""
        kind = type(failure)
        if self._last_kind is not None and self._last_kind is not kind:
            first = self._runs[-1][1] + 1 if self._runs else 1
            self._runs = [*self._runs, (first, self.attempts - 1, self._last_kind)][-_LONGEST_LIST:]
        self._last_kind = kind
        if not isinstance(failure, RefusedException):
            self.last = failure

    def explain(self, failure: BaseException) -> None:
        """Let a refusal that ends the retries name the last failure of the method itself as its cause."""
        if isinstance(failure, RefusedException) and failure.__cause__ is None and self.last is not None:
            failure.__cause__ = self.last

    def note(self, failure: BaseException, elapsed: float, stop: Stop) -> None:
        """Say on *failure* itself how often and how long it was tried; one note of ours per object (rule R1)."""
        plural = "attempt" if self.attempts == 1 else "attempts"
        tried = f"{self.attempts} {plural} in {elapsed:.3f} s{self._kinds()}"
        ours = f"{_NOTE}{tried}; no more, because {_REASONS[stop]}"
        try:
            notes = [note for note in getattr(failure, "__notes__", ()) if not str(note).startswith(_NOTE)]
            # Not by assignment: a frozen dataclass that is an exception refuses it.
            BaseException.__setattr__(failure, "__notes__", [*notes, ours])
        except Exception:  # noqa: BLE001  # a failure that takes no note is the application's all the same
            pass

    def _kinds(self) -> str:
        """Return what each attempt failed with, in brackets; empty where it was the same each time."""
        if not self._runs or self._last_kind is None:
            return ""
        kinds = [] if self._runs[0][0] == 1 else ["..."]
        for first, last, kind in (*self._runs, (self._runs[-1][1] + 1, self.attempts, self._last_kind)):
            attempts = f"{first}" if first == last else f"{first}-{last}"
            kinds.append(f"{attempts}: {vars(kind).get('_words', kind.__name__)}")
        return f" ({', '.join(kinds)})"


_NOTE = "faulttolerance: "
_REASONS = {
    Stop.NOT_RETRYABLE: "the failure is not to be retried",
    Stop.MAX_RETRIES_REACHED: "max_retries reached",
    Stop.MAX_DURATION_REACHED: "max_duration reached",
    Stop.DEADLINE: "an enclosing deadline would pass during the delay",
    Stop.PREDICATE_FAILED: "the exception predicate of retry_when failed, which is logged",
}
