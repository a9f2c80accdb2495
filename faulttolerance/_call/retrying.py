"""What follows an attempt that does not end its call at once: judging its result, retrying, falling back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._event import FallbackApplied, GaveUp, RetryScheduled, sinks
from .._metrics.series import advanced
from .._runtime.blocking import Arguments, Aside, pause
from .._runtime.clock import clock
from .._runtime.environment import StoppedIteration
from .._runtime.interruption import remaining
from .._strategy.exception_set import matches
from .._strategy.retry import Retry, Stop
from ..exceptions import FaultToleranceException
from .record import CallRecord

if TYPE_CHECKING:
    from .bound import BoundPolicies

_RETRIED = advanced((("Retry", "retried"),))
_ALWAYS_NOTED = (Stop.DEADLINE, Stop.PREDICATE_FAILED)
"""Reasons that are told of a single attempt too."""


def follow(
    policies: BoundPolicies,
    failure: BaseException | None,
    result: Any,
    call: CallRecord,
    args: Arguments,
    kwargs: Mapping[str, Any],
) -> Any:
    """Go on with a synchronous call after its first attempt: return its result, or raise its failure."""
    retry = policies.retry
    while True:
        if failure is None and retry is not None and retry.result_predicate is not None:
            failure = _refusal_of(policies, retry, result, call)
        try:
            if failure is None:
                break
            delay = _next_delay(policies, call, failure)
            if delay is None:
                result = _fallback_for(policies, call, failure)(args, kwargs, failure, call.attempts)
                break
            if delay:
                pause(policies.name, delay)
            if policies.before_retry is not None:
                policies.before_retry(args, kwargs, failure, call.attempts + 1)
        finally:
            del failure  # its traceback holds this frame
        _count_retry(policies, call)
        failure, result = policies.attempt()(args, kwargs, call)
    policies.examine(result)
    policies.finish(call, returned=True)
    return result


async def follow_async(
    policies: BoundPolicies,
    failure: BaseException | None,
    result: Any,
    call: CallRecord,
    args: Arguments,
    kwargs: Mapping[str, Any],
) -> Any:
    """Go on with an asynchronous call after its first attempt: return its result, or raise its failure."""
    assert policies.environment is not None
    ask, pause = policies.environment.call, policies.environment.pause
    retry = policies.retry
    while True:
        if retry is not None and policies.consults:
            call.answer = await ask(retry.consult, failure, result)
        if failure is None and retry is not None and retry.result_predicate is not None:
            failure = _refusal_of(policies, retry, result, call)
        try:
            if failure is None:
                break
            delay = _next_delay(policies, call, failure)
            if delay is None:
                result = await ask(_fallback_for(policies, call, failure), args, kwargs, failure, call.attempts)
                break
            # Also without a delay: whoever retries again and again must let others go on.
            if delay or call.attempts > 1:
                await pause(delay)
            if policies.before_retry is not None:
                await ask(policies.before_retry, args, kwargs, failure, call.attempts + 1)
        finally:
            del failure  # its traceback holds this frame
        _count_retry(policies, call)
        failure, result = await policies.attempt()(args, kwargs, call)
    policies.finish(call, returned=True)
    return result


def _refusal_of(policies: BoundPolicies, retry: Retry, result: object, call: CallRecord) -> BaseException | None:
    """Return the failure that stands for *result* where ``retry_when`` does not accept it."""
    if not retry.refuses(result, call.answer):
        return None
    call.refusal = FaultToleranceException(f"{policies.name}: the result was refused by retry_when")
    call.refusal.result = result
    return call.refusal


def _next_delay(policies: BoundPolicies, call: CallRecord, failure: BaseException) -> float | None:
    """Return the seconds until the next attempt; ``None`` where there is none, and *failure* is final."""
    retry = policies.retry
    if retry is None:
        call.stop = Stop.NOT_RETRYABLE
        return None
    elapsed = clock.monotonic() - call.began
    call.add_failure(failure)
    if call.delays is None:
        call.delays = retry.begin()
    decide = retry.after_refusal if failure is call.refusal else retry.after_failure
    chance = clock.random() if retry.jitter else 0.0
    decision = decide(failure, call.attempts, elapsed, remaining(), chance, call.delays, call.answer)
    name = policies.name
    if not isinstance(decision, Stop):
        if sinks.wanted[RetryScheduled]():
            sinks.tell(RetryScheduled(name, call.attempts, decision, failure))
        return decision
    call.stop = decision
    call.explain(failure)
    if call.attempts > 1 or decision in _ALWAYS_NOTED:
        call.note(failure, elapsed, decision)
    if isinstance(failure, Exception) and sinks.wanted[GaveUp]():
        sinks.tell(GaveUp(name, call.attempts, elapsed, decision.value, failure))
    return None


def _fallback_for(policies: BoundPolicies, call: CallRecord, failure: BaseException) -> Aside:
    """Return what replaces *failure*, or raise that where nothing does."""
    fallback = policies.fallback
    try:
        applies = policies.fallback_on is not None and matches(failure, policies.fallback_on, policies.no_fallback_on)
        if fallback is None or not applies:
            raise StoppedIteration.of(failure) if policies.detached else failure
        if sinks.wanted[FallbackApplied]():
            sinks.tell(FallbackApplied(policies.name, failure))
        call.replaced = failure
        return fallback
    finally:
        del failure  # its traceback holds this frame


def _count_retry(policies: BoundPolicies, call: CallRecord) -> None:
    """Count a retry now that it begins: a call that is cancelled during the delay was not retried."""
    call.attempts += 1
    if policies.counters is not None:
        policies.counters.add(_RETRIED)


def fail(
    policies: BoundPolicies, error: BaseException, call: CallRecord | None, args: Arguments, kwargs: Mapping[str, Any]
) -> None:
    """Count a call that raised *error*, once for all attempts that *error* passes on its way out."""
    replaced = call.replaced if call is not None else None
    # A fallback method may be for failures of one class only, and raise any other one unasked.
    if call is not None and replaced is not None and StoppedIteration.meant(error) is replaced:
        accepts = getattr(policies.fallback, "accepts", None)
        if accepts is not None and not accepts(args, kwargs, replaced):
            call.replaced = None
    policies.finish(call, returned=False)
