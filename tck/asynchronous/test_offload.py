"""Calls that run on threads of the pool."""

from __future__ import annotations

import _thread
import asyncio
import concurrent.futures
import contextvars
import gc
import logging
import os
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from faulttolerance import asynchronous, bulkhead, coalesce, deadline, fallback, hedge, retry, timeout
from faulttolerance._deadline.attempt_record import AttemptRecord
from faulttolerance._deadline.clock import clock
from faulttolerance._deadline.interruption import remaining, sleep
from faulttolerance._deadline.task import TaskDeadline, current
from faulttolerance._deadline.threads.async_exception import Interrupted
from faulttolerance._deadline.threads.chain import deadlines_here
from faulttolerance._execution.environment import Attempt
from faulttolerance._execution.future import Future, completed_future
from faulttolerance._execution.pool import pool
from faulttolerance._execution.thread import ThreadEnvironment, shutdown, start
from faulttolerance._strategy.bulkhead import Bulkhead
from faulttolerance.exceptions import BulkheadException, TimeoutException
from kit.program import python
from kit.waiting import wait_until

PATIENCE = 20.0
"""Seconds after which something that must happen did not."""
LONG = 1000.0
"""Seconds of a deadline or a delay that passes only where a test moves the clock."""


@pytest.fixture(autouse=True)
def nothing_left_under_way() -> Iterator[None]:
    """Assert that every call of a test has ended when the test has."""
    yield
    pool.configure(max_threads=None)
    assert shutdown(PATIENCE)


class StillClock:
    """Time that stands still until a test moves it on."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[StillTimer] = []

    def monotonic(self) -> float:
        return self.now

    def random(self) -> float:
        return 0.5

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps")

    def call_at(self, when: float, callback: Callable[[], object]) -> StillTimer:
        self.timers.append(StillTimer(when, callback))
        return self.timers[-1]

    def advance(self, seconds: float = LONG) -> None:
        """Move time on, and call the timers that are due."""
        self.now += seconds
        for timer in self.timers.copy():
            if timer.when <= self.now and timer.callback is not None:
                callback, timer.callback = timer.callback, None
                callback()


class StillTimer:
    def __init__(self, when: float, callback: Callable[[], object]) -> None:
        self.when = when
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


@pytest.fixture
def time_stands_still() -> Iterator[StillClock]:
    still = StillClock()
    clock.use(still)
    yield still
    clock.use_system()


class Call:
    """A guarded function, by a driver of a few lines: attempts, pauses, a fallback."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        attempts: int = 1,
        delay: float | None = None,
        seconds: float = 0.0,
        bulkhead: Bulkhead | None = None,
        fallback: Callable[..., Any] | None = None,
        interrupt: bool = True,
        awaits: Any = True,
    ) -> None:
        self.function = function
        self.attempts = attempts
        self.delay = delay
        self.seconds = seconds
        self.bulkhead = bulkhead
        self.fallback = fallback
        self.interrupt = interrupt
        self.awaits = awaits
        self.records: list[AttemptRecord] = []
        self.ended: list[type[BaseException] | None] = []
        """How each call ended, as its driver saw it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Future[Any]:
        return start(self._drive, args, kwargs)

    def _drive(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Coroutine[Any, Any, Any]:
        return self._driven(args, kwargs)

    async def _driven(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        try:
            result = await self._attempted(args, kwargs)
        except BaseException as error:
            self.ended.append(type(error))
            raise
        self.ended.append(None)
        return result

    async def _attempted(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        environment = ThreadEnvironment()
        failure: Exception | None = None
        for attempt in range(1, self.attempts + 1):
            record = AttemptRecord()
            record.began = clock.monotonic()
            self.records.append(record)
            try:
                return await environment.attempt(
                    Attempt(
                        record,
                        self.function,
                        args,
                        kwargs,
                        self.bulkhead,
                        record.began + self.seconds if self.seconds else None,
                        self.interrupt,
                        self.awaits,
                    )
                )
            except Exception as error:
                if attempt == self.attempts:
                    if self.fallback is None:
                        raise
                    failure = error
            if attempt < self.attempts and self.delay is not None:
                await environment.pause(self.delay)
        assert self.fallback is not None
        try:
            return await environment.call(self.fallback, failure)
        finally:
            del failure


class Body:
    """A function that tells when it has begun, how often, and the reason of its end; it returns when it may."""

    def __init__(self, result: object = "done", *, interruptible: bool = False) -> None:
        self.result = result
        self.interruptible = interruptible
        self.begun = threading.Event()
        self.open = threading.Event()
        self.over = threading.Event()
        self.count = 0
        self.interrupted: list[BaseException] = []
        self.threads: list[threading.Thread] = []

    def has_begun(self, times: int) -> bool:
        return self.count == times

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        self.threads.append(threading.current_thread())
        self.begun.set()
        try:
            if self.interruptible:
                sleep(PATIENCE)
            assert self.open.wait(PATIENCE)
        except Interrupted as interrupted:
            self.interrupted.append(interrupted)
            raise
        finally:
            self.over.set()
        return self.result


def add(one: int, two: int) -> int:
    return one + two


# One attempt


def test_the_body_runs_on_a_thread_of_the_pool() -> None:
    """The call returns at once; its future is done when the body is."""
    body = Body()

    future = Call(body)()

    assert body.begun.wait(PATIENCE)
    assert not future.done()
    body.open.set()
    assert future.result(PATIENCE) == "done"
    assert body.threads[0].name.startswith("faulttolerance-")


def test_arguments_reach_the_body() -> None:
    """Arguments are passed by position and by name."""
    assert Call(add)(1, two=2).result(PATIENCE) == 3


def test_a_failure_comes_out_as_it_is() -> None:
    """The body's own exception object, with the line of the body in its traceback."""
    error = ValueError("no")

    def fail() -> None:
        raise error

    future = Call(fail)()

    assert future.exception(PATIENCE) is error
    assert "fail" in [frame.name for frame in traceback.extract_tb(error.__traceback__)]


