"""P3: keywords of any name reach the function; no parameter of the library collides with them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

import faulttolerance as ft
from faulttolerance import Guard
from faulttolerance.policies import Bulkhead, CircuitBreaker, Fallback, Retry, Timeout


def plain(**given: int) -> dict[str, int]:
    return given


GIVEN = plain(
    args=1, asynchronous=2, attempt=3, call=4, callable=5, cls=6, context=7, coroutine=8, deadline=9, environment=10,
    error=11, failure=12, fallback=13, function=14, guard=15, kwargs=16, method=17, name=18, priority=19, resolver=20,
    result=21, self=22, state=23, target=24, value=25,
)  # fmt: skip


async def coroutine(**given: int) -> dict[str, int]:
    return given


def future(**given: int) -> ft.Future[dict[str, int]]:
    return ft.completed_future(given)


def awaitable(**given: int) -> Awaitable[dict[str, int]]:
    return coroutine(**given)


def failing(**given: int) -> dict[str, int]:
    raise OSError


def given_instead(**given: int) -> dict[str, int]:
    return given


def guarding() -> Guard:
    """Return a guard with every policy that puts code of the library between caller and function."""
    return Guard(
        retry=Retry(max_retries=1, jitter=0),
        timeout=Timeout(9000),
        circuit_breaker=CircuitBreaker(),
        bulkhead=Bulkhead(5),
        fallback=Fallback(lambda context: "aside"),
    )


def test_a_keyword_called_function_reaches_the_function() -> None:
    """The call is not retried, and no fallback answers for a function that never ran."""
    guard = Guard(fallback=Fallback(lambda context: "aside"))

    assert guard.call(lambda function: function, function=1) == 1


@ft.around_invoke
def outside(invocation: Any) -> Any:
    return invocation.proceed()


@ft.around_invoke(priority=5000)
def inside(invocation: Any) -> Any:
    return invocation.proceed()


DECORATORS: dict[str, Callable[..., Any]] = {
    "retry": ft.retry,
    "timeout": ft.timeout(9000),
    "circuit_breaker": ft.circuit_breaker,
    "bulkhead": ft.bulkhead,
    "rate_limit": ft.rate_limit,
    "adaptive_throttle": ft.adaptive_throttle,
    "fallback": ft.fallback(lambda context: "aside"),
    "interceptor outside": outside,
    "interceptor inside": lambda function: ft.retry(inside(function)),
    "guard": lambda function: guarding()(function),
}


@pytest.mark.parametrize("decorator", DECORATORS.values(), ids=DECORATORS)
def test_any_keyword_passes_through_any_decorator(decorator: Callable[..., Any]) -> None:
    """It reaches functions, coroutine functions, and functions whose attempts run detached."""

    async def apart() -> Any:
        return await ft.asynchronous(decorator(coroutine))(**GIVEN)

    assert decorator(plain)(**GIVEN) == GIVEN
    assert asyncio.run(decorator(coroutine)(**GIVEN)) == GIVEN
    if decorator is not DECORATORS["guard"]:
        assert asyncio.run(apart()) == GIVEN
        assert ft.asynchronous(decorator(future))(**GIVEN).result(9) == GIVEN


def test_any_keyword_passes_through_a_guard_and_its_name() -> None:
    """This holds for every use of a guard."""
    guard = Guard(retry=Retry(), name="keywords")

    async def not_blocking() -> Any:
        return await ft.asynchronous_non_blocking(awaitable)(**GIVEN)

    assert guarding().call(plain, **GIVEN) == GIVEN
    assert asyncio.run(guarding().call_async(coroutine, **GIVEN)) == GIVEN
    assert ft.apply_guard("keywords")(plain)(**GIVEN) == GIVEN
    assert asyncio.run(ft.apply_guard("keywords")(coroutine)(**GIVEN)) == GIVEN
    assert asyncio.run(not_blocking()) == GIVEN
    guard.close()


@pytest.mark.parametrize("decorator", [ft.retry, outside, guarding()], ids=["policy", "interceptor", "guard"])
def test_any_keyword_passes_through_methods(decorator: Callable[..., Any]) -> None:
    """Also ``self`` and ``cls``, where the method gives its own first parameter another name."""

    class Client:
        @decorator
        def method(this, /, **given: int) -> dict[str, int]:
            return given

        @decorator
        @classmethod
        def of_class(this, /, **given: int) -> dict[str, int]:
            return given

        @decorator
        @staticmethod
        def static(**given: int) -> dict[str, int]:
            return given

    assert Client().method(**GIVEN) == Client().of_class(**GIVEN) == Client.static(**GIVEN) == GIVEN


def test_any_keyword_reaches_handlers_and_fallback_methods() -> None:
    """A fallback sees the call's arguments under their own names."""

    class Client:
        @ft.fallback(lambda context: dict(context.kwargs))
        def handled(this, /, **given: int) -> dict[str, int]:
            raise OSError

        @ft.fallback(fallback_method="instead")
        def replaced(this, /, **given: int) -> dict[str, int]:
            raise OSError

        def instead(this, failed: OSError, /, **given: int) -> dict[str, int]:
            return given

    assert Client().handled(**GIVEN) == Client().replaced(**GIVEN) == GIVEN
    assert ft.fallback(fallback_method="given_instead")(failing)(**GIVEN) == GIVEN


@pytest.mark.parametrize("decorator", [ft.retry, guarding()], ids=["policy", "guard"])
def test_any_keyword_passes_through_a_patch(decorator: Callable[..., Any]) -> None:
    """It reaches a module's function, a class's own methods, and inherited ones that the patch overrides."""
    pytest.importorskip("wrapt")
    from faulttolerance.patching import patch

    class Base:
        def method(this, /, **given: int) -> dict[str, int]:
            return given

        @classmethod
        def of_class(this, /, **given: int) -> dict[str, int]:
            return given

        @staticmethod
        def static(**given: int) -> dict[str, int]:
            return given

    class Heir(Base):
        pass

    module = SimpleNamespace(plain=plain)
    with patch(module, "plain", decorator):
        assert module.plain(**GIVEN) == GIVEN
    for cls in (Base, Heir):
        for name in ("method", "of_class", "static"):
            with patch(cls, name, decorator):
                assert getattr(cls(), name)(**GIVEN) == GIVEN
