"""Deadlines of coroutines leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import os
import sys
import threading
import weakref
from typing import Any

import pytest

from faulttolerance import (
    ChronoUnit,
    TimeoutException,
    asynchronous,
    bulkhead,
    circuit_breaker,
    deadline,
    on_deadline,
    remaining,
    retry,
    timeout,
    uninterruptible,
)
from faulttolerance._deadline.queue import queues_of
from faulttolerance.testing import virtual_time
from kit.interpreter import switching_every


def test_calls_of_one_length_are_watched_by_one_timer() -> None:
    """However many attempts there are, a loop has one queue per length of a time-out, and none of them stays in it."""

    @timeout(5000)
    async def inline() -> None: ...

    @asynchronous
    @timeout(5000)
    async def apart() -> None: ...

    async def main() -> tuple[int, int]:
        for _ in range(50):
            await inline()
            await apart()
        queues = queues_of(asyncio.get_running_loop())
        return len(queues), sum(len(queue.pending) for queue in queues.values())

    assert asyncio.run(main()) == (1, 0)


class Value:
    """An object whose end can be seen."""


VARIABLE: contextvars.ContextVar[Value | None] = contextvars.ContextVar("variable", default=None)


@timeout(60_000)
async def answers() -> None: ...


@timeout(60_000)
async def fails() -> None:
    raise ConnectionError


@deadline(60_000)
async def answers_in_all() -> None: ...


@pytest.mark.parametrize("guarded", [answers, fails, answers_in_all])
def test_a_task_is_gone_when_it_ends_with_the_variables_of_its_context(uncollected: None, guarded: Any) -> None:
    """A request under a time-out leaves nothing behind: no cycle, and no timer that keeps its context."""

    async def request() -> weakref.ref[Value]:
        value = Value()
        VARIABLE.set(value)
        with contextlib.suppress(ConnectionError):
            await guarded()
        return weakref.ref(value)

    async def main() -> list[Value | None]:
        gone = [await asyncio.create_task(request()) for _ in range(2)]
        await asyncio.sleep(0.01)
        return [value() for value in gone]

    assert asyncio.run(main()) == [None, None]


def test_a_function_of_on_deadline_does_not_see_the_variables_of_another_request() -> None:
    """A record of the log that it writes is not filed under the other request."""
    seen: list[Value | None] = []

    @timeout(50)
    async def hangs() -> None:
        with on_deadline(lambda: seen.append(VARIABLE.get())):
            await asyncio.sleep(10)

    async def request(value: Value) -> None:
        VARIABLE.set(value)
        with contextlib.suppress(TimeoutException):
            await hangs()

    async def main() -> None:
        await asyncio.gather(*(request(Value()) for _ in range(2)))

    with virtual_time() as time:
        time.run(main())

    assert seen == [None, None]


def test_lengths_that_do_not_come_again_are_forgotten() -> None:
    """A service whose requests have the remaining time of their callers does not grow with the number of requests."""

    async def main() -> tuple[int, list[float]]:
        for number in range(1000):
            async with deadline(1000 + number / 10):
                pass
        queues = queues_of(asyncio.get_running_loop())
        held = len(queues)
        await asyncio.sleep(1.2)
        async with deadline(5000):
            pass
        return held, [*queues]

    with virtual_time() as clock:
        held, at_last = clock.run(main())

    assert held < 10
    assert at_last == [5.0]


def test_a_deadline_passes_in_time_however_many_lengths_come_meanwhile() -> None:
    """The timers of lengths in use stay, also where the lengths of other calls do not come again."""

    async def call(seconds: float) -> float:
        begun = asyncio.get_running_loop().time()
        try:
            async with deadline(seconds * 1000):
                await asyncio.sleep(60)
        except TimeoutException:
            pass
        return asyncio.get_running_loop().time() - begun

    async def main() -> list[float]:
        calls = [asyncio.ensure_future(call(1 + number / 10)) for number in range(20)]
        for number in range(300):
            async with deadline(5000 + number):
                await asyncio.sleep(0.01)
            if number % 20 == 0:
                calls.append(asyncio.ensure_future(call(1.0)))
        return await asyncio.gather(*calls)

    with virtual_time() as clock:
        took = clock.run(main())

    assert took == pytest.approx([1 + number / 10 for number in range(20)] + [1.0] * 15)


class Interrupting(asyncio.Task[Any]):
    """A task in which a signal's handler raises while a deadline begins."""

    interrupts = False

    def cancelling(self) -> int:
        if self.interrupts:
            self.interrupts = False
            raise KeyboardInterrupt
        return super().cancelling()


