"""Specification, chapter "Asynchronous": calls that return at once, and their results."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from contextvars import ContextVar, copy_context
from typing import Any, TypeAlias

import pytest

from faulttolerance import (
    Future,
    Interrupted,
    TimeoutException,
    asynchronous,
    bulkhead,
    completed_future,
    fallback,
    retry,
    sleep,
    timeout,
)
from faulttolerance.testing import configured
from kit import Barrier, Call, Calls, Clock, Service, key

Ask: TypeAlias = Callable[[Callable[[], Any]], Any]


@pytest.fixture(params=["a thread", "a loop"])
def ask(request: pytest.FixtureRequest, clock: Clock) -> Ask:
    """Return a function that makes a call and waits for its outcome: by the result of its future, or by awaiting it."""
    if request.param == "a thread":
        return lambda call: call().result(30)

    async def awaiting(call: Callable[[], Any]) -> Any:
        return await call()

    return lambda call: clock.run(awaiting(call))


def failed_future(error: Exception) -> Future[Any]:
    """Return a future that has failed already."""
    future = Future[Any]()
    future.set_exception(error)
    return future


# Functions that return a future


def future_client(level: str) -> Any:
    """Return a client whose method waits for a future that the test completes.

    The client of a decorated class repeats the decorator, and builds its result by a method that the class covers too.
    """
    if level == "method":

        class Client(Service):
            @asynchronous
            def work(self, waiting: Future[None]) -> Future[str]:
                waiting.result(1000)
                return completed_future("done")

        return Client()

    @asynchronous
    class DecoratedClient(Service):
        @asynchronous
        def work(self, waiting: Future[None]) -> Future[str]:
            waiting.result(1000)
            return self.completed()

        def completed(self) -> Future[str]:
            return completed_future("done")

    return DecoratedClient()


@pytest.mark.parametrize(
    "level",
    [
        pytest.param("method", marks=pytest.mark.tck("AsynchronousTest.testAsyncIsNotFinished")),
        pytest.param("class", marks=pytest.mark.tck("AsynchronousTest.testClassLevelAsyncIsNotFinished")),
    ],
)
def test_future_is_not_done_while_its_body_waits(level: str, clock: Clock) -> None:
    """The caller goes on at once, with a future that is not done."""
    waiting = Future[None]()
    pending = future_client(level).work(waiting)
    was_done = pending.done()
    waiting.set_result(None)

    assert not was_done
    assert pending.result(30) == "done"


@pytest.mark.parametrize(
    "level",
    [
        pytest.param("method", marks=pytest.mark.tck("AsynchronousTest.testAsyncIsFinished")),
        pytest.param("class", marks=pytest.mark.tck("AsynchronousTest.testClassLevelAsyncIsFinished")),
    ],
)
def test_future_is_done_once_its_body_has_returned(level: str, ask: Ask) -> None:
    """The caller's future gets the outcome of the body's own future, also where that is a call under way."""
    client = future_client(level)
    waiting = Future[None]()

    def call() -> Any:
        pending = client.work(waiting)
        waiting.set_result(None)
        return pending

    assert ask(call) == "done"


# Functions that return an awaitable


class SimulatedException(RuntimeError):
    """The failure, or the result, of a body."""


@pytest.fixture(params=["offloaded", "task"])
def form(request: pytest.FixtureRequest) -> str:
    """Return a form of an asynchronous function: a ``def`` that returns an awaitable, or an ``async def``."""
    chosen: str = request.param
    return chosen


def awaitable_client(level: str, form: str) -> Any:
    """Return a client whose method waits for a future that the test completes.

    The method of a decorated class has no decorator itself, and builds its result by another method of that class.
    """
    if (level, form) == ("method", "offloaded"):

        class OffloadedClient(Service):
            @asynchronous
            def work(self, waiting: Future[None]) -> Awaitable[None]:
                waiting.result(1000)
                return completed_future(None)

        return OffloadedClient()

    if (level, form) == ("method", "task"):

        class TaskClient(Service):
            @asynchronous
            async def work(self, waiting: Future[None]) -> None:
                await waiting

        return TaskClient()

    if form == "offloaded":

        @asynchronous
        class DecoratedOffloadedClient(Service):
            def work(self, waiting: Future[None]) -> Awaitable[None]:
                waiting.result(1000)
                return self.completed()

            def completed(self) -> Awaitable[None]:
                return completed_future(None)

        return DecoratedOffloadedClient()

    @asynchronous
    class DecoratedTaskClient(Service):
        async def work(self, waiting: Future[None]) -> None:
            await waiting
            await self.completed()

        async def completed(self) -> None:
            pass

    return DecoratedTaskClient()


@pytest.mark.parametrize(
    "level",
    [
        pytest.param("method", marks=pytest.mark.tck("AsynchronousCSTest.testAsyncIsNotFinished")),
        pytest.param("class", marks=pytest.mark.tck("AsynchronousCSTest.testClassLevelAsyncIsNotFinished")),
    ],
)
def test_awaitable_is_not_complete_while_its_body_waits(level: str, form: str, clock: Clock) -> None:
    """The caller's awaitable is not complete while the body waits, and completes once it goes on.

    Under CDI the call of the sibling is not intercepted; here it is an asynchronous call of its own.
    """
    client = awaitable_client(level, form)

    async def main() -> bool:
        waiting = Future[None]()
        pending = client.work(waiting)
        await asyncio.sleep(0.5)
        was_done: bool = pending.done()
        waiting.set_result(None)
        await asyncio.wait_for(pending, clock.within(0.5))
        return was_done

    assert clock.run(main()) is False


@pytest.mark.parametrize(
    "level",
    [
        pytest.param("method", marks=pytest.mark.tck("AsynchronousCSTest.testAsyncIsFinished")),
        pytest.param("class", marks=pytest.mark.tck("AsynchronousCSTest.testClassLevelAsyncIsFinished")),
    ],
)
def test_awaitable_is_complete_once_its_body_has_returned(level: str, form: str, clock: Clock) -> None:
    """The future of the body is done at once, and the outcome of the call comes soon after."""
    client = awaitable_client(level, form)

    async def main() -> Any:
        waiting = Future[None]()
        pending = client.work(waiting)
        waiting.set_result(None)
        await asyncio.wait_for(pending, clock.within(0.5))
        return pending

    pending = clock.run(main())

    assert pending.done()
    assert pending.exception() is None


@pytest.mark.tck("AsynchronousCSTest.testAsyncCallbacksChained")
def test_steps_that_the_body_chained_run_before_those_that_its_caller_chained(form: str, clock: Clock) -> None:
    """The call ends with the awaitable of its body, after the steps in that awaitable; then its callbacks run.

    Where Java chains stages there are coroutines around an awaitable, and callbacks.
    """
    record: list[str] = []

    class Client(Service):
        @asynchronous
        def offloaded(self, waiting: Future[None], returned: Awaitable[None]) -> Awaitable[None]:
            waiting.result(1000)
            return returned

        @asynchronous
        async def task(self, waiting: Future[None], returned: Awaitable[None]) -> None:
            await waiting
            await returned

    client = Client()
    method = client.task if form == "task" else client.offloaded

    async def derived(inner: Future[None]) -> None:
        await inner
        record.append("1")

    async def main() -> bool:
        waiting, inner = Future[None](), Future[None]()
        pending: Any = method(waiting, derived(inner))
        pending.add_done_callback(lambda _: record.append("2"))
        waiting.set_result(None)
        pending.add_done_callback(lambda _: record.append("3"))
        await asyncio.sleep(0.5)
        was_done: bool = pending.done()
        inner.set_result(None)
        await asyncio.wait_for(pending, clock.within(0.5))
        return was_done

    assert clock.run(main()) is False
    assert "".join(record) == "123"


@pytest.mark.parametrize(
    "throws",
    [
        pytest.param(
            True, marks=pytest.mark.tck("AsynchronousCSTest.testAsyncCompletesExceptionallyWhenExceptionThrown")
        ),
        pytest.param(
            False, marks=pytest.mark.tck("AsynchronousCSTest.testAsyncCompletesExceptionallyWhenCompletedExceptionally")
        ),
    ],
    ids=["raised", "returned"],
)
def test_awaitable_fails_as_its_body_does(throws: bool, form: str, clock: Clock) -> None:
    """A failure of the body, and that of the awaitable that it returns, come out alike, and are no cancellation.

    The official kit's body never raises, though one of its cases says so; here it does.
    """

    class Client(Service):
        @asynchronous
        def offloaded(self, waiting: Future[None]) -> Awaitable[None]:
            error: Any = waiting.exception(1000)
            if throws:
                raise error
            return failed_future(error)

        @asynchronous
        async def task(self, waiting: Future[None]) -> None:
            try:
                await waiting
            except SimulatedException as error:
                if throws:
                    raise
                await failed_future(error)

    client = Client()

    async def main() -> Any:
        waiting = Future[None]()
        pending = client.task(waiting) if form == "task" else client.offloaded(waiting)
        waiting.set_exception(SimulatedException("simulated"))
        with pytest.raises(SimulatedException):
            await asyncio.wait_for(pending, clock.within(0.5))
        return pending

    pending = clock.run(main())

    assert pending.done()
    assert not pending.cancelled()
    assert type(pending.exception()) is SimulatedException


# The context of the caller


class Request:
    """An object that exists once per request."""

    def string(self) -> Awaitable[str]:
        return completed_future("testCompletionStageString")

    def future_string(self) -> Future[str]:
        return completed_future("testFutureString")


request_of_this_context: ContextVar[Request] = ContextVar("request_of_this_context")


def _in_request(ask: Ask, call: Callable[[], Any]) -> Any:
    def ask_in_request() -> Any:
        request_of_this_context.set(Request())
        return ask(call)

    return copy_context().run(ask_in_request)


@pytest.mark.tck("AsynchronousTest.testAsyncRequestContextWithCompletionStage")
def test_context_variables_of_the_caller_hold_in_a_body_that_returns_an_awaitable(ask: Ask) -> None:
    """The body sees the context of the caller, which takes the place of the request scope of CDI."""

    class Application(Service):
        @asynchronous
        def work(self) -> Awaitable[str]:
            return request_of_this_context.get().string()

    assert _in_request(ask, Application().work) == "testCompletionStageString"


@pytest.mark.tck("AsynchronousTest.testAsyncRequestContextWithFuture")
def test_context_variables_of_the_caller_hold_in_a_body_that_returns_a_future(ask: Ask) -> None:
    """The same holds for a body that returns a future."""

    class Application(Service):
        @asynchronous
        def work(self) -> Future[str]:
            return request_of_this_context.get().future_string()

    assert _in_request(ask, Application().work) == "testFutureString"


# Cancelling

by_future = pytest.mark.parametrize("invoke", ["offloaded"], indirect=True)
"""``cancel(may_interrupt=...)`` of the library's future, which follows ``java.util.concurrent.Future``."""


