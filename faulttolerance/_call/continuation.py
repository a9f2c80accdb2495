"""The decisions after an attempt that does not end its call, and the record of the call."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from copy import copy
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from .._deadline.clock import clock
from .._deadline.interruption import ends_this, remaining, replaces_cancellation
from .._event import Degradation, FallbackApplied, GaveUp, RetryScheduled, collecting, sinks
from .._execution.caller_thread import Arguments, Callback
from .._execution.environment import StoppedIteration
from .._log import WARNING, log
from .._strategy.back_off import Delays
from .._strategy.retry import NOT_CALLED, Answer, AwaitedDelay, Retry, Stop
from .._strategy.verdict import matches
from ..exceptions import FaultToleranceException, RefusedException
from .budget import charge
from .veto import veto_reason_for, vetoes

if TYPE_CHECKING:
    from .bound_policies import BoundPolicies


_LONGEST_LIST = 8
"""The maximum number of changes of the failure's class in a note; of an endless call, the latest changes."""


class Note(str):
    """A note of this library on an exception: text for readers and pickles, with data for the guard outside."""

    __slots__ = ("began", "clock_changes", "guard", "limit")

    began: float
    """The moment at which the failed call started, on the shared clock."""
    clock_changes: int
    """The number of changes of that clock until then."""
    guard: str
    """The name of the guard."""
    limit: int
    """The maximum number of its attempts; without a limit, the number of attempts made."""

    def __new__(cls, text: str, guard: str, limit: int, began: float) -> Self:
        note = super().__new__(cls, text)
        note.guard, note.limit, note.began, note.clock_changes = guard, limit, began, clock.changes
        return note

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def distinct_names(outer: str, inner: str) -> tuple[str, str]:
    """Return the last parts of two names, or the whole names if their last parts are equal."""
    outer_name, inner_name = outer.rpartition(".")[2], inner.rpartition(".")[2]
    return (outer, inner) if outer_name == inner_name else (outer_name, inner_name)