@pytest.mark.parametrize("error", [StopIteration("no"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()], ids=repr)
def test_an_exception_with_a_meaning_for_python_comes_out_as_it_is(error: BaseException) -> None:
    """Neither the coroutine nor the thread treats it as an exception of its own."""

    def fail() -> None:
        raise error

    future = Call(fail)()

    assert future.exception(PATIENCE) is error


def test_a_debugger_may_replace_the_function_that_starts_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """It traces each thread from its beginning; the threads are real all the same."""
    original = _thread.start_new_thread
    monkeypatch.setattr(_thread, "start_new_thread", lambda *arguments: original(*arguments))

    @asynchronous
    @timeout(60_000)
    def fetch() -> Future[int]:
        return completed_future(1)

    assert fetch().result(PATIENCE) == 1


def test_a_call_costs_one_thread() -> None:
    """Body, retries and fallback follow each other on the thread that has just become free."""
    threads: list[int] = []

    def fail(*_: object) -> str:
        threads.append(threading.get_ident())
        if len(threads) < 4:
            raise ValueError
        return "fallback"

    assert Call(fail, attempts=3, fallback=fail)().result(PATIENCE) == "fallback"
    assert len(threads) == 4
    assert len(set(threads)) == 1


def test_the_call_is_counted_before_its_future_is_done() -> None:
    """A reader of a metric finds the call in it after its result."""
    body = Body()
    call = Call(body)
    seen: list[list[type[BaseException] | None]] = []
    future = call()
    future.add_done_callback(lambda _: seen.append(call.ended.copy()))

    body.open.set()

    assert future.result(PATIENCE) == "done"
    wait_until(lambda: seen)
    assert seen == [[None]]


# Context variables

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="nothing")


def test_every_attempt_and_the_fallback_see_the_context_of_the_caller() -> None:
    """A trace or a request is known wherever the call goes on, and no attempt sees a variable that another one set."""
    seen: list[str] = []

    def look(*_: object) -> None:
        seen.append(variable.get())
        variable.set("changed")
        raise ValueError

    def call() -> Future[Any]:
        variable.set("mine")
        return Call(look, attempts=3, delay=0.001, fallback=look)()

    future = contextvars.copy_context().run(call)

    assert isinstance(future.exception(PATIENCE), ValueError)
    assert seen == ["mine"] * 4
    assert variable.get() == "nothing"


# Permits


def test_a_refusal_is_there_when_the_call_returns() -> None:
    """Specification, chapter Asynchronous: the future is done, and holds the BulkheadException."""
    body = Body()
    call = Call(body, bulkhead=Bulkhead(1, 1))
    first, second = call(), call()

    third = call()

    assert third.done()
    assert isinstance(third.exception(), BulkheadException)
    body.open.set()
    assert (first.result(PATIENCE), second.result(PATIENCE)) == ("done", "done")


def test_calls_get_their_permits_in_the_order_in_which_they_were_made() -> None:
    """They are admitted in that order, although each runs on a thread of its own."""
    ran: list[int] = []
    body = Body()
    bulkhead = Bulkhead(1, 100)
    blocking = Call(body, bulkhead=bulkhead)()

    futures = [Call(ran.append, bulkhead=bulkhead)(number) for number in range(50)]

    body.open.set()
    for future in (blocking, *futures):
        future.result(PATIENCE)
    assert ran == list(range(50))


def test_a_queued_call_holds_no_thread() -> None:
    """Any number of calls may wait for a permit."""
    pool.configure(max_threads=2)
    body = Body()
    call = Call(body, bulkhead=Bulkhead(1, 10))
    futures = [call() for _ in range(5)]
    assert body.begun.wait(PATIENCE)

    assert Call(add)(1, 2).result(PATIENCE) == 3

    body.open.set()
    assert [future.result(PATIENCE) for future in futures] == ["done"] * 5


def test_waiting_and_running_are_distinguished() -> None:
    """The record of a call has the times that the metrics need."""
    body = Body()
    call = Call(body, bulkhead=Bulkhead(1, 1))
    futures = [call(), call()]
    assert body.begun.wait(PATIENCE)
    first, second = call.records
    assert (first.admitted, second.admitted) == (True, False)
    assert second.queued

    body.open.set()
    for future in futures:
        future.result(PATIENCE)

    assert not first.running_since
    assert second.running_since >= second.began
    assert second.admitted


def test_the_fallback_of_a_refused_call_does_not_run_on_the_caller() -> None:
    """No code of the application holds a caller up."""
    body = Body()
    bulkhead = Bulkhead(1, 1)
    others = [Call(body, bulkhead=bulkhead)() for _ in range(2)]

    future = Call(body, bulkhead=bulkhead, fallback=lambda _: threading.current_thread())()

    assert future.result(PATIENCE) is not threading.current_thread()
    body.open.set()
    for other in others:
        other.result(PATIENCE)


def test_a_refused_call_that_is_retried_at_once_does_not_hold_its_caller() -> None:
    """The call returns, however many attempts without a delay are refused."""
    body = Body()
    bulkhead = Bulkhead(1, 1)
    others = [Call(body, bulkhead=bulkhead)() for _ in range(2)]

    future = Call(body, bulkhead=bulkhead, attempts=10**9)()

    assert not future.done()
    body.open.set()
    for one in (*others, future):
        assert one.result(PATIENCE) == "done"


def test_a_retry_leaves_the_bulkhead_before_its_delay() -> None:
    """A waiting call gets the permit while the other call waits for its next attempt."""
    ran: list[int] = []

    def fail(number: int) -> None:
        ran.append(number)
        raise ValueError

    bulkhead = Bulkhead(1, 1)
    first = Call(fail, bulkhead=bulkhead, attempts=2, delay=LONG)(1)
    wait_until(lambda: ran)

    second = Call(fail, bulkhead=bulkhead)(2)

    assert isinstance(second.exception(PATIENCE), ValueError)
    assert (ran, first.done(), bulkhead.running) == ([1, 2], False, 0)
    first.cancel()


# Pauses


