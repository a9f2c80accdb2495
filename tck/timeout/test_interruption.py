"""Interruption of a call on its caller's thread at its deadline (rules R2, R2a, R2b)."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import ctypes
import functools
import gc
import operator
import os
import queue
import select
import signal
import sqlite3
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from faulttolerance import (
    FaultToleranceDefinitionException,
    Guard,
    Interrupted,
    TimeoutException,
    around_invoke,
    asynchronous,
    configure,
    remaining,
    retry,
    sleep,
    timeout,
    uninterruptible,
)
from faulttolerance._deadline.threads import safe_point
from faulttolerance._deadline.threads.chain import ThreadDeadlines, this_thread
from faulttolerance._deadline.threads.main_thread import main_thread, set_interrupt_signal
from faulttolerance._deadline.threads.pending_interrupt import PendingInterrupt
from faulttolerance._deadline.threads.safe_point import IS_EXACT
from faulttolerance._deadline.threads.watchdog import watchdog
from faulttolerance._platform.atomic import stack_of
from faulttolerance.policies import Timeout
from kit.program import python
from kit.waiting import wait_until

Where = Callable[[Callable[[], Any]], Any]

PATIENCE = 20.0
"""Seconds after which a body gives up being interrupted."""


def on_main_thread(function: Callable[[], Any]) -> Any:
    return function()


def on_other_thread(function: Callable[[], Any]) -> Any:
    came: list[Any] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            came.append(function())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE + 5)
    assert not thread.is_alive()
    if failed:
        raise failed[0]
    return came[0]


@pytest.fixture(params=[on_main_thread, on_other_thread])
def where(request: pytest.FixtureRequest) -> Where:
    """Return a function that runs a body on the thread of the test."""
    function: Where = request.param
    return function


@pytest.fixture(params=[on_main_thread, on_other_thread])
def interruptible(request: pytest.FixtureRequest) -> Where:
    """Return a function that runs a body where Python code is interrupted."""
    function: Where = request.param
    return function


def compute() -> str:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        pass
    return "never interrupted"


def note_of(error: BaseException) -> str:
    return "\n".join(error.__notes__)


def run_program(program: str, *options: str, seconds: float = 30.0) -> tuple[str, str]:
    """Run a program in an interpreter of its own."""
    done = python(program, *options, seconds=seconds)
    return done.stdout.strip(), done.stderr.strip()


# A deadline that passes


def test_code_is_interrupted_at_its_deadline(interruptible: Where) -> None:
    """R2: the body is interrupted on its own thread; the time-out is raised from the interruption and says how late."""
    began = time.monotonic()

    with pytest.raises(TimeoutException, match=r"compute: timed out after 0\.02 s") as caught:
        interruptible(timeout(20)(compute))

    assert 0.02 <= time.monotonic() - began < PATIENCE
    assert isinstance(caught.value.__cause__, Interrupted)
    assert note_of(caught.value).startswith("it ended 0.")


def test_deadline_interrupts_a_body_once(interruptible: Where) -> None:
    """Review 9: a body that swallows the interruption goes on undisturbed, and still ends in a time-out."""
    seen = []

    @timeout(20)
    def swallow() -> None:
        try:
            compute()
        except Interrupted as error:
            seen.append(error)
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            pass

    with pytest.raises(TimeoutException) as caught:
        interruptible(swallow)

    assert len(seen) == 1
    assert caught.value.__cause__ is None
    assert note_of(caught.value).endswith("it was interrupted and went on")


def test_a_signal_that_is_sent_once_more_takes_no_interruption_back() -> None:
    """The watchdog may send another one while the handler of the one before raises."""

    @timeout(20)
    def swallow() -> None:
        try:
            compute()
        except Interrupted as error:
            main_thread.send(this_thread.deadlines, PendingInterrupt(error.owner))

    with pytest.raises(TimeoutException) as caught:
        swallow()

    assert note_of(caught.value).endswith("it was interrupted and went on")


def test_failure_after_the_interruption_is_the_cause(interruptible: Where) -> None:
    """A body that fails because it was interrupted has timed out; its own failure is not lost."""

    @timeout(20)
    def fail() -> None:
        try:
            compute()
        except Interrupted as error:
            raise ValueError("half done") from error

    with pytest.raises(TimeoutException) as caught:
        interruptible(fail)

    assert isinstance(caught.value.__cause__, ValueError)


def test_exit_that_comes_late_stays_an_exit(interruptible: Where) -> None:
    """R0: an exception that is no ``Exception`` is control flow, late or not."""

    @timeout(20)
    def leave() -> None:
        try:
            compute()
        except Interrupted:
            raise SystemExit(3) from None

    with pytest.raises(SystemExit):
        interruptible(leave)


def test_interruption_is_no_error_to_handlers_of_errors(interruptible: Where) -> None:
    """Review 9: ``except Exception`` does not catch it."""

    @timeout(20)
    def careless() -> str:
        try:
            return compute()
        except Exception:
            return "handled"

    with pytest.raises(TimeoutException):
        interruptible(careless)


def test_interruption_that_an_application_raises_passes(where: Where) -> None:
    """It belongs to no deadline, so it is no time-out."""

    @timeout(1000)
    def raise_it() -> None:
        raise Interrupted("by hand")

    with pytest.raises(Interrupted, match="by hand"):
        where(raise_it)


def test_call_that_ends_in_time_leaves_nothing_behind(where: Where) -> None:
    """The deadline of a call that is over interrupts nothing."""

    def run() -> object:
        assert timeout(200)(lambda: "in time")() == "in time"
        end = time.monotonic() + 0.25
        while time.monotonic() < end:
            pass
        return this_thread.deadlines.innermost

    assert where(run) is None


def test_blocking_call_of_the_main_thread_ends_at_the_deadline() -> None:
    """R2: by a signal, in the middle of the call."""
    began = time.monotonic()

    with pytest.raises(TimeoutException) as caught:
        timeout(20)(lambda: time.sleep(PATIENCE))()

    assert time.monotonic() - began < PATIENCE / 2
    assert isinstance(caught.value.__cause__, Interrupted)


@pytest.mark.parametrize("way", ["decorator", "retried", "guard", "intercepted"])
def test_blocking_function_that_is_guarded_itself_ends_at_the_deadline_on_the_main_thread(way: str) -> None:
    """R2: there is no frame of a body, and the innermost one is that of the driver, which holds nothing there."""
    through = around_invoke(lambda invocation: invocation.proceed(), priority=5000)
    ways: dict[str, Callable[[], object]] = {
        "decorator": lambda: timeout(20)(time.sleep)(PATIENCE),
        "retried": lambda: retry(max_retries=1, jitter=0)(timeout(20)(time.sleep))(PATIENCE),
        "guard": lambda: Guard(timeout=Timeout(20)).call(time.sleep, PATIENCE),
        "intercepted": lambda: through(timeout(20)(time.sleep))(PATIENCE),
    }
    began = time.monotonic()

    with pytest.raises(TimeoutException) as caught:
        ways[way]()

    assert time.monotonic() - began < PATIENCE / 2
    assert isinstance(caught.value.__cause__, Interrupted)


def test_blocking_call_in_code_that_is_left_in_peace_ends_too_on_the_main_thread() -> None:
    """A wait for a thread, inside ``threading``, is interrupted: it is a call that has taken nothing."""
    release = threading.Event()
    thread = threading.Thread(target=release.wait, args=(PATIENCE,), daemon=True)
    thread.start()
    began = time.monotonic()

    with pytest.raises(TimeoutException):
        timeout(20)(thread.join)()

    release.set()
    assert time.monotonic() - began < PATIENCE / 2


@pytest.mark.parametrize("seconds", [None, PATIENCE])
@pytest.mark.parametrize("wait", ["event", "queue", "condition", "semaphore", "future"])
def test_waiting_for_an_event_ends_at_the_deadline_on_every_thread(
    wait: str, seconds: float | None, interruptible: Where
) -> None:
    """R2a: asleep inside its ``try``, ``Condition.wait`` puts everything back in order."""
    waits: dict[str, Callable[[], object]] = {
        "event": lambda: threading.Event().wait(seconds),
        "queue": lambda: queue.Queue[int]().get(timeout=seconds),
        "condition": lambda: _wait_for(threading.Condition(), seconds),
        "semaphore": lambda: threading.Semaphore(0).acquire(timeout=seconds),
        "future": lambda: concurrent.futures.Future[int]().result(seconds),
    }
    began = time.monotonic()

    with pytest.raises(TimeoutException) as caught:
        interruptible(timeout(20)(waits[wait]))

    assert time.monotonic() - began < PATIENCE / 2
    assert isinstance(caught.value.__cause__, Interrupted)


def _wait_for(condition: threading.Condition, seconds: float | None) -> None:
    with condition:
        condition.wait(seconds)


class WrappedLock:
    """A lock as the profiler of an agent puts it in place of every lock."""

    def __init__(self) -> None:
        self.__wrapped__ = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)

    def __enter__(self) -> bool:
        return self.__wrapped__.__enter__()

    def __exit__(self, *raised: object) -> None:
        self.__wrapped__.__exit__(*raised)


def test_waiting_with_a_lock_that_a_profiler_has_wrapped_ends_at_the_deadline_on_every_thread(
    interruptible: Where,
) -> None:
    """A condition whose lock is wrapped is waited for as one with a lock of the interpreter."""
    condition = threading.Condition(WrappedLock())  # type: ignore[arg-type]

    with pytest.raises(TimeoutException) as caught:
        interruptible(timeout(20)(lambda: _wait_for(condition, PATIENCE)))

    assert isinstance(caught.value.__cause__, Interrupted)
    assert not condition._waiters  # type: ignore[attr-defined]


def test_interrupted_wait_takes_no_wake_up_that_was_meant_for_another(interruptible: Where) -> None:
    """A thread that is interrupted while it waits for a full queue leaves the free place to the next one."""
    items: queue.Queue[str] = queue.Queue(1)
    items.put("first")
    other = threading.Thread(target=items.put, args=("third",), daemon=True)

    def put_behind() -> None:
        while not items.not_full._waiters:  # type: ignore[attr-defined]
            time.sleep(0.001)
        other.start()

    helper = threading.Thread(target=put_behind, daemon=True)
    helper.start()
    consumer = threading.Timer(0.4, items.get)  # after the deadline
    consumer.start()
    with pytest.raises(TimeoutException):
        interruptible(timeout(200)(lambda: items.put("second")))

    helper.join(PATIENCE)
    consumer.join(PATIENCE)
    other.join(PATIENCE)
    assert not other.is_alive()
    assert items.get_nowait() == "third"


def test_a_thread_that_is_woken_as_the_deadline_passes_uses_the_wake_up(interruptible: Where) -> None:
    """A permit that is released at about the deadline reaches a thread: the interrupted one, or else the next one."""
    permits = threading.Semaphore(0)
    taken: list[int] = []

    def take(number: int) -> None:
        permits.acquire()
        taken.append(number)

    for number in range(60):
        helper = threading.Timer(0.004 + number % 5 / 2000, permits.release)
        helper.daemon = True
        helper.start()
        with contextlib.suppress(TimeoutException):
            interruptible(lambda number=number: timeout(5)(take)(number))
        if number not in taken:
            assert permits.acquire(timeout=PATIENCE)
        helper.join()

    assert not permits.acquire(blocking=False)


class Inner:
    """Coroutines for an event loop inside a synchronous call."""

    def __init__(self) -> None:
        self.cleaned_up = 0

    async def waits(self) -> None:
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            await asyncio.sleep(0)
            self.cleaned_up += 1

    async def waits_while_a_task_computes(self) -> None:
        task = asyncio.create_task(self.computes())
        await self.waits()
        await task

    async def waits_for_a_task_that_computes(self) -> None:
        try:
            await asyncio.create_task(self.computes())
        finally:
            self.cleaned_up += 1

    async def waits_for_a_group_with_a_task_that_computes(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.computes())
        finally:
            self.cleaned_up += 1

    async def computes_itself(self) -> None:
        try:
            await self.computes()
        finally:
            self.cleaned_up += 1

    async def turns(self) -> None:
        async def turn() -> None:
            while True:  # noqa: ASYNC110  # a loop that is never idle
                await asyncio.sleep(0)

        task = asyncio.create_task(turn())
        try:
            await self.waits()
        finally:
            task.cancel()

    async def computes(self) -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "way",
    [
        Inner.waits,
        Inner.waits_while_a_task_computes,
        Inner.waits_for_a_task_that_computes,
        Inner.waits_for_a_group_with_a_task_that_computes,
        Inner.computes_itself,
        Inner.turns,
    ],
    ids=lambda way: way.__name__,
)
def test_deadline_around_an_event_loop_ends_the_call_and_not_one_task_only(
    way: Callable[[Inner], Any], interruptible: Where
) -> None:
    """R2: the coroutine of the loop is cancelled, and ``asyncio.run`` cleans up; no other task is cancelled."""
    inner = Inner()
    began = time.monotonic()

    with pytest.raises(TimeoutException):
        interruptible(timeout(150)(lambda: asyncio.run(way(inner))))

    assert time.monotonic() - began < PATIENCE / 2
    assert inner.cleaned_up == 1
    gc.collect()  # asyncio reports a failed task here, and not while another test parses its imports


class CompiledLoop(asyncio.AbstractEventLoop):
    """A loop that waits without frames of its own, as uvloop's, and knows no timers; an ``asyncio.Runner`` runs it."""

    def __init__(self) -> None:
        self.ready: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        turns = map(operator.call, iter(self.ready.get, None))
        self.run_until_complete: Any = partial(functools.reduce, lambda task, _: task, turns)

    def get_debug(self) -> bool:
        return False

    def call_soon(self, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:
        self.ready.put(partial(self._run, partial((context or contextvars.copy_context()).run, callback, *args)))

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return asyncio.TimerHandle(delay, callback, args, self, context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None: ...

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: contextvars.Context | None = None) -> Any:
        task = asyncio.Task(coro, loop=self, context=context)
        task.add_done_callback(self._end)
        return task

    def _end(self, main: asyncio.Task[Any]) -> None:
        self.ready.put(main.result)  # raises what the call raises
        self.ready.put(None)

    def _run(self, callback: Callable[[], object]) -> None:
        asyncio._set_running_loop(self)
        try:
            callback()
        finally:
            asyncio._set_running_loop(None)


@pytest.mark.parametrize("way", [Inner.waits, Inner.computes_itself], ids=lambda way: way.__name__)
def test_a_deadline_around_a_loop_of_compiled_code_ends_it(way: Callable[[Inner], Any], interruptible: Where) -> None:
    """R2: in ``uvloop.run``, too, the main task is cancelled, or interrupted where it computes."""
    inner = Inner()
    began = time.monotonic()

    with pytest.raises(TimeoutException):
        interruptible(timeout(150)(lambda: asyncio.Runner(loop_factory=CompiledLoop).run(way(inner))))

    assert time.monotonic() - began < PATIENCE / 2
    assert inner.cleaned_up == 1


def test_no_signal_raises_anything_in_a_loop_of_compiled_code() -> None:
    """R2: uvloop would only log the interruption; the cancellation ends the loop."""
    inner, loop = Inner(), CompiledLoop()

    async def main() -> None:
        deadlines = this_thread.deadlines
        send = threading.Timer(0.1, main_thread.send, (deadlines, PendingInterrupt(deadlines.innermost)))
        send.start()
        loop.ready.put(partial(time.sleep, 0.2))
        await inner.waits()

    with pytest.raises(TimeoutException):
        on_other_thread(timeout(20)(compute))  # from now on exceptions can be sent
    with pytest.raises(TimeoutException) as caught:
        timeout(50)(lambda: asyncio.Runner(loop_factory=lambda: loop).run(main()))()

    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    assert inner.cleaned_up == 1
    assert a_debugger_can_trace()


def a_debugger_can_trace() -> bool:
    """Return whether a traced function ends: CPython 3.11 enters none while it looks for an exception of any thread."""

    def traced() -> None:
        sys.settrace(lambda *_: None)
        (lambda: None)()

    thread = threading.Thread(target=traced, daemon=True)
    thread.start()
    thread.join(PATIENCE / 2)
    return not thread.is_alive()


def test_other_threads_are_traced_while_an_interrupted_one_waits_in_c_code() -> None:
    """The thread raises the interruption when its wait is over; until then, no other thread searches for it."""
    reading, writing = os.pipe()
    seen: list[ThreadDeadlines] = []

    @timeout(20)
    def wait() -> None:
        seen.append(this_thread.deadlines)
        select.select([reading], [], [], PATIENCE)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        wait_until(lambda: bool(seen and seen[0].sent))
        can_trace, is_waiting = a_debugger_can_trace(), not waiting.done()
        os.write(writing, b"!")
        failure = waiting.exception()

    os.close(reading)
    os.close(writing)
    assert (can_trace, is_waiting) == (True, True)
    assert isinstance(failure, TimeoutException)
    assert isinstance(failure.__cause__, Interrupted)


def test_nothing_is_raised_on_the_thread_of_a_loop_of_compiled_code_that_is_busy() -> None:
    """R2: the exception would end whatever the loop runs next."""
    inner, loop = Inner(), CompiledLoop()

    async def main() -> None:
        loop.ready.put(partial(time.sleep, 1.2))  # a second is the patience with loops of Python code
        await inner.waits()

    with pytest.raises(TimeoutException) as caught:
        on_other_thread(timeout(50)(lambda: asyncio.Runner(loop_factory=lambda: loop).run(main())))

    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    assert inner.cleaned_up == 1


def test_a_loop_of_compiled_code_without_a_runner_ends_late(interruptible: Where) -> None:
    """R2: its main task is not known; what is raised in one of its callbacks could leave a task waiting for ever."""

    def run() -> None:
        loop = CompiledLoop()
        main = loop.create_task(asyncio.sleep(0))
        loop.ready.put(partial(time.sleep, 0.2))
        loop.run_until_complete(main)

    with pytest.raises(TimeoutException) as caught:
        interruptible(timeout(50)(run))

    assert caught.value.__cause__ is None


def test_loop_whose_call_was_ended_goes_on_with_the_next_one(interruptible: Where) -> None:
    """Nothing of the ended call is left in a loop that serves many calls."""
    inner = Inner()

    def serve() -> tuple[str, int]:
        with contextlib.closing(asyncio.new_event_loop()) as loop:
            with pytest.raises(TimeoutException) as caught:
                timeout(50)(lambda: loop.run_until_complete(inner.waits()))()
            tasks = len(asyncio.all_tasks(loop))
            assert isinstance(caught.value.__cause__, asyncio.CancelledError)
            return timeout(60_000)(lambda: loop.run_until_complete(asyncio.sleep(0, "next")))(), tasks

    assert interruptible(serve) == ("next", 0)
    assert inner.cleaned_up == 1


def test_cancellation_that_comes_out_of_an_inner_loop_by_itself_stays_one(where: Where) -> None:
    """R0: only the cancellation by the deadline is its time-out."""

    async def cancels() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        time.sleep(0.1)  # noqa: ASYNC251  # past the deadline
        await asyncio.sleep(0)

    with pytest.raises(asyncio.CancelledError):
        where(timeout(20, interrupt=False)(lambda: asyncio.run(cancels())))


def test_deadline_of_a_call_inside_a_task_leaves_the_loop_alone(interruptible: Where) -> None:
    """A deadline does not concern a loop that runs around its guard."""

    async def main() -> str:
        with pytest.raises(TimeoutException):
            timeout(20)(compute)()
        await asyncio.sleep(0)
        return "goes on"

    assert interruptible(lambda: asyncio.run(main())) == "goes on"


@pytest.mark.outside
def test_body_under_a_trace_function_is_interrupted_on_the_main_thread() -> None:
    """Most of the time the trace function runs, which is no place for an interruption."""
    said, complained = run_program("""
        import sys
        from faulttolerance import TimeoutException, timeout

        def trace(frame, event, argument):
            for _ in range(20):
                len(frame.f_code.co_name)
            return trace

        def endless():
            while True:
                pass

        for _ in range(3):
            sys.settrace(trace)
            try:
                timeout(30)(endless)()
            except TimeoutException as error:
                sys.settrace(None)
                print(type(error.__cause__).__name__)
    """)

    assert said.split() == ["Interrupted"] * 3, complained


def test_loop_that_does_nothing_but_call_code_that_is_left_in_peace_is_interrupted(where: Where) -> None:
    """R2a: between two such calls; on the main thread signals would always arrive in the next one."""
    numbers: queue.Queue[int] = queue.Queue()

    def run() -> None:
        for number in range(3_000_000):
            numbers.put(number)
            numbers.get()

    with pytest.raises(TimeoutException) as caught:
        where(timeout(20)(run))

    assert isinstance(caught.value.__cause__, Interrupted)
    assert not numbers.mutex.locked()


def test_blocking_call_of_another_thread_ends_late_and_says_why() -> None:
    """R2: it cannot be interrupted; the result is discarded."""
    with pytest.raises(TimeoutException) as caught:
        on_other_thread(timeout(20)(lambda: time.sleep(0.1)))

    assert note_of(caught.value).startswith("it ended 0.")


def test_call_that_is_not_to_be_interrupted_ends_late(where: Where) -> None:
    """P1: with ``interrupt=False`` only the result is discarded."""

    def work() -> str:
        end = time.monotonic() + 0.06
        while time.monotonic() < end:
            pass
        return "done"

    with pytest.raises(TimeoutException) as caught:
        where(timeout(20, interrupt=False)(work))

    assert caught.value.__cause__ is None
    assert note_of(caught.value).endswith("it was not interrupted: interrupt=False")


# Deadlines within deadlines


def test_outer_deadline_passes_through_an_inner_guard(interruptible: Where) -> None:
    """R0: the interruption of an outer call is not retried, and is the outer call's time-out."""
    attempts = []

    @retry(max_retries=5, delay=0, jitter=0)
    @timeout(60_000)
    def inner() -> None:
        attempts.append(1)
        compute()

    def outer() -> None:
        inner()

    with pytest.raises(TimeoutException, match="outer: timed out"):
        interruptible(timeout(200)(outer))

    assert attempts == [1]


def test_inner_deadline_ends_the_inner_call_only(interruptible: Where) -> None:
    """The outer call goes on, and ends in time."""

    @timeout(60_000)
    def outer() -> str:
        with pytest.raises(TimeoutException):
            timeout(20)(compute)()
        return "went on"

    assert interruptible(outer) == "went on"


def test_both_deadlines_interrupt_where_both_pass(interruptible: Where) -> None:
    """A body that goes on after the outer interruption meets the inner one."""
    owners = []

    @timeout(200)
    def inner() -> None:
        for _ in range(2):
            try:
                compute()
            except Interrupted as error:
                owners.append(error.owner)

    def outer() -> None:
        inner()

    with pytest.raises(TimeoutException, match="outer: timed out"):
        interruptible(timeout(100)(outer))

    assert len(owners) == 2
    assert owners[0] is not owners[1]


def test_retry_of_an_interrupted_attempt_has_a_deadline_of_its_own(interruptible: Where) -> None:
    """Each attempt is interrupted anew."""
    attempts = []

    @retry(max_retries=2, delay=0, jitter=0)
    @timeout(20)
    def attempt() -> None:
        attempts.append(1)
        compute()

    with pytest.raises(TimeoutException):
        interruptible(attempt)

    assert len(attempts) == 3


# uninterruptible


def test_uninterruptible_block_is_finished_first(where: Where) -> None:
    """R2b: the deadline that passes inside is raised at the end of the block."""
    steps = []

    @timeout(20)
    def body() -> None:
        with uninterruptible():
            end = time.monotonic() + 0.06
            while time.monotonic() < end:
                pass
            steps.append("block finished")
        steps.append("never reached")

    with pytest.raises(TimeoutException) as caught:
        where(body)

    assert steps == ["block finished"]
    assert isinstance(caught.value.__cause__, Interrupted)


def test_guard_inside_an_uninterruptible_block_has_its_own_deadline(interruptible: Where) -> None:
    """Review 16: held back are the deadlines that ran when the block began."""

    @timeout(10)
    def body() -> None:
        with uninterruptible(), pytest.raises(TimeoutException):
            timeout(40)(compute)()

    with pytest.raises(TimeoutException, match="body: timed out"):
        interruptible(body)


def test_exception_that_leaves_an_uninterruptible_block_goes_first(interruptible: Where) -> None:
    """Review 16: the deadline interrupts what comes after."""
    seen = []

    @timeout(10)
    def body() -> None:
        try:
            with uninterruptible():
                end = time.monotonic() + 0.03
                while time.monotonic() < end:
                    pass
                raise KeyError("first")
        except KeyError as error:
            seen.append(error)
        compute()

    with pytest.raises(TimeoutException) as caught:
        interruptible(body)

    assert len(seen) == 1
    assert isinstance(caught.value.__cause__, Interrupted)


def test_uninterruptible_blocks_may_be_nested_and_shared(where: Where) -> None:
    """The deadline waits for the end of the outermost one."""
    block = uninterruptible()
    steps = []

    @timeout(10)
    def body() -> None:
        with block:
            with block:
                end = time.monotonic() + 0.03
                while time.monotonic() < end:
                    pass
            steps.append("inner block left")

    with pytest.raises(TimeoutException):
        where(body)

    assert steps == ["inner block left"]


def test_coroutines_may_leave_their_blocks_in_any_order() -> None:
    """A mask that is removed out of order neither stays nor removes another one."""

    async def hold(enter: asyncio.Event, leave: asyncio.Event) -> None:
        with uninterruptible():
            enter.set()
            await leave.wait()

    async def main() -> list[bool]:
        events = [(asyncio.Event(), asyncio.Event()) for _ in range(3)]
        tasks = [asyncio.create_task(hold(*pair)) for pair in events]
        for enter, _ in events:
            await enter.wait()
        masked = []
        for number in (0, 2, 1):
            events[number][1].set()
            await tasks[number]
            masked.append(this_thread.deadlines.innermost is not None)
        return masked

    assert asyncio.run(main()) == [True, True, False]


def test_blocks_that_overlap_for_ever_leave_no_masks_behind() -> None:
    """Masks do not pile up where one of the blocks is always open."""
    first = uninterruptible()
    first.__enter__()
    for _ in range(100):
        second = uninterruptible()
        second.__enter__()
        first.__exit__(None, None, None)
        first = second

    length = 0
    entry = this_thread.deadlines.innermost
    while entry is not None:
        length += 1
        entry = entry[1]
    first.__exit__(None, None, None)

    assert length == 1
    assert this_thread.deadlines.innermost is None


def test_deadline_of_a_coroutine_is_held_back_too() -> None:
    """R2b: across ``await``, and raised at the end of the block."""
    steps = []

    @timeout(20)
    async def body() -> None:
        with uninterruptible():
            await asyncio.sleep(0.06)
            steps.append("block finished")
        steps.append("never reached")

    with pytest.raises(TimeoutException):
        asyncio.run(body())

    assert steps == ["block finished"]


def test_deadline_of_a_coroutine_that_was_held_back_is_raised_when_it_waits_next() -> None:
    """Review 16: the exception that leaves the block goes first."""
    steps = []

    @timeout(20)
    async def body() -> None:
        with contextlib.suppress(KeyError), uninterruptible():
            await asyncio.sleep(0.06)
            raise KeyError
        steps.append("block left")
        await asyncio.sleep(PATIENCE)

    began = time.monotonic()
    with pytest.raises(TimeoutException):
        asyncio.run(body())

    assert steps == ["block left"]
    assert time.monotonic() - began < PATIENCE / 2


def test_deadline_of_a_parent_waits_for_the_block_of_its_child() -> None:
    """Another task, which inherited the deadline, runs the block; the deadline cancels the parent."""
    steps = []

    async def child() -> None:
        with uninterruptible():
            await asyncio.sleep(0.06)
            steps.append("block finished")
        await asyncio.sleep(0.5)
        steps.append("never reached")

    @timeout(20)
    async def parent() -> None:
        await asyncio.gather(child())

    with pytest.raises(TimeoutException):
        asyncio.run(parent())

    assert steps == ["block finished"]


def test_call_that_is_over_is_not_cancelled_for_a_deadline_that_was_held_back() -> None:
    """A child outlives its parent's call; the end of its block does not harm the next call of the parent."""
    steps = []

    async def child() -> None:
        with uninterruptible():
            await asyncio.sleep(0.08)

    async def main() -> None:
        tasks = []

        @timeout(20)
        async def parent() -> None:
            tasks.append(asyncio.create_task(child()))
            await asyncio.sleep(0.04)

        with pytest.raises(TimeoutException):
            await parent()
        await tasks[0]
        await asyncio.sleep(0.02)
        steps.append("went on")

    asyncio.run(main())

    assert steps == ["went on"]


# remaining


def test_nothing_remains_where_no_deadline_runs(where: Where) -> None:
    """R2b: ``None`` outside of guarded calls, and inside of those without a time-out."""
    assert where(remaining) is None
    assert where(retry(remaining)) is None


@pytest.mark.parametrize("interrupt", [True, False])
def test_remaining_is_the_time_to_the_nearest_deadline(interrupt: bool, where: Where) -> None:
    """R2b, R12: whether it interrupts or not, and of several the one that passes first."""
    inner = timeout(60_000)(remaining)

    left = where(timeout(5000, interrupt=interrupt)(lambda: inner()))

    assert 4.0 < left <= 5.0


def test_nothing_is_left_once_the_deadline_has_passed(where: Where) -> None:
    """Never a negative number."""
    seen = []

    @timeout(5)
    def body() -> None:
        with uninterruptible():
            end = time.monotonic() + 0.02
            while time.monotonic() < end:
                pass
            seen.append(remaining())

    with pytest.raises(TimeoutException):
        where(body)

    assert seen == [0.0]


def test_remaining_knows_the_deadlines_of_coroutines() -> None:
    """R2b: sync and async."""

    @timeout(5000)
    async def body() -> float | None:
        return await asyncio.to_thread(remaining)

    left = asyncio.run(body())

    assert left is not None
    assert 4.0 < left <= 5.0


# sleep


@pytest.mark.parametrize("seconds", [-0.001, float("nan"), float("-inf")])
def test_sleep_refuses_a_value_that_is_no_duration(seconds: float) -> None:
    """P7: no other value silently takes its place."""
    with pytest.raises(ValueError, match="allowed: a number >= 0"):
        sleep(seconds)


def test_sleep_ends_at_the_deadline_on_every_thread(where: Where) -> None:
    """R2b: it ends at once."""
    began = time.monotonic()

    with pytest.raises(TimeoutException) as caught:
        where(timeout(20)(lambda: sleep(PATIENCE)))

    assert time.monotonic() - began < PATIENCE / 2
    assert isinstance(caught.value.__cause__, Interrupted)


def test_sleep_in_a_block_that_is_not_to_be_interrupted_goes_on(where: Where) -> None:
    """R2b: it sleeps to its end."""
    slept = []

    @timeout(5)
    def body() -> None:
        with uninterruptible():
            began = time.monotonic()
            sleep(0.03)
            slept.append(time.monotonic() - began)

    with pytest.raises(TimeoutException):
        where(body)

    assert slept[0] >= 0.03


def test_sleep_of_no_time_still_ends_at_the_deadline(where: Where) -> None:
    """A loop that yields by ``sleep(0)`` is interrupted there at the latest."""

    @timeout(20, interrupt=True)
    def body() -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            sleep(0)

    with pytest.raises(TimeoutException) as caught:
        where(body)

    assert isinstance(caught.value.__cause__, Interrupted)


@pytest.mark.parametrize("body", [compute, lambda: sleep(PATIENCE)], ids=["computing", "sleeping"])
def test_cancelling_interrupts_a_body_on_a_thread(body: Callable[[], Any]) -> None:
    """R7b: ``Future.cancel`` interrupts, deadline or not."""
    began, ended = threading.Event(), threading.Event()
    seen: list[BaseException] = []

    @asynchronous
    def call() -> Any:
        began.set()
        try:
            return body()
        except BaseException as error:
            seen.append(error)
            raise
        finally:
            ended.set()

    future = call()
    assert began.wait(PATIENCE)
    future.cancel()

    assert ended.wait(PATIENCE / 2)
    assert [type(error) for error in seen] == [Interrupted]


# Where it may be raised


def objection_in(module: str, late_by: float = 1000.0, name: str = "function") -> str | None:
    """Return why a function called *name*, in a module called *module*, is not to be interrupted."""
    found: list[str | None] = []
    variables: dict[str, Any] = {"__name__": module, "look": look, "found": found, "late_by": late_by}
    exec(f"def {name}():\n    look(found, late_by)\n", variables)
    variables[name]()
    return found[0]


def look(found: list[str | None], late_by: float = 1000.0) -> None:
    found.append(safe_point.reason_unsafe(stack_of(sys._getframe(1)), late_by, exact=True, stuck=True))


@pytest.mark.parametrize(
    "module",
    ["threading", "queue", "logging.handlers", "concurrent.futures.thread", "asyncio.events", "contextlib", "weakref"],
)
def test_code_that_takes_locks_is_left_in_peace(module: str) -> None:
    """R2a: however late it is."""
    assert objection_in(module, 0.0) is not None
    assert objection_in(module) is not None


def test_other_code_is_not_left_in_peace() -> None:
    """A name that only begins alike is another module's."""
    assert objection_in("queueing", 0.0) is None


def test_code_of_this_library_is_left_in_peace() -> None:
    """R2a: a deadline never comes between two steps that belong together."""
    found: list[str | None] = []
    exec("look(found)", {"__name__": "faulttolerance.whatever", "look": look, "found": found})

    assert found[0] is not None


def test_application_may_exempt_modules_of_its_own() -> None:
    """R2a: ``configure(uninterruptible_modules=...)``, with all modules inside of them."""
    configure(uninterruptible_modules=["acme.storage"])

    assert objection_in("acme.storage") is not None
    assert objection_in("acme.storage.files") is not None
    assert objection_in("acme.storages", 0.0) is None
    assert objection_in("acme", 0.0) is None


@pytest.mark.parametrize("name", ["__enter__", "__exit__", "acquire", "release"])
def test_taking_and_giving_back_is_left_in_peace_for_a_second(name: str) -> None:
    """R2a: but not for ever, as code may stand there for ever."""
    assert objection_in("acme", 0.5, name) is not None
    assert objection_in("acme", 1.5, name) is None


def test_finalizers_are_left_in_peace() -> None:
    """An exception that is raised in a finalizer, or in a call of it, is lost."""
    found: list[str | None] = []

    def called(*_: object) -> None:
        look(found)

    class Resource:
        def __del__(self) -> None:
            called()

    class Other:
        pass

    resource = Resource()
    del resource
    other = Other()
    weakref.finalize(other, called)
    del other
    other = Other()
    reference = weakref.ref(other, called)
    del other
    called()

    assert reference() is None
    assert [one is not None for one in found] == [True, True, True, False]


def test_an_interruption_that_a_finalizer_drops_is_followed_by_another() -> None:
    """Its call would else have no time-out, since Python reports an exception there, and raises it nowhere."""
    dropped: list[object] = []
    ended: list[object] = []

    class Resource:
        def __del__(self) -> None:
            for _ in range(3):
                pass

    def use() -> int:
        _held = Resource()
        return 1

    @timeout(20)
    def endless() -> None:
        while True:
            _number = use()

    def call() -> None:
        try:
            endless()
        except TimeoutException as error:
            ended.append(error)

    hook, sys.unraisablehook = sys.unraisablehook, lambda report: dropped.append(report.exc_type)
    try:
        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(20.0)
    finally:
        sys.unraisablehook = hook

    assert len(ended) == 1
    assert len(dropped) <= 2


@pytest.mark.parametrize("place", ["finalizer", "call of the finalizer", "body"])
def test_only_an_interruption_that_python_drops_is_followed_by_another(place: str) -> None:
    """R2: a body that handles it cleans up in peace."""
    is_due: list[bool] = []

    def arrive() -> None:
        deadlines = this_thread.deadlines
        entry = deadlines.in_flight = deadlines.innermost
        deadlines.sent[id(entry)] = entry
        Interrupted()
        is_due.append(id(entry) not in deadlines.sent)

    class Resource:
        def __del__(self) -> None:
            if "finalizer" in place and not is_due:
                arrive()

    def use() -> None:
        resource = Resource()
        if place == "call of the finalizer":
            resource.__del__()
        elif place == "body":
            arrive()

    def body() -> None:
        use()

    timeout(60_000)(body)()

    assert is_due == [place == "finalizer"]


def test_functions_that_compiled_code_calls_are_interrupted() -> None:
    """Their exception ends the call, or their caller prints it; the call ends either way."""
    found: list[str | None] = []

    def called(*_: object) -> int:
        look(found)
        return 1

    connection = sqlite3.connect(":memory:")
    connection.create_function("called", 0, called)
    connection.execute("select called()").fetchall()
    connection.close()
    ctypes.CFUNCTYPE(ctypes.c_int)(called)()
    sorted([1], key=called)

    assert found == [None, None, None]


@pytest.mark.skipif(sys.version_info < (3, 15), reason="lazy imports are new in Python 3.15")
def test_code_that_runs_because_of_a_name_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a lazy import of 3.15 runs a module."""
    found: list[str | None] = []
    (tmp_path / "imported_lazily.py").write_text("import observer\nobserver.look()\n")
    monkeypatch.syspath_prepend(tmp_path)  # type: ignore[no-untyped-call]
    monkeypatch.setitem(sys.modules, "observer", cast("ModuleType", SimpleNamespace(look=lambda: look(found))))

    exec("lazy import imported_lazily\ndef use():\n    imported_lazily\nuse()", {})

    assert found == [None]


def test_a_debugger_that_waits_at_a_line_is_left_in_peace() -> None:
    """An exception would switch off its trace function, whatever the line begins with."""
    found: list[str | None] = []

    def stop_at_lines(frame: FrameType, event: str, argument: object) -> object:
        if event == "line":
            look(found)
        return stop_at_lines if frame.f_code is traced.__code__ else None

    def traced(local: int) -> object:
        threading  # noqa: B018
        sys.byteorder  # noqa: B018
        local  # noqa: B018
        return 1

    tracer = sys.gettrace()
    sys.settrace(stop_at_lines)  # type: ignore[arg-type]
    try:
        traced(1)
    finally:
        sys.settrace(tracer)

    assert len(found) == 4
    assert None not in found


def standing(function: Callable[..., Iterator[object]], *args: Any) -> FrameType:
    """Return the frame of a generator that stands at its ``yield``."""
    generator = function(*args)
    next(generator)
    frame = generator.gi_frame  # type: ignore[attr-defined]
    _standing.append(generator)
    return frame  # type: ignore[no-any-return]


_standing: list[Iterator[object]] = []


def comes_to_acquire(lock: Any) -> Iterator[object]:
    yield
    lock.acquire()


def comes_to_end_of_block(lock: Any) -> Iterator[object]:
    with lock:
        yield


def may_come_to_acquire(lock: Any) -> Iterator[object]:
    yield
    if lock:
        lock.acquire()
    else:
        abs(1)


def comes_to_harmless_call(lock: Any) -> Iterator[object]:
    yield
    abs(1)
    lock.acquire()


def comes_to_unchecked_call(lock: Any) -> Iterator[object]:
    yield
    len("")
    lock.acquire()


def comes_to_call_by_keyword(lock: Any) -> Iterator[object]:
    yield
    max(1, 2, key=abs)
    lock.acquire()


@pytest.mark.parametrize(
    ("function", "is_safe", "is_safe_later"),
    [
        (comes_to_acquire, False, False),
        (comes_to_end_of_block, False, True),
        (may_come_to_acquire, False, False),
        (comes_to_unchecked_call, False, False),
        (comes_to_call_by_keyword, IS_EXACT, IS_EXACT),  # from 3.14 on not each one is checked
        (comes_to_harmless_call, True, True),
    ],
)
def test_code_about_to_take_or_give_back_is_left_in_peace(
    function: Callable[..., Iterator[object]], is_safe: bool, is_safe_later: bool
) -> None:
    """R2a: where the exception comes one check later than the place that was seen, the next call matters too.

    Behind a call that takes something it is never to come, for that would be lost.
    """
    frame = standing(function, threading.Lock())

    assert (safe_point.reason_unsafe((frame,), 0.0, exact=False) is None) == is_safe
    assert (safe_point.reason_unsafe((frame,), 2.0, exact=False, stuck=True) is None) == is_safe_later
    assert (safe_point.reason_unsafe((frame,), 4.0, exact=False) is None) == is_safe_later


@pytest.mark.parametrize("collects", [True, False])
@pytest.mark.parametrize("on_main", [True, False])
def test_no_garbage_is_collected_while_threads_are_looked_at(
    on_main: bool, collects: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that a collection calls would let other threads go on during the look; it is on again, or off, as before."""
    seen: list[bool] = []
    look = sys._current_frames

    def look_at_frames() -> dict[int, FrameType]:
        seen.append(gc.isenabled())
        return look()

    def call() -> None:
        with pytest.raises(TimeoutException):
            timeout(20)(compute)()

    monkeypatch.setattr(sys, "_current_frames", look_at_frames)
    if not collects:
        gc.disable()
    try:
        if on_main:
            call()
        else:
            thread = threading.Thread(target=call)
            thread.start()
            thread.join()
        still = gc.isenabled()
    finally:
        gc.enable()

    assert seen
    assert not any(seen)
    assert still is collects


def spin_for(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


# The signal


@pytest.fixture
def own_handler() -> Iterator[list[int]]:
    """Yield the signals that a handler of the application has caught."""
    caught: list[int] = []
    before = signal.signal(signal.SIGURG, lambda signum, frame: caught.append(signum))
    yield caught
    signal.signal(signal.SIGURG, before)


def test_handler_of_the_application_is_neither_replaced_nor_called(own_handler: list[int]) -> None:
    """R2: code is interrupted all the same, blocking calls end late."""
    handler = signal.getsignal(signal.SIGURG)

    with pytest.raises(TimeoutException) as computing:
        timeout(20)(compute)()
    with pytest.raises(TimeoutException) as blocking:
        timeout(20)(lambda: time.sleep(0.06))()

    assert signal.getsignal(signal.SIGURG) is handler
    assert own_handler == []
    assert isinstance(computing.value.__cause__, Interrupted)
    assert note_of(blocking.value).startswith("it ended 0.")


def test_another_signal_may_be_chosen() -> None:
    """R2: ``configure(interrupt_signal=...)``; the one that was used before is given back."""
    timeout(1000)(lambda: None)()
    assert signal.getsignal(signal.SIGURG) is not signal.SIG_DFL
    configure(interrupt_signal=signal.SIGUSR2)
    began = time.monotonic()

    with pytest.raises(TimeoutException):
        timeout(20)(lambda: time.sleep(PATIENCE))()

    assert time.monotonic() - began < PATIENCE / 2
    assert signal.getsignal(signal.SIGURG) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGUSR2) is not signal.SIG_DFL


def test_signal_may_be_done_without() -> None:
    """Blocking calls then end late; other code is interrupted."""
    set_interrupt_signal(None)

    with pytest.raises(TimeoutException) as computing:
        timeout(20)(compute)()
    with pytest.raises(TimeoutException) as blocking:
        timeout(20)(lambda: time.sleep(0.06))()

    assert signal.getsignal(signal.SIGURG) is signal.SIG_DFL
    assert isinstance(computing.value.__cause__, Interrupted)
    assert note_of(blocking.value).startswith("it ended 0.")


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP, 0, 4711])
def test_signal_that_cannot_be_caught_is_refused(signum: int) -> None:
    """P7."""
    with pytest.raises(FaultToleranceDefinitionException, match=r"configure\(interrupt_signal\) is .*can be caught"):
        configure(interrupt_signal=signum)