def test_an_interruption_as_a_deadline_begins_comes_out_and_gives_the_probe_back() -> None:
    """R0, R11: nothing of the deadline is there yet, and the probe of the breaker ends as control flow."""
    answers = iter([ValueError, ValueError, "served", "served"])

    @circuit_breaker(request_volume_threshold=2, delay=0, success_threshold=1)
    @timeout(60_000)
    async def service() -> Any:
        answer = next(answers)
        if answer is ValueError:
            raise ValueError
        return answer

    async def calls() -> list[object]:
        task: Any = asyncio.current_task()
        found: list[object] = []
        for number in range(4):
            task.interrupts = number == 2
            try:
                found.append(await service())
            except (ValueError, KeyboardInterrupt) as error:
                found.append(type(error))
        return found

    async def main() -> list[object]:
        return await Interrupting(calls(), loop=asyncio.get_running_loop())

    assert asyncio.run(main()) == [ValueError, ValueError, KeyboardInterrupt, "served"]


@pytest.mark.outside
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_coroutine_that_no_task_runs_keeps_its_permit_over_a_fork() -> None:
    """L5: the thread that drives it by hand is the one that forks."""

    @bulkhead(2)
    async def service() -> int:
        pid = os.fork()
        if pid:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])  # noqa: ASYNC222  # nothing else runs here
        return 0

    here = os.getpid()

    async def main() -> int:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        loop.call_soon(driven, done)
        return await done

    def driven(done: asyncio.Future[int]) -> None:
        status = 1
        try:
            service().send(None)
        except StopIteration as end:
            status = end.value
        finally:
            if os.getpid() != here:
                os._exit(status)
        done.set_result(status)

    assert asyncio.run(main()) == 0


# Whom a deadline rules


class Heartbeat:
    """A client's background task; it counts its attempts and the time that remains to it."""

    def __init__(self) -> None:
        self.attempts = 0
        self.left: list[float | None] = []

    @retry(max_retries=3, delay=10, jitter=0)
    async def beat(self) -> None:
        self.attempts += 1
        raise ConnectionError

    @timeout(60_000)
    async def begin(self) -> None: ...

    async def run(self, after: float) -> None:
        await self.begin()  # while the call that started it still lasts
        await asyncio.sleep(after)
        self.left.append(remaining())
        with pytest.raises(ConnectionError):
            await self.beat()


@pytest.mark.parametrize("is_detached", [False, True], ids=["async def", "task"])
def test_a_task_that_outlives_the_call_that_started_it_is_under_no_deadline_of_that_call(is_detached: bool) -> None:
    """A client's connect() starts its heartbeat: once it has returned, or timed out, its deadline counts no more."""

    @timeout(200)
    async def connect(started: list[asyncio.Task[None]], heartbeat: Heartbeat, seconds: float) -> None:
        started.append(asyncio.create_task(heartbeat.run(0.5)))
        await asyncio.sleep(seconds)

    async def main(heartbeat: Heartbeat, connecting: float) -> None:
        started: list[asyncio.Task[None]] = []
        call = asynchronous(connect) if is_detached else connect
        try:
            await call(started, heartbeat, connecting)
        except TimeoutException:
            pass
        await started[0]

    found = []
    for connecting in (0.1, 10.0):
        heartbeat = Heartbeat()
        with virtual_time() as clock:
            clock.run(main(heartbeat, connecting))
        found.append((heartbeat.left, heartbeat.attempts))

    assert found == [([None], 4), ([None], 4)]


def test_a_deadline_counts_for_tasks_and_threads_that_start_under_it_while_its_call_lasts() -> None:
    """Nested deadlines end one by one, for a task and for a thread that were started inside both."""
    found: dict[str, list[float | None]] = {"task": [], "thread": []}
    steps: list[asyncio.Event] = []

    async def task(look: asyncio.Event) -> None:
        for _ in range(3):
            await look.wait()
            look.clear()
            found["task"].append(remaining())

    @timeout(2_000)
    async def inner() -> list[asyncio.Task[Any]]:
        look = asyncio.Event()
        steps.append(look)
        context = contextvars.copy_context()
        started = [asyncio.create_task(task(look))]
        await told(look, context)
        return started

    async def told(look: asyncio.Event, context: contextvars.Context) -> None:
        seen_by.append(context)
        look.set()
        await asyncio.sleep(0.1)
        found["thread"].append(await asyncio.get_running_loop().run_in_executor(None, context.run, remaining))

    seen_by: list[contextvars.Context] = []

    @timeout(60_000)
    async def outer() -> list[asyncio.Task[Any]]:
        started = await inner()
        await told(steps[0], seen_by[0])
        return started

    async def main() -> None:
        started = await outer()
        await told(steps[0], seen_by[0])
        await asyncio.gather(*started)

    asyncio.run(main())

    for left in found.values():
        assert left[0] is not None
        assert left[1] is not None
        assert left[0] <= 2 < left[1] <= 60
        assert left[2] is None


