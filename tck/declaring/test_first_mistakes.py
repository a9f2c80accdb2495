"""The first mistakes of a newcomer are refused with the value, the place, the allowed values, and a likely fix."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial, wraps
from operator import itemgetter
from typing import Any

import pytest

from faulttolerance import (
    FaultToleranceDefinitionException,
    Guard,
    before_retry,
    bulkhead,
    circuit_breaker,
    circuit_breakers,
    custom_backoff,
    exponential_backoff,
    fail_when,
    fallback,
    honor_retry_after,
    rate_limit,
    retry,
    retry_when,
    timeout,
    veto_retries,
)
from faulttolerance.instrumentation import set_event_sinks
from faulttolerance.policies import CircuitBreaker, Retry, RetryWhen, Timeout


def body() -> None:
    """Do nothing, under a guard."""


class Gone(Exception):
    """A failure of the application."""


class Cart:
    @property
    def total(self) -> int:
        return 0


def numbers() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (lambda: timeout("2sec")(body), ["body @Timeout(value) is '2sec'; allowed: a duration"]),
        (lambda: timeout("1,500ms")(body), ["is '1,500ms'; allowed"]),
        (lambda: timeout("half a second")(body), ["is 'half a second'; allowed: a duration"]),
        (lambda: rate_limit("100/s")(body), ["@RateLimit(value) is '100/s', perhaps 100, '1s' is meant"]),
        (lambda: rate_limit("5 per minute")(body), ["is '5 per minute', perhaps 5, '1m' is meant"]),
        (lambda: rate_limit("100/parsec")(body), ["is '100/parsec'; allowed: an integer"]),
        (
            lambda: Guard(timeout="2s"),
            ["Guard(timeout) is '2s'", "Timeout(...) or None; perhaps Timeout('2s') is meant"],
        ),
        (lambda: Guard(Retry(), Retry()), ["Guard got two policies Retry; allowed: one of each kind per guard"]),
        (lambda: Guard(Retry(), retry=Retry()), ["Guard got two policies Retry"]),
        (lambda: Guard("payments"), ["Guard got 'payments'; allowed: retry(...), timeout(...) and so on"]),
        (lambda: timeout(500, "ms")(body), ["@Timeout(unit) is 'ms'; allowed: a ChronoUnit", "'millis'"]),
        (lambda: retry(retry_on="OSError")(body), ["is 'OSError'; allowed: an exception class, caused_by(...)"]),
        (
            lambda: circuit_breaker(fail_on=[OSError, "Gone"])(body),
            ["@CircuitBreaker(fail_on) is [", "'Gone']; allowed"],
        ),
        (lambda: retry(retry_on=Gone("no"))(body), ["is Gone('no'); allowed: an exception class"]),
        (
            lambda: retry_when(exception=OSError)(body),
            ["@RetryWhen(exception) is <class 'OSError'>, but exception classes belong to retry_on and fail_on"],
        ),
        (lambda: fail_when(exception=(OSError, Gone))(body), ["but exception classes belong to retry_on and fail_on"]),
        (lambda: retry(OSError), ["@Retry got <class 'OSError'> by position", "retry_on"]),
        (lambda: retry(Gone), ["@Retry got", "Gone'> by position", "retry_on"]),
        (lambda: circuit_breaker(Gone), ["@CircuitBreaker got", "fail_on"]),
        (lambda: retry(3), ["@Retry got 3 by position", "max_retries"]),
        (lambda: retry(Cart.__dict__["total"]), ["@property cannot be guarded", "guard the function in it"]),
        (lambda: retry(numbers), ["numbers @Retry is on a generator function", "that awaits", "body of the loop"]),
        (lambda: bulkhead("5")(body), ["@Bulkhead(value) is '5'; allowed: an integer >= 1"]),
        (lambda: Guard(timeout="1s"), ["Guard(timeout) is '1s'; allowed: Timeout(...)"]),
        (lambda: Timeout("2sec") and Guard(timeout=Timeout("2sec")), ["@Timeout(value) is '2sec'; allowed"]),
    ],
)
def test_a_wrong_value_is_named_with_the_one_that_is_probably_meant(
    mistake: Callable[[], Any], told: list[str]
) -> None:
    with pytest.raises(FaultToleranceDefinitionException) as refused:
        mistake()

    assert [part for part in told if part not in str(refused.value)] == [], str(refused.value)


@pytest.mark.parametrize(
    ("mistake", "place", "parameters"),
    [
        (lambda: custom_backoff(lambda failure: 2.0)(body), "@CustomBackoff(value)", "(failure)"),
        (lambda: retry_when(exception=lambda: True)(body), "@RetryWhen(exception)", "()"),
        (lambda: retry_when(result=lambda result, attempt: True)(body), "@RetryWhen(result)", "(result, attempt)"),
        (lambda: fail_when(exception=lambda: True)(body), "@FailWhen(exception)", "()"),
        (lambda: honor_retry_after(read=lambda: 3)(body), "@HonorRetryAfter(read)", "()"),
        (lambda: before_retry(lambda: None)(body), "@BeforeRetry(value)", "()"),
        (lambda: Guard(Retry(), RetryWhen(exception=lambda: True)), "@RetryWhen(exception)", "()"),
        (lambda: circuit_breakers.on_state_change("shop", lambda state: None), "on_state_change(callback)", "(state)"),
        (lambda: set_event_sinks(lambda: None), "set_event_sinks(sinks)", "()"),
        (lambda: veto_retries(lambda: None), "veto_retries(ask)", "()"),
    ],
)
def test_a_function_for_other_arguments_is_refused(mistake: Callable[[], Any], place: str, parameters: str) -> None:
    """The first failure of the callee is no time to find that a predicate cannot be called."""
    with pytest.raises(FaultToleranceDefinitionException) as refused:
        mistake()

    assert f"{place} is " in str(refused.value)
    assert f", whose parameters are {parameters}; allowed: " in str(refused.value)


def with_a_limit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Provide an argument, as decorators that open a session or inject a dependency do."""

    @wraps(function)
    def limited(*args: Any) -> Any:
        return function(*args, limit=1)

    return limited


