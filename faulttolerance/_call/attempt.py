"""The attempts of a call, and the order of the policies around them, written once.

The specification (chapters on interactions) and SmallRye's rate limit define one nesting, which does not depend on the
order of the decorators:

    asynchronous( fallback( retry( circuit_breaker( rate_limit( timeout( bulkhead( the method )))))))

``attempt`` passes through that nesting, from the retries to the method and back, for every combination of policies, for
synchronous and asynchronous calls. ``specialize`` removes the parts that the flags exclude, once for each combination,
and the assertions for type checkers. A call whose first attempt succeeds ends in the middle; for all others, the
functions of ``continuation`` decide. ``fall_back`` ends a call whose last attempt failed.

PYTEST_DONT_REWRITE: pytest rewrites the assertions of plug-ins, and the text that is cut must be the text that runs.
"""

# A name that a flag guards is bound under the same flag; a type checker cannot see the connection.
# pyright: reportPossiblyUnboundVariable=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from sys import modules
from typing import TYPE_CHECKING, Any

from .._deadline.attempt_record import AttemptRecord
from .._deadline.clock import clock
from .._deadline.interruption import NOT_WANTED, settle, watch_deadline
from .._deadline.task import NO_DEADLINE, NO_TASK
from .._deadline.threads.async_exception import Interrupted
from .._deadline.threads.block import NO_BLOCK, block_deadline, end_block
from .._deadline.threads.chain import deadlines_here, this_thread
from .._deadline.threads.roles import ATTEMPT, TIMED_ATTEMPT, register
from .._deadline.threads.watchdog import watchdog
from .._event import Rejected, sinks
from .._execution.caller_thread import Arguments, Callback, GuardedCall, pause
from .._execution.environment import Environment, StoppedIteration
from .._execution.turn import take_turn, take_turn_async
from .._metrics.counters import FOLD
from .._platform.event_loop import refuse_trio
from .._platform.unpatched import get_ident
from .._strategy.circuit_breaker import CircuitBreaker
from .._strategy.gate import NOT_ADMITTED
from .._strategy.retry import Stop
from .._strategy.verdict import SUCCESS
from ..exceptions import CircuitBreakerOpenException
from .bound_policies import BY_BULKHEAD, BY_NONE, BY_RATE_LIMIT, NUMBER, BoundPolicies
from .continuation import (
    LOOP_LEFT,
    CallRecord,
    RejectedResult,
    await_delay,
    count_failed_call,
    in_context,
    next_delay,
    next_fallback,
    record_degradation,
    rejection_of,
)
from .error_log import Hook
from .specialize import Flags, specializable, specialized

__all__ = ["attempt", "compose", "flags_of"]


def compose(
    function: Callable[..., Any],
    policies: BoundPolicies,
    *,
    fallbacks: Sequence[tuple[str, Callback]] = (),
    before_retry: Hook | None = None,
    environment: Environment | None = None,
    awaits: bool | None = True,
) -> GuardedCall:
    """Return *function* guarded by *policies*.

    Args:
        function: The method.
        policies: The policies that guard it.
        fallbacks: The functions that replace a final failure, each under its name, in the order of their calls.
        before_retry: The function that runs before each retry.
        environment: The environment in which an asynchronous call waits; ``None`` for a synchronous call.
        awaits: Whether the result of an attempt is awaited, and its outcome is that of the attempt; ``None`` to decide
            by the result.
    """
    policies.function, policies.awaits, policies.environment = function, awaits, environment
    policies.fallbacks, policies.fall_back = fallbacks, _fall_back_first
    if before_retry is not None:
        policies.before_retry = before_retry
    return specialized(attempt, flags_of(policies))(function, policies, environment, awaits)  # type: ignore[no-any-return]