class CallRecord:
    """The progress of a call that did not end with its first attempt; created at the end of that attempt."""

    # Most are class attributes, which never change, so that creating a record calls no Python code. CPython specializes
    # no store of an attribute that the class has, too; so the creator sets those that every retry stores.
    began: float
    """The moment at which the call started."""
    answer: Answer = NOT_CALLED
    """The answer of an awaited predicate about the last attempt."""
    attempts: int
    """The number of attempts started."""
    delays: Delays | None = None
    """The delays of this call if they depend on earlier ones; created at the first failure."""
    told: AwaitedDelay | None = None
    """The decision about the next delay, if it was awaited."""
    paid_for = 0
    """The number of the last attempt that the retry budget paid for."""
    stop: Stop | None = None
    """The reason why no further attempt is made."""
    veto_reason = ""
    """The application's reason against a further attempt, if it has vetoed it."""
    failure: BaseException | None
    """The failure of the last attempt."""
    cause: BaseException | None
    """The last failure of the attempts before it that was no refusal."""
    rejection: FaultToleranceException | None = None
    """The exception that stands for the last result that ``retry_when`` did not accept."""
    replaced_failure: BaseException | None = None
    """The failure for which the fallback was called."""
    is_counted: bool
    is_heard = False
    """Whether sinks received a retry of the call; then its recovery is an event, too."""
    is_untraced: bool
    """Whether no span records the call, as far as known."""
    _runs: Sequence[tuple[int, int, type[BaseException]]] = ()  # consecutive attempts with the same class of failure

    @property
    def has_rejected_result(self) -> bool:
        """Whether the call has ended with a result that ``retry_when`` did not accept."""
        return self.stop is not None and self.rejection is not None and self.replaced_failure is None

    def record_next(self, failure: BaseException) -> None:
        """Record the *failure* of an attempt that followed another one."""
        before = self.failure
        assert before is not None
        if type(before) is not type(failure):
            first = self._runs[-1][1] + 1 if self._runs else 1
            self._runs = [*self._runs, (first, self.attempts - 1, type(before))][-_LONGEST_LIST:]
        if not isinstance(before, RefusedException):
            self.cause = before
        self.failure = failure

    def add_note(self, failure: BaseException, elapsed: float, stop: Stop, name: str, limit: float) -> None:
        """Add a note to *failure* on attempts and duration; the guard *name* makes at most *limit* attempts.

        There is one note of this library per object (rule R1), but notes of the guards inside stay before it (rule T6).
        """
        try:
            notes = [note for note in getattr(failure, "__notes__", ()) if self._is_kept(note, name)]
            inner = next((note for note in reversed(notes) if type(note) is Note), None)
            tried = f"{self.attempts} attempt{'s' * (self.attempts > 1)}"
            if inner is not None:
                outer_name, inner_name = distinct_names(name, inner.guard)
                tried = f"{tried} of {outer_name}, each up to {inner.limit} of {inner_name},"
            reason = self.veto_reason or stop.value
            classes = self._failure_classes() if self._runs else ""
            text = f"faulttolerance: {tried} in {elapsed:.3f} s{classes}; no more, because {reason}"
            ours = Note(text, name, self.attempts if limit == inf else int(limit), self.began)
            # Not by assignment: a frozen dataclass that is an exception rejects it.
            BaseException.__setattr__(failure, "__notes__", [*notes, ours])
        except Exception:  # noqa: BLE001  # a failure that accepts no note is still the application's
            pass

    def inner_note(self, failure: BaseException, name: str) -> Note | None:
        """Return the note of the outermost guard inside that has retried *failure*, or ``None``."""
        notes = getattr(failure, "__notes__", ())
        return next((one for one in reversed(notes) if type(one) is Note and self._is_kept(one, name)), None)

    def _is_kept(self, note: object, name: str) -> bool:
        """Return whether *note* is not ours, or comes from a guard inside this call of the guard *name*."""
        if type(note) is not Note:
            return True
        # An object that is raised repeatedly has a note from an earlier call, or from another test's clock.
        if note.clock_changes != clock.changes:
            return False
        # A note of the same guard comes from another caller, which shares the failure.
        return note.guard != name and note.began >= self.began

    def _failure_classes(self) -> str:
        """Return the classes of the attempts' failures, which differ, in brackets."""
        kinds = [] if self._runs[0][0] == 1 else ["..."]
        for first, last, kind in (*self._runs, (self._runs[-1][1] + 1, self.attempts, type(self.failure))):
            attempts = f"{first}" if first == last else f"{first}-{last}"
            kinds.append(f"{attempts}: {vars(kind).get('_words', kind.__name__)}")
        return f" ({', '.join(kinds)})"


RETURNED = "valueReturned"
NOT_RETRYABLE = "exceptionNotRetryable"
LIMITS: Mapping[Stop | None, str] = {
    Stop.MAX_RETRIES_REACHED: "maxRetriesReached",
    Stop.MAX_DURATION_REACHED: "maxDurationReached",
    Stop.DEADLINE: "maxDurationReached",
    Stop.TOLD_PAST_MAX_DURATION: "maxDurationReached",
    Stop.BUDGET_SPENT: "budgetExhausted",
}
"""The value of the metric for a call that a limit ended; for all other failed calls it is ``NOT_RETRYABLE``."""


class RetryDelays:
    """The delays between attempts; they are skipped as long as a test asks for it."""

    skipped_by: ClassVar[list[object]] = []


class RejectedResult(NamedTuple):
    """A rejected result of the last attempt, on its way to the caller; the store of last good results must skip it."""

    result: Any


LOOP_LEFT = object()
"""The result of a block that ends the loop that would repeat it."""

_USUAL = (Stop.NOT_RETRYABLE, Stop.MAX_RETRIES_REACHED, Stop.MAX_DURATION_REACHED)
"""The reasons that need no note after a single attempt."""


