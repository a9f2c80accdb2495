"""Rule D: deadlines of blocks, in threads and coroutines: nested, entered again, left in any order, inherited."""

# ruff: noqa: PT012  # a block that raises is what is tested

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import pytest

from faulttolerance import (
    Interrupted,
    TimeoutException,
    asynchronous,
    circuit_breaker,
    deadline,
    remaining,
    retry,
    sleep,
    timeout,
    uninterruptible,
)
from faulttolerance._deadline.queue import queues_of
from kit import Clock
from kit.convention import _driven
from kit.struck import Struck, sampled, strikes


class Blocks:
    """One way to bound a block: in a thread by ``with``, in a coroutine by ``with`` or ``async with``."""

    def __init__(self, form: str, clock: Clock) -> None:
        self._form = form
        self._clock = clock

    def __call__(self, main: Coroutine[Any, Any, Any]) -> Any:
        """Run *main*, which waits and enters blocks only by the methods below."""
        return _driven(main) if self._form == "thread" else self._clock.run(main)

    async def within(self, one: Any, body: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run *body* in a block of *one*."""

        def on_thread() -> Any:
            with one:
                return _driven(body())

        if self._form == "thread":
            return on_thread()
        if self._form == "async with":
            async with one:
                return await body()
        with one:
            return await body()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        if self._form == "thread":
            sleep(seconds)
        else:
            await asyncio.sleep(seconds)


@pytest.fixture(params=["thread", "with", "async with"])
def block(request: pytest.FixtureRequest, clock: Clock) -> Blocks:
    """Return each way to bound a block."""
    return Blocks(request.param, clock)


def test_a_block_ends_at_its_deadline(block: Blocks, clock: Clock) -> None:
    """By rule D1: it raises the exception itself, which says where the block was made."""
    began = clock.monotonic()

    async def body() -> None:
        assert remaining() == pytest.approx(0.4)
        await block.sleep(5)

    with pytest.raises(TimeoutException, match=r"test_blocks:\d+: deadline of 0\.4 s passed(?m:$)"):
        block(block.within(deadline(400), body))

    assert clock.monotonic() - began == pytest.approx(0.4)
    assert remaining() is None


@pytest.mark.parametrize(("outer", "inner"), [(400, 900), (900, 400), (400, 400)])
def test_of_nested_deadlines_the_earlier_one_counts(block: Blocks, outer: int, inner: int) -> None:
    """By rule D1: the block with that deadline raises; at the same moment the outer one does."""
    passed = []

    async def innermost() -> None:
        assert remaining() == pytest.approx(0.4)
        await block.sleep(5)

    async def between() -> None:
        try:
            await block.within(deadline(inner), innermost)
        except TimeoutException:
            passed.append("inner")
            raise

    with pytest.raises(TimeoutException, match=r"deadline of 0\.4 s passed"):
        block(block.within(deadline(outer), between))

    assert passed == (["inner"] if inner < outer else [])


def test_a_deadline_is_entered_any_number_of_times(block: Blocks) -> None:
    """It is re-entrant and reusable, a decorator at the same time, and keeps nothing of a block that is over."""
    one = deadline(1000)

    async def inner() -> float:
        return round(remaining() or 0.0, 3)

    async def outer() -> Any:
        await block.sleep(0.3)
        return await block.within(one, inner)

    async def main() -> list[Any]:
        return [await block.within(one, outer), await block.within(one, outer), remaining()]

    assert block(main()) == [0.7, 0.7, None]
    assert one(lambda: remaining())() == pytest.approx(1.0)
    assert not one._entered  # type: ignore[attr-defined]


@pytest.mark.parametrize("keeps", [False, True], ids=["looks", "keeps"])
def test_a_deadline_may_be_asked_for_its_exits(clock: Clock, keeps: bool) -> None:
    """Frameworks look for ``__exit__`` and ``__aexit__``; nothing is kept for that, and blocks of both kinds go on."""
    one = deadline(1000)

    async def within() -> float | None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(one)
            return remaining()

    kept = [(one.__exit__, one.__aexit__) for _ in range(3)]
    if not keeps:
        kept.clear()
    with ExitStack() as stack:
        stack.enter_context(one)
        assert remaining() == pytest.approx(1.0)

    assert clock.run(within()) == pytest.approx(1.0)
    assert remaining() is None
    kept.clear()
    assert not one._entered  # type: ignore[attr-defined]


def test_0_is_no_deadline(block: Blocks) -> None:
    """By rule X1."""

    async def body() -> Any:
        await block.sleep(50)
        return remaining()

    assert block(block.within(deadline(0), body)) is None


def test_an_exception_of_a_block_comes_out_as_it_is(block: Blocks) -> None:
    """By rule R1: nothing is held afterwards."""
    failure = LookupError("mine")

    async def body() -> None:
        raise failure

    with pytest.raises(LookupError) as raised:
        block(block.within(deadline(1000), body))

    assert raised.value is failure
    assert remaining() is None


def test_a_block_without_time_left_is_not_entered(block: Blocks, clock: Clock) -> None:
    """By rule D2."""
    entered = []

    async def body() -> None:
        entered.append(1)

    async def late() -> None:
        clock.work(0.2)
        with pytest.raises(TimeoutException, match="no time is left"):
            await block.within(deadline(5000), body)

    with pytest.raises(TimeoutException, match=r"deadline of 0\.1 s passed"):
        block(block.within(deadline(100), late))
    assert not entered


def test_blocks_of_generators_end_in_any_order(clock: Clock) -> None:
    """By rule G2: each block ends its own deadline, and nothing but the block is interrupted."""
    one = deadline(1000)

    def generator() -> Iterator[float | None]:
        with one:
            yield remaining()
            yield remaining()
        yield remaining()

    first, second = generator(), generator()
    assert next(first) == pytest.approx(1.0)
    clock.sleep(0.5)
    assert next(second) == pytest.approx(1.0)
    assert next(first) == pytest.approx(0.5)
    assert next(first) is None
    assert next(second) == pytest.approx(1.0)
    clock.sleep(5)  # a suspended block interrupts nobody
    with pytest.raises(TimeoutException):
        next(second)
    assert remaining() is None


def test_a_block_that_a_pool_enters_for_a_generator_interrupts_no_other_job(clock: Clock) -> None:
    """By rule G2: FastAPI enters and leaves a dependency that yields by jobs for threads that serve other requests."""

    @contextmanager
    def limited() -> Iterator[None]:
        with deadline(400):
            yield

    @contextmanager
    def dependency() -> Iterator[None]:
        with limited():
            yield

    def work(*jobs: Callable[[], object]) -> list[object]:
        return [job() for job in jobs]

    for manager in (limited(), dependency()):
        assert work(manager.__enter__, remaining, partial(sleep, 5), remaining) == [None] * 4
        with pytest.raises(TimeoutException):
            manager.__exit__(None, None, None)

    for manager in (limited(), dependency()):
        with ExitStack() as stack:
            stack.enter_context(manager)
            assert remaining() == pytest.approx(0.4)
    manager = limited()
    manager.__enter__()
    assert remaining() == pytest.approx(0.4)
    manager.__exit__(None, None, None)


def test_a_block_that_a_pool_enters_for_an_object_interrupts_no_other_job(clock: Clock) -> None:
    """By rule G2: the object is entered and left by jobs, as ``anyio.to_thread`` runs them one after another."""

    class Unit:
        def __init__(self) -> None:
            self.block = deadline(400)

        def __enter__(self) -> None:
            self.block.__enter__()

        def __exit__(self, *_: object) -> None:
            self.block.__exit__(None, None, None)

    def work(*jobs: Callable[[], object]) -> list[object]:
        return [job() for job in jobs]

    unit = Unit()
    assert work(unit.__enter__, remaining, partial(sleep, 5), remaining) == [None] * 4
    with pytest.raises(TimeoutException):
        unit.__exit__(None, None, None)
    with Unit():
        assert remaining() == pytest.approx(0.4)


def test_context_managers_enter_blocks_for_others(clock: Clock) -> None:
    """By rule G2: the block of ``with limited():`` is interrupted, in a thread and in a coroutine."""

    @contextmanager
    def limited() -> Iterator[None]:
        with deadline(400):
            yield

    class Limited:
        def __enter__(self) -> None:
            self.inner = deadline(400)
            self.inner.__enter__()

        def __exit__(self, *error: Any) -> None:  # noqa: PYI036
            return self.inner.__exit__(*error)

    async def main(manager: Any) -> None:
        with manager:
            await asyncio.sleep(5)

    async def stacked() -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(deadline(400))
            await asyncio.sleep(5)

    for make in (limited, Limited):
        with pytest.raises(TimeoutException), make():
            sleep(5)
        with pytest.raises(TimeoutException):
            clock.run(main(make()))
    with pytest.raises(TimeoutException):
        clock.run(stacked())


def test_a_cancellation_from_elsewhere_stays_one(clock: Clock) -> None:
    """By rule R3: a cancellation by ``asyncio.timeout`` stays one, too."""

    async def main() -> None:
        with pytest.raises(TimeoutError) as raised:
            async with asyncio.timeout(0.1):
                with deadline(400):
                    await asyncio.sleep(5)
        assert type(raised.value) is TimeoutError
        with pytest.raises(TimeoutException):
            async with asyncio.timeout(5):
                async with deadline(400):
                    await asyncio.sleep(9)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    clock.run(main())


def test_a_group_of_tasks_ends_with_the_block(clock: Clock) -> None:
    """By rule D1: the tasks for which the block waits are cancelled with it."""
    ended = []

    async def work() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            ended.append(round(remaining() or 0.0, 3))

    async def main() -> None:
        async with deadline(400), asyncio.TaskGroup() as group:
            group.create_task(work())
            group.create_task(work())

    with pytest.raises(TimeoutException):
        clock.run(main())
    assert ended == [0.0, 0.0]


def test_an_uninterruptible_block_is_left_in_peace(clock: Clock) -> None:
    """By rule R2b."""
    done = []

    with pytest.raises(TimeoutException), deadline(400):
        with uninterruptible():
            sleep(1)
            done.append(1)
        done.append(2)

    assert done == [1]


def test_an_uninterruptible_block_makes_detached_calls_without_time_left(clock: Clock) -> None:
    """By rules D2, R2a: as it makes all guarded calls, in threads and coroutines."""

    @asynchronous
    async def on_loop() -> str:
        await asyncio.sleep(0.1)
        return "cleaned up"

    @asynchronous
    def on_thread() -> Any:
        sleep(0.1)
        return "cleaned up"

    async def main() -> None:
        with pytest.raises(TimeoutException):
            async with deadline(100):
                with uninterruptible():
                    await asyncio.sleep(0.2)
                    outcomes.extend([await on_loop(), await on_thread()])

    outcomes: list[object] = []
    clock.run(main())
    with pytest.raises(TimeoutException), deadline(100), uninterruptible():
        sleep(0.2)
        outcomes.append(on_thread().result(5))

    assert outcomes == ["cleaned up"] * 3


@pytest.mark.parametrize("kind", ["coroutine", "awaitable of a thread", "awaitable under a deadline of its own"])
def test_an_uninterruptible_block_of_a_detached_coroutine_is_left_in_peace(clock: Clock, kind: str) -> None:
    """By rules D4, R2b: the caller is free at the deadline, and the coroutine is cancelled at the end of its block."""
    steps: list[str] = []

    async def write() -> None:
        with uninterruptible():
            await asyncio.sleep(1)
            steps.append("written")
        steps.append("went on")

    def begin() -> Any:
        return write()

    calls = {
        "coroutine": asynchronous(write),
        "awaitable of a thread": asynchronous(begin),
        "awaitable under a deadline of its own": asynchronous(deadline(400)(begin)),
    }

    async def main() -> None:
        began = clock.monotonic()
        with pytest.raises(TimeoutException):
            async with deadline(400):
                await calls[kind]()
        assert clock.monotonic() - began == pytest.approx(0.4)
        await asyncio.sleep(2)

    clock.run(main())

    assert steps == ["written"]


def test_tasks_and_pool_threads_see_the_moment(clock: Clock) -> None:
    """By rule D4: they see the deadline of the moment at which they were made, while its block lasts."""
    seen: dict[str, Any] = {}

    async def task(gate: asyncio.Event) -> None:
        seen["task"] = remaining()
        await gate.wait()
        seen["free"] = remaining()

    @asynchronous
    def offloaded() -> Any:
        seen["thread"] = remaining()

    async def main() -> None:
        gate = asyncio.Event()
        before = asyncio.create_task(task(gate))
        await asyncio.sleep(0)
        assert seen.pop("task") is None
        async with deadline(400):
            await asyncio.sleep(0.1)
            child = asyncio.create_task(task(gate))
            await offloaded()
            await asyncio.sleep(0)
        await asyncio.sleep(1)
        gate.set()
        await asyncio.gather(before, child)

    clock.run(main())

    assert seen == {"task": pytest.approx(0.3), "thread": pytest.approx(0.3), "free": None}


def test_an_offloaded_call_ends_with_the_block_that_made_it(clock: Clock) -> None:
    """By rule D4: its body is interrupted, and its future fails by ``TimeoutException``."""
    interrupted = threading.Event()

    @retry(max_retries=5, delay=0, retry_on=TimeoutException)
    @asynchronous
    def slow() -> Any:
        try:
            sleep(60)
        except Interrupted:
            interrupted.set()
            raise

    with pytest.raises(TimeoutException, match=r"deadline of 0\.4 s passed"), deadline(400):
        future = slow()
        sleep(5)

    assert interrupted.wait(5)
    with pytest.raises(TimeoutException, match="an enclosing deadline of this call passed"):
        future.result(5)


def test_a_detached_task_ends_with_the_block_that_made_it(clock: Clock) -> None:
    """By rule D4: no caller has to await it."""
    ended = []

    @retry(max_retries=5, delay=0, retry_on=TimeoutException)
    @timeout(30_000)
    @asynchronous
    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(clock.monotonic() - began)

    async def main() -> None:
        with pytest.raises(TimeoutException, match=r"deadline of 0\.4 s passed"):
            async with deadline(400):
                call = slow()
                await asyncio.sleep(5)
        await asyncio.sleep(0.1)
        assert call.cancelled()

    began = clock.monotonic()
    clock.run(main())
    assert ended == [pytest.approx(0.4)]


@pytest.mark.parametrize("kind", ["guard", "block"])
def test_a_detached_task_that_ends_first_at_the_deadline_is_no_cancellation_of_its_caller(
    clock: Clock, kind: str
) -> None:
    """By rule D1: as on a busy machine, where the timers of a loop are late by different times."""

    @asynchronous
    async def slow() -> None:
        await asyncio.sleep(60)

    async def begin() -> None:
        call = slow()
        for queue in queues_of(asyncio.get_running_loop()).values():
            queue.disarm()
            queue.arm(max(deadline.when for deadline in queue.pending) + 0.1)
        await call

    async def main() -> None:
        with pytest.raises(TimeoutException, match=r"deadline of 0\.4 s passed"):
            if kind == "guard":
                await deadline(400)(begin)()
            async with deadline(400):
                await begin()

    clock.run(main())


@pytest.mark.parametrize("kind", ["guard", "block"])
def test_a_call_that_outlives_its_block_in_time_is_free(clock: Clock, kind: str) -> None:
    """By rule D4: a deadline rules no longer than its block or call lasts."""

    @asynchronous
    def slow() -> Any:
        sleep(2)
        return remaining()

    @deadline(400)
    def begin() -> list[Any]:
        return [slow()]

    if kind == "guard":
        (future,) = begin()
    else:
        with deadline(400):
            future = slow()

    assert future.result(5) is None


@pytest.mark.parametrize("kind", ["guard", "block"])
def test_a_task_that_outlives_a_late_block_makes_calls_as_it_likes(clock: Clock, kind: str) -> None:
    """By rule D4: also detached calls, as a task in the background makes them that a late request has started."""

    @asynchronous
    async def on_loop() -> object:
        await asyncio.sleep(0.1)
        return remaining()

    @asynchronous
    def on_thread() -> Any:
        sleep(0.1)
        return remaining()

    async def background() -> list[object]:
        await asyncio.sleep(1)
        return [await on_loop(), await on_thread()]

    async def main() -> list[object]:
        tasks = []

        async def request() -> None:
            tasks.append(asyncio.create_task(background()))
            await asyncio.sleep(5)

        with pytest.raises(TimeoutException):
            if kind == "guard":
                await deadline(400)(request)()
            async with deadline(400):
                await request()
        return await tasks[0]

    assert clock.run(main()) == [None, None]


def test_a_call_that_a_guarded_call_offloads_ends_with_it(clock: Clock) -> None:
    """By rule D4: the deadline of a guard rules as the deadline of a block does."""

    @asynchronous
    def slow() -> Any:
        sleep(60)

    made = []

    @deadline(400)
    def waits() -> None:
        made.append(slow())
        sleep(60)

    with pytest.raises(TimeoutException, match=r"deadline of 0\.4 s passed"):
        waits()
    with pytest.raises(TimeoutException, match="an enclosing deadline of this call passed"):
        made[0].result(5)


def test_nothing_is_offloaded_without_time_left(clock: Clock) -> None:
    """By rule D2: neither the breaker nor the body takes part."""
    ran = []

    @circuit_breaker
    @asynchronous
    def late() -> Any:
        ran.append(1)

    with pytest.raises(TimeoutException, match=r"deadline of 0\.1 s"), deadline(100):
        clock.work(0.2)
        with pytest.raises(TimeoutException, match="an enclosing deadline of this call passed"):
            late().result(5)

    assert not ran


def in_a_thread(one: Any, fails: bool) -> str:
    with one, one:
        if fails:
            raise ConnectionError
    return "served"


async def in_a_coroutine(one: Any, fails: bool) -> str:
    with one:
        async with one:
            if fails:
                raise ConnectionError
    return "served"


@pytest.mark.usefixtures("struck_coroutines_collected")
@pytest.mark.filterwarnings("ignore:.*was never awaited:RuntimeWarning")
@pytest.mark.parametrize("reenters", [False, True], ids=["raises", "enters it, too"])
@pytest.mark.parametrize("fails", [False, True], ids=["served", "failed"])
@pytest.mark.parametrize("run", [in_a_thread, in_a_coroutine])
@sampled(17)
def test_a_handler_may_come_anywhere(run: Any, fails: bool, reenters: bool, step: int) -> None:
    """By rule R11: its exception comes out, and no deadline is left; a block that it enters itself disturbs nothing."""
    one = deadline(60_000)

    def handle() -> None:
        with one:
            assert remaining() is not None

    def outcome(strike: Any, fails: bool) -> object:
        async def main() -> object:
            with strike or nullcontext():
                return await run(one, fails)

        try:
            if run is in_a_coroutine:
                return asyncio.run(main())
            with strike or nullcontext():
                return run(one, fails)
        except (Exception, Struck) as error:
            return type(error)

    wrong = []
    for strike in strikes(handle=handle if reenters else None, step=step):
        one = deadline(60_000)
        first, left, second = outcome(strike, fails), remaining(), outcome(None, False)
        expected = Struck if strike.where and not reenters else ConnectionError if fails else "served"
        if (first, left, second) != (expected, None, "served"):
            wrong.append((strike.where, first, left, second))

    assert not wrong


def test_a_block_that_another_task_leaves_ends() -> None:
    """A server's response may begin in a task of its own."""

    async def main() -> float | None:
        block = deadline("10s")

        async def leave() -> None:
            await block.__aexit__(None, None, None)

        await block.__aenter__()
        await asyncio.create_task(leave())
        return remaining()

    assert asyncio.run(main()) is None
