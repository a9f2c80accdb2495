"""The order of the policies, written once.

The specification (chapters on interactions) and SmallRye's rate limit give one nesting, whatever order the decorators
are written in:

    asynchronous( fallback( retry( circuit_breaker( rate_limit( timeout( bulkhead( the method )))))))

``path`` is that nesting as one function, from the outside to the method and back. It serves every combination of
policies, synchronous and asynchronous calls alike: ``specialize`` cuts away what the capitals rule out, once for each,
and what is asserted for type checkers. What a policy decides is asked of its strategy; what follows a failure, of
``BoundPolicies``.

PYTEST_DONT_REWRITE: pytest rewrites the assertions of plug-ins, and what is cut is to be what runs.
"""

# What a capital guards is bound under the same capital; a type checker cannot know that the two are one.
# pyright: reportPossiblyUnboundVariable=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from sys import modules
from typing import TYPE_CHECKING, Any

from .._metrics.counters import FOLD
from .._runtime.attempt_record import AttemptRecord
from .._runtime.blocking import HARMLESS, Arguments, Aside, GuardedCall, pause
from .._runtime.clock import clock
from .._runtime.environment import Attempt, Environment, StoppedIteration
from .._runtime.event_loop import refuse_trio
from .._runtime.interrupting.async_exception import Interrupted
from .._runtime.interrupting.roles import ATTEMPT, TIMED_ATTEMPT, register
from .._runtime.interrupting.thread_deadlines import HAS_GIL, deadlines_here, this_thread
from .._runtime.interrupting.watchdog import watchdog
from .._runtime.interruption import NOT_WANTED, be_watched, set_innermost, settle
from .._runtime.native import get_ident
from .._runtime.task_deadline import RUNS, TaskDeadline, current as current_deadline
from .._strategy.verdict import SUCCESS
from .bound import RETRIED, BoundPolicies
from .record import CallRecord
from .specialize import Shape, weavable, woven

__all__ = ["compose", "path", "shape_of"]


def compose(
    function: Callable[..., Any],
    policies: BoundPolicies,
    *,
    fallback: Aside | None = None,
    before_retry: Aside | None = None,
    environment: Environment | None = None,
    apart: bool = False,
    awaits: bool | None = True,
) -> GuardedCall:
    """Guard *function* by *policies*.

    Args:
        function: The method.
        policies: Its policies.
        fallback: What replaces a final failure.
        before_retry: What is run before each retry.
        environment: How an asynchronous call waits; ``None`` for a synchronous one.
        apart: Whether attempts run apart from the call (``@asynchronous``): *environment* runs them, and sees to
            time-out and bulkhead.
        awaits: Whether what an attempt returns is awaited and its outcome the attempt's; ``None``: as it turns out.
    """
    shape = shape_of(
        policies,
        fallback=fallback is not None,
        before_retry=before_retry is not None,
        asynchronous=environment is not None,
        apart=apart,
    )
    cut = woven(path, shape)
    return cut(function, policies, fallback, before_retry, environment, awaits)  # type: ignore[no-any-return]


def shape_of(policies: BoundPolicies, *, fallback: bool, before_retry: bool, asynchronous: bool, apart: bool) -> Shape:
    """The capitals of ``path`` for these policies."""
    deadline = policies.conclude is not None and not apart
    bulkhead = policies.bulkhead is not None and not apart
    return {
        "ASYNC": asynchronous,
        "APART": apart,
        "BREAKER": policies.circuit_breaker is not None,
        "RATE_LIMIT": policies.rate_limit is not None,
        "DEADLINE": deadline,
        "LATE_ONLY": deadline and not policies.interrupt,
        "BULKHEAD": bulkhead,
        "RETRY": policies.retry is not None,
        "PERMIT": bulkhead or policies.circuit_breaker is not None,
        "HOLDS": apart
        or deadline
        or bulkhead
        or policies.circuit_breaker is not None
        or policies.rate_limit is not None,
        "TIMED": deadline or bulkhead,
        "CLOCKED": apart or deadline or bulkhead or policies.retry is not None or policies.rate_limit is not None,
        "CONSULTS": asynchronous and policies.consults,
        "JUDGED": policies.refuses is not None,
        "COUNTED": policies.counters is not None,
        "FALLBACK": fallback,
        "BEFORE_RETRY": before_retry,
        # A deadline looks for its loop itself.
        "LOOP": asynchronous and not apart and not deadline and (bulkhead or policies.retry is not None),
        "HAS_GIL": HAS_GIL,
    }


