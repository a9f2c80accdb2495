"""The order of the policies, written once.

The specification (chapters on interactions) and SmallRye's rate limit give one nesting, whatever order the decorators
are written in:

    asynchronous( fallback( retry( circuit_breaker( rate_limit( timeout( bulkhead( the method )))))))

``path`` is that nesting as one function, from the outside to the method and back. It serves every combination of
policies, synchronous and asynchronous calls alike: ``weave`` cuts away what the capitals rule out, once for each. What
a policy decides is asked of its strategy; what follows a failure, of ``Course``.
"""

# What a capital guards is bound under the same capital; a type checker cannot know that the two are one.
# pyright: reportPossiblyUnboundVariable=false, reportOptionalMemberAccess=false, reportArgumentType=false
# pyright: reportOperatorIssue=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from sys import modules
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal

from .._event import FOLD, FallbackApplied, GaveUp, Recovered, Rejected, RetryScheduled, Series, Tally, TimedOut, sinks
from .._runtime.blocking import Arguments, Aside, GuardedCall, pause, warn_of_coroutine
from .._runtime.clock import clock
from .._runtime.environment import Attempt, Environment
from .._runtime.interruption import NOT_WANTED, Interrupted, begin, end, remaining, settle, slot_here
from .._runtime.slot import HAS_GIL, slots
from .._runtime.ticket import Ticket
from .._strategy.back_off import Delays
from .._strategy.bulkhead import Bulkhead
from .._strategy.circuit_breaker import CircuitBreaker
from .._strategy.exception_set import matches
from .._strategy.rate_limit import RateLimit
from .._strategy.retry import Retry, Stop
from .._strategy.verdict import FAILURE, NEUTRAL, SUCCESS, verdict_on
from ..exceptions import BulkheadException, CircuitBreakerOpenException, FaultToleranceException, RateLimitException
from . import series
from .weave import Shape, woven

__all__ = ["Course", "Progress", "compose", "path", "shape_of"]

Exceptions = tuple[type[BaseException], ...]

_NOTE = "faulttolerance: "


class Progress:
    """How far a call has come that was not over after its first attempt."""

    __slots__ = ("attempts", "began", "delays", "refusal", "stop")

    def __init__(self, began: float) -> None:
        self.began = began
        self.attempts = 1
        self.delays: Delays | None = None
        self.stop: Stop | None = None
        """Why no further attempt is made."""
        self.refusal: BaseException | None = None
        """What stands for the last result that ``retry_when`` did not accept."""