@with_a_limit
def exceeds(value: int, limit: int) -> bool:
    return value > limit


class Exceeds:
    @with_a_limit
    def __call__(self, value: int, limit: int) -> bool:
        return value > limit


@pytest.mark.parametrize(
    "predicate",
    [bool, "abc".startswith, re.compile("a").search, itemgetter(0), partial(max, 0), partial(exceeds), Exceeds()],
)
def test_a_function_whose_parameters_are_not_known_or_fit_is_accepted(predicate: Callable[[Any], Any]) -> None:
    """Functions in C, also those without a signature, are predicates like any other."""
    retry_when(result=predicate)(body)


def test_a_guard_takes_a_callable_and_not_its_result() -> None:
    """A coroutine that nothing awaits is closed, so that no warning about it comes later."""

    async def ask() -> int:
        return 42

    guard = Guard(name="rules.mistakes")
    try:
        with pytest.raises(FaultToleranceDefinitionException) as called:
            guard.call(42)  # type: ignore[arg-type]
        with pytest.raises(FaultToleranceDefinitionException) as awaited:
            asyncio.run(guard.call_async(ask()))  # type: ignore[call-overload]
    finally:
        guard.close()

    assert str(called.value) == (
        "Guard rules.mistakes.call got 42, which cannot be called;"
        " allowed: a callable and its arguments: call(f, x), not call(f(x))"
    )
    assert "not call_async(f(x))" in str(awaited.value)


@pytest.mark.parametrize(
    ("decorator", "name", "ours"),
    [
        (retry, "retries", "max_retries"),
        (retry, "maxRetries", "max_retries"),
        (retry, "attempts", "max_retries"),
        (retry, "on", "retry_on"),
        (retry, "exceptions", "retry_on"),
        (retry, "wait", "delay"),
        (circuit_breaker, "on", "fail_on"),
        (circuit_breaker, "failure_threshold", "request_volume_threshold"),
        (circuit_breaker, "recovery_timeout", "delay"),
        (bulkhead, "max_concurrent", "value"),
        (timeout, "seconds", "value"),
        (timeout, "timeout", "value"),
        (retry, "timeout", "max_duration"),
        (retry, "max_tries", "max_retries"),
        (retry, "wait_initial", "delay"),
        (retry, "giveup", "abort_on"),
        (exponential_backoff, "multiplier", "factor"),
        (circuit_breaker, "exclude", "skip_on"),
        (Retry, "attempts", "max_retries"),
        (CircuitBreaker, "fail_max", "request_volume_threshold"),
        (Timeout, "seconds", "value"),
        (retry, "backoff", r"exponential_backoff\(factor=\.\.\.\) beside it"),
        (fallback, "default", r"fallback\(lambda context: \.\.\.\)"),
        (bulkhead, "queue", "waiting_task_queue"),
        (rate_limit, "per", "window"),
        (exponential_backoff, "base", "factor"),
    ],
)
def test_an_unknown_parameter_is_answered_with_the_nearest(decorator: Any, name: str, ours: str) -> None:
    """Also where another library has that name, and for the values that a Guard takes."""
    with pytest.raises(TypeError, match=f"has no parameter '{name}'; it has .*; did you mean {ours}\\?$"):
        decorator(**{name: 1})


def test_no_name_is_guessed_where_none_is_near() -> None:
    with pytest.raises(TypeError, match=r"has no parameter 'colour'; it has max_retries, .*, abort_on$"):
        retry(colour=1)  # type: ignore[call-arg]


def test_an_unknown_policy_of_a_guard_is_answered_with_the_nearest() -> None:
    """`Guard(retries=3)` names `retry`."""
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'retries'; did you mean 'retry'\?$"):
        Guard(retries=3)  # type: ignore[call-arg]


def test_a_guard_takes_its_policies_by_position_too() -> None:
    """They stand in any order, and beside others by name; they nest as always."""
    mixed = Guard(Timeout("2s"), CircuitBreaker(), retry=Retry(max_retries=2))
    named = Guard(retry=Retry(max_retries=2), circuit_breaker=CircuitBreaker(), timeout=Timeout("2s"))

    assert repr(mixed).partition(", name=")[0] == repr(named).partition(", name=")[0]
    assert mixed.call(max, 3, 5) == 5
