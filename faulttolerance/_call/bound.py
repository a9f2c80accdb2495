"""What holds for one guarded function, and the decisions on a call that did not go smoothly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CoroutineType
from typing import Any, Literal

from .._event import FallbackApplied, GaveUp, Recovered, Rejected, RetryScheduled, TimedOut, sinks
from .._metrics.counters import FOLD, Counters
from .._metrics.series import Fact, advanced, call_series
from .._runtime.attempt_record import AttemptRecord
from .._runtime.blocking import Arguments, Aside, comes_later, lives_on, warn_of_outcome
from .._runtime.clock import clock
from .._runtime.interruption import remaining
from .._signature.kind import is_coroutine_function
from .._strategy.bulkhead import Bulkhead
from .._strategy.circuit_breaker import CircuitBreaker, Era
from .._strategy.exception_set import matches
from .._strategy.rate_limit import RateLimit
from .._strategy.retry import Retry, Stop
from .._strategy.verdict import FAILURE, NEUTRAL, SUCCESS, Verdict, verdict_on
from ..exceptions import (
    BulkheadException,
    CircuitBreakerOpenException,
    FaultToleranceException,
    RateLimitException,
    RefusedException,
)
from .record import CallRecord

__all__ = ["RETRIED", "BoundPolicies", "CallRecord"]

Exceptions = tuple[type[BaseException], ...]

_NOTE = "faulttolerance: "


class BoundPolicies:
    """What holds for one guarded function, and the decisions on a call that did not go smoothly."""

    __slots__ = (
        "_refusals",
        "advice",
        "bulkhead",
        "circuit_breaker",
        "conclude",
        "consults",
        "counters",
        "fail_on",
        "fallback_on",
        "interrupt",
        "is_counted_by_attempt",
        "name",
        "no_fallback_on",
        "on_transition",
        "queues",
        "rate_limit",
        "refuses",
        "retry",
        "seconds",
        "skip_on",
        "usual",
        "watches_results",
    )

    def __init__(
        self,
        name: str,
        *,
        fallback_on: Exceptions | None = None,
        no_fallback_on: Exceptions = (),
        retry: Retry | None = None,
        circuit_breaker: CircuitBreaker | None = None,
        fail_on: Exceptions = (Exception,),
        skip_on: Exceptions = (),
        rate_limit: RateLimit | None = None,
        seconds: float = 0.0,
        interrupt: bool = True,
        conclude: Callable[[AttemptRecord, BaseException | None, Callable[[], str]], BaseException | None]
        | None = None,
        bulkhead: Bulkhead | None = None,
        queues: bool = False,
        counters: Counters | None = None,
        on_transition: Callable[[CircuitBreaker], None] | None = None,
    ) -> None:
        self.name = name
        self.fallback_on = fallback_on
        self.no_fallback_on = no_fallback_on
        self.retry = retry
        self.circuit_breaker = circuit_breaker
        self.fail_on = fail_on
        self.skip_on = skip_on
        self.rate_limit = rate_limit
        self.seconds = seconds
        self.interrupt = interrupt
        self.conclude = conclude
        """What a deadline of this thread, or of this task, makes of an attempt."""
        self.bulkhead = bulkhead
        self.queues = queues
        """Whether calls may wait for a permit."""
        self.counters = counters
        self.usual: type | None = None
        """The class of the last result that was looked at, as far as it may be kept; ``object`` stands for others."""
        self.watches_results = True
        """Whether nothing was said yet about results of synchronous calls that come later (rule R8)."""
        self.advice = ""
        """What to use instead where such results are an error, so far as they can be awaited."""
        self._refusals: list[None] | None = None
        self.on_transition = on_transition
        self.is_counted_by_attempt = (
            circuit_breaker is not None or rate_limit is not None or bulkhead is not None or seconds > 0
        )
        self.refuses = retry.result_predicate if retry is not None else None
        self.consults = retry is not None and any(map(is_coroutine_function, retry.predicates))
        """Whether a predicate is to be awaited."""

    def late(self) -> str:
        """What a caller is told whose attempt did not end in time."""
        return f"{self.name}: timed out after {self.seconds:g} s"

    # The end of an attempt

    def end(self, record: AttemptRecord, error: BaseException | None, attempt: int) -> BaseException | None:
        """Settle an attempt, count and report it; give what it failed with, a passed deadline considered."""
        bulkhead = self.bulkhead
        if bulkhead is not None and bulkhead.waiting:
            bulkhead.admit_waiters()
        if self.conclude is not None and (record.deadlines is not None or record.deadline is not None):
            error = self.conclude(record, error, self.late)
        if self.circuit_breaker is not None:
            permit = record if record.permit is None else record.permit
            if record.era is not None:
                verdict = SUCCESS if error is None else verdict_on(error, self.fail_on, self.skip_on)
                failure = type(error).__name__ if verdict is FAILURE else ""
                self.settle(record.era, permit, verdict, failure)
            elif error is not None and not isinstance(error, Exception):
                self.abandon_probe(permit)
            elif self.on_transition is not None:
                self.on_transition(self.circuit_breaker)
        if self.counters is not None and self.is_counted_by_attempt:
            self._count_attempt(self.counters, record, error)
        if record.timed_out:
            if sinks.wanted[TimedOut]():
                sinks.tell(TimedOut(self.name, attempt, self.seconds))
        elif isinstance(error, FaultToleranceException):
            self._tell_of_rejection(record, error, attempt)
        return error

    def settle(self, era: Era, permit: object, verdict: Verdict, failure: str = "") -> None:
        """Let the breaker know of an attempt that *era* admitted."""
        breaker = self.circuit_breaker
        assert breaker is not None
        if verdict is NEUTRAL and era.is_closed:
            return
        breaker.settle(era, permit, verdict, clock.monotonic(), failure)
        if self.on_transition is not None:
            self.on_transition(breaker)

    def abandon_probe(self, permit: object) -> None:
        """Give back the place of a probe that *permit* may have; control flow landed before it was known or settled."""
        assert self.circuit_breaker is not None
        self.settle(self.circuit_breaker.state, permit, NEUTRAL)

    def refused(self, breaker: CircuitBreaker, wait: float) -> CircuitBreakerOpenException:
        """Count and report a call that *breaker* refuses for *wait* seconds, where nothing follows a failure."""
        if breaker.transitions and self.on_transition is not None:
            self.on_transition(breaker)
        if self.counters is not None:
            batch = self._refusals
            if batch is None:
                batch = self._refusals = self.counters.batch(_REFUSED)
            batch.append(None)
            if len(batch) >= FOLD:
                self.counters.fold()
        error = CircuitBreakerOpenException(breaker.message, wait)
        if sinks.wanted[Rejected]():
            sinks.tell(Rejected(self.name, 1, "CircuitBreaker", error))
        return error

    # What follows a failure

    def next_delay(self, progress: CallRecord, failure: BaseException) -> float | None:
        """Seconds until the next attempt; ``None`` when there is none, and *failure* is final."""
        retry = self.retry
        if retry is None:
            progress.stop = Stop.NOT_RETRYABLE
            return None
        elapsed = clock.monotonic() - progress.began
        kind = type(failure)
        if progress.kind is None:
            progress.kind = kind
        elif progress.kind is not kind:
            progress.turn(kind)
        if not isinstance(failure, RefusedException):
            progress.last = failure
        if progress.delays is None:
            progress.delays = retry.begin()
        decide = retry.after_refusal if failure is progress.refusal else retry.after_failure
        chance = clock.random() if retry.jitter else 0.0
        decision = decide(failure, progress.attempts, elapsed, remaining(), chance, progress.delays, progress.answer)
        if isinstance(decision, Stop):
            progress.stop = decision
            progress.explain(failure)
            if progress.attempts > 1 or decision in _ALWAYS_NOTED:
                _note(failure, progress, elapsed, decision)
            if isinstance(failure, Exception) and sinks.wanted[GaveUp]():
                sinks.tell(GaveUp(self.name, progress.attempts, elapsed, decision.value, failure))
            return None
        if sinks.wanted[RetryScheduled]():
            sinks.tell(RetryScheduled(self.name, progress.attempts, decision, failure))
        return decision

    def applies_fallback(self, failure: BaseException) -> bool:
        """Whether the fallback replaces *failure*."""
        if self.fallback_on is None or not matches(failure, self.fallback_on, self.no_fallback_on):
            return False
        if sinks.wanted[FallbackApplied]():
            sinks.tell(FallbackApplied(self.name, failure))
        return True

    def asks(self, fallback: Aside, args: Arguments, kwargs: Mapping[str, Any], failure: BaseException) -> bool:
        """Whether the fallback that raised *failure* on was asked: a method may be for failures of one class only."""
        accepts = getattr(fallback, "accepts", None)
        return accepts is None or accepts(args, kwargs, failure)

    def refusal(self, progress: CallRecord, result: object) -> BaseException | None:
        """The failure that stands for *result* where ``retry_when`` does not accept it."""
        if self.retry is not None and self.retry.refuses(result, progress.answer):
            progress.refusal = FaultToleranceException(f"{self.name}: the result was refused by retry_when")
            progress.refusal.result = result
            return progress.refusal
        return None

    # What it comes to

    def is_over(self, result: object) -> bool:
        """Whether a synchronous call is over with *result*, and nothing that comes later can fail."""
        is_over = not comes_later(result)
        self.usual = type(result) if is_over and lives_on(type(result)) else object
        return is_over

    def warn_of(self, result: object) -> None:
        """Warn, once, of a synchronous call that is not over with *result*: its failure is not seen.

        Raises:
            TypeError: Each time, where there is ``advice``. The attempt is over: nothing is tried again.
        """
        if self.advice and hasattr(result, "__await__"):
            if type(result) is CoroutineType:
                result.close()
            what = f"an object of the class {type(result).__qualname__}"
            raise TypeError(f"{self.name}: {what} came out, which is to be awaited; {self.advice}")
        if self.watches_results:
            self.watches_results = False
            warn_of_outcome(self.name, result)

    def finish(self, progress: CallRecord | None, returned: bool, applied: bool = False) -> None:
        """Count a call that is over and was not smooth."""
        if progress is not None:
            progress.last = progress.refusal = None  # their tracebacks refer to the call that refers to this
        if self.counters is not None:
            self._count_call(self.counters, progress, returned, applied)
        if returned and not applied and progress is not None and progress.attempts > 1 and sinks.wanted[Recovered]():
            sinks.tell(Recovered(self.name, progress.attempts))

    def _count_call(self, counters: Counters, progress: CallRecord | None, returned: bool, applied: bool) -> None:
        fallback = "applied" if applied else "notApplied" if self.fallback_on is not None else "notDefined"
        if self.retry is None:
            counters.add(call_series(returned, fallback))
            return
        retried = progress is not None and progress.attempts > 1
        stop = progress.stop if progress is not None else None
        counters.add(
            call_series(returned, fallback, retried, _RETRY_RESULT[stop] if applied or not returned else _RETURNED)
        )

    def _tell_of_rejection(self, record: AttemptRecord, error: FaultToleranceException, attempt: int) -> None:
        """Say who did not let the attempt in; the same exception may also come out of the body, from another guard."""
        policy: Literal["CircuitBreaker", "RateLimit", "Bulkhead"]
        kind: type[FaultToleranceException]
        if self.circuit_breaker is not None and record.era is None:
            policy, kind = "CircuitBreaker", CircuitBreakerOpenException
        elif self.rate_limit is not None and not record.passed:
            policy, kind = "RateLimit", RateLimitException
        elif self.bulkhead is not None and not record.admitted and not record.queued:
            policy, kind = "Bulkhead", BulkheadException
        else:
            return
        if isinstance(error, kind) and sinks.wanted[Rejected]():
            sinks.tell(Rejected(self.name, attempt, policy, error))

    def _count_attempt(self, counters: Counters, record: AttemptRecord, error: BaseException | None) -> None:
        facts: list[Fact] = []
        samples: dict[str, float] = {}
        if self.circuit_breaker is not None:
            if record.era is None:
                # Else control flow came first, and there is no result of the breaker (rule R0).
                if isinstance(error, CircuitBreakerOpenException):
                    counters.add(_OPEN)
                return
            verdict = SUCCESS if error is None else verdict_on(error, self.fail_on, self.skip_on)
            if verdict is not NEUTRAL:
                facts.append(("CircuitBreaker", "failure" if verdict is FAILURE else "success"))
        if self.rate_limit is not None:
            if record.passed:
                facts.append(("RateLimit", "passed"))
            else:
                if isinstance(error, RateLimitException):
                    facts.append(("RateLimit", "refused"))
                counters.add(advanced(tuple(facts)))
                return
        now = clock.monotonic()
        if self.seconds:
            facts.append(("Timeout", "timedOut" if record.timed_out else "passed"))
            samples["ft.timeout.executionDuration"] = now - record.began
        if self.bulkhead is not None:
            waited_until = record.running_since or (record.began if record.admitted else now)
            if record.admitted:
                facts.append(("Bulkhead", "passed"))
                samples["ft.bulkhead.runningDuration"] = now - waited_until
            elif record.queued:
                facts.append(("Bulkhead", "passed"))
            elif isinstance(error, BulkheadException):
                facts.append(("Bulkhead", "refused"))
            if self.queues and (record.admitted or record.queued):
                samples["ft.bulkhead.waitingDuration"] = waited_until - record.began
        counters.add(advanced(tuple(facts)), samples)


_OPEN = advanced((("CircuitBreaker", "refused"),))
_REFUSED = (*_OPEN, *call_series(returned=False, fallback="notDefined"))
RETRIED = advanced((("Retry", "retried"),))
"""What a retry advances."""
_RETURNED = "valueReturned"
_RETRY_RESULT = {
    None: "exceptionNotRetryable",
    Stop.NOT_RETRYABLE: "exceptionNotRetryable",
    Stop.MAX_RETRIES_REACHED: "maxRetriesReached",
    Stop.MAX_DURATION_REACHED: "maxDurationReached",
    Stop.DEADLINE: "maxDurationReached",
    Stop.PREDICATE_FAILED: "exceptionNotRetryable",
}
_REASONS = {
    Stop.NOT_RETRYABLE: "the failure is not to be retried",
    Stop.MAX_RETRIES_REACHED: "max_retries reached",
    Stop.MAX_DURATION_REACHED: "max_duration reached",
    Stop.DEADLINE: "an enclosing deadline would pass during the delay",
    Stop.PREDICATE_FAILED: "the exception predicate of retry_when failed, which is logged",
}
_ALWAYS_NOTED = (Stop.DEADLINE, Stop.PREDICATE_FAILED)
"""Reasons that are told of a single attempt too."""


def _note(failure: BaseException, progress: CallRecord, elapsed: float, stop: Stop) -> None:
    """Say on *failure* itself how often and how long it was tried; one note of ours per object (rule R1)."""
    plural = "attempt" if progress.attempts == 1 else "attempts"
    tried = f"{progress.attempts} {plural} in {elapsed:.3f} s{progress.kinds}"
    ours = f"{_NOTE}{tried}; no more, because {_REASONS[stop]}"
    try:
        notes = [note for note in getattr(failure, "__notes__", ()) if not str(note).startswith(_NOTE)]
        # Not by assignment: a frozen dataclass that is an exception refuses it.
        BaseException.__setattr__(failure, "__notes__", [*notes, ours])
    except Exception:  # noqa: BLE001  # a failure that takes no note is the application's all the same
        pass
