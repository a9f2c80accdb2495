"""Calls that the retries could not save: the failures of their attempts, and the policy that refused the last one."""

from __future__ import annotations

import gc
import logging
import pickle
import weakref
from typing import Any

import pytest

from faulttolerance import (
    BulkheadException,
    CircuitBreakerOpenException,
    FaultToleranceException,
    Guard,
    RateLimitException,
    RefusedException,
    TimeoutException,
    circuit_breaker,
    circuit_breakers,
    rate_limit,
    retry,
    retry_when,
)
from faulttolerance.policies import Bulkhead, CircuitBreaker, Fallback, RateLimit, Retry
from kit import Clock, Invoke, Service, key

# The end of the retries


def failing_client(invoke: Invoke, **values: Any) -> Any:
    """A client whose circuit opens at the second failure."""

    class Client(Service):
        @retry(max_retries=3, jitter=0, **values)
        @circuit_breaker(request_volume_threshold=2, failure_ratio=1.0)
        @invoke.body
        async def charge(self) -> None:
            self.executions += 1
            raise ConnectionError(f"attempt {self.executions}")

    return Client


def failure_of(invoke: Invoke, method: Any) -> BaseException:
    """Return the exception that a call raises."""
    with pytest.raises(Exception) as raised:
        invoke(method)
    return raised.value


def test_refusal_that_ends_the_retries_is_caused_by_the_last_failure(invoke: Invoke) -> None:
    """R1, R4: the circuit opened between two attempts; the reason is not lost."""
    failure = failure_of(invoke, failing_client(invoke)().charge)

    assert type(failure) is CircuitBreakerOpenException
    assert repr(failure.__cause__) == "ConnectionError('attempt 2')"


def test_note_lists_the_failure_of_each_attempt(invoke: Invoke) -> None:
    """R1: where the failures differ."""
    failure = failure_of(invoke, failing_client(invoke)().charge)

    (note,) = failure.__notes__
    assert "4 attempts in" in note
    assert "(1-2: ConnectionError, 3-4: circuit open); no more, because max_retries reached" in note


def test_note_of_many_attempts_lists_the_last_ones(invoke: Invoke) -> None:
    """R1: a call that was retried for long does not keep them all."""

    class Client(Service):
        @retry(max_retries=20, jitter=0)
        @invoke.body
        async def charge(self) -> None:
            self.executions += 1
            raise (ConnectionError if self.executions % 2 else OSError)

    (note,) = failure_of(invoke, Client().charge).__notes__

    assert "(..., 13: ConnectionError, 14: OSError, 15: ConnectionError, " in note


def test_refusal_by_the_rate_limit_has_a_cause_too(invoke: Invoke) -> None:
    """R1: every refusal that ends the retries has its cause."""

    class Client(Service):
        @retry(max_retries=3, jitter=0)
        @rate_limit(2, window=60_000)
        @invoke.body
        async def charge(self) -> None:
            raise ConnectionError

    failure = failure_of(invoke, Client().charge)

    assert type(failure) is RateLimitException
    assert isinstance(failure.__cause__, ConnectionError)


def test_fallback_sees_the_cause(invoke: Invoke) -> None:
    """R6: the handler is given the refusal, with the failure behind it."""
    seen: list[BaseException | None] = []
    guard = Guard(
        fallback=Fallback(lambda context: seen.append(context.failure.__cause__)),
        retry=Retry(max_retries=3, jitter=0),
        circuit_breaker=CircuitBreaker(request_volume_threshold=2, failure_ratio=1.0),
    )

    guard.call(lambda: 1 / 0)

    assert [type(one) for one in seen] == [ZeroDivisionError]


def test_log_says_why_the_circuit_opened_and_refusals_name_the_class(
    invoke: Invoke, caplog: pytest.LogCaptureFixture
) -> None:
    """R4: the log tells the failure that opened it, and each refusal names the class of the failure."""
    caplog.set_level(logging.INFO, "faulttolerance")
    cls = failing_client(invoke)

    failure_of(invoke, cls().charge)
    later = failure_of(invoke, cls().charge)

    (opened,) = [one.getMessage() for one in caplog.records if "circuit breaker opened" in one.getMessage()]
    name = key(cls, "charge").replace("/", ".")
    assert opened == f"{name}: circuit breaker opened: 2 of 2 failed, last ConnectionError, next probe in 5 s"
    assert str(later).startswith(f"{name}: circuit breaker is open after ConnectionError, next call in")
    assert later.__cause__ is None


