"""Specification, chapter "Fallback": the result of a call whose other policies have failed."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from faulttolerance import (
    BulkheadException,
    CircuitBreakerOpenException,
    ExecutionContext,
    FallbackHandler,
    Future,
    Interrupted,
    TimeoutException,
    asynchronous,
    before_retry,
    bulkhead,
    circuit_breaker,
    completed_future,
    fallback,
    retry,
    timeout,
)
from kit import E0, E0S, E1, E1S, E2, E2S, INTERRUPTION, Error, Invoke, Service, TestException
from kit.definition import refused


async def later(context: ExecutionContext) -> str:
    return "later"


LATER = fallback(later)

# Handlers


class StringFallbackHandler(FallbackHandler[str]):
    def handle(self, context: ExecutionContext) -> str:
        return f"fallback for {context.method.__name__}"


class SecondStringFallbackHandler(FallbackHandler[str]):
    def handle(self, context: ExecutionContext) -> str:
        failure = type(context.failure)
        return f"second fallback for {context.method.__name__} {failure.__module__}.{failure.__qualname__}"


@pytest.mark.tck("FallbackTest.testFallbackSuccess")
def test_handler_takes_over_once_the_retries_are_spent(invoke: Invoke) -> None:
    """Its context has the method that failed."""

    class Client(Service):
        @retry(max_retries=1)
        @fallback(StringFallbackHandler)
        @invoke.body
        async def service_a(self) -> str:
            self.executions += 1
            raise TestException

        @retry(max_retries=2)
        @fallback(StringFallbackHandler)
        @invoke.body
        async def service_b(self) -> str:
            self.executions += 1
            raise TestException

    one, other = Client(), Client()

    assert "service_a" in invoke(one.service_a)
    assert "service_b" in invoke(other.service_b)
    assert (one.executions, other.executions) == (2, 3)


class Counter:
    """A counter in place of the injected bean."""

    def __init__(self) -> None:
        self.count = 33

    def next(self) -> int:
        self.count += 1
        return self.count


@pytest.mark.tck("FallbackTest.testFallbackWithBeanSuccess")
def test_handlers_share_their_closure(invoke: Invoke) -> None:
    """A handler is made anew for each fallback; the objects that it works with may live longer."""
    bean = Counter()

    class Handler(FallbackHandler[str]):
        def handle(self, context: ExecutionContext) -> str:
            return f"fallback for {context.method.__name__} myBean.getCount()={bean.next()}"

    class Client(Service):
        @retry(max_retries=1)
        @fallback(Handler)
        @invoke.body
        async def service_a(self) -> str:
            self.executions += 1
            raise TestException

        @retry(max_retries=2)
        @fallback(Handler)
        @invoke.body
        async def service_b(self) -> str:
            self.executions += 1
            raise TestException

    one, other = Client(), Client()

    assert invoke(one.service_a) == "fallback for service_a myBean.getCount()=34"
    assert invoke(other.service_b) == "fallback for service_b myBean.getCount()=35"
    assert (one.executions, other.executions) == (2, 3)


@pytest.mark.tck("FallbackTest.testClassLevelFallbackSuccess")
def test_fallback_follows_the_retries_of_class_or_method(invoke: Invoke) -> None:
    """The context holds the exception itself."""

    @retry(max_retries=1)
    class Client(Service):
        @fallback(StringFallbackHandler)
        @invoke.body
        async def service_a(self) -> str:
            self.executions += 1
            raise TestException

        @retry(max_retries=2)
        @fallback(SecondStringFallbackHandler)
        @invoke.body
        async def service_b(self) -> str:
            self.executions += 1
            raise TestException

    one, other = Client(), Client()

    assert "service_a" in invoke(one.service_a)
    result = invoke(other.service_b)
    assert "second fallback for service_b" in result
    assert f"{TestException.__module__}.{TestException.__qualname__}" in result
    assert (one.executions, other.executions) == (2, 3)


@pytest.mark.parametrize(
    "milliseconds",
    [
        pytest.param(10, marks=pytest.mark.tck("FallbackTest.testFallbacktNoTimeout")),
        pytest.param(1000, marks=pytest.mark.tck("FallbackTest.testFallbackTimeout")),
    ],
)
def test_handler_takes_over_after_a_failure_and_after_a_time_out(invoke: Invoke, milliseconds: int) -> None:
    """Also for a body that swallows its interruption."""

    class Client(Service):
        @timeout(500)
        @retry(max_retries=1)
        @fallback(StringFallbackHandler)
        @invoke.body
        async def service(self) -> str:
            self.executions += 1
            try:
                await invoke.sleep(milliseconds / 1000)
            except INTERRUPTION:
                return None  # type: ignore[return-value]
            raise RuntimeError

    client = Client()

    assert invoke(client.service) == "fallback for service"
    assert client.executions == 2


@pytest.mark.tck("FallbackTest.testStandaloneHandlerFallback")
def test_handler_needs_no_other_policy(invoke: Invoke) -> None:
    """`@fallback` can be used on its own."""

    class Client(Service):
        @fallback(StringFallbackHandler)
        @invoke.body
        async def service(self) -> str:
            self.executions += 1
            raise TestException

    client = Client()

    assert "service" in invoke(client.service)
    assert client.executions == 1


def test_any_callable_is_a_handler(invoke: Invoke) -> None:
    """A function, a lambda or a bound method that takes the context."""
    contexts: list[ExecutionContext] = []

    def handle(context: ExecutionContext) -> int:
        contexts.append(context)
        return len(contexts)

    class Client(Service):
        @retry(max_retries=2, jitter=0)
        @fallback(handle)
        @invoke.body
        async def service(self, one: str, two: int = 2) -> int:
            raise TestException

    client = Client()

    assert invoke(client.service, "a") == 1
    [context] = contexts
    assert (context.target, context.args, dict(context.kwargs)) == (client, ("a",), {})
    assert context.attempt == 3
    assert isinstance(context.failure, TestException)
    if invoke.is_on_loop:
        assert context.parameters == ("a", 2)


def test_handler_of_an_asynchronous_function_may_be_asynchronous(invoke: Invoke) -> None:
    """It is awaited; the caller of a synchronous function could not await it."""

    async def handle(context: ExecutionContext) -> str:
        if invoke.is_on_loop:
            await asyncio.sleep(0)
        return "later"

    @fallback(handle)
    @invoke.body
    async def service() -> str:
        raise TestException

    if invoke.convention == "blocking":
        with refused("which is a coroutine function"):
            invoke(service)
    else:
        assert invoke(service) == "later"


def test_the_result_of_a_call_that_succeeds_is_left_alone(invoke: Invoke) -> None:
    """Also a false one."""

    @fallback(lambda context: "fallback")
    @invoke.body
    async def service() -> None:
        return None

    assert invoke(service) is None


# Methods


@pytest.mark.tck("FallbackTest.testFallbackMethodSuccess")
def test_method_takes_over_once_the_retries_are_spent() -> None:
    """The method is named by a string, on the same object."""

    class Client(Service):
        @retry(max_retries=1)
        @fallback(fallback_method="fallback_for_d")
        def service_d(self) -> str:
            self.executions += 1
            raise TestException

        def fallback_for_d(self) -> str:
            return "fallback method for serviceD"

    client = Client()

    assert "method for serviceD" in client.service_d()
    assert client.executions == 2


@pytest.mark.tck("FallbackTest.testFallbackMethodWithArgsSuccess")
def test_method_gets_the_arguments_of_the_call() -> None:
    """By position or by keyword."""

    class Client(Service):
        @retry(max_retries=1)
        @fallback(fallback_method="fallback_for_e")
        def service_e(self, name: str, type: int = 1) -> str:  # noqa: A002
            self.executions += 1
            raise TestException

        def fallback_for_e(self, name: str, type: int) -> str:  # noqa: A002
            return f"fallback method for {name} {type}"

    client = Client()

    assert client.service_e("serviceE", 42) == "fallback method for serviceE 42"
    assert client.executions == 2
    assert client.service_e(type=42, name="serviceE") == "fallback method for serviceE 42"
    assert client.service_e("serviceE") == "fallback method for serviceE 1"


@pytest.mark.tck("FallbackTest.testStandaloneMethodFallback")
def test_method_needs_no_other_policy() -> None:
    """`@fallback` can be used on its own."""

    class Client(Service):
        @fallback(fallback_method="fallback_for_b")
        def service_b(self) -> str:
            self.executions += 1
            raise TestException

        def fallback_for_b(self) -> str:
            return "fallback method for serviceB"

    client = Client()

    assert "serviceB" in client.service_b()
    assert client.executions == 1


# apply_on and skip_on

A = fallback(apply_on=[E0, E2], skip_on=[E1], fallback_method="my_fallback")
B = fallback(apply_on=[Exception, E1], skip_on=[E0, E2], fallback_method="my_fallback")
C = fallback(apply_on=[E1, E2], skip_on=[E0], fallback_method="my_fallback")

RAISED, APPLIED = False, True


@pytest.mark.parametrize(
    ("policy", "failure", "applied"),
    [
        pytest.param(
            A, Exception, RAISED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceAthrowsException")
        ),
        pytest.param(A, E0, APPLIED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceAthrowsE0")),
        pytest.param(A, E1, RAISED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceAthrowsE1")),
        pytest.param(A, E2, RAISED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceAthrowsE2")),
        pytest.param(A, E2S, RAISED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceAthrowsE2S")),
        pytest.param(A, E1S, RAISED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceAthrowsE1S")),
        pytest.param(A, E0S, APPLIED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceAthrowsE0S")),
        pytest.param(
            A,
            RuntimeError,
            RAISED,
            marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceAthrowsRuntimeException"),
        ),
        pytest.param(A, Error, RAISED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceAthrowsError")),
        pytest.param(
            B, Exception, APPLIED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceBthrowsException")
        ),
        pytest.param(B, E0, RAISED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceBthrowsE0")),
        pytest.param(B, E1, RAISED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceBthrowsE1")),
        pytest.param(B, E2, RAISED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceBthrowsE2")),
        pytest.param(B, E2S, RAISED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceBthrowsE2S")),
        pytest.param(B, E1S, RAISED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceBthrowsE1S")),
        pytest.param(B, E0S, RAISED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceBthrowsE0S")),
        pytest.param(
            B,
            RuntimeError,
            APPLIED,
            marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceBthrowsRuntimeException"),
        ),
        pytest.param(B, Error, RAISED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceBthrowsError")),
        pytest.param(
            C, Exception, RAISED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceCthrowsException")
        ),
        pytest.param(C, E0, RAISED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceCthrowsE0")),
        pytest.param(C, E1, RAISED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceCthrowsE1")),
        pytest.param(C, E2, RAISED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceCthrowsE2")),
        pytest.param(C, E2S, RAISED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceCthrowsE2S")),
        pytest.param(C, E1S, RAISED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceCthrowsE1S")),
        pytest.param(C, E0S, RAISED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceCthrowsE0S")),
        pytest.param(
            C,
            RuntimeError,
            RAISED,
            marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceCthrowsRuntimeException"),
        ),
        pytest.param(C, Error, RAISED, marks=pytest.mark.tck("FallbackExceptionHierarchyTest.serviceCthrowsError")),
    ],
)
def test_skip_on_goes_before_apply_on(
    invoke: Invoke, policy: Callable[[Any], Any], failure: type[BaseException], applied: bool
) -> None:
    """A failure that `skip_on` names comes out; of the rest, those that `apply_on` names are replaced."""
    error = failure()

    class Client(Service):
        @policy
        @invoke.body
        async def service(self) -> str:
            raise error

        def my_fallback(self, *args: Any, **kwargs: Any) -> str:
            return "Fallback result"

    if applied:
        assert invoke(Client().service) == "Fallback result"
    else:
        with pytest.raises(failure) as raised:
            invoke(Client().service)
        assert raised.value is error


@pytest.mark.parametrize("control_flow", [KeyboardInterrupt, SystemExit, Interrupted])
def test_control_flow_has_no_fallback(control_flow: type[BaseException]) -> None:
    """Rule R0, for the default of `apply_on`, too."""

    @fallback(lambda context: "fallback")
    def service() -> str:
        raise control_flow

    with pytest.raises(control_flow):
        service()


def test_a_cancelled_call_has_no_fallback() -> None:
    """Rule R0: the code that cancelled does not wait for a substitute."""

    @fallback(lambda context: "fallback")
    async def service() -> str:
        await asyncio.sleep(3600)
        return ""

    async def main() -> None:
        call = asyncio.create_task(service())
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(main())


# Together with the other policies


def test_handler_takes_over_for_the_refusals_of_the_library(invoke: Invoke) -> None:
    """Specification: including the exceptions defined there."""
    seen: list[type[BaseException]] = []

    def handle(context: ExecutionContext) -> str:
        seen.append(type(context.failure))
        return "fallback"

    class Client(Service):
        @fallback(handle)
        @circuit_breaker(request_volume_threshold=2)
        @invoke.body
        async def broken(self) -> str:
            self.executions += 1
            raise TestException

        @fallback(handle)
        @timeout(100)
        @invoke.body
        async def slow(self) -> str:
            await invoke.sleep(3600)
            return ""

    client = Client()

    assert [invoke(client.broken) for _ in range(4)] == ["fallback"] * 4
    assert client.executions == 2
    assert seen == [TestException, TestException, CircuitBreakerOpenException, CircuitBreakerOpenException]
    assert invoke(client.slow) == "fallback"
    assert seen[-1] is TimeoutException


def test_handler_takes_over_for_a_full_bulkhead() -> None:
    """The refused call is replaced; the one that is running is not disturbed."""

    class Client:
        @fallback(lambda context: type(context.failure))
        @bulkhead(1)
        def service(self, inner: bool) -> Any:
            return inner if inner else self.service(True)

    assert Client().service(False) is BulkheadException


@pytest.mark.parametrize("order", range(3))
def test_the_order_of_the_decorators_does_not_matter(order: int) -> None:
    """There is one nesting, with the fallback outside the retries."""
    policies = [retry(max_retries=2, jitter=0), fallback(lambda context: context.attempt), circuit_breaker()]
    executions = []

    def service() -> int:
        executions.append(1)
        raise TestException

    for policy in policies[order:] + policies[:order]:
        service = policy(service)

    assert service() == 3
    assert len(executions) == 3


# Failures of the fallback


def test_an_error_of_the_fallback_comes_out(invoke: Invoke) -> None:
    """The failure of the call is its context, so that a traceback shows both."""
    failure, error = TestException("first"), KeyError("second")

    def handle(context: ExecutionContext) -> str:
        raise error

    @retry(max_retries=1, jitter=0)
    @fallback(handle)
    @invoke.body
    async def service() -> str:
        raise failure

    with pytest.raises(KeyError) as raised:
        invoke(service)

    assert raised.value is error
    assert raised.value.__context__ is failure


def test_an_error_of_an_asynchronous_fallback_comes_out(invoke: Invoke) -> None:
    """Also where it is raised only while the fallback is awaited."""
    failure, error = TestException("first"), KeyError("second")

    async def handle(context: ExecutionContext) -> str:
        raise error

    if invoke.convention == "blocking":
        return

    @fallback(handle)
    @invoke.body
    async def service() -> str:
        raise failure

    with pytest.raises(KeyError) as raised:
        invoke(service)

    assert raised.value.__context__ is failure


def test_a_fallback_may_be_guarded_itself() -> None:
    """Its guard holds for this call as for any other."""

    class Client(Service):
        @fallback(fallback_method="second")
        def first(self) -> str:
            raise TestException

        @retry(max_retries=2, jitter=0)
        @fallback(lambda context: "third")
        def second(self) -> str:
            self.executions += 1
            raise TestException

    client = Client()

    assert client.first() == "third"
    assert client.executions == 3


# Fallbacks of futures and awaitables


@pytest.mark.parametrize("name", ["plain", "future", "coroutine", "awaitable"])
def test_a_fallback_of_an_asynchronous_method_may_return_its_result_in_any_form(name: str) -> None:
    """`T`, `Future[T]`, `Awaitable[T]` and `async def -> T` compare by T, and the caller gets T."""

    class Client:
        def plain(self) -> str:
            return "result"

        def future(self) -> Future[str]:
            return completed_future("result")

        async def coroutine(self) -> str:
            return "result"

        def awaitable(self) -> Awaitable[str]:
            return self.coroutine()

        @asynchronous
        @fallback(fallback_method=name)
        def submitted(self) -> Future[str]:
            raise TestException

        @fallback(fallback_method=name)
        async def awaited(self) -> str:
            raise TestException

        @asynchronous
        @fallback(fallback_method=name)
        async def started(self) -> str:
            raise TestException

    async def main() -> list[str]:
        client = Client()
        return [await client.submitted(), await client.awaited(), await client.started()]

    assert Client().submitted().result(10) == "result"
    assert asyncio.run(main()) == ["result"] * 3


@pytest.mark.parametrize("policies", [[asynchronous, LATER], [LATER, asynchronous]], ids=["above", "below"])
def test_asynchronous_may_stand_above_the_fallback_or_below(policies: list[Any]) -> None:
    """A decorator cannot know what comes above it."""

    def service() -> Future[str]:
        raise TestException

    for policy in policies:
        service = policy(service)

    assert service().result(10) == "later"


def test_asynchronous_may_stand_on_the_class() -> None:
    """Class decorators come last."""

    @asynchronous
    class Client:
        @fallback(fallback_method="_later")
        def service(self) -> Future[str]:
            raise TestException

        async def _later(self) -> str:
            return "later"

    class Subclass(Client):
        @fallback(fallback_method="_later")
        def service(self) -> Future[str]:
            raise TestException

    assert Client().service().result(10) == "later"
    assert Subclass().service().result(10) == "later"


# Functions


def in_module(source: str) -> types.ModuleType:
    module = types.ModuleType("shop")
    exec("from __future__ import annotations\nfrom faulttolerance import *\n" + source, vars(module))
    return module


def test_a_function_falls_back_to_a_function_of_its_module() -> None:
    """It may stand below: it is looked up when it is first needed."""
    shop = in_module(
        "@fallback(fallback_method='charge_later')\n"
        "def charge(order: str, amount: int = 1) -> str: raise OSError\n"
        "def charge_later(order: str, amount: int) -> str: return f'{order} {amount}'\n"
    )

    assert shop.charge("a") == "a 1"
    assert shop.charge(amount=2, order="b") == "b 2"


@pytest.mark.parametrize(
    ("substitute", "words"),
    [
        ("", ("shop.charge @Fallback(fallback_method)", "'charge_later'")),
        ("def charge_latr(order): pass", ("did you mean 'charge_latr'?",)),
        ("def charge_later(): pass", ("whose parameters () are not those", "(order: 'str')")),
        ("def charge_later(order: int): pass", ("parameter `order: 'int'`",)),
        ("async def charge_later(order): pass", ("coroutine function",)),
    ],
)
def test_a_function_whose_fallback_does_not_fit_is_refused_at_its_first_call(
    substitute: str, words: tuple[str, ...]
) -> None:
    """Neither the function nor its fallback is called."""
    shop = in_module(
        "calls = []\n"
        "@fallback(fallback_method='charge_later')\n"
        "def charge(order: str) -> str: calls.append(order)\n"
        f"{substitute}\n"
    )

    with refused(*words):
        shop.charge("a")
    assert shop.calls == []


# Before a retry (SmallRye)


def test_a_callback_may_run_before_each_retry(invoke: Invoke) -> None:
    """It runs before each attempt but the first, with the number of the attempt that is about to begin."""
    attempts: list[int] = []

    @retry(max_retries=2, jitter=0)
    @before_retry(lambda context: attempts.append(context.attempt))
    @invoke.body
    async def service() -> None:
        raise TestException

    with pytest.raises(TestException):
        invoke(service)

    assert attempts == [2, 3]


def test_a_failure_before_a_retry_changes_nothing(invoke: Invoke, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and the retry is made."""

    def broken(context: ExecutionContext) -> None:
        raise OSError("no route")

    class Client(Service):
        @retry(max_retries=1, jitter=0)
        @before_retry(broken)
        @invoke.body
        async def service(self) -> str:
            self.executions += 1
            if self.executions == 1:
                raise TestException
            return "result"

    assert invoke(Client().service) == "result"
    assert [record.name for record in caplog.records] == ["faulttolerance"]


def test_the_callback_before_a_retry_is_looked_up_when_the_class_is_defined() -> None:
    """This holds on the method, and on the class, for all methods that it covers."""
    with refused("Client.service @BeforeRetry(method_name) names '_recconnect', which", "did you mean '_reconnect'?"):

        class Client:
            @retry
            @before_retry(method_name="_recconnect")
            def service(self) -> None: ...

            def _reconnect(self) -> None: ...

    with refused("Whole.service @BeforeRetry(method_name) names '_recconnect', which"):

        @retry
        @before_retry(method_name="_recconnect")
        class Whole:
            def service(self) -> None: ...


def test_a_method_may_run_before_each_retry() -> None:
    """A method without parameters, on the same object."""

    class Client(Service):
        @retry(max_retries=2, jitter=0)
        @before_retry(method_name="_reconnect")
        def service(self) -> None:
            raise TestException

        def _reconnect(self) -> None:
            self.executions += 1

    client = Client()
    with pytest.raises(TestException):
        client.service()

    assert client.executions == 2