def test_a_deadline_that_began_after_a_task_was_made_does_not_rule_it() -> None:
    """Nor does it rule a thread; each is under the deadlines that stood when it was started."""
    found: list[tuple[str, float | None]] = []

    async def child(name: str) -> None:
        await asyncio.sleep(0)
        found.append((name, remaining()))

    @timeout(60_000)
    async def later(*before: contextvars.Context) -> None:
        await asyncio.sleep(0.01)
        found.extend([("thread", await asyncio.to_thread(context.run, remaining)) for context in before])

    async def main() -> None:
        await later()  # so that the task has begun deadlines before
        task = asyncio.create_task(child("task"))
        await later(contextvars.copy_context())
        await task

    asyncio.run(main())

    assert found == [("task", None), ("thread", None)]


def test_a_block_holds_back_no_deadline_that_its_parent_began_later() -> None:
    """The parent is interrupted in time while its child is in an uninterruptible block."""

    @timeout(100)
    async def before() -> None: ...

    async def child() -> None:
        with uninterruptible():
            await asyncio.sleep(1_000)

    @timeout(100)
    async def later() -> None:
        await asyncio.sleep(500)

    async def main() -> float:
        await before()
        task = asyncio.create_task(child())  # which enters its block when the parent waits
        began = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutException):
            await later()
        spent = asyncio.get_running_loop().time() - began
        await task
        return spent

    with virtual_time() as clock:
        assert clock.run(main()) < 1


@pytest.mark.stress
def test_blocks_of_several_threads_under_one_deadline_are_counted_exactly() -> None:
    """However they overlap, afterwards a block holds the deadline back, and it strikes at the end of the block."""

    def enter_and_leave(until: threading.Event) -> None:
        while not until.is_set():
            with uninterruptible():
                pass

    @timeout(1_000)
    async def call() -> str:
        enough = threading.Event()
        threads = [asyncio.to_thread(enter_and_leave, enough) for _ in range(6)]
        running = asyncio.gather(*threads)
        await asyncio.sleep(0.5)
        enough.set()
        await running
        try:
            with uninterruptible():
                try:
                    await asyncio.sleep(0.8)
                except asyncio.CancelledError:
                    found.append("struck inside")
                    raise
                found.append("held back")
        finally:
            found.append("left")
        return "not interrupted"

    found: list[str] = []
    with switching_every(1e-6), pytest.raises(TimeoutException):
        asyncio.run(call())

    assert found == ["held back", "left"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with 3.12")
def test_an_eager_attempt_is_under_its_deadline_from_the_beginning() -> None:
    """Its body begins before other code could know its task."""

    @asynchronous
    @timeout(60_000)
    async def call() -> tuple[bool, bool]:
        first = remaining() is not None
        await asyncio.sleep(0)
        return first, remaining() is not None

    @asynchronous
    @timeout(100)
    async def late() -> None:
        with uninterruptible():
            try:
                await asyncio.sleep(0.3)
            except asyncio.CancelledError:
                found.append("struck inside")
                raise
            found.append("held back")
        found.append("went on")

    found: list[str] = []

    async def main() -> tuple[bool, bool]:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
        with pytest.raises(TimeoutException):
            await late()
        await asyncio.sleep(0.5)
        return await call()

    assert asyncio.run(main()) == (True, True)
    assert found == ["held back"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with 3.12")
def test_an_eager_attempt_ends_at_its_deadline_whatever_its_body_starts() -> None:
    """Deadlines of one length are watched in the order in which they start."""

    @asynchronous
    @timeout(1_000)
    async def inner() -> None:
        await asyncio.sleep(60)

    @asynchronous
    @timeout(1_000)
    async def outer() -> None:
        now.advance(0.5)
        await inner()

    async def main() -> float:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
        began = now.monotonic()
        with pytest.raises(TimeoutException):
            await outer()
        return now.monotonic() - began

    with virtual_time() as now:
        assert now.run(main()) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("convention", ["async def", "task"])
@pytest.mark.parametrize("seconds", [0, 60], ids=["without", "deadline"])
def test_permits_come_back_from_a_loop_that_was_closed_under_its_calls(convention: str, seconds: int) -> None:
    """The calls never go on; once the loop is collected, their permits are free, and their places in the queue, too."""

    async def sleep(duration: float) -> str:
        await asyncio.sleep(duration)
        return "served"

    service: Any = bulkhead(1, waiting_task_queue=1)(sleep)
    if seconds:
        service = timeout(seconds, unit=ChronoUnit.SECONDS)(service)
    if convention == "task":
        service = asynchronous(service)

    async def wait_for(call: Any) -> str:
        return await call  # type: ignore[no-any-return]

    async def leave_behind() -> None:
        calls = [asyncio.ensure_future(wait_for(service(1_000))) for _ in range(2)]
        await asyncio.sleep(0.05)
        del calls

    for _ in range(3):
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda loop, context: None)  # which says that tasks were destroyed
        loop.run_until_complete(leave_behind())
        loop.close()
        del loop
        gc.collect()

    async def main() -> str:
        return await asyncio.wait_for(wait_for(service(0)), 10)

    assert asyncio.run(main()) == "served"


def test_a_block_that_a_closed_loop_leaves_behind_ends_quietly() -> None:
    """A deadline passed in it; there is no task to interrupt any more, and nothing is retried."""
    attempts: list[None] = []

    @retry(max_retries=3, jitter=0)
    @timeout(10)
    async def service() -> None:
        attempts.append(None)
        with uninterruptible():
            await asyncio.sleep(1_000)

    async def leave_behind() -> None:
        call = asyncio.ensure_future(service())
        await asyncio.sleep(0.1)
        del call

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)
    loop.run_until_complete(leave_behind())
    loop.close()
    del loop
    gc.collect()

    assert len(attempts) == 1


