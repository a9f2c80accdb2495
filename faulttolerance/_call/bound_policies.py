"""The policies that guard one function, and the actions at the end of an attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import inf
from sys import exception
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, TypeAlias

from .._deadline.attempt_record import AttemptRecord
from .._deadline.clock import clock
from .._deadline.interruption import is_outer
from .._deadline.task import NO_DEADLINE
from .._event import Recovered, Rejected, TimedOut, sinks
from .._execution.caller_thread import Arguments, Callback, is_kept_by_module, is_pending, warn_of_pending_result
from .._execution.environment import Attempt, Environment, StoppedIteration
from .._metrics.catalogue import Interned, Series, call_series, series_of_facts
from .._metrics.counters import Counters
from .._signature.kind import generator_faults, is_coroutine_function
from .._strategy.bulkhead import Bulkhead
from .._strategy.gate import NOT_ADMITTED, Gate, OnRefusal
from .._strategy.left_behind import LeftBehind
from .._strategy.rate_limit import RateLimit
from .._strategy.retry import Predicates, Retry
from .._strategy.retry_budget import RetryBudget
from .._strategy.verdict import FAILURE, NEUTRAL, SUCCESS, verdict_on
from ..exceptions import RefusedException, raise_faults
from .continuation import LIMITS, NOT_RETRYABLE, RETURNED, CallRecord
from .error_log import Hook

__all__ = ["BY_BULKHEAD", "BY_GATE", "BY_NONE", "BY_RATE_LIMIT", "NUMBER", "BoundPolicies", "conclude_of"]

Exceptions = tuple[type[BaseException], ...]

BY_NONE, BY_GATE, BY_RATE_LIMIT, BY_BULKHEAD = range(4)
"""The last policy that has admitted an attempt: none, the circuit breaker, the rate limit, the bulkhead."""


NUMBER = "ft.attempt"
"""The keyword with the number of an attempt after the first, for what is inside a layer; no parameter has this name."""

_STREAMS = GeneratorType, AsyncGeneratorType

Message: TypeAlias = Callable[[AttemptRecord], str]
Conclude: TypeAlias = Callable[[AttemptRecord, BaseException | None, Message], BaseException | None]


def _deliver_nothing(gate: Gate) -> None:
    pass


def _no_attempt() -> None:
    pass


def conclude_of(asynchronous: bool) -> Conclude:
    """Return the function that decides the outcome of calls, attempts or blocks under their own deadline."""
    if asynchronous:
        from .._deadline.queue import conclude
    else:
        from .._deadline.interruption import conclude
    return conclude


class _Usual:
    """Attributes of ``BoundPolicies``, and their values if no policy determines them."""

    __slots__ = ()

    fallback_on: Exceptions | None = None
    fallbacks: Sequence[tuple[str, Callback]] = ()
    """The functions whose result replaces a final failure, each under its name, in the order of their calls."""
    retry: Retry | None = None
    budget: RetryBudget | None = None
    """The budget that pays for retries."""
    gate: Gate | None = None
    """The circuit breaker, or the policy in its place."""
    deliver: Callable[[Gate], None] = _deliver_nothing
    """Delivers the transitions of *gate* to listeners and sinks."""
    seconds: float = 0.0
    conclude: Conclude | None = None
    """Decides the outcome of an attempt under a deadline of this thread or task; ``None`` without a deadline."""
    bulkhead: Bulkhead | None = None
    asynchronous: bool = False
    """Whether calls are awaited."""
    counters: Counters | None = None
    function: Callable[..., Any] = _no_attempt
    """The function that attempts call."""
    awaits: bool | None = True
    """Whether its result is awaited, as ``attempt.compose`` defines it."""
    environment: Environment | None = None
    """The way in which an asynchronous call waits; ``None`` for a synchronous one."""
    fall_back: Callable[..., Any] = _no_attempt
    """Ends a call whose last attempt failed, with the arguments of ``attempt.fall_back``."""
    checked_result_type: type | None = None
    """The class of the last checked result, if it may be kept; ``object`` stands for all other classes."""
    frequent_counts: tuple[list[None], ...] = ()
    """Batches of frequent counts, created at first use; see ``create_frequent_counts``."""


class _Rare:
    """Likewise; most functions have these values, which take no memory for each of them."""

    __slots__ = ()

    no_fallback_on: Exceptions = ()
    before_retry: Hook | None = None
    """The code of the application that runs before each retry."""
    on_budget_refusal: OnRefusal | None = None
    """Called for each retry that an exhausted budget would refuse, if the budget is only observed."""
    fail_on: Exceptions = (Exception,)
    skip_on: Exceptions = ()
    fail_when: Predicates | None = None
    """The application's definition of a failure to *gate*, beside *fail_on*."""
    slow: float = 0.0
    """The seconds after which a success is a failure to *gate*; 0 for no limit."""
    rate_limit: RateLimit | None = None
    takes_turns: bool = False
    """Whether calls wait for their turn under the rate limit."""
    interrupt: bool = True
    left_behind: LeftBehind | None = None
    """The detached attempts that have timed out and still run."""
    queues: bool = False
    """Whether calls may wait for a permit: asynchronous calls, and others with a longest wait."""
    detached: bool = False
    """Whether attempts run detached (``@asynchronous``): the environment applies time-out and bulkhead."""
    is_block: bool = False
    """Whether the body is a block of code, whose end resumes a coroutine."""
    counts_calls: bool = True
    """Whether no further policies wrap these policies, which then count the calls."""
    numbers_retries: bool = False
    """Whether attempts after the first get their numbers, as the keyword ``NUMBER``."""
    warns_of_pending_result: bool = True
    """Whether no warning has been logged yet about results of synchronous calls that come later (rule R8)."""
    advice: str = ""
    """The advice in the error for awaitable results; empty if they are no error."""