# Where interruption is impossible


def test_call_in_a_greenlet_ends_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 9: the thread may have another stack by then."""
    greenlet = ModuleType("greenlet")
    greenlet.getcurrent = lambda: SimpleNamespace(parent=object())  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "greenlet", greenlet)

    with pytest.raises(TimeoutException) as caught:
        timeout(10)(lambda: time.sleep(0.03))()

    assert note_of(caught.value).endswith("it was not interrupted: it ran in a greenlet")


def test_a_module_that_is_merely_imported_switches_no_interruption_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the call decides whether it runs in a greenlet; libraries import gevent where it is installed."""
    monkeypatch.setitem(sys.modules, "gevent", ModuleType("gevent"))

    with pytest.raises(TimeoutException) as caught:
        timeout(10)(lambda: time.sleep(60))()

    assert "not interrupted" not in note_of(caught.value)


# The watchdog's thread


@pytest.mark.outside
def test_watchdog_is_started_by_the_first_deadline_and_seen_by_nobody() -> None:
    """Section 2 of the protocol: importing starts no thread, and ``threading`` does not know the watchdog."""
    out, err = run_program(
        """
        import sys, threading
        import faulttolerance
        before = len(sys._current_frames())
        faulttolerance.timeout(10_000)(lambda: None)()
        print(before, len(sys._current_frames()), threading.active_count(), sep=",")
        """
    )

    assert (out, err) in {("1,2,1", ""), ("1,1,1", "")}  # it may not yet have begun to run


