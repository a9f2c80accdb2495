"""Functions of the application around a retry: awaited where calls are, refused elsewhere, harmless (rule T3)."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from collections.abc import Callable, Generator
from typing import Any, NoReturn

import pytest

from faulttolerance import (
    FaultToleranceDefinitionException,
    Guard,
    before_retry,
    custom_backoff,
    fallback,
    honor_retry_after,
    retry,
    retry_when,
)
from faulttolerance.policies import BeforeRetry, CustomBackoff, Fallback, HonorRetryAfter, Retry, RetryWhen
from kit import Clock, Invoke

Hook = Callable[[Callable[..., Any]], Callable[[Any], Any]]

HOOKS: dict[str, Hook] = {
    "RetryWhen(exception)": lambda function: retry_when(exception=function),
    "RetryWhen(result)": lambda function: retry_when(result=function),
    "HonorRetryAfter(read)": lambda function: honor_retry_after(read=function),
    "CustomBackoff(value)": lambda function: custom_backoff(_made_of(function)),
    "BeforeRetry(value)": lambda function: before_retry(function),
    "Fallback(value)": lambda function: fallback(function),
}


def _made_of(function: Callable[..., Any]) -> Any:
    """Return a factory of a back-off: its result is asked; an object of a class is one, as far as anyone can tell."""
    if inspect.iscoroutinefunction(function):

        class BackOff:
            async def __call__(self, failure: BaseException | None) -> Any:
                return await function(failure)

        return BackOff
    return lambda: function


def plain() -> str:
    """Return at once; nobody awaits it."""
    return "served"


async def later(subject: Any) -> bool:
    await asyncio.sleep(0)
    return False


def fails(subject: Any) -> NoReturn:
    raise ZeroDivisionError("a mistake")


async def fails_later(subject: Any) -> NoReturn:
    raise ZeroDivisionError("a mistake")


@pytest.mark.parametrize("name", HOOKS)
def test_a_coroutine_function_is_refused_where_nothing_awaits_it(name: str) -> None:
    """Rule T3: a decorator of a synchronous function names the parameter and the hook."""
    with pytest.raises(FaultToleranceDefinitionException) as refused:
        HOOKS[name](later)(retry(plain))

    assert f"@{name}" in str(refused.value)


@pytest.mark.parametrize("name", HOOKS)
def test_it_is_refused_by_a_guard_that_calls(name: str) -> None:
    """Rule T3: before the function runs; the same guard awaits the hook in ``call_async``."""
    policies: dict[str, Any] = {
        "RetryWhen(exception)": {"retry_when": RetryWhen(exception=later)},
        "RetryWhen(result)": {"retry_when": RetryWhen(result=later)},
        "HonorRetryAfter(read)": {"honor_retry_after": HonorRetryAfter(read=later)},
        "CustomBackoff(value)": {"custom_backoff": CustomBackoff(_made_of(later))},
        "BeforeRetry(value)": {"before_retry": BeforeRetry(later)},
        "Fallback(value)": {"fallback": Fallback(later)},
    }[name]
    guard = Guard(retry=Retry(max_retries=1, jitter=0), **policies)
    calls = []

    async def body() -> str:
        return "served"

    with pytest.raises(FaultToleranceDefinitionException):
        guard.call(lambda: calls.append(None))
    assert calls == []
    assert asyncio.run(guard.call_async(body)) == "served"


@pytest.mark.parametrize("hook", [fails, fails_later])
@pytest.mark.parametrize("name", [name for name in HOOKS if name != "Fallback(value)"])
def test_a_hook_that_raises_never_replaces_the_failure(
    name: str, hook: Callable[..., Any], invoke: Invoke, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Rule T3: its error is logged once, and the failure goes its way, into the fallback."""
    if hook is fails_later and invoke.convention == "blocking":
        pytest.skip("refused there")
    failures: list[BaseException] = []

    def substitute(context: Any) -> str:
        failures.append(context.failure)
        return "substitute"

    @invoke.body
    async def service() -> str:
        raise ConnectionError

    guarded = fallback(substitute)(HOOKS[name](hook)(retry(max_retries=2, delay=0, jitter=0)(service)))

    for _ in range(2):
        assert invoke(guarded) == "substitute"

    assert [type(failure) for failure in failures] == [ConnectionError] * 2
    mistakes = [one for one in caplog.records if one.exc_info and isinstance(one.exc_info[1], ZeroDivisionError)]
    assert len(mistakes) == (0 if name == "RetryWhen(result)" else 1)