if TYPE_CHECKING:
    from .._metrics.counters import Counters
    from .._runtime.interrupting.thread_deadlines import ThreadDeadlines
    from .._runtime.tasks import Admission
    from .._strategy.bulkhead import Bulkhead
    from .._strategy.circuit_breaker import CircuitBreaker, Era
    from .._strategy.rate_limit import RateLimit
    from .._strategy.retry import Retry

    ASYNC = APART = BREAKER = RATE_LIMIT = DEADLINE = LATE_ONLY = BULKHEAD = PERMIT = TIMED = CLOCKED = JUDGED = False
    CONSULTS = HOLDS = COUNTED = RETRY = FALLBACK = BEFORE_RETRY = LOOP = False

    class _Bound(BoundPolicies):
        """A policies as ``path`` sees it: what it asks of a policy stands under the capital of that policy."""

        circuit_breaker: CircuitBreaker  # pyright: ignore[reportIncompatibleVariableOverride]
        rate_limit: RateLimit  # pyright: ignore[reportIncompatibleVariableOverride]
        bulkhead: Bulkhead  # pyright: ignore[reportIncompatibleVariableOverride]
        retry: Retry  # pyright: ignore[reportIncompatibleVariableOverride]
        counters: Counters  # pyright: ignore[reportIncompatibleVariableOverride]


new_permit: Callable[[], object] = count().__next__ if HAS_GIL else object
"""Makes what stands for an attempt in a bulkhead, and is like no other one."""