def test_no_thread_is_held_between_two_attempts() -> None:
    """A pool of one thread serves others while a call waits for its next attempt."""
    pool.configure(max_threads=1)
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise ValueError

    waiting = Call(fail, attempts=2, delay=LONG)()
    assert failed.wait(PATIENCE)

    assert Call(add)(1, 2).result(PATIENCE) == 3
    assert not waiting.done()
    waiting.cancel()


# Deadlines


def test_the_caller_is_free_at_the_deadline_while_the_body_goes_on(time_stands_still: StillClock) -> None:
    """A body that cannot be interrupted keeps its permit until its end, and its result is dropped."""
    body = Body()
    bulkhead = Bulkhead(1, 1)
    call = Call(body, seconds=LONG, bulkhead=bulkhead)
    future = call()
    assert body.begun.wait(PATIENCE)

    time_stands_still.advance()

    assert isinstance(future.exception(PATIENCE), TimeoutException)
    assert call.records[0].timed_out
    assert bulkhead.running == 1
    body.open.set()
    wait_until(lambda: not bulkhead.running)


def test_a_queued_call_whose_deadline_passes_never_begins(time_stands_still: StillClock) -> None:
    """The time in the queue counts, and a call that has timed out leaves the queue."""
    body, second = Body(), Body()
    bulkhead = Bulkhead(1, 1)
    first, queued = Call(body, bulkhead=bulkhead)(), Call(second, bulkhead=bulkhead, seconds=LONG)()

    time_stands_still.advance()

    assert isinstance(queued.exception(PATIENCE), TimeoutException)
    assert len(bulkhead.waiting) == 0
    body.open.set()
    assert first.result(PATIENCE) == "done"
    assert Call(add, bulkhead=bulkhead)(1, 2).result(PATIENCE) == 3
    assert not second.count


def test_a_deadline_passes_while_all_threads_are_taken(time_stands_still: StillClock) -> None:
    """Timers need no thread of the pool: a waiting call never begins, and the caller of a hung one is free."""
    pool.configure(max_threads=1)
    hung, queued = Body(), Body()
    first, second = Call(hung, seconds=LONG)(), Call(queued, seconds=LONG)()
    assert hung.begun.wait(PATIENCE)

    time_stands_still.advance()

    assert isinstance(first.exception(PATIENCE), TimeoutException)
    assert isinstance(second.exception(PATIENCE), TimeoutException)
    hung.open.set()
    assert Call(add)(1, 2).result(PATIENCE) == 3
    assert not queued.count


@pytest.mark.parametrize(("policy", "count"), [(hedge(delay="1h", quantile=0), 1), (coalesce(key=lambda: ""), 2)])
def test_a_full_pool_delays_no_outcome_that_is_there(policy: Any, count: int) -> None:
    """A call that another call wakes, as by its end, continues at once, although others wait for a thread."""
    pool.configure(max_threads=1)
    body, other = Body(), Body()
    load = asynchronous(policy(lambda: body()))
    calls = [load() for _ in range(count)]
    assert body.begun.wait(PATIENCE)
    queued = Call(other)()

    body.open.set()

    assert {call.result(PATIENCE) for call in calls} == {"done"}
    other.open.set()
    assert queued.result(PATIENCE) == "done"


def test_a_full_pool_delays_no_failure_of_a_retry(time_stands_still: StillClock) -> None:
    """The deadline of a retry starts after the delay, as that of the first attempt with the call."""
    pool.configure(max_threads=1)
    hung = Body()
    future = Call(hung, attempts=2, delay=LONG, seconds=LONG)()
    assert hung.begun.wait(PATIENCE)

    for _ in ("the first attempt", "the delay", "the second attempt"):
        wait_until(lambda: any(timer.callback is not None for timer in time_stands_still.timers))
        time_stands_still.advance()

    assert isinstance(future.exception(PATIENCE), TimeoutException)
    assert hung.count == 1
    hung.open.set()


def test_a_full_pool_delays_no_refusal(time_stands_still: StillClock) -> None:
    """A call whose longest wait for a permit is over is refused at once."""
    pool.configure(max_threads=1)
    body, bulkhead = Body(), Bulkhead(1, 1, max_wait=LONG, now=clock.monotonic)
    first, second = Call(body, bulkhead=bulkhead)(), Call(add, bulkhead=bulkhead)(1, 2)
    assert body.begun.wait(PATIENCE)

    time_stands_still.advance()

    assert isinstance(second.exception(PATIENCE), BulkheadException)
    body.open.set()
    assert first.result(PATIENCE) == "done"


def test_a_callback_never_delays_the_timers_of_the_process(time_stands_still: StillClock) -> None:
    """A call that an enclosing deadline ends calls back on a thread of the pool, even if the pool is full."""
    pool.configure(max_threads=1)
    body, go_on, threads = Body(), threading.Event(), list[threading.Thread]()

    def call_back(_: object) -> None:
        threads.append(threading.current_thread())
        assert go_on.wait(PATIENCE)

    with suppress(TimeoutException), deadline(LONG):
        future = Call(body)()
        future.add_done_callback(call_back)
        assert body.begun.wait(PATIENCE)
        time_stands_still.advance()

    assert isinstance(future.exception(PATIENCE), TimeoutException)
    wait_until(lambda: len(threads) == 1)
    assert threads[0] not in (threading.current_thread(), body.threads[0])
    go_on.set()
    body.open.set()


def test_a_callback_of_a_future_that_a_body_returned_never_delays_the_timers_of_the_process(
    time_stands_still: StillClock,
) -> None:
    """At the deadline that future is cancelled, and called back, on a thread of the pool."""
    returned, go_on, threads = concurrent.futures.Future[str](), threading.Event(), list[threading.Thread]()

    def call_back(_: object) -> None:
        threads.append(threading.current_thread())
        assert go_on.wait(PATIENCE)

    returned.add_done_callback(call_back)
    future = Call(lambda: returned, seconds=LONG)()
    wait_until(lambda: len(returned._done_callbacks) == 2)  # type: ignore[attr-defined]
    time_stands_still.advance()

    assert isinstance(future.exception(PATIENCE), TimeoutException)
    wait_until(lambda: len(threads) == 1)
    assert threads[0] is not threading.current_thread()
    go_on.set()