class Course:
    """What holds for one guarded function, and the decisions on a call that did not go smoothly."""

    __slots__ = (
        "bulkhead",
        "circuit_breaker",
        "conclude",
        "fail_on",
        "fallback_on",
        "interrupt",
        "late",
        "name",
        "on_transition",
        "queues",
        "rate_limit",
        "refuses",
        "retry",
        "seconds",
        "skip_on",
        "tally",
    )

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
        conclude: Callable[[Ticket, BaseException | None, str], BaseException | None] | None = None,
        bulkhead: Bulkhead | None = None,
        queues: bool = False,
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
        self.conclude = conclude
        """What a deadline of this thread, or of this task, makes of an attempt."""
        self.bulkhead = bulkhead
        self.queues = queues
        """Whether calls may wait for a permit."""
        self.tally = tally
        self.on_transition = on_transition
        self.late = f"{name}: timed out after {seconds:g} s"
        self.refuses = retry.result_predicate if retry is not None else None

    # The end of an attempt

    def end(self, ticket: Ticket, error: BaseException | None, attempt: int) -> BaseException | None:
        """Settle an attempt, count and report it; give what it failed with, a passed deadline considered."""
        bulkhead = self.bulkhead
        if bulkhead is not None and bulkhead.waiting:
            bulkhead.hand_over()
        if self.conclude is not None and (ticket.slot is not None or ticket.deadline is not None):
            error = self.conclude(ticket, error, self.late)
        if self.circuit_breaker is not None:
            if ticket.era is not None:
                verdict = SUCCESS if error is None else verdict_on(error, self.fail_on, self.skip_on)
                self.settle(ticket.era, ticket.permit, verdict)
            elif self.on_transition is not None:
                self.on_transition(self.circuit_breaker)
        if self.tally is not None:
            self._count_attempt(self.tally, ticket, error)
        if ticket.timed_out:
            sinks.tell(TimedOut(self.name, attempt, self.seconds))
        elif isinstance(error, FaultToleranceException):
            self._tell_of_rejection(ticket, error, attempt)
        return error

    def settle(self, era: Any, permit: object, verdict: Any) -> None:
        """Let the breaker know of an attempt that *era* admitted."""
        breaker = self.circuit_breaker
        assert breaker is not None
        if verdict is NEUTRAL and era.is_closed:
            return
        breaker.settle(era, permit, verdict, clock.monotonic())
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
        decide = retry.after_refusal if failure is progress.refusal else retry.after_failure
        decision = decide(failure, progress.attempts, elapsed, remaining(), clock.random(), progress.delays)
        if isinstance(decision, Stop):
            progress.stop = decision
            if progress.attempts > 1 or decision is Stop.DEADLINE:
                _note(failure, progress.attempts, elapsed, decision)
            if isinstance(failure, Exception):
                sinks.tell(GaveUp(self.name, progress.attempts, elapsed, decision.value, failure))
            return None
        progress.attempts += 1
        if self.tally is not None:
            self.tally.add((series.RETRY,))
        sinks.tell(RetryScheduled(self.name, progress.attempts - 1, decision, failure))
        return decision

    def applies_fallback(self, failure: BaseException) -> bool:
        """Whether the fallback replaces *failure*."""
        if self.fallback_on is None or not matches(failure, *self.fallback_on):
            return False
        sinks.tell(FallbackApplied(self.name, failure))
        return True

    def refusal(self, progress: Progress, result: object) -> BaseException | None:
        """The failure that stands for *result* where ``retry_when`` does not accept it."""
        if self.refuses is not None and self.refuses(result):
            progress.refusal = FaultToleranceException(f"{self.name}: the result was refused by retry_when")
            return progress.refusal
        return None

    # What it comes to

    def finish(self, progress: Progress | None, returned: bool, applied: bool = False) -> None:
        """Count a call that is over and was not smooth."""
        if self.tally is not None:
            self._count_call(self.tally, progress, returned, applied)
        if returned and not applied and progress is not None and progress.attempts > 1:
            sinks.tell(Recovered(self.name, progress.attempts))

    def _count_call(self, tally: Tally, progress: Progress | None, returned: bool, applied: bool) -> None:
        fallback = "applied" if applied else "notApplied" if self.fallback_on is not None else "notDefined"
        counted = [series.invocation(returned, fallback)]
        if self.retry is not None:
            retried = progress is not None and progress.attempts > 1
            stop = progress.stop if progress is not None else None
            counted.append(series.retry_call(retried, _RETRY_RESULT[stop] if applied or not returned else _RETURNED))
        tally.add(counted)

    def _tell_of_rejection(self, ticket: Ticket, error: FaultToleranceException, attempt: int) -> None:
        """Say who did not let the attempt in; the same exception may also come out of the body, from another guard."""
        policy: Literal["CircuitBreaker", "RateLimit", "Bulkhead"]
        kind: type[FaultToleranceException]
        if self.circuit_breaker is not None and ticket.era is None:
            policy, kind = "CircuitBreaker", CircuitBreakerOpenException
        elif self.rate_limit is not None and not ticket.passed:
            policy, kind = "RateLimit", RateLimitException
        elif self.bulkhead is not None and not ticket.admitted and ticket.waiter is None:
            policy, kind = "Bulkhead", BulkheadException
        else:
            return
        if isinstance(error, kind):
            sinks.tell(Rejected(self.name, attempt, policy, error))

    def _count_attempt(self, tally: Tally, ticket: Ticket, error: BaseException | None) -> None:
        counted: list[Series] = []
        samples: dict[str, float] = {}
        if self.circuit_breaker is not None:
            if ticket.era is None:
                # Else control flow came first, and there is no result of the breaker (contract R0).
                if isinstance(error, CircuitBreakerOpenException):
                    tally.add((series.BREAKER_OPEN,))
                return
            verdict = SUCCESS if error is None else verdict_on(error, self.fail_on, self.skip_on)
            if verdict is not NEUTRAL:
                counted.append(series.BREAKER_FAILURE if verdict is FAILURE else series.BREAKER_SUCCESS)
        if self.rate_limit is not None:
            if ticket.passed:
                counted.append(series.PERMITTED)
            else:
                if isinstance(error, RateLimitException):
                    counted.append(series.TOO_MANY)
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
            elif ticket.waiter is not None:
                counted.append(series.ACCEPTED)
            elif isinstance(error, BulkheadException):
                counted.append(series.REJECTED)
            if self.queues and (ticket.admitted or ticket.waiter is not None):
                samples["ft.bulkhead.waitingDuration"] = waited_until - ticket.began
        tally.add(counted, samples)


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


