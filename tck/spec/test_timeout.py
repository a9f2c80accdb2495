"""Specification, chapter "Timeout": the duration of an attempt, and the end of a body that takes longer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Future as ExecutorFuture
from typing import Any

import pytest

from faulttolerance import (
    BulkheadException,
    ChronoUnit,
    Future,
    TimeoutException,
    asynchronous,
    bulkhead,
    completed_future,
    fallback,
    remaining,
    retry,
    sleep,
    timeout,
)
from kit import INTERRUPTION, Clock, Invoke, Service, TestException, wait_ignoring_interruptions

_LATE, _IN_TIME = TimeoutException, TestException
_SECONDS = ChronoUnit.SECONDS


def plainly(target: Any) -> Any:
    """Return *target* as it is, in place of a decorator."""
    return target


# When a time-out strikes


@pytest.mark.parametrize(
    ("on_class", "on_method", "milliseconds", "failure"),
    [
        pytest.param(plainly, timeout(), 20_000, _LATE, marks=pytest.mark.tck("TimeoutTest.testTimeout")),
        pytest.param(plainly, timeout(), 10, _IN_TIME, marks=pytest.mark.tck("TimeoutTest.testNoTimeout")),
        pytest.param(plainly, timeout(2000), 2500, _LATE, marks=pytest.mark.tck("TimeoutTest.testGTDefaultTimeout")),
        pytest.param(
            plainly, timeout(2000), 1500, _IN_TIME, marks=pytest.mark.tck("TimeoutTest.testGTDefaultNoTimeout")
        ),
        pytest.param(plainly, timeout(500), 1000, _LATE, marks=pytest.mark.tck("TimeoutTest.testLTDefaultTimeout")),
        pytest.param(plainly, timeout(500), 10, _IN_TIME, marks=pytest.mark.tck("TimeoutTest.testLTDefaultNoTimeout")),
        pytest.param(
            plainly, timeout(2, _SECONDS), 2500, _LATE, marks=pytest.mark.tck("TimeoutTest.testSecondsTimeout")
        ),
        pytest.param(
            plainly, timeout(2, _SECONDS), 1500, _IN_TIME, marks=pytest.mark.tck("TimeoutTest.testSecondsNoTimeout")
        ),
        pytest.param(timeout(), plainly, 20_000, _LATE, marks=pytest.mark.tck("TimeoutTest.testTimeoutClassLevel")),
        pytest.param(timeout(), plainly, 10, _IN_TIME, marks=pytest.mark.tck("TimeoutTest.testNoTimeoutClassLevel")),
        pytest.param(
            timeout(), timeout(2000), 2500, _LATE, marks=pytest.mark.tck("TimeoutTest.testGTDefaultTimeoutOverride")
        ),
        pytest.param(
            timeout(),
            timeout(2000),
            1500,
            _IN_TIME,
            marks=pytest.mark.tck("TimeoutTest.testGTDefaultNoTimeoutOverride"),
        ),
        pytest.param(
            timeout(500), plainly, 1000, _LATE, marks=pytest.mark.tck("TimeoutTest.testLTDefaultTimeoutClassLevel")
        ),
        pytest.param(
            timeout(500), plainly, 10, _IN_TIME, marks=pytest.mark.tck("TimeoutTest.testLTDefaultNoTimeoutClassLevel")
        ),
        pytest.param(
            timeout(500), timeout(2000), 2500, _LATE, marks=pytest.mark.tck("TimeoutTest.testGTShorterTimeoutOverride")
        ),
        pytest.param(
            timeout(500),
            timeout(2000),
            1500,
            _IN_TIME,
            marks=pytest.mark.tck("TimeoutTest.testGTShorterNoTimeoutOverride"),
        ),
    ],
)
def test_attempt_that_takes_too_long_times_out(
    on_class: Callable[[Any], Any],
    on_method: Callable[[Any], Any],
    milliseconds: int,
    failure: type[Exception],
    invoke: Invoke,
    clock: Clock,
) -> None:
    """An attempt that is not over at its deadline fails with TimeoutException, however its body ends.

    The limit is a second by default; the method's replaces that of its class. The body swallows the interruption and
    returns normally, which makes it no less late. One that ends in time keeps its own failure.
    """

    @on_class
    class Client(Service):
        @on_method
        @invoke.body
        async def work(self) -> None:
            try:
                await invoke.sleep(milliseconds / 1000)
            except INTERRUPTION:
                return
            raise TestException

    stopwatch = clock.stopwatch()
    with pytest.raises(failure):
        invoke(Client().work)

    if failure is TimeoutException:
        assert stopwatch.elapsed < clock.within(milliseconds / 1000)


# Bodies that nothing can stop


@pytest.mark.tck("TimeoutUninterruptableTest.testTimeout")
def test_synchronous_call_that_nothing_stops_times_out_when_it_ends(clock: Clock) -> None:
    """The call lasts as long as its body, the result is discarded, and no interruption is left for the caller.

    In Java a busy loop does not notice that it is interrupted; in Python it has to catch the interruption, and go on.
    """

    class Client(Service):
        @timeout(500)
        def work(self) -> str:
            clock.work(1.0)
            return "too late"

    stopwatch = clock.stopwatch()
    with pytest.raises(TimeoutException):
        Client().work()
    elapsed = stopwatch.elapsed

    assert elapsed >= 0.8
    assert remaining() is None
    sleep(0)
    sleep(0.1)  # neither is a late interruption on its way


@pytest.mark.tck("TimeoutUninterruptableTest.testTimeoutAsync")
def test_future_times_out_while_its_body_goes_on(clock: Clock) -> None:
    """An asynchronous call is over at its deadline; its body ends by itself."""

    class Client(Service):
        @timeout(500)
        @asynchronous
        def work(self, waiting: Future[None], completion: Future[None]) -> Future[None]:
            wait_ignoring_interruptions(waiting)
            completion.set_result(None)
            return completed_future(None)

    waiting, completion = Future[None](), Future[None]()
    stopwatch = clock.stopwatch()
    error = Client().work(waiting, completion).exception(10)
    elapsed, was_done = stopwatch.elapsed, completion.done()
    waiting.set_result(None)

    assert isinstance(error, TimeoutException)
    assert elapsed < clock.within(1.5)
    assert not was_done
    completion.result(clock.within(5.0))


@pytest.mark.tck("TimeoutUninterruptableTest.testTimeoutAsyncCS")
def test_awaitable_times_out_while_its_body_goes_on(clock: Clock) -> None:
    """An awaiting caller gets the time-out at the deadline, and is not interrupted in the body's place.

    Java asks whether the thread of a callback is interrupted; here callback and waiting coroutine look for an injected
    exception, which would be raised where they sleep.
    """
    seen: list[float] = []

    class Client(Service):
        @timeout(500)
        @asynchronous
        def work(self) -> Awaitable[str]:
            clock.work(4.0)
            return completed_future("too late")

    client = Client()
    stopwatch = clock.stopwatch()

    def callback(_: ExecutorFuture[Any]) -> None:
        seen.append(stopwatch.elapsed)
        sleep(0)

    async def main() -> None:
        pending: Any = client.work()
        pending.add_done_callback(callback)
        with pytest.raises(TimeoutException):
            await pending
        seen.append(stopwatch.elapsed)
        sleep(0)

    clock.run(main())

    assert len(seen) == 2
    assert max(seen) < clock.within(1.5)


@pytest.mark.tck("TimeoutUninterruptableTest.testTimeoutAsyncBulkhead")
def test_body_that_goes_on_keeps_its_permit_and_queued_calls_time_out(clock: Clock) -> None:
    """The permit of a late call is taken until its body ends; queued calls leave the queue at their deadline."""

    class Client(Service):
        @timeout(500)
        @asynchronous
        @bulkhead(1, waiting_task_queue=1)
        def work(self, waiting: Future[None]) -> Future[None]:
            self.executions += 1
            wait_ignoring_interruptions(waiting)
            return completed_future(None)

    client = Client()
    waiting = Future[None]()

    stopwatch = clock.stopwatch()
    assert isinstance(client.work(waiting).exception(10), TimeoutException)
    assert stopwatch.elapsed < clock.within(1.5)
    assert client.executions == 1

    stopwatch = clock.stopwatch()
    assert isinstance(client.work(waiting).exception(10), TimeoutException)
    assert stopwatch.elapsed < clock.within(1.5)
    assert client.executions == 1

    queued = client.work(waiting)
    clock.sleep(0.1)
    refused = client.work(waiting)
    assert isinstance(refused.exception(10), BulkheadException)
    assert isinstance(queued.exception(10), TimeoutException)
    assert client.executions == 1

    waiting.set_result(None)
    clock.sleep(0.3)
    assert client.executions == 1


@pytest.mark.tck("TimeoutUninterruptableTest.testTimeoutAsyncBulkheadQueueTimed")
def test_time_in_the_queue_counts(clock: Clock) -> None:
    """The deadline of a queued call runs from the moment at which it queues, not from its start."""

    class Client(Service):
        @timeout(500)
        @asynchronous
        @bulkhead(1, waiting_task_queue=1)
        def work(self, waiting: Future[None]) -> Future[None]:
            wait_ignoring_interruptions(waiting)
            return completed_future(None)

    client = Client()
    waiting_a, waiting_b = Future[None](), Future[None]()
    a = client.work(waiting_a)
    clock.sleep(0.1)
    stopwatch = clock.stopwatch()
    b = client.work(waiting_b)
    clock.sleep(0.3)
    waiting_a.set_result(None)

    assert a.exception(10) is None
    assert isinstance(b.exception(10), TimeoutException)
    assert stopwatch.elapsed < clock.within(0.75)
    waiting_b.set_result(None)


@pytest.mark.tck("TimeoutUninterruptableTest.testTimeoutAsyncRetry")
def test_retry_begins_while_the_attempt_that_timed_out_goes_on(clock: Clock) -> None:
    """Three attempts of half a second each take a second and a half, although none of their bodies has ended."""

    class Client(Service):
        @timeout(500)
        @asynchronous
        @retry(max_retries=2, delay=0, jitter=0)
        def work(self, waiting: Future[None]) -> Future[None]:
            self.executions += 1
            wait_ignoring_interruptions(waiting)
            return completed_future(None)

    client = Client()
    waiting = Future[None]()
    stopwatch = clock.stopwatch()
    error = client.work(waiting).exception(10)
    elapsed = stopwatch.elapsed
    waiting.set_result(None)

    assert isinstance(error, TimeoutException)
    assert elapsed < clock.within(3.0)
    assert client.executions == 3


@pytest.mark.tck("TimeoutUninterruptableTest.testTimeoutAsyncFallback")
def test_fallback_runs_at_the_deadline_while_the_body_goes_on(clock: Clock) -> None:
    """The fallback does not wait for a body that is late, and the future that it returns is unwrapped."""

    class Client(Service):
        @timeout(500)
        @asynchronous
        @fallback(fallback_method="fallback")
        def work(self, waiting: Future[None]) -> Future[str]:
            wait_ignoring_interruptions(waiting)
            return completed_future("OK")

        def fallback(self, waiting: Future[None]) -> Future[str]:
            return completed_future("FALLBACK")

    waiting = Future[None]()
    stopwatch = clock.stopwatch()
    result = Client().work(waiting).result(10)
    elapsed = stopwatch.elapsed
    waiting.set_result(None)

    assert result == "FALLBACK"
    assert elapsed < clock.within(1.5)