@pytest.mark.parametrize("convention", ["async def", "task"])
def test_a_cancellation_after_a_deadline_that_a_block_held_back_comes_out(convention: str) -> None:
    """Rule R0: the caller cancels while the attempt cleans up; the call ends, and nothing is retried."""
    attempts: list[None] = []

    @retry(max_retries=2, delay=0, jitter=0)
    @timeout(100)
    async def service() -> None:
        attempts.append(None)
        try:
            with uninterruptible():
                await asyncio.sleep(0.2)
        finally:
            await asyncio.sleep(0.1)

    call: Any = service if convention == "async def" else asynchronous(service)

    async def caller() -> None:
        await call()

    async def main() -> None:
        task = asyncio.create_task(caller())
        await asyncio.sleep(0.25)
        begun = len(attempts)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert len(attempts) == begun

    with virtual_time() as clock:
        clock.run(main())


@pytest.mark.parametrize("seconds", [0, 60], ids=["without", "timeout"])
def test_a_deadline_around_a_detached_call_whose_body_holds_it_back_is_a_time_out(seconds: int) -> None:
    """Rule D1: nobody has cancelled the task of the caller, so no cancellation comes out of it."""

    async def write() -> None:
        with uninterruptible():
            await asyncio.sleep(0.3)

    service: Any = asynchronous(timeout(seconds, unit=ChronoUnit.SECONDS)(write) if seconds else write)

    @deadline(100)
    async def guarded() -> None:
        await service()

    async def main() -> None:
        with pytest.raises(TimeoutException):
            async with deadline(100):
                await service()
        with pytest.raises(TimeoutException):
            await guarded()

    with virtual_time() as clock:
        clock.run(main())


def test_a_block_that_outlives_the_call_of_the_deadline_that_it_held_back_ends_quietly() -> None:
    """An exit stack of the caller may hold the block."""
    stack = contextlib.ExitStack()

    @timeout(100)
    async def opener() -> None:
        stack.enter_context(uninterruptible())
        await asyncio.sleep(0.15)

    async def main() -> str:
        with pytest.raises(TimeoutException):
            await opener()
        stack.close()
        await asyncio.sleep(0)
        return "closed"

    with virtual_time() as clock:
        assert clock.run(main()) == "closed"


def test_each_task_leaves_its_own_entry_of_a_shared_uninterruptible_block() -> None:
    """The end of a block of another task, which the same object protects, lets no deadline in."""
    block, ended = uninterruptible(), []

    @timeout(100)
    async def short() -> None:
        with block:
            await asyncio.sleep(0.05)

    @timeout(100)
    async def long() -> None:
        with block:
            await asyncio.sleep(0.3)
            ended.append(True)

    async def main() -> list[BaseException | None]:
        return await asyncio.gather(short(), long(), return_exceptions=True)

    with virtual_time() as clock:
        outcomes = clock.run(main())

    assert ended == [True]
    assert [type(outcome) for outcome in outcomes] == [type(None), TimeoutException]