def assert_cancelled(call: Call) -> None:
    """Check that the future is cancelled and done, and that its result raises, with a time limit and without."""
    assert call.future.cancelled()
    assert call.future.done()
    with pytest.raises(CancelledError):
        call.future.result(timeout=2)
    with pytest.raises(CancelledError):
        call.future.result()


def cancel(call: Call, *, may_interrupt: bool) -> None:
    """Cancel the future that the caller has."""
    future = call.future
    assert isinstance(future, Future)
    assert future.cancel(may_interrupt)


class InterruptibleClient(Service):
    """The base of asynchronous clients that record an interruption."""

    def __init__(self) -> None:
        super().__init__()
        self.was_interrupted = False

    def wait(self, barrier: Barrier) -> None:
        """Wait until the test or an interruption ends it, and record an interruption."""
        try:
            barrier.pass_through_interruptibly()
        except Interrupted:
            self.was_interrupted = True


@by_future
@pytest.mark.tck("AsyncCancellationTest.testCancel")
def test_cancelling_interrupts_the_body(calls: Calls) -> None:
    """The future is cancelled at once, and its body is interrupted where it waits."""

    class Client(InterruptibleClient):
        @asynchronous
        def work(self, barrier: Barrier) -> Future[None]:
            self.wait(barrier)
            return completed_future(None)

    client = Client()
    call = calls.start_running(client.work)
    cancel(call, may_interrupt=True)

    calls.eventually(lambda: client.was_interrupted)
    assert_cancelled(call)