def flags_of(policies: BoundPolicies) -> Flags:
    """Return the flags of the functions below for *policies*."""
    retry, detached = policies.retry, policies.detached
    deadline = policies.conclude is not None
    bulkhead = policies.bulkhead is not None and not detached
    # An observed time-out, or one without a limit: its calls are timed, but start no deadline.
    is_observed = policies.seconds > 0 and not deadline and not detached
    judged = policies.slow > 0 or policies.fail_when is not None or is_observed
    waits = bulkhead or policies.takes_turns or retry is not None
    rejects = retry is not None and retry.predicates.result is not None
    return {
        "ASYNC": policies.asynchronous,
        "DETACHED": detached,
        "BUDGET": policies.budget is not None,
        "GATE": policies.gate is not None,
        "BREAKER": type(policies.gate) is CircuitBreaker,
        "CONTINUES": policies.gate is not None and (detached or retry is not None or bool(policies.fallbacks)),
        "RATE_LIMIT": policies.rate_limit is not None,
        "DEADLINE": deadline,
        "LATE_ONLY": deadline and not policies.interrupt,
        "BULKHEAD": bulkhead,
        "CLOCKED": detached or deadline or waits or judged or policies.rate_limit is not None,
        "WAITS": waits,
        "JUDGED": detached or judged or rejects,
        "COUNTED": policies.first_try_durations is not None,
        "METERED": policies.counters is not None,
        # A coroutine in both cases; without ASYNC, the deadlines are those of the thread.
        "BLOCK": policies.is_block,
        "RETRY": retry is not None,
        "CONSULTS": retry is not None and retry.consults,
        "REJECTS": rejects,
        "HOOK": policies.before_retry is not None,
        "NUMBERED": policies.numbers_retries,
    }


if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import Protocol

    from .._deadline.threads.chain import Entry
    from .._execution.task import TaskEnvironment
    from .._metrics.counters import Counters
    from .._strategy.bulkhead import Bulkhead
    from .._strategy.gate import Gate
    from .._strategy.rate_limit import RateLimit
    from .._strategy.retry import Retry
    from .._strategy.retry_budget import RetryBudget

    ASYNC = BREAKER = BUDGET = DETACHED = GATE = RATE_LIMIT = DEADLINE = LATE_ONLY = BULKHEAD = NUMBERED = False
    CLOCKED = WAITS = JUDGED = CONSULTS = REJECTS = COUNTED = METERED = BLOCK = CONTINUES = HOOK = RETRY = False

    class _Bound(BoundPolicies):
        """The policies as the functions below see them: they read each policy under the flag of that policy."""

        environment: Any
        retry: Retry  # pyright: ignore[reportIncompatibleVariableOverride]
        budget: RetryBudget  # pyright: ignore[reportIncompatibleVariableOverride]
        before_retry: Hook  # pyright: ignore[reportIncompatibleVariableOverride]
        gate: Gate  # pyright: ignore[reportIncompatibleVariableOverride]
        rate_limit: RateLimit  # pyright: ignore[reportIncompatibleVariableOverride]
        bulkhead: Bulkhead  # pyright: ignore[reportIncompatibleVariableOverride]
        counters: Counters  # pyright: ignore[reportIncompatibleVariableOverride]
        first_try_durations: list[float]  # pyright: ignore[reportIncompatibleMethodOverride]

    class _Admission(Awaitable[float], Protocol):
        """A place of a task or a thread in a queue."""

        def __call__(self) -> float: ...

    class _Tasks(TaskEnvironment):
        """The environment of tasks, with admissions of both kinds."""

        def acquire(self, bulkhead: Bulkhead, permit: object) -> _Admission | None: ...

    def acquire(bulkhead: Bulkhead, permit: object) -> _Admission | None: ...

else:
    from .._execution.caller_thread import acquire_on_thread as acquire


new_permit: Callable[[], object] = count().__next__
"""Creates the object that stands for an attempt in a bulkhead; it is different from all others."""