@pytest.mark.outside
def test_process_ends_at_once_whatever_is_guarded() -> None:
    """R7c: neither the watchdog nor a call that hangs holds the exit; a guard in ``atexit`` is interrupted."""
    out, err = run_program(
        """
        import atexit, logging, threading, time
        import faulttolerance as ft

        logging.getLogger("faulttolerance").setLevel("ERROR")  # a busy machine may end a call late

        def at_exit():
            try:
                ft.timeout(20)(lambda: time.sleep(20))()
            except ft.TimeoutException:
                print("interrupted")

        atexit.register(at_exit)
        hang = ft.timeout(60_000)(lambda seconds: time.sleep(seconds))
        hang(0)  # from 3.12 on no thread can be started any more once the interpreter ends
        threading.Thread(target=hang, args=(60,), daemon=True).start()
        """,
        seconds=15.0,
    )

    assert (out, err) == ("interrupted", "")


@pytest.mark.outside
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_interrupts_and_the_parent_goes_on() -> None:
    """L5: the forking thread's deadline still holds in the child; no thread makes ``fork`` warn."""
    out, err = run_program(
        """
        import logging, os, time
        import faulttolerance as ft

        logging.getLogger("faulttolerance").setLevel("ERROR")  # a busy machine may end a call late

        def spin(seconds):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                pass

        @ft.timeout(300)
        def both():
            spin(0.02)
            child = os.fork()
            try:
                spin(20)
            except ft.Interrupted:
                if child == 0:
                    os._exit(7)
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
                raise

        try:
            both()
        except ft.TimeoutException:
            print("parent")
        child = os.fork()
        try:
            ft.timeout(50)(time.sleep)(20)
        except ft.TimeoutException:
            if child == 0:
                os._exit(8)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        "-W",
        "error",
    )

    assert (out.split(), err) == (["7", "parent", "8"], "")


@pytest.mark.outside
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_thread_that_forks_is_the_main_thread_of_the_child() -> None:
    """L5: deadlines of the parent's other threads are forgotten, and blocking calls of this thread are interrupted."""
    out, err = run_program(
        """
        import logging, os, sys, threading, time, warnings
        import faulttolerance as ft

        logging.getLogger("faulttolerance").setLevel("ERROR")  # a busy machine may end a call late
        warnings.simplefilter("ignore")
        from faulttolerance._deadline.threads.chain import deadlines_of_threads

        begun = threading.Event()

        @ft.timeout(60_000)
        def wait_long():
            begun.set()
            time.sleep(20)

        threading.Thread(target=wait_long, daemon=True).start()
        begun.wait()

        def fork():
            child = os.fork()
            if child == 0:
                standing = [deadlines for deadlines in deadlines_of_threads() if deadlines.innermost is not None]
                try:
                    ft.timeout(50)(time.sleep)(20)
                except ft.TimeoutException:
                    os._exit(len(standing))
                os._exit(99)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
        sys.stdout.flush()
        os._exit(0)
        """
    )

    assert (out, err) == ("0", "")


def test_deadlines_of_threads_that_are_over_are_forgotten() -> None:
    """The memory is threads times depth."""
    from faulttolerance._deadline.threads.chain import deadlines_of_threads

    on_other_thread(timeout(60_000)(lambda: None))
    before = len(deadlines_of_threads())
    for _ in range(5):
        on_other_thread(timeout(60_000)(lambda: None))

    assert len(deadlines_of_threads()) <= before


def test_nothing_stays_in_the_account_of_interruptions_that_were_delivered(interruptible: Where) -> None:
    """A thread that is interrupted again and again remembers at most the last one."""

    def run() -> int:
        for _ in range(5):
            with pytest.raises(TimeoutException):
                timeout(5)(compute)()
        return len(this_thread.deadlines.sent)

    assert interruptible(run) <= 1
    wait_until(lambda: watchdog.busy is None)


class Payload:
    """An object whose end can be seen."""


@pytest.mark.parametrize("on_main", [True, False], ids=["main", "other"])
def test_argument_of_an_interrupted_call_is_gone_with_the_call(on_main: bool) -> None:
    """No collection is needed: the code that looks at threads keeps no objects of theirs."""
    references: list[weakref.ref[Payload]] = []
    guarded = timeout(20)(lambda payload: compute())

    def call() -> None:
        payload = Payload()
        references.append(weakref.ref(payload))
        with contextlib.suppress(TimeoutException):
            guarded(payload)

    gc.collect()
    gc.disable()
    try:
        if on_main:
            call()
        else:
            thread = threading.Thread(target=call, daemon=True)
            thread.start()
            thread.join(PATIENCE)
        wait_until(lambda: references[0]() is None)
    finally:
        gc.enable()


def test_argument_of_a_call_that_ended_late_is_gone_though_its_record_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    """A record of a late end holds only text (rule S2): handlers keep records, and an exception keeps its frames."""
    references: list[weakref.ref[Payload]] = []

    def call() -> None:
        payload = Payload()
        references.append(weakref.ref(payload))
        with contextlib.suppress(TimeoutException):
            timeout(20)(lambda payload: time.sleep(0.4))(payload)  # a busy machine looks late

    gc.collect()
    gc.disable()
    try:
        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(PATIENCE)
        wait_until(lambda: references[0]() is None, 2)
    finally:
        gc.enable()

    assert "at its deadline it ran in" in caplog.text


def test_local_of_a_thread_that_has_no_guard_is_gone_when_it_returns() -> None:
    """The thread was looked at together with the others while it ran."""
    references: list[weakref.ref[Payload]] = []
    looked = threading.Event()

    def hold() -> None:
        payload = Payload()
        references.append(weakref.ref(payload))
        looked.wait(PATIENCE)

    gc.collect()
    gc.disable()
    try:
        thread = threading.Thread(target=hold, daemon=True)
        thread.start()
        wait_until(lambda: references)
        for where in (on_main_thread, on_other_thread):
            with contextlib.suppress(TimeoutException):
                where(timeout(20)(compute))
        looked.set()
        thread.join(PATIENCE)
        wait_until(lambda: references[0]() is None)
    finally:
        gc.enable()