def test_breaker_keeps_no_failure_alive() -> None:
    """R4: it remembers only the name of the class; a traceback would hold the arguments of the call."""

    class Argument:
        pass

    guard = Guard(circuit_breaker=CircuitBreaker(request_volume_threshold=1, failure_ratio=1.0))

    def fails(argument: Argument) -> None:
        raise ConnectionError

    argument = Argument()
    alive = weakref.ref(argument)
    with pytest.raises(ConnectionError):
        guard.call(fails, argument)
    del argument

    assert alive() is None
    with pytest.raises(CircuitBreakerOpenException):
        guard.call(fails, Argument())


@pytest.mark.parametrize("ends", ["refused", "returned"])
def test_the_failures_of_a_call_are_freed_with_its_outcome(ends: str) -> None:
    """R1: no collection is needed for that, though the call remembered its last failure."""
    gc.collect()
    gc.disable()
    try:

        class Failure(Exception):
            pass

        alive: list[weakref.ref[Failure]] = []
        guard = Guard(
            retry=Retry(max_retries=3, jitter=0),
            circuit_breaker=CircuitBreaker(request_volume_threshold=2, failure_ratio=1.0),
        )

        def service() -> str:
            if ends == "returned" and alive:
                return "served"
            failure = Failure()
            alive.append(weakref.ref(failure))
            try:
                raise failure
            finally:
                del failure

        if ends == "returned":
            guard.call(service)
        else:
            with pytest.raises(CircuitBreakerOpenException):
                guard.call(service)
            del guard

        assert [one() for one in alive] == [None] * len(alive)
    finally:
        gc.enable()


# The refusing policy


def test_refusals_have_one_base_with_the_time_to_come_back(clock: Clock) -> None:
    """P5: ``retry_after`` in seconds, ``None`` where it is unknown; it survives pickling."""
    guard = Guard(circuit_breaker=CircuitBreaker(request_volume_threshold=1, failure_ratio=1.0), name="refusing")
    with pytest.raises(ZeroDivisionError):
        guard.call(lambda: 1 / 0)
    with pytest.raises(RefusedException) as open_circuit:
        guard.call(int)
    circuit_breakers.force_open("refusing")
    with pytest.raises(RefusedException) as forced:
        guard.call(int)
    limited = Guard(rate_limit=RateLimit(1, window=2))
    limited.call(int)
    with pytest.raises(RefusedException) as too_many:
        limited.call(int)
    narrow = Guard(bulkhead=Bulkhead(1))
    with pytest.raises(RefusedException) as full:
        narrow.call(lambda: narrow.call(int))
    guard.close()

    raised = [open_circuit.value, forced.value, too_many.value, full.value]

    assert [one.retry_after for one in raised] == [pytest.approx(5), None, pytest.approx(2), None]
    assert [type(pickle.loads(pickle.dumps(one))) for one in raised] == list(map(type, raised))
    assert [pickle.loads(pickle.dumps(one)).retry_after for one in raised] == [one.retry_after for one in raised]


@pytest.mark.parametrize("kind", [CircuitBreakerOpenException, RateLimitException, BulkheadException])
def test_each_refusal_is_one(kind: type[Exception]) -> None:
    """P5: one class names all refusals, and no failure of an attempt that had begun."""
    assert issubclass(kind, RefusedException)
    assert not issubclass(TimeoutException, RefusedException)


# Results that were not accepted


@pytest.mark.parametrize("second", [{"quota": 3}, "soon", None, float("nan")])
def test_a_refusal_of_the_application_may_have_arguments_of_its_own(second: Any) -> None:
    """Those that are no number of seconds are no time to wait, and its text can be read."""
    refusal = RateLimitException("busy", second)

    assert (str(refusal), refusal.retry_after) == ("busy", None)


def test_last_result_that_was_not_accepted_is_on_the_exception(invoke: Invoke) -> None:
    """R1: the caller may still use it; it survives pickling, and a note says how often it was tried."""

    class Client(Service):
        @retry_when(result=lambda value: True)
        @retry(max_retries=2, jitter=0)
        @invoke.body
        async def balance(self) -> int:
            self.executions += 1
            return -self.executions

    failure = failure_of(invoke, Client().balance)

    assert type(failure) is FaultToleranceException
    assert "3 attempts in" in failure.__notes__[0]
    if invoke.convention == "offloaded":
        assert failure.result.result() == -3  # the predicate is given the future as well
    else:
        assert failure.result == -3
        assert pickle.loads(pickle.dumps(failure)).result == -3


def test_exceptions_without_a_result_say_so() -> None:
    """P5: one attribute for all."""
    assert FaultToleranceException("x").result is None
    assert TimeoutException("x").result is None