@by_future
@pytest.mark.tck("AsyncCancellationTest.testCancelWithoutInterrupt")
def test_cancelling_without_interruption_lets_the_body_go_on(calls: Calls) -> None:
    """The future is cancelled at once, the body ends by itself, and its result is dropped."""

    class Client(InterruptibleClient):
        @asynchronous
        def work(self, barrier: Barrier) -> Future[None]:
            self.wait(barrier)
            self.executions += 1
            return completed_future(None)

    client = Client()
    call = calls.start_running(client.work)
    cancel(call, may_interrupt=False)

    assert_cancelled(call)
    calls.watch()
    assert not client.was_interrupted
    assert client.executions == 0

    call.release()
    for _ in range(5):
        calls.watch(0.1)
        assert_cancelled(call)
    assert client.executions == 1


@by_future
@pytest.mark.tck("AsyncCancellationTest.testCancelledButRemainsInBulkhead")
def test_call_that_was_cancelled_keeps_its_permit_until_its_body_ends(calls: Calls) -> None:
    """A body that nothing has interrupted still holds its permit, and queued calls wait on."""

    class Client(Service):
        @asynchronous
        @bulkhead(1, waiting_task_queue=1)
        def work(self, barrier: Barrier) -> Future[None]:
            barrier.pass_through()
            return completed_future(None)

    client = Client()
    cancelled = calls.start_running(client.work)
    queued = calls.start_waiting(client.work)
    cancel(cancelled, may_interrupt=False)
    calls.watch()

    assert not queued.has_started
    assert_cancelled(cancelled)
    cancelled.release()
    queued.await_start()