def compose(
    function: Callable[..., Any],
    course: Course,
    *,
    fallback: Aside | None = None,
    before_retry: Aside | None = None,
    environment: Environment | None = None,
    apart: bool = False,
    awaits: bool | None = True,
) -> GuardedCall:
    """Guard *function* by *course*.

    Args:
        function: The method.
        course: Its policies.
        fallback: What replaces a final failure.
        before_retry: What is run before each retry.
        environment: How an asynchronous call waits; ``None`` for a synchronous one.
        apart: Whether attempts run apart from the call (``@asynchronous``): *environment* runs them, and sees to
            time-out and bulkhead.
        awaits: Whether what an attempt returns is awaited and its outcome the attempt's; ``None``: as it turns out.
    """
    shape = shape_of(
        course,
        fallback=fallback is not None,
        before_retry=before_retry is not None,
        asynchronous=environment is not None,
        apart=apart,
    )
    cut = woven(path, shape)
    return cut(function, course, fallback, before_retry, environment, awaits)  # type: ignore[no-any-return]


def shape_of(course: Course, *, fallback: bool, before_retry: bool, asynchronous: bool, apart: bool) -> Shape:
    """The capitals of ``path`` for these policies."""
    deadline = course.conclude is not None and not apart
    bulkhead = course.bulkhead is not None and not apart
    return {
        "ASYNC": asynchronous,
        "APART": apart,
        "BREAKER": course.circuit_breaker is not None,
        "RATE_LIMIT": course.rate_limit is not None,
        "DEADLINE": deadline,
        "LATE_ONLY": deadline and not course.interrupt,
        "BULKHEAD": bulkhead,
        "PERMIT": bulkhead or course.circuit_breaker is not None,
        "TIMED": deadline or bulkhead,
        "JUDGED": course.refuses is not None,
        "COUNTED": course.tally is not None,
        "FALLBACK": fallback,
        "BEFORE_RETRY": before_retry,
        "HAS_GIL": HAS_GIL,
    }


if TYPE_CHECKING:
    ASYNC = APART = BREAKER = RATE_LIMIT = DEADLINE = LATE_ONLY = BULKHEAD = PERMIT = TIMED = JUDGED = COUNTED = False
    FALLBACK = BEFORE_RETRY = False