_USUAL = {name: vars(_Usual)[name] for name in _Usual.__annotations__}


class BoundPolicies(_Usual, _Rare):
    """The policies of one guarded function, bound to their state.

    Args:
        name: The guarded function.
        values: The attributes that policies determine, and the name of the gate's policy as ``gate_name``; the others
            have their defaults.
    """

    __slots__ = ("__dict__", "_counting", "name", *_USUAL)

    def __init__(self, name: str, **values: Any) -> None:
        self.name = name
        gate_name = values.pop("gate_name", "CircuitBreaker")
        for attribute, value in (_USUAL | values).items():
            if attribute in _USUAL or value != getattr(self, attribute):
                setattr(self, attribute, value)
        if self.asynchronous and self.retry is not None:
            self.retry.consults = self.retry.has_custom_delay or any(
                map(is_coroutine_function, self.retry.predicates.all)
            )
        self._counting = _counting_order(
            gate_name if self.gate else "", self.rate_limit is not None, self.seconds > 0, self.bulkhead is not None
        )

    @property
    def first_try_durations(self) -> list[float] | None:
        """The list to which the duration of a call that succeeds at once is appended; ``None`` without metrics."""
        return None if self.counters is None else self.counters.first_try_durations

    # The end of an attempt

    def end_attempt(
        self,
        record: AttemptRecord,
        failure: BaseException | None,
        call: CallRecord,
        args: Arguments,
        kwargs: Mapping[str, Any],
    ) -> BaseException | None:
        """Release what an attempt still holds, report its outcome to the gate, count it and send its events.

        If ``fail_when`` judges, ``release`` was called before.

        Args:
            record: The attempt.
            failure: The exception that it raised.
            call: The call to which it belongs, or its part inside a layer.
            args: The arguments of that call.
            kwargs: The keywords, which tell the number of a retry inside a layer.

        Returns:
            The failure of the attempt, with regard to a passed deadline.
        """
        if self.fail_when is None:
            failure = self.release(record, failure)
        if self.gate is not None:
            self._report_to_gate(self.gate, record, failure, args)
        if self.counters is not None and self._counting:
            self._count_attempt(self.counters, record)
        number = kwargs.get(NUMBER, call.attempts)
        if record.timed_out:
            if sinks.wanted[TimedOut](call):
                sinks.send(TimedOut(self.name, number, self.seconds), call)
        elif record.refused_by and sinks.wanted[Rejected](call):
            assert failure is not None
            sinks.send(Rejected(self.name, number, record.refused_by, failure), call)
        return failure

    def release(self, record: AttemptRecord, failure: BaseException | None) -> BaseException | None:
        """Release what an attempt still holds, except its place at the gate, and return its failure."""
        bulkhead = self.bulkhead
        if (self.detached or self.is_block) and failure is not None:
            failure = StoppedIteration.meant(failure)
        if bulkhead is not None:
            if not self.detached and (
                record.queued or (record.admitted_by < BY_BULKHEAD and not isinstance(failure, Exception))
            ):
                bulkhead.release(record.permit)  # it may stand in the queue without notice of its admission
            if bulkhead.waiting:
                bulkhead.admit_waiters()
        if self.conclude is not None and (record.entry is not None or record.deadline is not NO_DEADLINE):
            failure = self.conclude(record, failure, self.message)
        if record.admitted:
            record.admitted_by = BY_BULKHEAD
        elif record.admitted_by == BY_NONE and record.gate_state is not NOT_ADMITTED:
            record.admitted_by = BY_GATE
        if isinstance(failure, RefusedException):
            record.refused_by = next((name for rank, name in self._counting if rank > record.admitted_by), "")
        return failure

    def release_and_evaluate(self, record: AttemptRecord, failure: BaseException | None, result: object) -> Any:
        """``release`` the attempt, and ask the application whether it is a failure to the gate that admitted it.

        Returns:
            The failure of the attempt; an awaitable of it for asynchronous calls.
        """
        failure = self.release(record, failure)
        when = self.fail_when if record.gate_state is not NOT_ADMITTED else None
        if self.asynchronous:
            return self._evaluate_async(record, failure, result, when)
        if when is not None:
            record.fails = when.evaluate(failure, result)
        return failure

    async def _evaluate_async(
        self, record: AttemptRecord, failure: BaseException | None, result: object, when: Predicates | None
    ) -> BaseException | None:
        if when is not None and any(map(is_coroutine_function, when.all)):
            record.fails = await self.ask(when.consult, failure, result)
        elif when is not None:
            record.fails = when.evaluate(failure, result)
        return failure

    async def ask(self, function: Callable[..., Any], failure: BaseException | None, *args: Any) -> Any:
        """Return the answer of *function*, which belongs to the application, about an attempt; ``None`` without one."""
        if isinstance(failure, GeneratorExit):
            return None  # the coroutine was closed, and must not wait any more
        assert self.environment is not None
        return await self.environment.call(function, failure, *args)

    def handled(self, args: Arguments) -> BaseException | None:
        """Return the exception that the application handled when it made the call, or entered the block."""
        return args[1].handled if self.is_block else exception()

    def _report_to_gate(
        self, gate: Gate, record: AttemptRecord, failure: BaseException | None, args: Arguments
    ) -> None:
        """Report the outcome of an admitted attempt to *gate*."""
        gate_state = record.gate_state
        if gate_state is not NOT_ADMITTED:
            kind, now = "bad result" if failure is None else type(failure).__name__, clock.monotonic()
            if failure is None:
                verdict = FAILURE if record.fails else SUCCESS
            elif (record.refused_by and not gate.judges_refusals) or is_outer(failure, self.handled(args)):
                verdict = NEUTRAL
            else:
                verdict = verdict_on(failure, self.fail_on, self.skip_on, record.fails)
            if (
                self.slow
                and verdict == SUCCESS
                and not record.refused_by
                and (record.ended or now) >= record.requested + self.slow
            ):
                verdict, kind = FAILURE, "slow call"
            record.verdict = verdict
            if not (gate_state.is_clean if verdict == SUCCESS else verdict == NEUTRAL and gate_state.is_closed):
                gate.settle(gate_state, record.permit, verdict, now, kind if verdict == FAILURE else "")
        elif not isinstance(failure, RefusedException):
            gate.settle(gate.state, record.permit, NEUTRAL, clock.monotonic())
        if gate.transitions:
            self.deliver(gate)

    def release_permit(self, permit: object) -> None:
        """Release everything that *permit* holds, after control flow ended its attempt before it was settled."""
        if self.bulkhead is not None:
            self.bulkhead.release(permit)
        if self.gate is not None:
            self.gate.settle(self.gate.state, permit, NEUTRAL, clock.monotonic())
            if self.gate.transitions:
                self.deliver(self.gate)

    def report_refusal(self, wait: float, kwargs: Mapping[str, Any]) -> RefusedException:
        """Report a refusal by the gate for *wait* seconds, if nothing follows a failure, and return it."""
        gate: Gate = self.gate  # type: ignore[assignment]  # where there is one
        if gate.transitions:
            self.deliver(gate)
        error = gate.refusal(wait)
        if sinks.wanted[Rejected](None):
            sinks.send(Rejected(self.name, kwargs.get(NUMBER, 1), self._gate_name, error))
        return error

    def create_frequent_counts(self) -> tuple[list[None], ...]:
        """Create the batches of the counters: with a retry, successes after retries, and retries; otherwise refusals.

        They are folded in this order, so that no reader sees such a call without its retries.
        """
        fallback = self._fallback_label(applied=False)
        if self.retry is not None:
            counted = [call_series(True, fallback, True, RETURNED), series_of_facts((("Retry", "retried"),))]
        else:
            counted = [(*series_of_facts(((self._gate_name, "refused"),)), *call_series(False, fallback))]
        self.frequent_counts = tuple(map(self.counters.batch, counted))  # type: ignore[union-attr]  # where there are any
        return self.frequent_counts

    @property
    def _gate_name(self) -> str:
        return self._counting[0][1]  # a gate is the outermost policy that counts

    def new_attempt(
        self,
        record: AttemptRecord,
        began: float,
        function: Callable[..., Any],
        args: Arguments,
        kwargs: Mapping[str, Any],
        awaits: bool | None,
    ) -> Attempt:
        """Return the attempt *record*, which *began* and runs detached from its call, for an environment to run."""
        record.began = began
        seconds = self.seconds
        due = began + seconds if 0.0 < seconds < inf else None
        bulkhead, interrupt = self.bulkhead, self.interrupt
        return Attempt(
            record, function, args, kwargs, bulkhead, due, interrupt, awaits, self.message, seconds, self.left_behind
        )

    def message(self, record: AttemptRecord) -> str:
        """Return the message for a caller whose attempt timed out."""
        return f"{self.name}: timed out after {self.seconds:g} s"

    def _count_attempt(self, counters: Counters, record: AttemptRecord) -> None:
        """Advance the series of an attempt, from the outermost policy to the policy that refused it."""
        series, is_timed, is_queued, is_running = _series_of(
            self._counting, record.admitted_by, record.refused_by, record.verdict, record.timed_out, record.queued
        )
        if not series:
            return
        samples: dict[str, float] = {}
        now = clock.monotonic()
        if is_timed:
            samples["ft.timeout.executionDuration"] = now - record.began
        if is_queued:
            since = record.running_since or (record.began if is_running else now)
            if is_running:
                samples["ft.bulkhead.runningDuration"] = now - since
            if self.queues:
                samples["ft.bulkhead.waitingDuration"] = since - record.began
        counters.add(series, samples)

    # The end of a call

    def is_final_result(self, result: object) -> bool:
        """Return whether a synchronous call ends with *result*, so that no later work of *result* can fail."""
        is_over = not is_pending(result) and not (self.advice and type(result) in _STREAMS)
        self.checked_result_type = type(result) if is_over and is_kept_by_module(type(result)) else object
        return is_over

    def check_result(self, result: object, args: tuple[Any, ...]) -> None:
        """Log a warning, once, if a synchronous call does not end with *result*: the guard cannot see its failure.

        Raises:
            TypeError: On every such call, if there is ``advice``. The attempt has ended: there is no retry.
            FaultToleranceDefinitionException: Likewise, if *result* is that of a generator function, the first of
                *args*.
        """
        if self.is_final_result(result):
            return
        if type(result) in _STREAMS:
            raise_faults(generator_faults(args[0]))
            return
        if self.advice and hasattr(result, "__await__"):
            if type(result) is CoroutineType:
                result.close()
            what = f"an object of the class {type(result).__qualname__}"
            raise TypeError(f"{self.name}: the function returned {what}, which must be awaited; {self.advice}")
        if self.warns_of_pending_result:
            self.warns_of_pending_result = False
            warn_of_pending_result(self.name, result)

    def end_call(self, call: CallRecord, returned: bool) -> None:
        """Count and report, once, a call that did not end with a successful first attempt.

        *returned* is whether the call returned a result, and raised no exception.
        """
        if call.is_counted:
            return
        call.is_counted = True
        if self.budget is not None:
            self._refill_budget(self.budget, call, succeeded=returned and call.stop is None)
        # Their tracebacks refer to the call that refers to this record.
        call.failure = call.cause = call.rejection = None
        applied, call.replaced_failure = call.stop is not None and call.replaced_failure is not None, None
        if self.counters is not None:
            fallback = self._fallback_label(applied)
            if self.retry is None:
                series = call_series(returned, fallback)
            else:
                result = LIMITS.get(call.stop, NOT_RETRYABLE) if applied or not returned else RETURNED
                series = call_series(returned, fallback, call.attempts > 1, result)
            self.counters.add(series)

    def report_recovery(self, call: CallRecord) -> None:
        """Report a call that succeeded after retries to the budget that paid, and to sinks that received a retry."""
        if self.budget is not None:
            self._refill_budget(self.budget, call, succeeded=True)
        if call.is_heard and sinks.wanted[Recovered](call):
            sinks.send(Recovered(self.name, call.attempts), call)

    def _fallback_label(self, applied: bool) -> str | None:
        """Return the label of the fallback in the count of a call; ``None`` if the call is counted elsewhere."""
        if not self.counts_calls:
            return None
        return "applied" if applied else "notApplied" if self.fallback_on is not None else "notDefined"

    def _refill_budget(self, budget: RetryBudget, call: CallRecord, *, succeeded: bool) -> None:
        """Return to the budget the price of a successful or unmade retry, or the income from a call without retries."""
        if call.paid_for > call.attempts or (succeeded and call.paid_for == call.attempts):
            budget.give_back()
        elif succeeded and call.attempts == 1:
            budget.succeed()