@by_future
@pytest.mark.tck("AsyncCancellationTest.testCancelledWhileQueued")
def test_call_that_was_cancelled_in_the_queue_never_starts(calls: Calls) -> None:
    """It does not start when its turn would have come."""

    class Client(Service):
        @asynchronous
        @bulkhead(1, waiting_task_queue=1)
        def work(self, barrier: Barrier) -> Future[None]:
            barrier.pass_through()
            return completed_future(None)

    client = Client()
    running = calls.start_running(client.work)
    queued = calls.start_waiting(client.work)
    cancel(queued, may_interrupt=False)
    running.release()
    calls.watch()

    assert not queued.has_started
    assert running.result() is None
    assert_cancelled(queued)


@by_future
@pytest.mark.tck("AsyncCancellationTest.testCancelledDoesNotRetry")
def test_call_that_was_cancelled_is_not_retried(calls: Calls) -> None:
    """The interruption by a cancellation is no failure of the method."""

    class Client(Service):
        @asynchronous
        @retry(max_retries=5, delay=0, jitter=0)
        def work(self, barrier: Barrier) -> Future[None]:
            self.executions += 1
            barrier.pass_through_interruptibly()
            return completed_future(None)

    client = Client()
    call = calls.start_running(client.work)
    cancel(call, may_interrupt=True)
    calls.watch()

    assert client.executions == 1
    assert_cancelled(call)


# Time-outs


@pytest.mark.parametrize(
    "level",
    [
        pytest.param("method", marks=pytest.mark.tck("AsyncTimeoutTest.testAsyncTimeout")),
        pytest.param("class", marks=pytest.mark.tck("AsyncTimeoutTest.testAsyncClassLevelTimeout")),
    ],
)
def test_future_fails_at_the_deadline(level: str, clock: Clock) -> None:
    """The call returns before that, and the future tells the library's TimeoutException from a wait that is too short.

    The failure of the future is raised as it is; Java wraps it into an ExecutionException.
    """
    client: Any

    if level == "method":

        class Client(Service):
            @timeout(2000)
            @asynchronous
            def work(self) -> Future[None]:
                sleep(5.0)
                return completed_future(None)

        client, name = Client(), key(Client, "work", "Timeout", "value")
    else:

        @timeout(2000)
        @asynchronous
        class DecoratedClient(Service):
            def work(self) -> Future[None]:
                sleep(5.0)
                return completed_future(None)

        client, name = DecoratedClient(), key(DecoratedClient, "Timeout", "value")

    with configured({name: 2000}):
        stopwatch = clock.stopwatch()
        pending = client.work()
        returned_after = stopwatch.elapsed
        was_done = pending.done()
        with pytest.raises(TimeoutException) as raised:
            pending.result(clock.within(3.0))
        failed_after = stopwatch.elapsed

    assert returned_after < 2.0
    assert not was_done
    assert raised.type is TimeoutException
    assert failed_after >= 2.0


