"""Specification, chapter "Retry Policy": the failures that are retried, and the failures of an asynchronous call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future as ExecutorFuture
from typing import Any

import pytest

from faulttolerance import asynchronous, retry
from kit import E0, E0S, E1, E1S, E2, E2S, Clock, Error, Invoke, Service, TestException

# retry_on and abort_on


@pytest.mark.tck("RetryConditionTest.testRetryOnTrue")
def test_failure_that_retry_on_names_is_retried(invoke: Invoke) -> None:
    """Three retries are made where max_retries is not given."""

    class Client(Service):
        @retry(retry_on=[TestException])
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            raise TestException

    client = Client()
    with pytest.raises(TestException):
        invoke(client.work)

    assert client.executions == 4


@pytest.mark.tck("RetryConditionTest.testRetryOnFalse")
def test_failure_that_retry_on_does_not_name_is_final(invoke: Invoke) -> None:
    """A RuntimeError is no OSError, as in Java a RuntimeException is no IOException."""

    class Client(Service):
        @retry(retry_on=[OSError])
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            await invoke.sleep(0.1)
            raise TestException

    client = Client()
    with pytest.raises(TestException):
        invoke(client.work)

    assert client.executions == 1


class RetryParentException(RuntimeError):
    pass


class RetryChildException(RetryParentException):
    pass


@pytest.mark.tck("RetryConditionTest.testRetryOnTrueThrowingAChildCustomException")
def test_subclass_of_a_failure_that_retry_on_names_is_retried(invoke: Invoke) -> None:
    """A set of exceptions names each class with all that derive from it."""

    class Client(Service):
        @retry(retry_on=[RetryParentException])
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            raise RetryChildException

    client = Client()
    with pytest.raises(RetryChildException):
        invoke(client.work)

    assert client.executions == 4


@pytest.mark.tck("RetryConditionTest.testRetryOnFalseAndAbortOnTrueThrowingAChildCustomException")
def test_abort_on_wins_over_retry_on(invoke: Invoke) -> None:
    """A failure that both sets match is not retried."""

    class Client(Service):
        @retry(retry_on=[RetryParentException], abort_on=[RetryChildException])
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            raise RetryChildException

    client = Client()
    with pytest.raises(RetryChildException):
        invoke(client.work)

    assert client.executions == 1


@pytest.mark.tck("RetryConditionTest.testRetryWithAbortOnFalse")
def test_failure_that_abort_on_does_not_name_is_retried(invoke: Invoke) -> None:
    """Every Exception is retried where retry_on is not given."""

    class Client(Service):
        @retry(abort_on=[OSError])
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            raise TestException

    client = Client()
    with pytest.raises(TestException):
        invoke(client.work)

    assert client.executions == 4


@pytest.mark.tck("RetryConditionTest.testRetryWithAbortOnTrue")
def test_failure_that_abort_on_names_is_final(invoke: Invoke) -> None:
    """abort_on ends the retries at once."""

    class Client(Service):
        @retry(abort_on=[TestException])
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            await invoke.sleep(0.1)
            raise TestException

    client = Client()
    with pytest.raises(TestException):
        invoke(client.work)

    assert client.executions == 1


@pytest.mark.tck("RetryConditionTest.testClassLevelRetryOnTrue")
def test_failure_that_retry_on_of_the_class_names_is_retried(invoke: Invoke) -> None:
    """Conditions of a class hold for its methods."""

    @retry(retry_on=[TestException], max_retries=3)
    class Client(Service):
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            raise TestException

    client = Client()
    with pytest.raises(TestException):
        invoke(client.work)

    assert client.executions == 4


@pytest.mark.tck("RetryConditionTest.testClassLevelRetryOnFalse")
def test_retry_on_of_a_method_replaces_that_of_its_class(invoke: Invoke) -> None:
    """The sets of class and method are not joined."""

    @retry(retry_on=[TestException], max_retries=3)
    class Client(Service):
        @retry(retry_on=[OSError])
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            await invoke.sleep(0.1)
            raise TestException

    client = Client()
    with pytest.raises(TestException):
        invoke(client.work)

    assert client.executions == 1


@pytest.mark.tck("RetryConditionTest.testClassLevelRetryWithAbortOnFalse")
def test_failure_that_abort_on_of_the_class_does_not_name_is_retried(invoke: Invoke) -> None:
    """abort_on of a class leaves other failures to retry_on."""

    @retry(abort_on=[OSError])
    class Client(Service):
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            raise TestException

    client = Client()
    with pytest.raises(TestException):
        invoke(client.work)

    assert client.executions == 4


@pytest.mark.tck("RetryConditionTest.testClassLevelRetryWithAbortOnTrue")
def test_abort_on_of_a_method_replaces_that_of_its_class(invoke: Invoke) -> None:
    """A failure that the method names is final, whatever its class names."""

    @retry(abort_on=[OSError])
    class Client(Service):
        @retry(abort_on=[TestException])
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            await invoke.sleep(0.1)
            raise TestException

    client = Client()
    with pytest.raises(TestException):
        invoke(client.work)

    assert client.executions == 1


# Hierarchies

A = retry(retry_on=[E0, E2], abort_on=[E1], max_retries=1)
B = retry(retry_on=[Exception, E1], abort_on=[E0, E2], max_retries=1)
C = retry(retry_on=[E1, E2], abort_on=[E0], max_retries=1)
DEFAULT = retry(max_retries=1)
NAMED = retry(retry_on=[Error], max_retries=1)


@pytest.mark.parametrize(
    ("policy", "failure", "executions"),
    [
        pytest.param(A, Exception, 1, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceAthrowsException")),
        pytest.param(A, E0, 2, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceAthrowsE0")),
        pytest.param(A, E1, 1, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceAthrowsE1")),
        pytest.param(A, E2, 1, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceAthrowsE2")),
        pytest.param(A, E2S, 1, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceAthrowsE2S")),
        pytest.param(A, E1S, 1, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceAthrowsE1S")),
        pytest.param(A, E0S, 2, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceAthrowsE0S")),
        pytest.param(
            A, RuntimeError, 1, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceAthrowsRuntimeException")
        ),
        pytest.param(A, Error, 1, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceAthrowsError")),
        pytest.param(B, Exception, 2, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceBthrowsException")),
        pytest.param(B, E0, 1, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceBthrowsE0")),
        pytest.param(B, E1, 1, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceBthrowsE1")),
        pytest.param(B, E2, 1, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceBthrowsE2")),
        pytest.param(B, E2S, 1, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceBthrowsE2S")),
        pytest.param(B, E1S, 1, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceBthrowsE1S")),
        pytest.param(B, E0S, 1, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceBthrowsE0S")),
        pytest.param(
            B, RuntimeError, 2, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceBthrowsRuntimeException")
        ),
        pytest.param(B, Error, 1, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceBthrowsError")),
        pytest.param(C, Exception, 1, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceCthrowsException")),
        pytest.param(C, E0, 1, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceCthrowsE0")),
        pytest.param(C, E1, 1, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceCthrowsE1")),
        pytest.param(C, E2, 1, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceCthrowsE2")),
        pytest.param(C, E2S, 1, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceCthrowsE2S")),
        pytest.param(C, E1S, 1, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceCthrowsE1S")),
        pytest.param(C, E0S, 1, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceCthrowsE0S")),
        pytest.param(
            C, RuntimeError, 1, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceCthrowsRuntimeException")
        ),
        pytest.param(C, Error, 1, marks=pytest.mark.tck("RetryExceptionHierarchyTest.serviceCthrowsError")),
        (DEFAULT, Exception, 2),
        (DEFAULT, Error, 1),
        (NAMED, Error, 2),
    ],
)
def test_retry_follows_the_hierarchy_of_exceptions(
    policy: Callable[[Any], Any], failure: type[BaseException], executions: int, invoke: Invoke
) -> None:
    """abort_on is asked first, then retry_on; each matches subclasses.

    For the `Error` of Java stands a `BaseException` that is no `Exception`: never retried unless a set names its class.
    The official kit tries it on its service A where it means B; here it is B.
    """

    class Client(Service):
        @policy
        @invoke.body
        async def work(self, error: BaseException) -> None:
            self.executions += 1
            raise error

    client = Client()
    error = failure()
    with pytest.raises(failure) as raised:
        invoke(client.work, error)

    assert raised.value is error
    assert client.executions == executions


# Asynchronous calls

Steps = Callable[[], Coroutine[Any, Any, str]]


class Completion:
    """A guard for asynchronous steps, in one of the two ways in which policies see their completion."""

    def __init__(self, convention: str, clock: Clock) -> None:
        self.is_awaitable = convention == "awaitable"
        self._clock = clock

    def work(self, max_retries: int, steps: Callable[[int], Steps]) -> Counted:
        """Return a client whose execution number n runs `steps(n)`."""
        if self.is_awaitable:

            class Client(Counted):
                @asynchronous
                @retry(max_retries=max_retries)
                def work(self) -> Awaitable[str]:
                    self.executions += 1
                    return steps(self.executions)()

        else:

            class Client(Counted):  # type: ignore[no-redef]
                @asynchronous
                @retry(max_retries=max_retries)
                async def work(self) -> str:
                    self.executions += 1
                    return await steps(self.executions)()

        return Client()

    def outcome(self, client: Counted) -> str | BaseException:
        """Make a call, which raises nothing, and return its outcome, within the second that the official kit allows."""

        async def main() -> str | BaseException:
            pending = client.work()
            async with asyncio.timeout(self._clock.within(1.0)):
                try:
                    return await pending
                except (OSError, TestException) as error:
                    return error

        return self._clock.run(main())


class Counted(Service):
    def work(self) -> Awaitable[str]:
        raise NotImplementedError


@pytest.fixture(params=["awaitable", "coroutine function"])
def completion(request: pytest.FixtureRequest, clock: Clock) -> Completion:
    """Return a form: an `@asynchronous def -> Awaitable`, or an `@asynchronous async def`."""
    return Completion(request.param, clock)


async def _step(text: str, error: Exception | None = None) -> str:
    await asyncio.sleep(0.05)
    if error is not None:
        raise error
    return text


async def _completed(text: str) -> str:
    return text


async def _failed(error: Exception) -> str:
    raise error


@pytest.mark.tck("RetryConditionTest.testAsyncRetryExceptionally")
def test_awaitable_that_failed_is_retried(completion: Completion) -> None:
    """An asynchronous call fails when the awaitable that it returned does, also where that had failed already."""
    client = completion.work(2, lambda _: lambda: _failed(OSError("Simulated error")))

    outcome = completion.outcome(client)

    assert isinstance(outcome, OSError)
    assert str(outcome) == "Simulated error"
    assert client.executions == 3


@pytest.mark.tck("RetryConditionTest.testNoAsynWilNotRetryExceptionally")
def test_failed_future_that_a_synchronous_method_returns_is_a_success(clock: Clock) -> None:
    """Without @asynchronous a returned future is a value; a plain `def`, since an `async def` is asynchronous."""

    class Client(Service):
        @retry(max_retries=2)
        def work(self, future: ExecutorFuture[str]) -> ExecutorFuture[str]:
            self.executions += 1
            future.set_exception(OSError("Simulated error"))
            return future

    client = Client()
    with pytest.warns(RuntimeWarning, match="the guard does not see a later failure"):
        returned = client.work(ExecutorFuture())

    error = returned.exception(1.0)
    assert isinstance(error, OSError)
    assert str(error) == "Simulated error"
    assert client.executions == 1


@pytest.mark.tck("RetryConditionTest.testNoAsynRetryOnMethodException")
def test_exception_of_a_synchronous_method_is_retried_for_any_return_type(clock: Clock) -> None:
    """Without @asynchronous the call itself raises; a plain `def`, since an `async def` raises only when awaited."""

    class Client(Service):
        @retry(max_retries=2)
        def work(self) -> Awaitable[str]:
            self.executions += 1
            raise TestException("Simulated error")

    client = Client()
    with pytest.raises(TestException) as raised:
        client.work()

    assert str(raised.value) == "Test Exception - Simulated error"
    assert client.executions == 3


@pytest.mark.tck("RetryConditionTest.testRetrySuccess")
def test_awaitable_that_completes_ends_the_retries(completion: Completion) -> None:
    """The result of the attempt that succeeds comes out."""
    client = completion.work(
        3, lambda n: lambda: _failed(OSError("Simulated error")) if n < 3 else _completed("Success")
    )

    assert completion.outcome(client) == "Success"
    assert client.executions == 3


@pytest.mark.tck("RetryConditionTest.testRetryChainSuccess")
def test_pending_chain_is_retried_until_it_completes(completion: Completion) -> None:
    """A chain that is under way when the method returns is waited for, and retried if it fails then."""

    def steps(execution: int) -> Steps:
        async def chain() -> str:
            await _step("Success")
            return await _step("Success", TestException("Simulated error") if execution < 3 else None)

        return chain

    client = completion.work(3, steps)

    assert completion.outcome(client) == "Success"
    assert client.executions == 3


@pytest.mark.tck("RetryConditionTest.testRetryChainExceptionally")
def test_pending_chain_that_always_fails_comes_out_as_its_own_failure(completion: Completion) -> None:
    """The exception of the last attempt is not wrapped."""

    def steps(_: int) -> Steps:
        async def chain() -> str:
            await _step("Success")
            return await _step("Success", TestException("Simulated error"))

        return chain

    client = completion.work(2, steps)

    outcome = completion.outcome(client)

    assert isinstance(outcome, TestException)
    assert str(outcome) == "Test Exception - Simulated error"
    assert client.executions == 3


@pytest.mark.tck("RetryConditionTest.testRetryParallelExceptionally")
def test_pending_join_that_always_fails_comes_out_as_its_own_failure(completion: Completion) -> None:
    """One failing step of two that run in parallel is the failure of the attempt."""

    def steps(_: int) -> Steps:
        return lambda: _joined(TestException("Simulated error"))

    client = completion.work(2, steps)

    outcome = completion.outcome(client)

    assert isinstance(outcome, TestException)
    assert str(outcome) == "Test Exception - Simulated error"
    assert client.executions == 3


@pytest.mark.tck("RetryConditionTest.testRetryParallelSuccess")
def test_pending_join_is_retried_until_it_completes(completion: Completion) -> None:
    """Two steps that run in parallel are retried together."""

    def steps(execution: int) -> Steps:
        return lambda: _joined(TestException("Simulated error") if execution < 3 else None)

    client = completion.work(3, steps)

    assert completion.outcome(client) == "Success then Success"
    assert client.executions == 3


async def _joined(error: Exception | None) -> str:
    first, second = await asyncio.gather(_step("Success"), _step("Success", error))
    return f"{first} then {second}"


@pytest.mark.tck("RetryConditionTest.testRetryCompletionStageWithException")
def test_exception_of_an_asynchronous_body_itself_is_retried(completion: Completion) -> None:
    """An asynchronous call raises nothing: an exception of its body comes out of its awaitable, if at all."""

    def steps(execution: int) -> Steps:
        if execution < 3:
            raise TestException("Simulated error")
        return lambda: _completed("Success")

    client = completion.work(3, steps)

    assert completion.outcome(client) == "Success"
    assert client.executions == 3
