"""Specification, chapter "Fault Tolerance Interceptor(s)": the place of the policies among other interceptors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from typing import Any

import pytest

from faulttolerance import around_invoke, retry, unguarded
from faulttolerance.testing import configured
from kit import Invoke, Service, stacked
from kit.definition import refused

EARLY, LATE = "EarlyOrderFtInterceptor", "LateOrderFtInterceptor"
_DETACHED = ["offloaded", "task"]


class Order:
    """A record of the interceptors in the order of their calls."""

    def __init__(self, early: int, late: int) -> None:
        self.names: list[str] = []
        self._early = early
        self._late = late

    def interceptors(self) -> tuple[Any, Any]:
        """Return decorators that add an interceptor each; the one that is called last stands uppermost."""

        @around_invoke(priority=self._early)
        def early(invocation: Any) -> Any:
            self.names.append(EARLY)
            return invocation.proceed()

        @around_invoke(priority=self._late)
        def late(invocation: Any) -> Any:
            self.names.append(LATE)
            return invocation.proceed()

        return late, early


@pytest.fixture
def order(request: pytest.FixtureRequest) -> Iterator[Order]:
    """Yield recording interceptors, with priorities around that of the policies: 4010, or a configured one."""
    if request.param == "default":
        yield Order(4000, 4100)
        return
    with configured({"mp.fault.tolerance.interceptor.priority": 3850}):
        yield Order(3800, 3900)


@pytest.mark.parametrize("invoke", _DETACHED, indirect=True)
@pytest.mark.parametrize(
    "order",
    [
        pytest.param("default", marks=pytest.mark.tck("FaultToleranceInterceptorTest.testAsync")),
        pytest.param(
            "configured",
            marks=pytest.mark.tck("FaultToleranceInterceptorPriorityChangeAnnotationConfTest.testAsync"),
        ),
    ],
    indirect=True,
)
def test_interceptors_stand_around_an_asynchronous_call_by_priority(order: Order, invoke: Invoke) -> None:
    """The lower number is called first, the policies in their place, then the higher number and the method.

    There is no CDI here: ``around_invoke`` makes the interceptors, and decorators say where they hold.
    """

    class Client(Service):
        @stacked(*order.interceptors())
        @invoke.body
        async def async_get_string(self) -> str:
            order.names.append("asyncGetString")
            return "OK"

    result = invoke(Client().async_get_string)

    assert result == "OK"
    assert order.names == [EARLY, LATE, "asyncGetString"]


@pytest.mark.parametrize(
    "order",
    [
        pytest.param("default", marks=pytest.mark.tck("FaultToleranceInterceptorTest.testRetryInterceptors")),
        pytest.param(
            "configured",
            marks=pytest.mark.tck("FaultToleranceInterceptorPriorityChangeAnnotationConfTest.testRetryInterceptors"),
        ),
    ],
    indirect=True,
)
@pytest.mark.parametrize("is_on_class", [False, True], ids=["method", "class"])
def test_interceptor_behind_the_policies_sees_each_attempt(is_on_class: bool, order: Order, invoke: Invoke) -> None:
    """The interceptor before the policies is called once per call, the one behind them once per attempt.

    In the official kit both stand above a class; here they may stand above a method as well.
    """
    interceptors = stacked(*order.interceptors())

    @(interceptors if is_on_class else stacked())
    class Client(Service):
        @retry(max_retries=1)
        @(stacked() if is_on_class else interceptors)
        @invoke.body
        async def service_retry_a(self) -> None:
            order.names.append("serviceRetryA")
            raise RuntimeError("retryGetString failed")

    with pytest.raises(RuntimeError) as raised:
        invoke(Client().service_retry_a)

    assert str(raised.value) == "retryGetString failed"
    assert order.names == [EARLY, LATE, "serviceRetryA", LATE, "serviceRetryA"]


@pytest.mark.parametrize("invoke", ["asyncio", "task"], indirect=True)
@pytest.mark.parametrize("priority", [4000, 4100], ids=["before the policies", "behind them"])
def test_interceptor_of_a_coroutine_function_sees_its_end(priority: int, invoke: Invoke) -> None:
    """An interceptor that is a coroutine function awaits the function inside it, and may replace the result."""
    seen: list[str] = []

    @around_invoke(priority=priority)
    async def doubled(invocation: Any) -> Any:
        result = await invocation.proceed()
        seen.append(result)
        return 2 * result

    class Client(Service):
        @retry
        @doubled
        @invoke.body
        async def work(self) -> str:
            await invoke.sleep(1.0)
            return "once "

    result = invoke(Client().work)

    assert result == "once once "
    assert seen == ["once "]


@pytest.mark.parametrize("is_outside", [True, False], ids=["before the policies", "behind them"])
def test_interceptors_of_one_side_are_called_by_priority(is_outside: bool, invoke: Invoke) -> None:
    """The lower number goes first, wherever it is written; of equal numbers the upper one goes first."""
    names: list[str] = []
    base = 3000 if is_outside else 5000

    def recording(name: str, priority: int) -> Any:
        def record(invocation: Any) -> Any:
            names.append(name)
            return invocation.proceed()

        return around_invoke(priority=priority)(record)

    class Client(Service):
        @recording("second, upper", base + 2)
        @recording("second, lower", base + 2)
        @retry
        @recording("third", base + 3)
        @recording("first", base + 1)
        @invoke.body
        async def work(self) -> str:
            return "done"

    result = invoke(Client().work)

    assert result == "done"
    assert names == ["first", "second, upper", "second, lower", "third"]


@pytest.mark.parametrize("wrong", [3000, "audit", object()], ids=["number", "text", "object"])
def test_interceptor_that_cannot_be_called_is_refused(wrong: Any) -> None:
    """A priority without its name is no interceptor, and is not taken for one until the first call."""
    with refused("around_invoke", repr(wrong)):
        around_invoke(wrong)
    with refused("around_invoke", repr(wrong)):
        around_invoke(priority=3000)(wrong)


@pytest.mark.parametrize("wrong", ["3000", 3.5, True, None])
def test_priority_that_is_no_integer_is_refused(wrong: Any) -> None:
    """A priority is an integer."""
    with refused("priority", repr(wrong)):
        around_invoke(priority=wrong)


@around_invoke
async def awaiting(invocation: Any) -> Any:
    """Await the rest of the call, as an interceptor for coroutine functions."""
    return await invocation.proceed()


def test_an_interceptor_that_awaits_is_refused_around_a_plain_function() -> None:
    """It would make it a coroutine function, whose callers await nothing."""
    with refused("plain @awaiting", "`async def`", "plain `def`"):

        @awaiting
        def plain() -> int:
            return 1

    with refused("retried @awaiting"):

        @awaiting
        @retry
        def retried() -> int:
            return 1

    with refused("Client.work @awaiting"):

        class Client:
            @awaiting
            def work(self) -> int:
                return 1


def test_a_class_with_plain_methods_takes_no_interceptor_that_awaits() -> None:
    """Each method is named; a subclass that adds one is refused as well, and a refused declaration leaves no trace."""

    class Mixed:
        def plain(self) -> int:
            return 1

        async def coroutine(self) -> int:
            return 2

    with refused("Mixed.plain @awaiting"):
        awaiting(Mixed)
    assert Mixed().plain() == 1
    assert asyncio.run(Mixed().coroutine()) == 2

    @awaiting
    class Awaited:
        async def coroutine(self) -> int:
            return 2

        @unguarded
        def exempt(self) -> int:
            return 1

    assert Awaited().exempt() == 1
    assert asyncio.run(Awaited().coroutine()) == 2
    with refused("Heir.plain @awaiting"):

        class Heir(Awaited):
            def plain(self) -> int:
                return 1


def test_an_interceptor_may_await_the_annotated_result_of_a_plain_function() -> None:
    """It may stand around a function that returns an awaitable, and a plain interceptor around a coroutine function."""

    @awaiting
    def handed_on() -> Awaitable[int]:
        return asyncio.sleep(0, 7)

    @around_invoke
    def handing_on(invocation: Any) -> Any:
        return invocation.proceed()

    @handing_on
    async def coroutine() -> int:
        return 8

    async def run() -> tuple[int, int]:
        return await handed_on(), await coroutine()

    assert asyncio.run(run()) == (7, 8)