@pytest.mark.tck("AsyncTimeoutTest.testAsyncNoTimeout")
def test_future_has_its_result_where_the_body_ends_before_the_deadline(clock: Clock) -> None:
    """A body of 500 ms under a deadline of 2000 ms is in time."""

    class Client(Service):
        @timeout(2000)
        @asynchronous
        def work(self) -> Future[str]:
            sleep(0.5)
            return completed_future("in time")

    stopwatch = clock.stopwatch()
    pending = Client().work()
    returned_after = stopwatch.elapsed
    was_done = pending.done()

    assert pending.result(clock.within(1.0)) == "in time"
    assert returned_after < 2.0
    assert not was_done


# Fallbacks


@pytest.mark.tck("AsyncFallbackTest.testAsyncFallbackSuccess")
def test_future_of_a_body_that_succeeds_needs_no_fallback(ask: Ask) -> None:
    """The fallback is not called."""

    class Client(Service):
        @asynchronous
        @fallback(fallback_method="fallback")
        def work(self) -> Future[str]:
            return completed_future("Success")

        def fallback(self) -> Future[str]:
            return completed_future("Fallback")

    assert ask(Client().work) == "Success"


@pytest.mark.tck("AsyncFallbackTest.testAsyncFallbackMethodThrows")
def test_future_of_a_body_that_raises_is_that_of_the_fallback(ask: Ask) -> None:
    """The call itself raises nothing; its future gets the outcome of the fallback's future."""

    class Client(Service):
        @asynchronous
        @fallback(fallback_method="fallback")
        def work(self) -> Future[str]:
            raise OSError("Simulated error")

        def fallback(self) -> Future[str]:
            return completed_future("Fallback")

    assert ask(Client().work) == "Fallback"


@pytest.mark.tck("AsyncFallbackTest.testAsyncFallbackFutureCompletesExceptionally")
def test_body_that_returns_a_failed_future_has_succeeded(ask: Ask) -> None:
    """Policies see the method's own outcome, not that of the future: there is no fallback.

    The future's failure is raised as it is; Java wraps it into an ExecutionException.
    """

    class Client(Service):
        @asynchronous
        @fallback(fallback_method="fallback")
        def work(self) -> Future[str]:
            return failed_future(OSError("Simulated error"))

        def fallback(self) -> Future[str]:
            return completed_future("Fallback")

    with pytest.raises(OSError, match="Simulated error"):
        ask(Client().work)


@pytest.mark.tck("AsyncFallbackTest.testAsyncCSFallbackSuccess")
def test_awaitable_of_a_body_that_succeeds_needs_no_fallback(ask: Ask) -> None:
    """The fallback is not called."""

    class Client(Service):
        @asynchronous
        @fallback(fallback_method="fallback_cs")
        def work(self) -> Awaitable[str]:
            return completed_future("Success")

        def fallback_cs(self) -> Awaitable[str]:
            return completed_future("Fallback")

    assert ask(Client().work) == "Success"


@pytest.mark.tck("AsyncFallbackTest.testAsyncCSFallbackMethodThrows")
def test_awaitable_of_a_body_that_raises_is_that_of_the_fallback(ask: Ask) -> None:
    """The awaitable completes as the fallback's does."""

    class Client(Service):
        @asynchronous
        @fallback(fallback_method="fallback_cs")
        def work(self) -> Awaitable[str]:
            raise OSError("Simulated error")

        def fallback_cs(self) -> Awaitable[str]:
            return completed_future("Fallback")

    assert ask(Client().work) == "Fallback"


@pytest.mark.tck("AsyncFallbackTest.testAsyncCSFallbackFutureCompletesExceptionally")
def test_body_that_returns_a_failed_awaitable_has_failed(ask: Ask) -> None:
    """Policies see how the awaitable completes: the fallback replaces its failure."""

    class Client(Service):
        @asynchronous
        @fallback(fallback_method="fallback_cs")
        def work(self) -> Awaitable[str]:
            return failed_future(OSError("Simulated error"))

        def fallback_cs(self) -> Awaitable[str]:
            return completed_future("Fallback")

    assert ask(Client().work) == "Fallback"