@weavable
def path(
    function: Callable[..., Any],
    policies: _Bound,
    fallback: Aside,
    before_retry: Aside,
    environment: Environment,
    awaits: bool | None,
) -> Any:
    """The way of a call through its policies, for every combination of them; ``woven`` cuts it down to one."""
    role = ATTEMPT
    if BREAKER:
        breaker = policies.circuit_breaker
    if RATE_LIMIT:
        rate_limit = policies.rate_limit
    if DEADLINE:
        seconds = policies.seconds
        if ASYNC:
            from .._runtime.deadline_queue import current_task, queue_of, task_and_queue
        else:
            role = TIMED_ATTEMPT
    if BULKHEAD:
        bulkhead = policies.bulkhead
        held = bulkhead.held
        if ASYNC:
            from .._runtime.tasks import acquire_in_task
    if CONSULTS:
        retry = policies.retry
    if COUNTED:
        counters = policies.counters
        first_try_durations = counters.first_try_durations

    async def call(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
        progress: CallRecord | None = None
        result: object
        failure: BaseException | None
        if LOOP and "trio" in modules:
            refuse_trio(policies.name)
        while True:
            # What an attempt holds is noted under these names, which are there before anything is taken.
            began = clock.monotonic() if CLOCKED else 0.0
            if APART:
                record = AttemptRecord()
            if BULKHEAD:
                # It leads to nothing else: what holds it would keep the task alive, and the loop.
                permit: object = new_permit()
            elif PERMIT:
                permit = None  # a closed breaker needs none
            if BREAKER:
                era: Era | None = None
            if RATE_LIMIT:
                passed = False
            if DEADLINE:
                if ASYNC:
                    deadline: TaskDeadline | None = None
                else:
                    deadlines: ThreadDeadlines | None = None
            if BULKHEAD:
                admitted = False
                if ASYNC:
                    admission: Admission | None = None
                    running_since = 0.0
            if BREAKER:
                state = breaker.state
                if not (CLOCKED and (APART or RETRY or FALLBACK)) and not state.is_closed:
                    if not CLOCKED:
                        began = clock.monotonic()
                    # Refusing is to be cheap: nothing was taken yet, and where nothing follows a failure, that is all.
                    if not (APART or RETRY or FALLBACK) and began < state.until:
                        raise policies.refused(breaker, state.until - began)
            if DEADLINE and ASYNC:
                around: TaskDeadline | None = current_deadline.get()
                assert around is not None
                task, queue = around.task, around.queue
                if queue.ident != get_ident() or current_task(queue.loop) is not task:
                    task, queue = task_and_queue(seconds, policies.name)
                elif queue.seconds != seconds:
                    queue = queue_of(queue.loop, seconds)
            try:
                # The way in, outermost first.
                if BREAKER:
                    if state.is_closed:
                        era = state
                    else:
                        if permit is None:
                            permit = object()
                        era = breaker.admit(permit, get_ident(), began)
                if RATE_LIMIT:
                    rate_limit.admit(began)
                    passed = True
                if DEADLINE:
                    due = began + seconds
                    if ASYNC:
                        assert around is not None
                        around = around.counts
                        while around is not None and around.counts is not around:
                            around = around.counts
                        # The one call into other code comes before there is anything to take back.
                        cancelling = task.cancelling()
                        deadline = TaskDeadline()
                        deadline.when = due
                        deadline.previous = around
                        deadline.cancelling = cancelling
                        deadline.state = RUNS
                        deadline.counts = deadline
                        deadline.task = task
                        deadline.queue = queue
                        pending = queue.pending
                        pending[deadline] = None
                        if queue.timer is None:
                            queue.arm(due)
                        current_deadline.set(deadline)
                    else:
                        mine = this_thread.deadlines if "greenlet" not in modules else deadlines_here()
                        outer = mine.innermost
                        entry = (due, outer, NOT_WANTED) if LATE_ONLY else (due, outer)
                        deadlines = mine
                        if HAS_GIL:
                            deadlines.innermost = entry
                        else:
                            set_innermost(deadlines, entry)
                        if not deadlines.is_ready or due < watchdog.next:
                            be_watched(deadlines, due)
                if BULKHEAD:
                    held[permit] = queue.ident if ASYNC and DEADLINE else get_ident()
                    if len(held) > bulkhead.limit or bulkhead.waiting:
                        if ASYNC:
                            admission = acquire_in_task(bulkhead, permit)
                            if admission is not None:
                                await admission
                                running_since = clock.monotonic()
                        else:
                            bulkhead.acquire(permit, get_ident())
                    admitted = True

                if APART:
                    record.began = began
                    limit = began + policies.seconds if policies.seconds else None
                    result = await environment.attempt(
                        Attempt(
                            record,
                            function,
                            args,
                            kwargs,
                            policies.bulkhead,
                            limit,
                            policies.interrupt,
                            awaits,
                            policies.late,
                            policies.seconds,
                        )
                    )
                elif ASYNC:
                    result = await (function(*args, **kwargs) if kwargs else function(*args))
                else:
                    result = function(*args, **kwargs) if kwargs else function(*args)

                # The way out, innermost first. What was taken goes back before anything is called: the deadline of an
                # enclosing call may interrupt behind any call (rule R11).
                if BULKHEAD:
                    del held[permit]
                if DEADLINE:
                    if ASYNC:
                        assert deadline is not None
                        deadline.counts = around
                        pending.pop(deadline, None)
                    else:
                        assert deadlines is not None
                        if HAS_GIL:
                            deadlines.innermost = outer
                        else:
                            set_innermost(deadlines, outer)
                if TIMED:
                    ended = clock.monotonic()
                if BULKHEAD and bulkhead.waiting:
                    bulkhead.admit_waiters()
                if not (APART or JUDGED):  # noqa: SIM102  # one is cut, one asked
                    if (
                        (not DEADLINE or ended < due)  # pyright: ignore[reportOperatorIssue]
                        and (not DEADLINE or (not deadline.state if ASYNC else deadlines.in_flight is None))  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
                        and progress is None
                        and not (ASYNC and BULKHEAD and running_since)
                        and (
                            ASYNC
                            or type(result) is policies.usual
                            or (policies.usual is not None and id(type(result)) in HARMLESS)
                            or policies.is_over(result)
                        )
                    ):
                        if BREAKER:
                            assert era is not None
                            if not era.is_clean:
                                breaker.settle(era, permit, SUCCESS, ended if TIMED else clock.monotonic())
                                if breaker.transitions and policies.on_transition is not None:
                                    policies.on_transition(breaker)
                        if COUNTED:
                            first_try_durations.append(ended - began if TIMED else 0.0)
                            if len(first_try_durations) >= FOLD:
                                policies.counters.fold()
                        return result
                failure = None
            except BaseException as error:  # noqa: BLE001  # what it means is decided below
                failure = error  # and nothing else: what lands here would lose what the attempt holds

            applied = False
            if PERMIT:
                settled = False
            try:
                if failure is not None:
                    if BULKHEAD:
                        if permit in held:
                            del held[permit]
                        elif not admitted and not isinstance(failure, Exception):
                            bulkhead.release(permit)  # it may stand in the queue and not have heard of it
                    if DEADLINE:
                        if ASYNC:
                            if deadline is not None:
                                deadline.end()
                        elif deadlines is not None:
                            if HAS_GIL:
                                deadlines.innermost = outer
                            else:
                                set_innermost(deadlines, outer)
                if HOLDS and not ASYNC:
                    # An interruption that is on its way arrives in the next call: in this one, which waits for that of
                    # its own deadline. One of an enclosing call is what the attempt ended by.
                    try:
                        if DEADLINE and not LATE_ONLY and deadlines is not None and deadlines.in_flight is not None:
                            settle(deadlines, entry)
                        else:
                            get_ident()
                    except Interrupted as interrupted:
                        failure = interrupted
                if APART and failure is not None:
                    failure = StoppedIteration.meant(failure)
                if BULKHEAD and ASYNC and admission is not None:
                    bulkhead.release(permit)
                if HOLDS and not APART:
                    record = AttemptRecord()
                    record.began = began
                if PERMIT:
                    record.permit = permit
                if BREAKER:
                    record.era = era
                if RATE_LIMIT:
                    record.passed = passed
                if DEADLINE:
                    if ASYNC:
                        record.deadline = deadline
                    elif deadlines is not None:
                        record.deadlines = deadlines
                        record.entry = entry
                if BULKHEAD:
                    record.admitted = admitted
                    if ASYNC:
                        record.running_since = running_since
                        record.queued = admission is not None

                if progress is None:
                    progress = CallRecord(began)
                if HOLDS:
                    failure = policies.end(record, failure, progress.attempts)
                if PERMIT:
                    settled = True
                if CONSULTS:
                    subject = None if failure is not None else result
                    progress.answer = await environment.call(retry.consult, failure, subject)
                if JUDGED and failure is None:
                    failure = policies.refusal(progress, result)
                if failure is None:
                    if not ASYNC and type(result) is not policies.usual and not policies.is_over(result):
                        policies.warn_of(result)
                    policies.finish(progress, returned=True)
                    return result
                delay = policies.next_delay(progress, failure)
                if delay is None:
                    if FALLBACK and policies.applies_fallback(failure):
                        applied = True
                        if ASYNC:
                            result = await environment.call(fallback, args, kwargs, failure, progress.attempts)
                        else:
                            result = fallback(args, kwargs, failure, progress.attempts)
                            if type(result) is not policies.usual and not policies.is_over(result):
                                policies.warn_of(result)
                        policies.finish(progress, returned=True, applied=True)
                        return result
                    raise StoppedIteration.of(failure) if APART else failure
                if ASYNC:
                    # Also without a delay: whoever retries again and again must let others go on.
                    if delay or progress.attempts > 1:
                        await environment.pause(delay)
                elif delay:
                    pause(policies.name, delay)
                if BEFORE_RETRY:
                    if ASYNC:
                        await environment.call(before_retry, args, kwargs, failure, progress.attempts + 1)
                    else:
                        before_retry(args, kwargs, failure, progress.attempts + 1)
                # Counted now that it begins: a call that is cancelled during the delay was not retried.
                progress.attempts += 1
                if COUNTED:
                    policies.counters.add(RETRIED)
            except BaseException as error:
                if PERMIT and not settled:
                    if BULKHEAD:
                        bulkhead.release(permit)
                    if BREAKER:
                        policies.abandon_probe(permit)
                if FALLBACK and applied and (StoppedIteration.meant(error) if APART else error) is failure:
                    assert failure is not None
                    applied = policies.asks(fallback, args, kwargs, failure)
                policies.finish(progress, returned=False, applied=applied)
                raise
            finally:
                del failure  # its traceback holds this frame

    return register(role)(call)
