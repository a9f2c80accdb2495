"""Rule R10 for what a retry asks: predicates and back-offs with mistakes of their own."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from faulttolerance import FaultToleranceDefinitionException, before_retry, custom_backoff, retry, retry_when
from kit import Clock, Invoke, Service


def breaks(*_: Any) -> NoReturn:
    """Make a mistake."""
    raise ZeroDivisionError("a mistake")


async def later(*_: Any) -> bool:
    """Answer once it is awaited."""
    return True


def mistakes(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of them, with what was raised."""
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
    assert "charge: an error in the exception predicate of @retry_when, which counts as false" in told
    assert "ZeroDivisionError('a mistake')" in told
    (note,) = raised.value.__notes__
    assert "1 attempt in" in note
    assert "no more, because the exception predicate of retry_when failed, which is logged" in note


def test_result_predicate_that_raises_accepts_the_result(invoke: Invoke, caplog: pytest.LogCaptureFixture) -> None:
    """R10: the method has answered, and the answer is not lost."""

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
    """R10: as if there were none."""

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
@pytest.mark.parametrize("asynchronous", [True, False])
def test_coroutine_function_that_nothing_awaits_is_a_definition_error(
    decorator: Any, place: str, asynchronous: bool
) -> None:
    """R9: a coroutine counts as true, whatever it would say: good results would be retried, and fatal errors."""

    async def awaited() -> None: ...

    def plain() -> None: ...

    with pytest.raises(FaultToleranceDefinitionException) as raised:
        decorator()(retry(awaited if asynchronous else plain))

    assert place in raised.value.where
    assert "a coroutine function, which nothing awaits" in str(raised.value)
    assert raised.value.allowed == "a function that answers at once"


def test_coroutine_function_in_a_class_level_policy_is_a_definition_error() -> None:
    """R9: also there."""
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