def test_a_deadline_ends_a_call_of_an_ending_interpreter(
    time_stands_still: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread can be started then, but a function of ``atexit`` may wait for the call."""

    def refuse(job: Callable[[], object], urgent: bool = False) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    body = Body()
    with suppress(TimeoutException), deadline(LONG):
        future = Call(body)()
        assert body.begun.wait(PATIENCE)
        monkeypatch.setattr(pool, "submit", refuse)
        time_stands_still.advance()

    assert isinstance(future.exception(0), TimeoutException)
    body.open.set()


def test_a_call_that_an_enclosing_deadline_ends_is_counted_before_its_future_completes(
    time_stands_still: StillClock,
) -> None:
    """A callback of the future finds the call among those that have ended."""
    body = Body()
    call = Call(body)
    with suppress(TimeoutException), deadline(LONG):
        future = call()
        ended_before: list[int] = []
        future.add_done_callback(lambda _: ended_before.append(len(call.ended)))
        assert body.begun.wait(PATIENCE)
        time_stands_still.advance()

    assert isinstance(future.exception(PATIENCE), TimeoutException)
    wait_until(lambda: bool(ended_before))
    assert ended_before == [1]
    body.open.set()


def test_a_late_result_is_discarded(time_stands_still: StillClock) -> None:
    """Also where the timer has not run yet when the body returns."""
    call = Call(lambda: setattr(time_stands_still, "now", time_stands_still.now + LONG), seconds=LONG)

    assert isinstance(call().exception(PATIENCE), TimeoutException)
    assert call.records[0].timed_out


def test_a_body_is_interrupted_at_the_deadline() -> None:
    """``Interrupted`` is raised in it, once, where it sleeps."""
    body = Body(interruptible=True)

    future = Call(body, seconds=0.5)()

    assert isinstance(future.exception(PATIENCE), TimeoutException)
    assert body.over.wait(PATIENCE)
    assert len(body.interrupted) == 1


def test_a_body_that_is_not_to_be_interrupted_is_not() -> None:
    """``interrupt=False``: the caller is free at the deadline all the same."""
    body = Body()

    future = Call(body, seconds=0.5, interrupt=False)()

    assert isinstance(future.exception(PATIENCE), TimeoutException)
    assert body.begun.is_set()
    body.open.set()
    assert body.over.wait(PATIENCE)
    assert not body.interrupted


def test_a_retry_begins_while_the_attempt_that_timed_out_still_runs(time_stands_still: StillClock) -> None:
    """Specification, chapter Timeout."""
    body = Body()
    future = Call(body, seconds=LONG, attempts=3)()

    for attempt in range(1, 4):
        wait_until(partial(body.has_begun, attempt))
        time_stands_still.advance()

    assert isinstance(future.exception(PATIENCE), TimeoutException)
    assert body.count == 3
    assert not body.over.is_set()
    body.open.set()


def test_the_fallback_runs_at_the_deadline(time_stands_still: StillClock) -> None:
    """It does not wait for the body."""
    body = Body()
    future = Call(body, seconds=LONG, fallback=lambda error: type(error))()
    assert body.begun.wait(PATIENCE)

    time_stands_still.advance()

    assert future.result(PATIENCE) is TimeoutException
    assert not body.over.is_set()
    body.open.set()


def test_a_body_knows_its_remaining_time() -> None:
    """``remaining`` returns the seconds to its deadline, interrupted or not."""
    for interrupt in (True, False):
        left = Call(remaining, seconds=LONG, interrupt=interrupt)().result(PATIENCE)

        assert LONG - PATIENCE < left <= LONG


def test_a_body_without_a_deadline_has_none() -> None:
    """A way to cancel a call is no deadline."""
    assert Call(remaining)().result(PATIENCE) is None


def test_a_call_inherits_the_deadlines_that_its_caller_had_when_it_called(time_stands_still: StillClock) -> None:
    """Deadlines that the caller begins later, while the body runs, do not rule it."""
    go_on = threading.Event()
    first, second = TaskDeadline(), TaskDeadline()
    first.start(time_stands_still.now + LONG, None)
    second.start(time_stands_still.now + 1.0, first)

    def look() -> float | None:
        assert go_on.wait(PATIENCE)
        return remaining()

    def call() -> Future[Any]:
        current.set(first)
        future = Call(look)()
        current.set(second)
        return future

    future = contextvars.copy_context().run(call)
    go_on.set()

    assert future.result(PATIENCE) == LONG


def test_a_failure_after_the_caller_left_is_dropped(
    time_stands_still: StillClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has its class at DEBUG; its message may be confidential."""
    caplog.set_level(logging.DEBUG, "faulttolerance")
    body = Body()

    def fail() -> None:
        body()
        raise ValueError("late")

    future = Call(fail, seconds=LONG)()
    assert body.begun.wait(PATIENCE)
    time_stands_still.advance()
    error = future.exception(PATIENCE)

    body.open.set()

    def ours() -> list[logging.LogRecord]:
        """Return the records of the library, without those of asyncio about garbage of other tests."""
        return [record for record in caplog.records if record.name == "faulttolerance"]

    wait_until(ours)
    assert [record.levelno for record in ours()] == [logging.DEBUG]
    assert ours()[0].getMessage().endswith(": ValueError")
    assert "late" not in caplog.text
    assert future.exception() is error


# Cancelling


def test_cancelling_interrupts_the_body_and_ends_the_call() -> None:
    """As in Java, it is cancelled and done at once; nothing is retried, and no fallback replaces the result."""
    body = Body(interruptible=True)
    call = Call(body, attempts=5, fallback=lambda _: "fallback")
    future = call()
    assert body.begun.wait(PATIENCE)

    assert future.cancel()

    assert (future.cancelled(), future.done()) == (True, True)
    assert call.ended == [GeneratorExit]
    assert body.over.wait(PATIENCE)
    assert len(body.interrupted) == 1
    assert shutdown(PATIENCE)
    assert body.count == 1
    with pytest.raises(CancelledError):
        future.result(0)


def test_cancelling_can_leave_the_body_alone() -> None:
    """The body keeps its permit until it ends, and its result is dropped."""
    body, second = Body(), Body()
    bulkhead = Bulkhead(1, 1)
    future, queued = Call(body, bulkhead=bulkhead)(), Call(second, bulkhead=bulkhead)()
    assert body.begun.wait(PATIENCE)

    assert future.cancel(may_interrupt=False)

    assert (future.cancelled(), bulkhead.running, second.count) == (True, 1, 0)
    body.open.set()
    assert second.begun.wait(PATIENCE)
    assert not body.interrupted
    assert future.cancelled()
    second.open.set()
    assert queued.result(PATIENCE) == "done"


@pytest.mark.parametrize("may_interrupt", [True, False])
def test_a_call_cancelled_while_it_waits_for_a_permit_never_begins(may_interrupt: bool) -> None:
    """It leaves the queue, and the next call in the queue moves up."""
    body, second = Body(), Body()
    bulkhead = Bulkhead(1, 2)
    first, queued, last = (
        Call(body, bulkhead=bulkhead)(),
        Call(second, bulkhead=bulkhead)(),
        Call(add, bulkhead=bulkhead)(1, 2),
    )

    queued.cancel(may_interrupt)

    assert len(bulkhead.waiting) == 1
    body.open.set()
    assert (first.result(PATIENCE), last.result(PATIENCE)) == ("done", 3)
    assert not second.count


def test_a_call_cancelled_while_it_waits_for_a_thread_never_begins() -> None:
    """Its permit is free at once."""
    pool.configure(max_threads=1)
    body, second = Body(), Body()
    bulkhead = Bulkhead(1, 1)
    first, queued = Call(body)(), Call(second, bulkhead=bulkhead)()
    assert bulkhead.running == 1

    queued.cancel()

    assert bulkhead.running == 0
    body.open.set()
    assert first.result(PATIENCE) == "done"
    assert Call(add)(1, 2).result(PATIENCE) == 3
    assert not second.count


def test_a_call_cancelled_between_two_attempts_ends_before_cancel_returns() -> None:
    """By then, its driver has released its permits, and has counted it."""
    pool.configure(max_threads=1)
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise ValueError

    call = Call(fail, attempts=2, delay=LONG)
    future = call()
    assert failed.wait(PATIENCE)
    assert Call(add)(1, 2).result(PATIENCE) == 3  # by the one thread, which has done with the attempt

    future.cancel()

    assert call.ended == [GeneratorExit]
    assert shutdown(PATIENCE)


def test_a_fallback_is_cancelled_like_a_body() -> None:
    """A fallback is code of the application, too."""
    body = Body(interruptible=True)

    def fail() -> None:
        raise ValueError

    future = Call(fail, fallback=body)()
    assert body.begun.wait(PATIENCE)

    future.cancel()

    assert body.over.wait(PATIENCE)
    assert future.cancelled()
    assert body.interrupted


def test_cancelling_comes_too_late_for_a_call_that_has_ended() -> None:
    """Its result stays."""
    future = Call(add)(1, 2)
    assert future.result(PATIENCE) == 3

    assert not future.cancel()
    assert future.result() == 3


# Results of the body


def test_a_future_that_the_body_returns_becomes_the_outcome() -> None:
    """The policies see only the method's own outcome: its permit is free, and no thread waits."""
    inner: Future[str] = Future()
    bulkhead = Bulkhead(1, 1)
    call = Call(lambda: inner, bulkhead=bulkhead, attempts=2, awaits=False)

    future = call()

    wait_until(lambda: call.ended)
    assert (future.done(), bulkhead.running) == (False, 0)
    inner.fail(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        future.result(PATIENCE)
    assert len(call.records) == 1


def test_cancelling_a_call_cancels_the_future_that_its_body_returned() -> None:
    """The two are one future to the caller, in both directions."""
    first, second = Future[str](), Future[str]()
    call = Call(lambda inner: inner, awaits=False)
    outer, other = call(first), call(second)
    wait_until(lambda: len(call.ended) == 2)

    outer.cancel()
    second.cancel()

    assert first.cancelled()
    assert other.cancelled()


def test_a_finished_future_is_unwrapped() -> None:
    """A method that is annotated with a future usually returns its value so, and a fallback too."""

    def fail() -> None:
        raise ValueError

    assert Call(lambda: completed_future(1), awaits=False)().result(PATIENCE) == 1
    assert Call(fail, fallback=lambda _: completed_future(2), awaits=False)().result(PATIENCE) == 2


def test_an_awaited_future_is_part_of_the_attempt() -> None:
    """A method that is annotated with an awaitable may return a future: its failure is retried."""
    futures = [Future[str](), completed_future("second")]
    futures[0].fail(ValueError())

    assert Call(lambda: futures.pop(0), attempts=2)().result(PATIENCE) == "second"


def test_where_the_object_decides_a_future_is_not_awaited() -> None:
    """``awaits=None``: a future ends the attempt, another awaitable is part of it."""

    async def coroutine() -> str:
        return "awaited"

    failed: Future[str] = Future()
    failed.fail(ValueError())
    call = Call(lambda: failed, attempts=2, awaits=None)

    assert isinstance(call().exception(PATIENCE), ValueError)
    assert len(call.records) == 1
    assert Call(coroutine, awaits=None)().result(PATIENCE) == "awaited"


def test_a_coroutine_is_awaited_on_the_loop_of_the_caller() -> None:
    """It can use the objects of that loop."""

    async def coroutine() -> tuple[object, object, str]:
        await asyncio.sleep(0)
        return asyncio.get_running_loop(), threading.current_thread(), variable.get()

    async def main() -> None:
        variable.set("mine")
        loop, thread, value = await Call(lambda: coroutine())()
        assert (loop, thread, value) == (asyncio.get_running_loop(), threading.current_thread(), "mine")

    asyncio.run(main())


def test_a_coroutine_is_awaited_on_a_loop_of_the_library_where_the_caller_has_none() -> None:
    """One thread of the library serves all such coroutines."""

    async def coroutine() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    call = Call(lambda: coroutine())

    assert [call().result(PATIENCE) for _ in range(2)] == ["faulttolerance-loop"] * 2


def test_a_future_of_asyncio_is_awaited_where_it_belongs() -> None:
    """The loop of the caller does not matter for it."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        inner: asyncio.Future[str] = loop.create_future()
        future = await asyncio.to_thread(Call(lambda: inner))
        inner.set_result("done")
        assert await future == "done"

    asyncio.run(main())


def test_a_failed_coroutine_is_a_failed_attempt() -> None:
    """Its outcome counts, and the call continues on a thread of the pool."""
    threads: list[str] = []

    async def fail() -> None:
        threads.append(threading.current_thread().name)
        raise ValueError

    future = Call(lambda: fail(), attempts=2, fallback=lambda _: threading.current_thread().name)()

    assert future.result(PATIENCE).startswith("faulttolerance-")
    assert future.result() != "faulttolerance-loop"
    assert threads == ["faulttolerance-loop"] * 2


def test_the_permit_is_kept_until_the_awaitable_has_ended() -> None:
    """The bulkhead counts the call for as long as it works."""
    pool.configure(max_threads=1)
    bulkhead = Bulkhead(1, 1)

    async def main() -> None:
        go_on = asyncio.Event()

        async def coroutine() -> str:
            await go_on.wait()
            return "done"

        first = Call(lambda: coroutine(), bulkhead=bulkhead)()
        assert await Call(add)(1, 2) == 3  # by the one thread, which has left the first call to the loop
        second = Call(add, bulkhead=bulkhead)(1, 2)
        assert (bulkhead.running, len(bulkhead.waiting)) == (1, 1)
        go_on.set()
        assert (await first, await second) == ("done", 3)

    asyncio.run(main())
    assert bulkhead.running == 0


def test_an_awaitable_is_cancelled_at_the_deadline(time_stands_still: StillClock) -> None:
    """Its caller does not wait for its end; the bulkhead does."""
    begun, cancelled, go_on = threading.Event(), threading.Event(), threading.Event()
    bulkhead = Bulkhead(1, 1)
    left: list[float | None] = []

    async def coroutine() -> None:
        left.append(remaining())
        begun.set()
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            cancelled.set()
            go_on.wait(PATIENCE)
            raise

    future = Call(lambda: coroutine(), bulkhead=bulkhead, seconds=LONG)()
    assert begun.wait(PATIENCE)

    time_stands_still.advance()

    assert isinstance(future.exception(PATIENCE), TimeoutException)
    assert cancelled.wait(PATIENCE)
    assert bulkhead.running == 1
    go_on.set()
    wait_until(lambda: not bulkhead.running)
    assert left == [LONG]


@pytest.mark.parametrize("may_interrupt", [True, False])
def test_cancelling_the_call_cancels_the_awaitable_if_that_is_allowed(may_interrupt: bool) -> None:
    """The call is over at once in either case."""
    begun = threading.Event()
    ended: list[str] = []

    async def main() -> None:
        go_on, over = asyncio.Event(), asyncio.Event()

        async def coroutine() -> None:
            begun.set()
            try:
                await go_on.wait()
                ended.append("returned")
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise
            finally:
                over.set()

        future = Call(lambda: coroutine(), attempts=2)()
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        assert future.cancel(may_interrupt)
        assert future.cancelled()
        await asyncio.sleep(0)
        go_on.set()
        await over.wait()

    asyncio.run(main())
    assert ended == ["cancelled" if may_interrupt else "returned"]


def test_a_cancelled_awaitable_cancels_the_call() -> None:
    """Cancellation is control flow, and no failure; nothing is retried."""

    async def cancel() -> None:
        raise asyncio.CancelledError

    call = Call(lambda: cancel(), attempts=3)

    future = call()

    wait_until(future.done)
    assert future.cancelled()
    assert len(call.records) == 1


def test_an_awaitable_of_a_loop_that_was_closed_is_a_failed_attempt() -> None:
    """No caller waits for ever, and no coroutine is left unawaited."""
    body = Body()

    async def coroutine() -> None:
        raise AssertionError("never reached")

    async def main() -> Future[Any]:
        return Call(lambda: (body(), coroutine())[1])()

    future = asyncio.run(main())
    body.open.set()

    assert isinstance(future.exception(PATIENCE), RuntimeError)


def test_a_coroutine_is_awaited_on_a_loop_whose_task_factory_takes_no_context() -> None:
    """Its context is that of the call, however the loop makes its tasks."""

    async def coroutine() -> str:
        await asyncio.sleep(0)
        return variable.get()

    async def main() -> str:
        asyncio.get_running_loop().set_task_factory(lambda loop, body: asyncio.Task(body, loop=loop))
        variable.set("mine")
        return await asyncio.wait_for(Call(lambda: coroutine())(), PATIENCE)

    assert asyncio.run(main()) == "mine"


def give_up(future: Future[Any], body: Body, end: str, clock: StillClock) -> None:
    """End the call of a body that has begun, by its deadline or by its caller, and leave the body running."""
    assert body.begun.wait(PATIENCE)
    if end == "cancel":
        future.cancel(may_interrupt=False)
    else:
        clock.advance()
    wait_until(future.done)


@pytest.mark.parametrize("end", ["deadline", "cancel"])
def test_a_coroutine_that_comes_too_late_is_closed(time_stands_still: StillClock, end: str) -> None:
    """It never begins, and Python does not complain that it was never awaited."""
    begun: list[str] = []
    body = Body()

    async def coroutine() -> None:
        begun.append("begun")

    future = Call(lambda: (body(), coroutine())[1], seconds=LONG)()
    give_up(future, body, end, time_stands_still)

    body.open.set()
    assert shutdown(PATIENCE)
    gc.collect()

    assert not begun


@pytest.mark.parametrize("end", ["deadline", "cancel"])
def test_a_future_that_comes_too_late_is_cancelled(time_stands_still: StillClock, end: str) -> None:
    """It may never end by itself, as the reply to a message, and keeps no permit for ever."""
    reply: concurrent.futures.Future[str] = concurrent.futures.Future()
    body, bulkhead = Body(reply), Bulkhead(1, 1)

    future = Call(body, seconds=LONG, interrupt=False, bulkhead=bulkhead)()
    give_up(future, body, end, time_stands_still)
    body.open.set()

    wait_until(lambda: not bulkhead.held)
    assert reply.cancelled()


# The end of things


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_callback_that_raises_an_exit_leaves_no_call_behind(is_cancelled: bool) -> None:
    """The call is over all the same, and a shutdown does not wait for it."""
    free = threading.Event()

    @asynchronous
    def answer() -> Future[str]:
        free.wait(10)
        return completed_future("served")

    def leave(future: object) -> None:
        raise SystemExit

    future = answer()
    future.add_done_callback(leave)
    if is_cancelled:
        with pytest.raises(SystemExit):
            future.cancel()
    free.set()
    if not is_cancelled:
        assert future.result(10) == "served"

    assert shutdown(5)


def test_shutdown_refuses_calls_and_waits_for_calls_under_way(time_stands_still: StillClock) -> None:
    """It waits also for a call between two attempts, and for a body whose caller has timed out."""
    body = Body()
    attempts: list[int] = []

    def fail() -> None:
        attempts.append(1)
        if len(attempts) < 2:
            raise ValueError

    retried = Call(fail, attempts=2, delay=LONG)()
    abandoned = Call(body)()
    assert body.begun.wait(PATIENCE)
    abandoned.cancel(may_interrupt=False)
    wait_until(lambda: time_stands_still.timers)

    in_time: list[bool] = []
    waiting = threading.Thread(target=lambda: in_time.append(shutdown(0.5)))
    waiting.start()
    wait_until(lambda: isinstance(Call(add)(1, 2).exception(PATIENCE), RuntimeError))
    waiting.join()

    assert in_time == [False]
    assert Call(add)(1, 2).result(PATIENCE) == 3
    time_stands_still.advance()
    assert retried.result(PATIENCE) is None
    assert not shutdown(0.01)
    body.open.set()
    assert shutdown(PATIENCE)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("faulttolerance")]


def test_a_call_that_a_shutdown_refuses_leaves_nothing_with_its_caller() -> None:
    """A thread that lives on under a deadline does not collect the deadlines that refused calls inherited."""
    body = Body()
    under_way = Call(body)()
    assert body.begun.wait(PATIENCE)
    waiting = threading.Thread(target=shutdown, args=(PATIENCE,))
    waiting.start()

    with deadline(LONG):
        wait_until(lambda: isinstance(Call(add)(1, 2).exception(PATIENCE), RuntimeError))
        assert not deadlines_here().dependents

    body.open.set()
    waiting.join()
    assert under_way.result(PATIENCE) == "done"


def test_nothing_is_left_of_a_call_that_has_ended(uncollected: None) -> None:
    """Arguments, result and failure go when their users do, without the garbage collector, deadline or no deadline."""

    class Value:
        pass

    def fail(value: Value) -> None:
        raise ValueError(value)

    value = Value()
    gone = weakref.ref(value)
    Call(lambda one: one, seconds=LONG)(value).result(PATIENCE)
    failure = Call(fail, attempts=2, seconds=LONG)(value).exception(PATIENCE)
    assert isinstance(failure, ValueError)
    Call(fail, fallback=lambda _: None)(value).result(PATIENCE)
    del value, failure

    wait_until(lambda: gone() is None)


def test_nothing_is_left_of_a_call_that_has_waited_for_its_retry(uncollected: None) -> None:
    """The failure of the first attempt goes with the call, without the garbage collector."""

    class Value:
        pass

    @asynchronous
    @retry(max_retries=1, delay="1ms")
    def fail(value: Value) -> Any:
        raise ValueError

    value = Value()
    gone = weakref.ref(value)
    assert isinstance(fail(value).exception(PATIENCE), ValueError)
    del value

    wait_until(lambda: gone() is None)


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_of_an_awaited_fallback_that_has_ended(uncollected: None, fails: bool) -> None:
    """The arguments of the call go when their users do, without the garbage collector."""

    class Value:
        pass

    async def substitute(context: object) -> str:
        if fails:
            raise KeyError
        return "substitute"

    @asynchronous
    @fallback(substitute)
    def fail(value: Value) -> Any:
        raise ValueError

    value = Value()
    gone = weakref.ref(value)
    if fails:
        assert isinstance(fail(value).exception(PATIENCE), KeyError)
    else:
        assert fail(value).result(PATIENCE) == "substitute"
    del value

    wait_until(lambda: gone() is None)


@pytest.mark.parametrize("seconds", [0, PATIENCE])
def test_nothing_is_left_of_an_awaitable_that_has_failed(uncollected: None, seconds: float) -> None:
    """Its argument goes with the failure, without the garbage collector, time-out or no time-out."""

    class Value:
        pass

    async def fail(value: Value) -> None:
        raise ValueError(value)

    value = Value()
    gone = weakref.ref(value)
    failure = Call(fail, seconds=seconds)(value).exception(PATIENCE)
    assert isinstance(failure, ValueError)
    del value, failure

    wait_until(lambda: gone() is None)


def test_a_hung_call_does_not_hold_the_interpreter() -> None:
    """Neither a body does, nor a call that waits for a permit, between attempts, or for an awaitable."""
    ended = python(
        """
import asyncio, threading
from faulttolerance._execution.environment import Attempt
from faulttolerance._execution.thread import ThreadEnvironment, start
from faulttolerance._deadline.attempt_record import AttemptRecord

environment = ThreadEnvironment()
begun = threading.Semaphore(0)

def hang():
    begun.release()
    threading.Event().wait()

async def hang_too():
    begun.release()
    await asyncio.sleep(1000)

def call(function):
    async def driver(args, kwargs):
        return await environment.attempt(Attempt(AttemptRecord(), function, (), {}, None, None, True, True))
    return start(driver, (), {})

async def pause(args, kwargs):
    await environment.pause(1000)

futures = [call(hang), call(lambda: hang_too()), start(pause, (), {})]
begun.acquire()
begun.acquire()
print("last line")
"""
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "last line\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform does not fork")
def test_a_forked_child_does_not_wait_for_calls_of_its_parent() -> None:
    """Its pool begins anew; in the parent nothing has changed."""
    ended = python(
        """
import os, threading, warnings
from faulttolerance._execution.environment import Attempt
from faulttolerance._execution.thread import ThreadEnvironment, start
from faulttolerance._deadline.attempt_record import AttemptRecord

warnings.simplefilter("ignore")
environment = ThreadEnvironment()
begun, go_on = threading.Event(), threading.Event()

def body():
    begun.set()
    go_on.wait()
    return "done"

def call(function):
    async def driver(args, kwargs):
        return await environment.attempt(Attempt(AttemptRecord(), function, (), {}, None, None, True, True))
    return start(driver, (), {})

future = call(body)
future.add_done_callback(lambda _: called.append(os.getpid()))
called = []
begun.wait()
child = os.fork()
if not child:
    try:
        assert call(lambda: 1).result(10) == 1
        assert not called
        os._exit(0)
    finally:
        os._exit(1)
status = os.waitpid(child, 0)[1]
go_on.set()
assert (status, future.result(10)) == (0, "done"), status

def fork():
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    os._exit(7 if not inner.done() else 1)

inner = call(fork)
assert os.waitstatus_to_exitcode(inner.result(10)) == 7
"""
    )

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform does not fork")
def test_a_fork_finds_no_idle_loop_and_the_child_has_its_own() -> None:
    """Python does not warn about threads, and awaiting works in parent and child."""
    ended = python(
        """
import os, time
from faulttolerance._execution.environment import Attempt
from faulttolerance._execution.thread import ThreadEnvironment, start
from faulttolerance._execution.pool import pool
from faulttolerance._deadline.attempt_record import AttemptRecord

environment = ThreadEnvironment()

async def coroutine():
    return os.getpid()

def call():
    async def driver(args, kwargs):
        return await environment.attempt(Attempt(AttemptRecord(), lambda: coroutine(), (), {}, None, None, True, True))
    return start(driver, (), {}).result(10)

assert call() == os.getpid()
while not pool._parked:
    time.sleep(0.001)
child = os.fork()
if not child:
    try:
        assert call() == os.getpid()
        os._exit(0)
    finally:
        os._exit(1)
assert os.waitpid(child, 0)[1] == 0
assert call() == os.getpid()
""",
        "-W",
        "error",
    )

    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_call_at_exit_ends_with_a_result_or_an_error() -> None:
    """The interpreter may start no thread at its end; the future says so."""
    ended = python(
        """
import atexit
from faulttolerance._execution.environment import Attempt
from faulttolerance._execution.thread import ThreadEnvironment, start
from faulttolerance._deadline.attempt_record import AttemptRecord

environment = ThreadEnvironment()

def at_exit():
    async def driver(args, kwargs):
        return await environment.attempt(Attempt(AttemptRecord(), lambda: "done", (), {}, None, None, True, True))
    try:
        print(start(driver, (), {}).result(10))
    except RuntimeError as error:
        print("refused")

atexit.register(at_exit)
"""
    )

    assert ended.stdout.strip() in ("done", "refused"), ended.stderr
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_call_of_a_finalizer_at_the_end_of_the_interpreter_fails_at_once() -> None:
    """An idle thread of the pool does not run any more then, and no pause before a retry ends."""
    ended = python(
        """
from faulttolerance import asynchronous, completed_future, retry

class Session:
    @asynchronous
    @retry(max_retries=1, delay="1ms")
    def close(self):
        return completed_future("closed")

    def __del__(self):
        print(type(self.close().exception(20)) is RuntimeError)

session = Session()
print(session.close().result(20))
""",
        "-W",
        "error",
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "closed\nTrue\n", "")


def test_permits_and_calls_survive_any_order_of_ends() -> None:
    """Calls that end, fail, time out and are cancelled at any moment: never more than the limit, none lost.

    Without the single claim of a suspension, a call would go on twice, or its permit be given back twice.
    """
    bulkhead = Bulkhead(3, 1000)
    running: list[object] = []
    most: list[int] = []

    def body(number: int) -> int:
        me = object()
        running.append(me)
        most.append(len(running))
        try:
            time.sleep(0.0002 * (number % 5))
            if number % 3 == 0:
                raise ValueError
            return number
        finally:
            running.remove(me)

    call = Call(body, bulkhead=bulkhead, attempts=2, delay=0.0005)
    limited = Call(body, bulkhead=bulkhead, attempts=2, delay=0.0, seconds=0.01, interrupt=False)
    futures = [(limited if number % 2 else call)(number) for number in range(300)]
    for number, future in enumerate(futures):
        if number % 7 == 0:
            future.cancel(may_interrupt=False)
    for future in futures:
        wait_until(future.done)

    assert max(most) <= 3
    wait_until(lambda: not bulkhead.held)
    assert len(bulkhead.waiting) == 0
    assert len(call.ended) + len(limited.ended) == 300


class Lazy:
    """An object that is created when it is first used, as Django's SimpleLazyObject: here that fails."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"{name} of a lazy object")


class Imitation:
    """An object that passes for a future, as a mock with such a specification; nobody completes it."""

    __class__: Any = concurrent.futures.Future


@pytest.mark.parametrize(("kind", "failure"), [(Lazy, RuntimeError), (Imitation, type(None))])
def test_a_result_that_cannot_say_what_it_is_ends_the_call(kind: type[Any], failure: type[Any]) -> None:
    """Its type alone says whether the result of the body is a future; what it raises else fails the attempt."""

    def service() -> Any:
        return kind()

    call = asynchronous(bulkhead(1, waiting_task_queue=1)(service))

    assert [type(call().exception(PATIENCE)) for _ in range(2)] == [failure] * 2