@specializable
def attempt(function: Callable[..., Any], policies: _Bound, environment: _Tasks, awaits: bool | None) -> Any:
    """Return a function that makes the attempts of a call, and returns its result or raises its failure."""
    if DEADLINE and ASYNC:
        begin_deadline = environment.begin_deadline
    if BULKHEAD:
        bulkhead = policies.bulkhead
    if COUNTED:
        first_try_durations = policies.first_try_durations

    # Nobody passes *progress*: a default costs a healthy call less than an assignment.
    async def call(args: Arguments, kwargs: Mapping[str, Any], progress: CallRecord | None = None) -> Any:
        if ASYNC and WAITS and not (DETACHED or DEADLINE) and "trio" in modules:
            refuse_trio(policies.name)
        if NUMBERED:
            given = kwargs
        while True:
            began = clock.monotonic() if CLOCKED else 0.0  # names of held resources: bound before any is acquired
            if RATE_LIMIT:
                requested, admitted_by = began, BY_NONE
            elif BULKHEAD:
                admitted_by = BY_NONE
            if DEADLINE and ASYNC:
                deadline = NO_DEADLINE
            elif DEADLINE:
                deadlines = this_thread.deadlines if "greenlet" not in modules else deadlines_here()
                outer = deadlines.innermost
                entry: Entry = NO_BLOCK if BLOCK else None
            if BULKHEAD or DETACHED:
                record: AttemptRecord = AttemptRecord() if DETACHED else None  # type: ignore[assignment]  # not needed yet
            if GATE:
                gate_state = state = policies.gate.state
                if not state.is_closed:
                    # Refusing must be cheap: nothing is held, and if nothing follows a failure, no more work is needed.
                    if not CONTINUES and (wait := state.until - (began if CLOCKED else clock.monotonic())) > 0.0:
                        if METERED:
                            refusals = (policies.frequent_counts or policies.create_frequent_counts())[0]
                            refusals.append(None)
                            if len(refusals) >= FOLD:
                                policies.counters.fold()
                        if policies.gate.transitions or sinks.wanted[Rejected](None):
                            raise policies.report_refusal(wait, kwargs)
                        if BREAKER:  # as its ``refusal``, without a call
                            raise CircuitBreakerOpenException(policies.gate.message, wait)  # type: ignore[attr-defined]
                        raise policies.gate.refusal(wait)
                    gate_state = NOT_ADMITTED
            if GATE or BULKHEAD:  # a permit refers to nothing: a bulkhead would keep the task, and its loop
                permit: object = new_permit() if BULKHEAD else None
            try:  # the way in, outermost first
                if GATE and not state.is_closed:
                    permit = permit or object()
                    gate_state = policies.gate.admit(permit, get_ident(), began or clock.monotonic())
                if RATE_LIMIT:
                    limit = policies.rate_limit
                    if policies.takes_turns:
                        began = await take_turn_async(limit, environment) if ASYNC else take_turn(limit)
                    else:
                        limit.admit(began)
                    admitted_by = BY_RATE_LIMIT
                if DEADLINE:
                    due = began + policies.seconds
                    if ASYNC:
                        deadline = begin_deadline(policies.seconds, due, policies.name)
                    else:
                        if BLOCK:
                            entry = block_deadline((due, outer, NOT_WANTED) if LATE_ONLY else (due, outer))
                        else:
                            entry = (due, outer, NOT_WANTED) if LATE_ONLY else (due, outer)
                        deadlines.innermost = entry
                        if not deadlines.is_ready or due < watchdog.next:
                            watch_deadline(deadlines, due)
                if BULKHEAD:
                    bulkhead.held[permit] = deadline.queue.ident if DEADLINE and ASYNC else get_ident()
                    if len(bulkhead.held) > bulkhead.limit or bulkhead.waiting:
                        record = AttemptRecord()
                        admission = environment.acquire(bulkhead, permit) if ASYNC else acquire(bulkhead, permit)
                        if admission is not None:
                            record.queued = True
                            record.running_since = await admission if ASYNC else admission()
                    admitted_by = BY_BULKHEAD
                if DETACHED:
                    result = await environment.attempt(
                        policies.new_attempt(record, began, function, args, kwargs, awaits)  # pyright: ignore[reportArgumentType]
                    )
                elif ASYNC or BLOCK:
                    result = await (function(*args, **kwargs) if kwargs else function(*args))
                else:
                    result = function(*args, **kwargs) if kwargs else function(*args)
                # The way out, innermost first. Resources are released first: any call may be interrupted (rule R11).
                if BULKHEAD:
                    del bulkhead.held[permit]
                if DEADLINE:
                    if ASYNC:
                        deadline.effective = deadline.previous
                        deadline.queue.pending.pop(deadline, None)
                    elif BLOCK:
                        end_block(deadlines, entry)
                    else:
                        deadlines.innermost = outer
                if DEADLINE or BULKHEAD:
                    ended = clock.monotonic()
                if BULKHEAD and bulkhead.waiting:
                    bulkhead.admit_waiters()
                if (
                    not JUDGED
                    and not (DEADLINE and (ended >= due or (deadline.state if ASYNC else deadlines.in_flight)))  # pyright: ignore[reportOperatorIssue]
                    and not (BULKHEAD and record is not None)
                    and progress is None
                    and (ASYNC or type(result) is policies.checked_result_type or policies.is_final_result(result))
                ):
                    if DEADLINE and ASYNC:
                        deadline.task = NO_TASK  # the task refers to the deadline by its context
                    if GATE and not gate_state.is_clean:
                        policies.gate.settle(
                            gate_state, permit, SUCCESS, ended if DEADLINE or BULKHEAD else clock.monotonic()
                        )
                        if policies.gate.transitions:
                            policies.deliver(policies.gate)
                    if BUDGET and policies.budget.missing:
                        policies.budget.succeed()
                    if COUNTED:
                        first_try_durations.append(ended - began if DEADLINE or BULKHEAD else 0.0)
                        if len(first_try_durations) >= FOLD:
                            policies.counters.fold()
                    return result
                failure: BaseException | None = None
            except BaseException as error:  # noqa: BLE001  # its meaning is decided below
                # And no more: an error in this place would lose the resources of the attempt.
                failure, result = error, None
            held = permit if GATE or BULKHEAD else None  # until the attempt has ended
            try:
                if BULKHEAD and permit in bulkhead.held:
                    del bulkhead.held[permit]  # no call, in which an interruption could arrive
                if DEADLINE and ASYNC:
                    deadline.end()
                elif DEADLINE and BLOCK:
                    entry.is_over = True
                elif DEADLINE:
                    deadlines.innermost = outer
                if not ASYNC:
                    # An interruption that is on its way arrives in the next call. That call waits for the one of this
                    # deadline; the interruption of an enclosing call is the failure of the attempt.
                    try:
                        if DEADLINE and BLOCK:
                            end_block(deadlines, entry)
                        settle(deadlines, entry) if DEADLINE and deadlines.in_flight is not None else get_ident()
                    except Interrupted as interrupted:
                        failure = interrupted
                if progress is None:
                    progress, progress.began, progress.attempts = CallRecord(), requested if RATE_LIMIT else began, 1
                    progress.cause, progress.is_counted, progress.is_untraced = None, False, False
                if GATE or RATE_LIMIT or BULKHEAD or DEADLINE or JUDGED or BLOCK:
                    record = record if DETACHED or (BULKHEAD and record is not None) else AttemptRecord()  # pyright: ignore[reportAssignmentType]
                    record.requested, record.began = requested if RATE_LIMIT else began, began
                    record.admitted_by = admitted_by if RATE_LIMIT or BULKHEAD else BY_NONE
                    record.permit, record.gate_state = held, gate_state if GATE else NOT_ADMITTED
                    record.deadline = deadline if DEADLINE and ASYNC else NO_DEADLINE
                    record.deadlines, record.entry = (deadlines, entry) if DEADLINE and not ASYNC else (None, None)
                    if JUDGED and policies.fail_when is not None:
                        judge = policies.release_and_evaluate
                        failure = await judge(record, failure, result) if ASYNC else judge(record, failure, result)
                    failure, held = policies.end_attempt(record, failure, progress, args, kwargs), None
                if NUMBERED:
                    kwargs = given  # hooks and fallbacks get no number
                if CONSULTS:
                    progress.answer = await policies.ask(policies.retry.predicates.consult, failure, result)
                if REJECTS and failure is None:
                    failure = rejection_of(policies, policies.retry, result, progress)
                if failure is None:
                    if not (ASYNC or BLOCK) and type(result) is not policies.checked_result_type:
                        policies.check_result(result, args)
                    if RETRY and progress.attempts > 1:
                        progress.is_counted, progress.failure, progress.cause = True, None, None
                        if METERED:
                            policies.frequent_counts[0].append(None)  # folded with the batch of retries
                        if progress.paid_for or progress.is_heard:
                            policies.report_recovery(progress)
                    else:
                        policies.end_call(progress, True)
                    return result
                if CONSULTS:
                    progress.told = await policies.ask(await_delay, failure, policies.retry, progress)
                if RETRY:
                    delay = next_delay(policies, progress, failure, args, BLOCK and result is LOOP_LEFT)
                if not RETRY or delay is None:
                    outcome = policies.fall_back(policies, failure, result, progress, args, kwargs)
                    return await outcome if ASYNC or BLOCK else outcome
                if ASYNC or BLOCK:
                    if delay or progress.attempts > 1:  # repeated retries yield to other tasks, even without a delay
                        await environment.pause(delay)
                elif delay:
                    pause(policies.name, delay)
                if HOOK and (ASYNC or BLOCK):
                    await policies.before_retry.run_in(environment, args, kwargs, failure, progress.attempts + 1)
                elif HOOK:
                    policies.before_retry.run(args, kwargs, failure, progress.attempts + 1)
                progress.attempts += 1
                if METERED:  # only now: a call that is cancelled during the delay was not retried
                    retries = (policies.frequent_counts or policies.create_frequent_counts())[1]
                    retries.append(None)
                    if len(retries) >= FOLD:
                        policies.counters.fold()
                if BLOCK:
                    await args[1].reach_next(progress)
                if NUMBERED:
                    kwargs = {**given, NUMBER: progress.attempts}
            except BaseException as error:
                count_failed_call(policies, error, progress, args, kwargs, held)
                raise
            finally:
                del failure  # its traceback holds this frame

    return register(TIMED_ATTEMPT if DEADLINE and not ASYNC else ATTEMPT)(call)