def rejection_of(policies: BoundPolicies, retry: Retry, result: object, call: CallRecord) -> BaseException | None:
    """Return the failure for *result* if ``retry_when`` does not accept it, or ``None``."""
    if not retry.refuses(result, call.answer):
        return None
    call.rejection = FaultToleranceException(f"{policies.name}: the result was refused by retry_when")
    call.rejection.result = result
    return call.rejection


def await_delay(failure: BaseException, retry: Retry, call: CallRecord) -> Awaitable[AwaitedDelay | None]:
    """Return an awaitable of the decision about the next delay, which the application may have to await."""
    if call.delays is None:
        call.delays = retry.back_off.begin()
    elapsed = clock.monotonic() - call.began
    return retry.await_delay(failure, call.attempts, elapsed, call.delays, call.answer, failure is call.rejection)


def next_delay(
    policies: BoundPolicies, call: CallRecord, failure: BaseException, args: Arguments, has_left: bool = False
) -> float | None:
    """Return the seconds until the next attempt, or ``None`` if *failure* is final.

    *has_left* is whether the attempt, a block, has left the loop that would repeat it.
    """
    retry: Retry = policies.retry  # type: ignore[assignment]  # where there is one
    elapsed, attempts = clock.monotonic() - call.began, call.attempts
    if attempts > 1:
        call.record_next(failure)
    else:
        call.failure = failure
    if (delay := retry.plain_delay) is not None:
        stop = retry.stop(failure, attempts, elapsed, delay, remaining())
    else:
        delay, stop = _decision(retry, call, failure, elapsed)
    if stop is None:
        if has_left:
            stop = Stop.LEFT
        elif failure.__context__ is not None and replaces_cancellation(failure, policies.handled(args)):
            stop = Stop.NOT_RETRYABLE
        elif vetoes and (veto_reason := veto_reason_for(policies.name, failure)):
            call.veto_reason, stop = veto_reason, Stop.VETOED
        elif policies.budget is not None and not _is_paid(policies, call):
            stop = Stop.BUDGET_SPENT  # called last, and before the delay: no call sleeps before a refusal (rule B3)
        else:
            if retry.is_alone:
                try:
                    if hasattr(failure, "__notes__"):  # reading its ``__dict__`` would create one
                        _log_nested_retries(policies, retry, call, failure)
                except Exception:  # noqa: BLE001  # code of a failure that has attributes of its own
                    pass
            if sinks.wanted[RetryScheduled](call):
                call.is_heard = True
                sinks.send(RetryScheduled(policies.name, attempts, delay, failure), call)  # type: ignore[arg-type]
            return 0.0 if RetryDelays.skipped_by else delay
    call.stop = stop
    if isinstance(failure, RefusedException) and failure.__cause__ is None and call.cause is not None:
        failure.__cause__ = call.cause
    if attempts > 1 or stop not in _USUAL or failure is call.rejection:
        call.add_note(failure, elapsed, stop, policies.name, retry.max_retries + 1)
    if isinstance(failure, Exception) and sinks.wanted[GaveUp](call):
        sinks.send(GaveUp(policies.name, attempts, elapsed, call.veto_reason or stop.value, failure), call)
    return None


def _decision(
    retry: Retry, call: CallRecord, failure: BaseException, elapsed: float
) -> tuple[float, None] | tuple[None, Stop]:
    """Return the decision of *retry* if it depends on more than numbers: the delay, or why there is none."""
    delays = None
    if retry.fixed_delay is None:
        delays = call.delays = call.delays or retry.back_off.begin()
    draw = clock.random() if retry.is_random else 0.0
    # Only asynchronous calls set answers, because they await predicates.
    decision = retry.after_failure(
        failure, call.attempts, elapsed, remaining(), draw, delays, call.answer, call.told, failure is call.rejection
    )
    return (None, decision) if isinstance(decision, Stop) else (decision, None)


