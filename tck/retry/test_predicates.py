"""Rule R10 for the functions of a retry: predicates and back-offs with mistakes of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any, NoReturn

import pytest

from faulttolerance import (
    FaultToleranceDefinitionException,
    FaultToleranceException,
    asynchronous,
    asynchronous_non_blocking,
    before_retry,
    custom_backoff,
    retry,
    retry_when,
)
from kit import Clock, Invoke, Service


def breaks(*_: Any) -> NoReturn:
    """Make a mistake."""
    raise ZeroDivisionError("a mistake")


async def later(*_: Any) -> bool:
    """Answer once it is awaited."""
    return True


def mistakes(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the logged errors of predicates, with the exception of each."""
    return [f"{one.getMessage()}: {one.exc_info[1]!r}" for one in caplog.records if one.exc_info]


def test_exception_predicate_that_raises_is_logged_once_and_noted(
    invoke: Invoke, caplog: pytest.LogCaptureFixture
) -> None:
    """R10: the failure comes out, not retried; its note says why."""

    class Client(Service):
        @retry_when(exception=breaks)
        @retry(jitter=0)
        @invoke.body
        async def charge(self) -> None:
            raise ConnectionError

    for _ in range(3):
        with pytest.raises(ConnectionError) as raised:
            invoke(Client().charge)

    (told,) = mistakes(caplog)
    assert "charge: an error in the exception predicate of @retry_when; it counts as false" in told
    assert "ZeroDivisionError('a mistake')" in told
    (note,) = raised.value.__notes__
    assert "1 attempt in" in note
    assert "no more, because the exception predicate of retry_when failed, which is logged" in note


def test_result_predicate_that_raises_accepts_the_result(invoke: Invoke, caplog: pytest.LogCaptureFixture) -> None:
    """R10: the method has returned, and its result is not lost."""

    class Client(Service):
        @retry_when(result=breaks)
        @retry(jitter=0)
        @invoke.body
        async def balance(self) -> int:
            return 7

    assert [invoke(Client().balance) for _ in range(2)] == [7, 7]
    assert len(mistakes(caplog)) == 1


def test_back_off_that_raises_lets_the_delay_of_retry_count(
    invoke: Invoke, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """R10: the delay is the one without a back-off."""

    class Client(Service):
        @custom_backoff(lambda: breaks)
        @retry(max_retries=2, delay=300, jitter=0)
        @invoke.body
        async def charge(self) -> None:
            self.executions += 1
            if self.executions < 3:
                raise ConnectionError

    stopwatch = clock.stopwatch()
    invoke(Client().charge)

    assert stopwatch.elapsed == pytest.approx(0.6)
    assert len(mistakes(caplog)) == 1


class Slow:
    """A class that makes predicates and back-offs that are coroutine functions."""

    async def __call__(self, *_: Any) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("decorator", "place"),
    [
        (lambda: retry_when(exception=later), "@RetryWhen(exception)"),
        (lambda: retry_when(result=later), "@RetryWhen(result)"),
        (lambda: retry_when(result=Slow()), "@RetryWhen(result)"),
        (lambda: custom_backoff(later), "@CustomBackoff(value)"),
        (lambda: custom_backoff(Slow), "@CustomBackoff(value)"),
    ],
)
def test_coroutine_function_that_nothing_awaits_is_a_definition_error(decorator: Any, place: str) -> None:
    """R9: a coroutine counts as true, whatever its result: good results would be retried, and fatal errors."""

    def plain() -> None: ...

    with pytest.raises(FaultToleranceDefinitionException) as raised:
        decorator()(retry(plain))

    assert place in raised.value.where
    assert "a coroutine function, which nothing awaits" in str(raised.value)
    assert raised.value.allowed == "a synchronous function"


class TwoSeconds:
    """A back-off that has to be awaited."""

    async def __call__(self, failure: BaseException | None) -> float:
        return 2.0


async def two_seconds() -> TwoSeconds:
    """Return a back-off, after an await."""
    return TwoSeconds()


@pytest.mark.parametrize("back_off", [TwoSeconds, two_seconds, lambda: lambda _: TwoSeconds()(None)])
def test_back_off_may_be_awaited_where_calls_are(back_off: Any, invoke: Invoke, clock: Clock) -> None:
    """Rule T3: the function, its factory, or the result of a lambda may have to be awaited."""
    began = []

    @invoke.body
    async def charge() -> None:
        began.append(clock.monotonic())
        raise ConnectionError

    if invoke.convention == "blocking":
        return
    with pytest.raises(ConnectionError):
        invoke(custom_backoff(back_off)(retry(max_retries=2)(charge)))

    assert [later - sooner for sooner, later in pairwise(began)] == pytest.approx([2, 2])


def test_coroutine_function_as_the_predicate_of_a_synchronous_function_is_refused_at_the_first_call() -> None:
    """R9: until then ``@asynchronous`` might follow; the function does not run."""
    calls = []

    @retry_when(result=later)
    @retry
    def charge():  # type: ignore[no-untyped-def]
        calls.append(1)

    with pytest.raises(FaultToleranceDefinitionException, match="which nothing awaits"):
        charge()

    assert not calls