class FailsWhenAwaited:
    def __await__(self) -> Generator[None, None, NoReturn]:
        yield
        raise ZeroDivisionError("a mistake")


def awaitable_that_fails(subject: Any) -> FailsWhenAwaited:
    return FailsWhenAwaited()


def future_that_fails(subject: Any) -> concurrent.futures.Future[NoReturn]:
    future: concurrent.futures.Future[NoReturn] = concurrent.futures.Future()
    future.set_exception(ZeroDivisionError("a mistake"))
    return future


AWAITED = [awaitable_that_fails, future_that_fails]


@pytest.mark.parametrize("hook", [fails, fails_later, *AWAITED])
def test_a_failure_before_a_retry_is_logged_and_changes_nothing(
    hook: Callable[..., Any], invoke: Invoke, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Rule R10: of any awaitable that the function returns, where calls are awaited."""
    if hook is not fails and invoke.convention == "blocking":
        pytest.skip("nothing awaits it there")
    attempts: list[None] = []

    @before_retry(hook)
    @retry(max_retries=2, delay=0, jitter=0)
    @invoke.body
    async def service() -> str:
        attempts.append(None)
        if len(attempts) < 3:
            raise ConnectionError
        return "served"

    assert invoke(service) == "served"
    [logged] = [one for one in caplog.records if one.exc_info and one.exc_info[0] is ZeroDivisionError]
    assert "service: the function of @before_retry failed" in logged.getMessage()


@pytest.mark.parametrize("hook", AWAITED)
def test_an_error_of_an_awaited_fallback_has_the_failure_as_its_context(
    hook: Callable[..., Any], invoke: Invoke
) -> None:
    """Rule R6: of any awaitable that the fallback returns."""
    if invoke.convention == "blocking":
        pytest.skip("nothing awaits it there")

    @fallback(hook)
    @invoke.body
    async def service() -> str:
        raise ConnectionError

    with pytest.raises(ZeroDivisionError) as raised:
        invoke(service)
    assert isinstance(raised.value.__context__, ConnectionError)


@pytest.mark.parametrize("hook", [fails, fails_later])
def test_a_result_predicate_that_raises_accepts_the_result(
    hook: Callable[..., Any], invoke: Invoke, caplog: pytest.LogCaptureFixture
) -> None:
    """Rule T3: the predicate counts as false."""
    if hook is fails_later and invoke.convention == "blocking":
        pytest.skip("refused there")

    @retry_when(result=hook)
    @retry(max_retries=2, jitter=0)
    @invoke.body
    async def service() -> str:
        return "served"

    assert [invoke(service), invoke(service)] == ["served"] * 2
    assert len([one for one in caplog.records if one.exc_info]) == 1


@pytest.mark.parametrize("name", [name for name in HOOKS if name != "Fallback(value)"])
def test_control_flow_in_a_hook_is_no_mistake(name: str, clock: Clock) -> None:
    """Rules T3 and R0: Ctrl-C during a hook ends the call."""

    def interrupted(subject: Any) -> NoReturn:
        raise KeyboardInterrupt

    @HOOKS[name](interrupted)
    @retry(max_retries=2, delay=0, jitter=0)
    def service() -> None:
        if name != "RetryWhen(result)":
            raise ConnectionError

    with pytest.raises(KeyboardInterrupt):
        service()


@pytest.mark.parametrize("name", HOOKS)
def test_a_call_that_is_cancelled_while_a_hook_is_awaited_is_over(
    name: str, clock: Clock, held: Callable[[], list[str]]
) -> None:
    """Rules T3 and R0: the cancellation passes, and nothing stays held."""
    entered: list[None] = []

    async def waits(subject: Any) -> None:
        entered.append(None)
        await asyncio.sleep(1000)

    attempts = []

    @HOOKS[name](waits)
    @retry(max_retries=0 if name == "Fallback(value)" else 2, delay=0, jitter=0)
    async def service() -> None:
        attempts.append(None)
        if name != "RetryWhen(result)":
            raise ConnectionError

    async def main() -> None:
        call = asyncio.ensure_future(service())
        await asyncio.sleep(1)
        assert call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    clock.run(main())

    assert (len(entered), len(attempts)) == (1, 1)
    assert held() == []