def _is_paid(policies: BoundPolicies, call: CallRecord) -> bool:
    """Return whether the retry budget pays for the next attempt; also true if the budget is only observed."""
    is_paid = charge(policies.budget, policies.on_budget_refusal, policies.counters, "retry")
    if is_paid:
        call.paid_for = call.attempts + 1
    return is_paid is not False


def _log_nested_retries(policies: BoundPolicies, retry: Retry, call: CallRecord, failure: BaseException) -> None:
    """Log once that a guard retries the calls of another guard that retries (rule T6): their attempts multiply."""
    inner = call.inner_note(failure, policies.name)
    if inner is not None:
        policies.retry = copy(retry)  # other guards may decide by *retry*, too
        policies.retry.is_alone = False
        log(
            WARNING,
            "%s: retries calls that %s inside it has retried: each of its attempts makes up to %d attempts there; let"
            " only one of them retry",
            policies.name,
            inner.guard,
            inner.limit,
        )


def next_fallback(
    policies: BoundPolicies,
    call: CallRecord,
    failure: BaseException,
    fallbacks: Iterator[tuple[str, Callback]],
    args: Arguments,
    kwargs: Mapping[str, Any],
) -> tuple[str, Callback] | None:
    """Return the next fallback for *failure*, with its name; ``None`` if there is none."""
    if policies.fallback_on is None or not matches(failure, policies.fallback_on, policies.no_fallback_on):
        return None
    handled = policies.handled(args)
    if ends_this(handled) or (failure.__context__ is not handled and replaces_cancellation(failure, handled)):
        return None  # rule R0
    fallback = next(fallbacks, None)
    if fallback is not None:
        if sinks.wanted[FallbackApplied](call) and _accepts(fallback[1], args, kwargs, failure):
            sinks.send(FallbackApplied(policies.name, failure), call)
        if call.replaced_failure is None:
            call.replaced_failure = failure
    return fallback


def in_context(error: BaseException, failure: BaseException) -> BaseException:
    """Return *error*, of a fallback for *failure*, with that failure as its context, unless it has one or caused it."""
    chain = [failure]
    for one in chain:
        behind = (one.__cause__, one.__context__)
        chain += [each for each in behind if each is not None and all(each is not known for known in chain)]
    if error.__context__ is None and all(one is not error for one in chain):
        error.__context__ = failure
    return error


def record_degradation(name: str, failure: BaseException, by: str) -> None:
    """Append a degradation to all active collections, after a fallback has answered (rule Y2)."""
    for found in collecting.get():
        found.append(Degradation(name, failure, by))


def count_failed_call(
    policies: BoundPolicies,
    error: BaseException,
    call: CallRecord | None,
    args: Arguments,
    kwargs: Mapping[str, Any],
    permit: object,
) -> None:
    """Count a call that raised *error*, once for all attempts that *error* passes on its way out.

    *permit* is the permit of an attempt that control flow ended before it was settled, or ``None``.
    """
    if permit is not None:
        policies.release_permit(permit)
    if call is None:
        call = CallRecord()
        call.attempts, call.is_counted = 1, False
    replaced = call.replaced_failure
    # A fallback method may accept only one class of failures, and raise all others without a call.
    if (
        replaced is not None
        and StoppedIteration.meant(error) is replaced
        and not any(_accepts(fallback, args, kwargs, replaced) for _, fallback in policies.fallbacks)
    ):
        call.replaced_failure = None
    policies.end_call(call, False)


def _accepts(fallback: Callback, args: Arguments, kwargs: Mapping[str, Any], failure: BaseException) -> bool:
    accepts = getattr(fallback, "accepts", None)
    try:
        return accepts is None or accepts(args, kwargs, failure)
    except Exception:  # noqa: BLE001  # of a missing method or a key, for example: the call of the fallback raises it
        return False