def path(
    function: Callable[..., Any],
    course: Course,
    fallback: Aside,
    before_retry: Aside,
    environment: Environment,
    awaits: bool | None,
) -> Any:
    """The way of a call through its policies, for every combination of them; ``woven`` cuts it down to one."""
    if BREAKER:
        breaker: Any = course.circuit_breaker
    if RATE_LIMIT:
        rate_limit: Any = course.rate_limit
    if DEADLINE:
        seconds = course.seconds
        if ASYNC:
            from .._runtime.task_deadlines import begin as begin_in_task
    if BULKHEAD:
        bulkhead: Any = course.bulkhead
        held = bulkhead.held
        if ASYNC:
            from .._runtime.tasks import queue
    if COUNTED:
        tally: Any = course.tally
        smooth_calls = tally.smooth_calls
    if not ASYNC:
        unseen = True

    async def call(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
        if not ASYNC:
            nonlocal unseen
        progress: Progress | None = None
        while True:
            # What an attempt holds is noted under these names, which are there before anything is taken.
            began = clock.monotonic()
            if APART:
                permit: Any = Ticket()
            elif PERMIT:
                permit = object()
            if BREAKER:
                era: Any = None
            if RATE_LIMIT:
                passed = False
            if DEADLINE:
                if ASYNC:
                    deadline: Any = None
                else:
                    slot: Any = None
            if BULKHEAD:
                admitted = False
                if ASYNC:
                    turn = None
                    running_since = 0.0
            try:
                # The way in, outermost first.
                if BREAKER:
                    state = breaker.state
                    era = state if state.is_closed else breaker.admit(permit, get_ident(), began)
                if RATE_LIMIT:
                    rate_limit.admit(began)
                    passed = True
                if DEADLINE:
                    due = began + seconds
                    if ASYNC:
                        deadline = begin_in_task(due, seconds)
                    else:
                        mine = slots.slot if "greenlet" not in modules else slot_here()
                        outer = mine.top
                        entry = (due, outer, NOT_WANTED) if LATE_ONLY else (due, outer)
                        slot = mine
                        begin(slot, entry)
                if BULKHEAD:
                    held[permit] = get_ident()
                    if len(held) > bulkhead.limit or bulkhead.waiting:
                        if ASYNC:
                            turn = queue(bulkhead, permit)
                            if turn is not None:
                                await turn.comes
                                running_since = clock.monotonic()
                        else:
                            bulkhead.contend(permit, get_ident())
                    admitted = True

                if APART:
                    permit.began = began
                    limit = began + course.seconds if course.seconds else None
                    result = await environment.attempt(
                        Attempt(
                            permit,
                            function,
                            args,
                            kwargs,
                            course.bulkhead,
                            limit,
                            course.interrupt,
                            awaits,
                            course.late,
                            course.seconds,
                        )
                    )
                elif ASYNC:
                    result = await function(*args, **kwargs)
                else:
                    result = function(*args, **kwargs)

                # The way out, innermost first. What was taken goes back before anything is called: the deadline of an
                # enclosing call may interrupt behind any call (contract R11).
                if BULKHEAD:
                    del held[permit]
                if DEADLINE:
                    if ASYNC:
                        deadline.pending.pop(deadline, None)
                        deadline.place.top = deadline.previous
                    elif HAS_GIL:
                        slot.top = outer
                    else:
                        end(slot, outer)
                if TIMED:
                    ended = clock.monotonic()
                if DEADLINE:
                    if ASYNC:
                        in_time = ended < due and not deadline.expired
                    else:
                        in_time = ended < due and slot.fired is None
                if BULKHEAD and bulkhead.waiting:
                    bulkhead.hand_over()
                if not (APART or JUDGED) and (not DEADLINE or in_time):  # noqa: SIM102  # one is cut, one asked
                    if progress is None and not (ASYNC and BULKHEAD and running_since):
                        if BREAKER and not era.is_clean:
                            course.settle(era, permit, SUCCESS)
                        if COUNTED:
                            smooth_calls.append(ended - began if TIMED else 0.0)
                            if len(smooth_calls) >= FOLD:
                                tally.fold()
                        if not ASYNC and unseen:
                            unseen = False
                            warn_of_coroutine(course.name, result)
                        return result
                failure = None
            except BaseException as error:  # noqa: BLE001  # what it means is decided below
                if BULKHEAD and permit in held:
                    del held[permit]
                if DEADLINE:
                    if ASYNC:
                        if deadline is not None:
                            deadline.end()
                    elif slot is not None:
                        if HAS_GIL:
                            slot.top = outer
                        else:
                            end(slot, outer)
                failure = error

            if DEADLINE and not ASYNC and not LATE_ONLY:
                # An interruption that is on its way arrives in the next call: in this one, which waits for it.
                try:
                    if slot is not None and slot.fired is not None:
                        settle(slot, entry)
                except Interrupted as interrupted:
                    failure = interrupted
            if BULKHEAD and ASYNC and turn is not None:
                bulkhead.withdraw(turn.waiter)
            if APART:
                ticket = permit
            else:
                ticket = Ticket()
                ticket.began = began
            if PERMIT:
                ticket.permit = permit
            if BREAKER:
                ticket.era = era
            if RATE_LIMIT:
                ticket.passed = passed
            if DEADLINE:
                if ASYNC:
                    ticket.deadline = deadline
                elif slot is not None:
                    ticket.slot = slot
                    ticket.entry = entry
            if BULKHEAD:
                ticket.admitted = admitted
                if ASYNC:
                    ticket.running_since = running_since
                    if turn is not None:
                        ticket.waiter = turn.waiter

            applied = False
            try:
                if progress is None:
                    progress = Progress(began)
                failure = course.end(ticket, failure, progress.attempts)
                if JUDGED and failure is None:
                    failure = course.refusal(progress, result)
                if failure is None:
                    course.finish(progress, returned=True)
                    return result
                delay = course.next_delay(progress, failure)
                if delay is None:
                    if FALLBACK and course.applies_fallback(failure):
                        applied = True
                        if ASYNC:
                            result = await environment.call(fallback, args, kwargs, failure, progress.attempts)
                        else:
                            result = fallback(args, kwargs, failure, progress.attempts)
                        course.finish(progress, returned=True, applied=True)
                        return result
                    raise failure
                if ASYNC:
                    # Also without a delay: whoever retries at once must let others go on.
                    await environment.pause(delay)
                elif delay:
                    pause(course.name, delay)
                if BEFORE_RETRY:
                    if ASYNC:
                        await environment.call(before_retry, args, kwargs, failure, progress.attempts)
                    else:
                        before_retry(args, kwargs, failure, progress.attempts)
            except BaseException as raised:
                # A fallback that raises on what it was given has not replaced anything.
                course.finish(progress, returned=False, applied=applied and raised is not failure)
                raise
            finally:
                del failure  # its traceback holds this frame

    return call
