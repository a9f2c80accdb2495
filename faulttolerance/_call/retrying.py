"""What follows an attempt that does not end its call at once: judging its result, retrying, falling back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import ref

from .._event import FallbackApplied, GaveUp, RetryScheduled, sinks
from .._metrics.series import advanced
from .._runtime.blocking import Arguments, Aside, pause
from .._runtime.clock import clock
from .._runtime.environment import Environment, StoppedIteration
from .._runtime.interruption import remaining
from .._strategy.exception_set import matches
from .._strategy.retry import Stop
from ..exceptions import FaultToleranceException
from .record import CallRecord

if TYPE_CHECKING:
    from .bound import BoundPolicies

__all__ = ["Retrying"]

_RETRIED = advanced((("Retry", "retried"),))
_ALWAYS_NOTED = (Stop.DEADLINE, Stop.PREDICATE_FAILED)
"""Reasons that are told of a single attempt too."""


class Retrying:
    """Goes on with a call from the end of its first attempt; ``follow`` and ``follow_async`` differ in how they wait.

    Args:
        policies: What guards the method.
        fallback: What replaces a final failure.
        before_retry: What is run before each retry.
        environment: How an asynchronous call waits.
    """

    __slots__ = ("_attempt", "_before_retry", "_environment", "_fallback", "_policies")

    def __init__(
        self,
        policies: BoundPolicies,
        fallback: Aside | None,
        before_retry: Aside | None,
        environment: Environment | None,
    ) -> None:
        self._policies = policies
        self._fallback = fallback
        self._before_retry = before_retry
        self._environment = environment

    def repeats(self, attempt: Callable[..., Any]) -> None:
        """Make further attempts by *attempt*, which leads here: it lives as long as a call of it runs."""
        self._attempt: Callable[[], Any] = ref(attempt)

    def follow(
        self,
        failure: BaseException | None,
        result: Any,
        call: CallRecord,
        args: Arguments,
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Return what a synchronous call comes to after its first attempt, or raise its failure."""
        while True:
            if failure is None and self._policies.refuses is not None:
                failure = self._refusal_of(result, call)
            try:
                if failure is None:
                    break
                delay = self._next_delay(call, failure)
                if delay is None:
                    result = self._fallback_for(call, failure)(args, kwargs, failure, call.attempts)
                    break
                if delay:
                    pause(self._policies.name, delay)
                if self._before_retry is not None:
                    self._before_retry(args, kwargs, failure, call.attempts + 1)
            finally:
                del failure  # its traceback holds this frame
            self._count_retry(call)
            failure, result = self._attempt()(args, kwargs, call)
        self._policies.examine(result)
        self._policies.finish(call, returned=True)
        return result

    async def follow_async(
        self,
        failure: BaseException | None,
        result: Any,
        call: CallRecord,
        args: Arguments,
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Return what an asynchronous call comes to after its first attempt, or raise its failure."""
        assert self._environment is not None
        ask, pause = self._environment.call, self._environment.pause
        retry = self._policies.retry
        while True:
            if retry is not None and self._policies.consults:
                call.answer = await ask(retry.consult, failure, result)
            if failure is None and self._policies.refuses is not None:
                failure = self._refusal_of(result, call)
            try:
                if failure is None:
                    break
                delay = self._next_delay(call, failure)
                if delay is None:
                    result = await ask(self._fallback_for(call, failure), args, kwargs, failure, call.attempts)
                    break
                # Also without a delay: whoever retries again and again must let others go on.
                if delay or call.attempts > 1:
                    await pause(delay)
                if self._before_retry is not None:
                    await ask(self._before_retry, args, kwargs, failure, call.attempts + 1)
            finally:
                del failure  # its traceback holds this frame
            self._count_retry(call)
            failure, result = await self._attempt()(args, kwargs, call)
        self._policies.finish(call, returned=True)
        return result

    def _refusal_of(self, result: object, call: CallRecord) -> BaseException | None:
        """Return the failure that stands for *result* where ``retry_when`` does not accept it."""
        retry = self._policies.retry
        if retry is None or not retry.refuses(result, call.answer):
            return None
        call.refusal = FaultToleranceException(f"{self._policies.name}: the result was refused by retry_when")
        call.refusal.result = result
        return call.refusal

    def _next_delay(self, call: CallRecord, failure: BaseException) -> float | None:
        """Return the seconds until the next attempt; ``None`` where there is none, and *failure* is final."""
        retry = self._policies.retry
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
        name = self._policies.name
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

    def _fallback_for(self, call: CallRecord, failure: BaseException) -> Aside:
        """Return what replaces *failure*, or raise that where nothing does."""
        policies, fallback = self._policies, self._fallback
        try:
            applies = policies.fallback_on is not None and matches(
                failure, policies.fallback_on, policies.no_fallback_on
            )
            if fallback is None or not applies:
                raise StoppedIteration.of(failure) if policies.detached else failure
            if sinks.wanted[FallbackApplied]():
                sinks.tell(FallbackApplied(policies.name, failure))
            call.replaced = failure
            return fallback
        finally:
            del failure  # its traceback holds this frame

    def _count_retry(self, call: CallRecord) -> None:
        """Count a retry now that it begins: a call that is cancelled during the delay was not retried."""
        call.attempts += 1
        if self._policies.counters is not None:
            self._policies.counters.add(_RETRIED)

    def fail(self, error: BaseException, call: CallRecord | None, args: Arguments, kwargs: Mapping[str, Any]) -> None:
        """Count a call that raised *error*, once for all attempts that *error* passes on its way out."""
        replaced = call.replaced if call is not None else None
        # A fallback method may be for failures of one class only, and raise any other one unasked.
        if call is not None and replaced is not None and StoppedIteration.meant(error) is replaced:
            accepts = getattr(self._fallback, "accepts", None)
            if accepts is not None and not accepts(args, kwargs, replaced):
                call.replaced = None
        self._policies.finish(call, returned=False)