@cache
def _counting_order(gate_name: str, rate_limit: bool, timeout: bool, bulkhead: bool) -> Interned[tuple[int, str]]:
    """Return the policies that count attempts, outermost first, each with the least ``admitted_by`` inside it."""
    ranks = (
        (BY_GATE, gate_name),
        (BY_RATE_LIMIT, "RateLimit" * rate_limit),
        (BY_NONE, "Timeout" * timeout),
        (BY_BULKHEAD, "Bulkhead" * bulkhead),
    )
    return Interned((rank, name) for rank, name in ranks if name)


@cache
def _series_of(
    ranked: Interned[tuple[int, str]], admitted_by: int, refused_by: str, verdict: str, timed_out: bool, queued: bool
) -> tuple[tuple[Series, ...], bool, bool, bool]:
    """Return the series that an attempt advances, and whether it was timed, whether it queued or ran, and ran."""
    facts: dict[str, str] = {}
    for rank, name in ranked:
        if name == refused_by:
            facts[name] = "refused"
            break
        if rank > admitted_by and not (rank == BY_BULKHEAD and queued):
            break  # control flow ended the attempt before
        facts[name] = verdict if rank == BY_GATE else "timedOut" if rank == BY_NONE and timed_out else "passed"
    queued = facts.get("Bulkhead") == "passed" or (queued and "Bulkhead" in facts)
    return series_of_facts(tuple(facts.items())), "Timeout" in facts, queued, queued and admitted_by == BY_BULKHEAD