WAYS: dict[str, Callable[[Callable[..., Any]], Callable[[], Any]]] = {
    "async def": lambda guarded: lambda: asyncio.run(guarded(coroutine_of)()),
    "@asynchronous async def": lambda guarded: lambda: asyncio.run(awaiting(asynchronous(guarded(coroutine_of)))),
    "@asynchronous def": lambda guarded: lambda: asynchronous(guarded(plain_of))().result(10),
    "@asynchronous_non_blocking def": lambda guarded: (
        lambda: asyncio.run(awaiting(asynchronous_non_blocking(guarded(awaitable_of))))
    ),
}
values: list[Any] = []


async def coroutine_of() -> Any:
    return plain_of()


def awaitable_of() -> Awaitable[Any]:
    return coroutine_of()


def plain_of():  # type: ignore[no-untyped-def]  # what it returns is told by nothing
    value = values.pop(0)
    if isinstance(value, BaseException):
        raise value
    return value


async def awaiting(call: Callable[[], Any]) -> Any:
    return await call()


async def is_negative(value: Any) -> bool:
    await asyncio.sleep(0)
    return bool(value < 0)


async def is_transient(error: BaseException) -> bool:
    await asyncio.sleep(0)
    return str(error) == "transient"


@pytest.mark.parametrize("way", WAYS)
class TestPredicatesThatAreAwaited:
    """Predicates that are coroutine functions, where the call is awaited."""

    def test_results_are_refused(self, way: str) -> None:
        values[:] = [-1, -2, 5, 6]

        call = WAYS[way](lambda body: retry_when(result=is_negative)(retry(jitter=0)(body)))

        assert call() == 5
        assert call() == 6

    def test_failures_are_retried(self, way: str) -> None:
        values[:] = [OSError("transient"), ValueError("transient"), OSError("fatal"), 5]

        with pytest.raises(OSError, match="fatal") as raised:
            WAYS[way](lambda body: retry_when(exception=is_transient)(retry(jitter=0)(body)))()

        assert "3 attempts" in raised.value.__notes__[0]

    def test_the_last_refused_result_is_on_the_exception(self, way: str) -> None:
        values[:] = [-1, -2, -3]
        guarded = WAYS[way](lambda body: retry_when(result=is_negative)(retry(max_retries=2, jitter=0)(body)))

        with pytest.raises(FaultToleranceException) as raised:
            guarded()

        assert raised.value.result == -3

    def test_a_predicate_that_raises_counts_as_false(self, way: str, caplog: pytest.LogCaptureFixture) -> None:
        async def fails(_: Any) -> bool:
            await asyncio.sleep(0)
            raise ZeroDivisionError("a mistake")

        values[:] = [OSError("first"), 5]
        guarded = WAYS[way](lambda body: retry_when(exception=fails, result=fails)(retry(jitter=0)(body)))

        with pytest.raises(OSError, match="first") as raised:
            guarded()
        assert guarded() == 5

        assert "the exception predicate of retry_when failed" in raised.value.__notes__[0]
        assert len(mistakes(caplog)) == 2

    def test_no_predicate_sees_control_flow(self, way: str) -> None:
        asked: list[BaseException] = []

        async def ask(error: BaseException) -> bool:
            asked.append(error)
            return True

        class Stop(BaseException):
            """Control flow of the application."""

        values[:] = [Stop(), 5]
        with pytest.raises(Stop):
            WAYS[way](lambda body: retry_when(exception=ask)(retry(jitter=0)(body)))()

        assert not asked

    def test_either_predicate_may_be_a_plain_function(self, way: str) -> None:
        values[:] = [OSError("transient"), -1, 5]
        decorator = retry_when(exception=is_transient, result=lambda value: value < 0)

        assert WAYS[way](lambda body: decorator(retry(jitter=0)(body)))() == 5


def test_coroutine_function_in_a_class_level_policy_is_a_definition_error() -> None:
    """R9: class-level policies follow the same rule."""
    with pytest.raises(FaultToleranceDefinitionException, match="RetryWhen"):

        @retry_when(result=later)
        @retry
        class Client:
            def charge(self) -> None: ...


def test_coroutine_function_before_a_retry_of_a_plain_function_is_a_definition_error() -> None:
    """R9: nothing would await it."""
    with pytest.raises(FaultToleranceDefinitionException, match="BeforeRetry"):

        @before_retry(later)
        @retry
        def charge() -> None: ...


def test_coroutine_function_named_by_the_configuration_is_refused() -> None:
    """R9: when the configuration is resolved."""
    from faulttolerance import testing

    @retry_when(result=bool)
    @retry
    def charge() -> None: ...

    with (
        testing.configured({"RetryWhen/result": f"{__name__}.later"}),
        pytest.raises(FaultToleranceDefinitionException, match="coroutine function"),
    ):
        charge()