def _fall_back_first(policies: BoundPolicies, *progress: Any) -> Any:
    """Cut ``fall_back`` at the first final failure, because many guards meet none, and call it."""
    flags = flags_of(policies)
    policies.fall_back = specialized(fall_back, {name: flags[name] for name in ("ASYNC", "BLOCK", "REJECTS")})
    try:
        return policies.fall_back(policies, *progress)
    finally:
        del progress  # the traceback of a failure in it refers to this frame


@specializable
async def fall_back(
    policies: _Bound,
    failure: BaseException,
    result: Any,
    call: CallRecord,
    args: Arguments,
    kwargs: Mapping[str, Any],
) -> Any:
    """End a call whose last attempt failed: return the result of a fallback, or raise the failure (rule FB1)."""
    call.stop = call.stop or Stop.NOT_RETRYABLE
    try:
        if not (REJECTS and failure is call.rejection and policies.retry.returns_rejected_result):
            fallbacks = iter(policies.fallbacks)
            while fallback := next_fallback(policies, call, failure, fallbacks, args, kwargs):
                try:
                    if ASYNC or BLOCK:
                        result = await policies.environment.call(fallback[1], args, kwargs, failure, call.attempts)
                    else:
                        result = fallback[1](args, kwargs, failure, call.attempts)
                except BaseException as error:  # noqa: BLE001  # raised if no further fallback applies
                    failure = in_context(StoppedIteration.meant(error), failure)
                else:
                    record_degradation(policies.name, failure, fallback[0])
                    break
            else:
                failure = StoppedIteration.of(failure) if ASYNC or BLOCK else failure
                context = failure.__context__
                try:
                    raise failure
                finally:  # without the error that the caller handles; frozen exceptions reject an assignment
                    BaseException.__setattr__(failure, "__context__", context)
                    del context  # its traceback may refer to this frame
    finally:
        del failure  # its traceback refers to this frame
    if not (ASYNC or BLOCK) and type(result) is not policies.checked_result_type:
        policies.check_result(result, args)
    if REJECTS and policies.retry.is_result_stored and call.has_rejected_result:
        result = RejectedResult(result)
    policies.end_call(call, True)
    return result
