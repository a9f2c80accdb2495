"""The order of the policies, and everything about it that does not wait.

The specification (chapters on interactions) and SmallRye's rate limit give one nesting, whatever order the decorators
are written in:

    asynchronous( fallback( retry( circuit_breaker( rate_limit( timeout( bulkhead( the method )))))))

This is the only place that writes it down. An attempt goes in through ``Course.enter``, outermost first; it comes out
through ``Course.leave`` or ``Course.fail``, innermost first; what follows a failure is asked of ``Course.next_delay``,
then of the fallback. The two drivers, ``_runtime.blocking`` and ``_runtime.aio``, ask in the same places and do the waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

from .._event import Series, Tally
from .._runtime.clock import clock
from .._runtime.interruption import remaining
from .._runtime.ticket import Ticket
from .._strategy.back_off import Delays
from .._strategy.bulkhead import Bulkhead
from .._strategy.circuit_breaker import CircuitBreaker
from .._strategy.exception_set import matches
from .._strategy.rate_limit import RateLimit
from .._strategy.retry import Retry, Stop
from .._strategy.verdict import FAILURE, NEUTRAL, SUCCESS, verdict_on
from ..exceptions import FaultToleranceException
from . import series

__all__ = ["Course", "Progress"]

Exceptions = tuple[type[BaseException], ...]

_NOTE = "faulttolerance: "


class Progress:
    """How far a call has come that was not over after its first attempt."""

    __slots__ = ("attempts", "began", "delays", "refused", "stop")

    def __init__(self, began: float) -> None:
        self.began = began
        self.attempts = 1
        self.delays: Delays | None = None
        self.stop: Stop | None = None
        """Why no further attempt is made."""
        self.refused = False
        """Whether the last attempt returned a result that ``retry_when`` does not accept."""


class Course:
    """All policies of one guarded function, as one way in and one way out.

    A policy that is absent is ``None``. ``begin`` and ``conclude`` are the deadline's: of this thread, or of this task;
    ``queue`` is what an attempt does that finds the bulkhead full. All three are ``None`` where attempts run
    apart from the call (``apart``), and the environment that runs them sees to time-out and bulkhead.
    """

    def __init__(
        self,
        name: str,
        *,
        fallback_on: tuple[Exceptions, Exceptions] | None = None,
        retry: Retry | None = None,
        circuit_breaker: CircuitBreaker | None = None,
        fail_on: Exceptions = (Exception,),
        skip_on: Exceptions = (),
        rate_limit: RateLimit | None = None,
        seconds: float = 0.0,
        interrupt: bool = True,
        begin: Callable[[Ticket, float, float], None] | None = None,
        conclude: Callable[[Ticket, BaseException | None, str], BaseException | None] | None = None,
        bulkhead: Bulkhead | None = None,
        queue: Callable[[Bulkhead, Ticket, int], None] | None = None,
        queues: bool = False,
        apart: bool = False,
        tally: Tally | None = None,
        on_transition: Callable[[CircuitBreaker], None] | None = None,
    ) -> None:
        self.name = name
        self.fallback_on = fallback_on
        self.retry = retry
        self.circuit_breaker = circuit_breaker
        self.fail_on = fail_on
        self.skip_on = skip_on
        self.rate_limit = rate_limit
        self.seconds = seconds
        self.interrupt = interrupt
        self.begin = begin
        self.conclude = conclude
        self.bulkhead = bulkhead
        self.queue = queue
        self.queues = queues
        self.apart = apart
        self.tally = tally
        self.on_transition = on_transition
        self.late = f"{name}: timed out after {seconds:g} s"
        self.refuses = retry.result_predicate if retry is not None else None

    def progress(self, ticket: Ticket) -> Progress:
        """The account of a call that is not over after its first attempt, *ticket*."""
        return Progress(ticket.began)

    # The way in

    def enter(self, ticket: Ticket) -> None:
        """Admit one attempt, or raise the refusal; what was taken stands on *ticket* before anything can fail."""
        now = ticket.began = clock.monotonic()
        breaker = self.circuit_breaker
        if breaker is not None:
            era = breaker.state
            if not era.is_closed:
                era = breaker.admit(ticket, get_ident(), now)
            ticket.era = era
        if self.rate_limit is not None:
            self.rate_limit.admit(now)
            ticket.passed = True
        if self.apart:
            return
        if self.begin is not None:
            self.begin(ticket, now, self.seconds)
        bulkhead = self.bulkhead
        if bulkhead is not None:
            ident = get_ident()
            held = bulkhead.held
            held[ticket] = ident
            if len(held) > bulkhead.limit or bulkhead.waiting:
                self.queue(bulkhead, ticket, ident)  # type: ignore[misc]
            ticket.admitted = ticket.waiter is None

    # The way out

    def leave(self, ticket: Ticket, first: bool) -> None:
        """Settle an attempt whose body returned; raise ``TimeoutException`` where it did so too late.

        The permit and the deadline were given back by the driver, as the first thing after the body.
        """
        bulkhead = self.bulkhead
        if bulkhead is not None and bulkhead.waiting:
            bulkhead.hand_over()
        if self.conclude is not None:
            error = self.conclude(ticket, None, self.late)
            if error is not None:
                raise error
        era = ticket.era
        if era is not None and not era.is_clean:
            self._settle(era, ticket, SUCCESS)
        tally = self.tally
        if tally is not None:
            if first and not ticket.running_since:
                tally.smooth(clock.monotonic() - ticket.began)
            else:
                self._count_attempt(ticket, None, first)

    def fail(self, ticket: Ticket, error: BaseException) -> BaseException:
        """Settle an attempt that failed or was refused; give what it failed with, a passed deadline considered."""
        bulkhead = self.bulkhead
        if bulkhead is not None and bulkhead.waiting:
            bulkhead.hand_over()
        if self.conclude is not None and ticket.limited and not ticket.timed_out:
            error = self.conclude(ticket, error, self.late) or error
        era = ticket.era
        if era is not None:
            self._settle(era, ticket, verdict_on(error, self.fail_on, self.skip_on))
        elif self.circuit_breaker is not None and self.on_transition is not None:
            self.on_transition(self.circuit_breaker)
        if self.tally is not None:
            self._count_attempt(ticket, error, False)
        return error

    def _settle(self, era: Any, ticket: Ticket, verdict: Any) -> None:
        breaker = self.circuit_breaker
        assert breaker is not None
        if verdict is NEUTRAL and era.is_closed:
            return
        breaker.settle(era, ticket, verdict, clock.monotonic())
        if self.on_transition is not None:
            self.on_transition(breaker)

    # What follows a failure

    def next_delay(self, progress: Progress, failure: BaseException) -> float | None:
        """Seconds until the next attempt; ``None`` when there is none, and *failure* is final."""
        retry = self.retry
        if retry is None:
            progress.stop = Stop.NOT_RETRYABLE
            return None
        elapsed = clock.monotonic() - progress.began
        if progress.delays is None:
            progress.delays = retry.begin()
        decide = retry.after_refusal if progress.refused else retry.after_failure
        decision = decide(failure, progress.attempts, elapsed, remaining(), clock.random(), progress.delays)
        if isinstance(decision, Stop):
            progress.stop = decision
            if progress.attempts > 1 or decision is Stop.DEADLINE:
                _note(failure, progress.attempts, elapsed, decision)
            return None
        progress.attempts += 1
        if self.tally is not None:
            self.tally.add((series.RETRY,))
        return decision

    def applies_fallback(self, failure: BaseException) -> bool:
        """Whether the fallback replaces *failure*."""
        return self.fallback_on is not None and matches(failure, *self.fallback_on)

    def refusal(self, progress: Progress, result: object) -> BaseException | None:
        """The failure that stands for *result* where ``retry_when`` does not accept it."""
        progress.refused = self.refuses is not None and self.refuses(result)
        if progress.refused:
            return FaultToleranceException(f"{self.name}: the result was refused by retry_when")
        return None

    # What it comes to

    def finish(self, progress: Progress | None, returned: bool, applied: bool = False) -> None:
        """Count a call that is over, unless it was smooth and ``leave`` counted it."""
        if self.tally is None:
            return
        fallback = "applied" if applied else "notApplied" if self.fallback_on is not None else "notDefined"
        counted = [series.invocation(returned, fallback)]
        if self.retry is not None:
            retried = progress is not None and progress.attempts > 1
            stop = progress.stop if progress is not None else None
            counted.append(series.retry_call(retried, _RETRY_RESULT[stop] if applied or not returned else _RETURNED))
        self.tally.add(counted)

    def _count_attempt(self, ticket: Ticket, error: BaseException | None, whole_call: bool) -> None:
        tally = self.tally
        assert tally is not None
        counted: list[Series] = []
        samples: dict[str, float] = {}
        if self.circuit_breaker is not None:
            if ticket.era is None:
                tally.add((series.BREAKER_OPEN,))
                return
            verdict = SUCCESS if error is None else verdict_on(error, self.fail_on, self.skip_on)
            if verdict is not NEUTRAL:
                counted.append(series.BREAKER_FAILURE if verdict is FAILURE else series.BREAKER_SUCCESS)
        if self.rate_limit is not None:
            counted.append(series.PERMITTED if ticket.passed else series.TOO_MANY)
            if not ticket.passed:
                tally.add(counted)
                return
        now = clock.monotonic()
        if self.seconds:
            counted.append(series.TIMED_OUT if ticket.timed_out else series.IN_TIME)
            samples["ft.timeout.executionDuration"] = now - ticket.began
        if self.bulkhead is not None:
            waited_until = ticket.running_since or (ticket.began if ticket.admitted else now)
            if ticket.admitted:
                counted.append(series.ACCEPTED)
                samples["ft.bulkhead.runningDuration"] = now - waited_until
            elif ticket.waiter is None:
                counted.append(series.REJECTED)
            else:
                counted.append(series.ACCEPTED)
            if self.queues and (ticket.admitted or ticket.waiter is not None):
                samples["ft.bulkhead.waitingDuration"] = waited_until - ticket.began
        tally.add(counted, samples)
        if whole_call:
            self.finish(None, returned=True)


_RETURNED = "valueReturned"
_RETRY_RESULT = {
    None: "exceptionNotRetryable",
    Stop.NOT_RETRYABLE: "exceptionNotRetryable",
    Stop.MAX_RETRIES_REACHED: "maxRetriesReached",
    Stop.MAX_DURATION_REACHED: "maxDurationReached",
    Stop.DEADLINE: "maxDurationReached",
}
_REASONS = {
    Stop.NOT_RETRYABLE: "the failure is not to be retried",
    Stop.MAX_RETRIES_REACHED: "max_retries reached",
    Stop.MAX_DURATION_REACHED: "max_duration reached",
    Stop.DEADLINE: "an enclosing deadline would pass during the delay",
}


def _note(failure: BaseException, attempts: int, elapsed: float, stop: Stop) -> None:
    """Say on *failure* itself how often and how long it was tried; one note of ours per object (contract R1)."""
    notes = [note for note in getattr(failure, "__notes__", ()) if not str(note).startswith(_NOTE)]
    plural = "attempt" if attempts == 1 else "attempts"
    notes.append(f"{_NOTE}{attempts} {plural} in {elapsed:.3f} s; no more, because {_REASONS[stop]}")
    failure.__notes__ = notes
