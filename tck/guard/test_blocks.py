"""Blocks of code under a guard, once or in a loop (rule G2)."""

# ruff: noqa: PT012  # a block that raises is what is tested

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import threading
import types
import warnings
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from datetime import timedelta
from typing import Any

import pytest

from faulttolerance import (
    BulkheadException,
    CircuitBreakerOpenException,
    ExecutionContext,
    FaultToleranceDefinitionException,
    Future,
    Guard,
    Interrupted,
    TimeoutException,
    asynchronous,
    completed_future,
    configure,
    deadline,
    guards,
    remaining,
    retry,
    sleep,
)
from faulttolerance._deadline.threads.chain import this_thread
from faulttolerance.policies import (
    BeforeRetry,
    Bulkhead,
    CircuitBreaker,
    Fallback,
    RateLimit,
    Retry,
    RetryWhen,
    Timeout,
)
from faulttolerance.testing import virtual_time
from kit.garbage import collect_garbage
from kit.struck import Struck, sampled, strikes


def again(**values: Any) -> Retry:
    """Return a retry that makes two retries at once."""
    return Retry(**{"max_retries": 2, "delay": 0, "jitter": 0, **values})


def is_free(guard: Guard) -> bool:
    """Return whether a call gets the only permit of *guard*, under no deadline of another call."""
    return guard.call(lambda: True) and remaining() is None


def counts_of(guard: Guard) -> dict[str, int]:
    """Return the counts other than 0, by metric and tags."""
    (found,) = [one for one in guards() if one.name == guard.name and any(one.counts.values())]
    return {
        f"{metric} {dict(tags)}": count
        for (metric, tags), count in found.counts.items()
        if count and "state" not in metric
    }


# Outcomes


def test_a_block_runs_once_under_everything_but_the_retry() -> None:
    guard = Guard(retry=again(), timeout=Timeout(1000), bulkhead=Bulkhead(1))

    with pytest.raises(ConnectionError), guard.attempt() as attempt:
        assert attempt.number == 1
        assert (remaining() or 0) > 0.5
        with pytest.raises(BulkheadException):
            guard.call(int)
        raise ConnectionError

    assert is_free(guard)


def test_a_loop_ends_with_the_first_block_that_succeeds() -> None:
    guard = Guard(retry=again())
    numbers: list[int] = []

    for attempt in guard.attempts():
        with attempt:
            numbers.append(attempt.number)
            if attempt.number < 3:
                raise ConnectionError

    assert numbers == [1, 2, 3]


def test_the_last_failure_comes_out_as_it_is_with_its_note() -> None:
    """R1: it is as the failure of a call; its own traceback ends at the line that raised it."""
    guard = Guard(retry=again())
    raised: list[ConnectionError] = []

    def run() -> None:
        for attempt in guard.attempts():
            with attempt:
                raised.append(ConnectionError(str(attempt.number)))
                raise raised[-1]

    with pytest.raises(ConnectionError) as failure:
        run()

    assert failure.value is raised[-1]
    assert [str(one) for one in raised] == ["1", "2", "3"]
    assert "3 attempts in" in failure.value.__notes__[0]
    assert failure.traceback[-1].name == "run"


def test_blocks_of_coroutines_do_the_same() -> None:
    guard = Guard(retry=again(delay=100), timeout=Timeout(1000), bulkhead=Bulkhead(1))
    numbers: list[int] = []

    async def main() -> float:
        began = asyncio.get_running_loop().time()
        async with guard.attempt() as attempt:
            assert attempt.number == 1
        async for attempt in guard.attempts():
            async with attempt:
                numbers.append(attempt.number)
                if attempt.number < 3:
                    await asyncio.sleep(30)
        return asyncio.get_running_loop().time() - began

    with virtual_time() as clock:
        assert clock.run(main()) == pytest.approx(2.2)
    assert numbers == [1, 2, 3]


def test_a_refused_attempt_is_one_too_and_the_block_is_entered_by_the_next() -> None:
    """A `with` cannot skip its block: a refusal is retried before the block begins."""
    guard = Guard(retry=again(delay=100), rate_limit=RateLimit(1, window=timedelta(milliseconds=150)))
    numbers: list[int] = []

    with virtual_time():
        guard.call(int)
        for attempt in guard.attempts():
            with attempt:
                numbers.append(attempt.number)

    assert numbers == [3]


def test_a_refusal_that_is_not_retried_comes_out_and_the_block_does_not_begin() -> None:
    guard = Guard(circuit_breaker=CircuitBreaker(request_volume_threshold=1, failure_ratio=1.0))
    with pytest.raises(ConnectionError), guard.attempt():
        raise ConnectionError

    with pytest.raises(CircuitBreakerOpenException), guard.attempt():
        pytest.fail("it began")
    with pytest.raises(CircuitBreakerOpenException):
        for attempt in guard.attempts():
            with attempt:
                pytest.fail("it began")


@pytest.mark.parametrize(
    "policies",
    [
        {"fallback": Fallback(lambda context: None)},
        {"retry": Retry(), "retry_when": RetryWhen(result=bool)},
    ],
    ids=["fallback", "predicate"],
)
def test_a_guard_that_asks_for_a_result_refuses_blocks(policies: dict[str, Any]) -> None:
    """A block has no result; where configuration switches that policy off, blocks are allowed."""
    guard = Guard(**policies, name="asks for a result")
    try:
        with pytest.raises(FaultToleranceDefinitionException, match="a block has none"):
            guard.attempt()
        with pytest.raises(FaultToleranceDefinitionException, match="a block has none"):
            guard.attempts()

        configure(properties={"Fallback/enabled": "false", "RetryWhen/enabled": "false"})
        with guard.attempt() as attempt:
            assert attempt.number == 1
    finally:
        guard.close()


def test_the_context_of_a_hook_names_the_form() -> None:
    """The context has no arguments, and no function but the one that the application called."""
    contexts: list[ExecutionContext] = []
    guard = Guard(retry=again(max_retries=1), before_retry=BeforeRetry(contexts.append))

    with pytest.raises(ConnectionError):
        for attempt in guard.attempts():
            with attempt:
                raise ConnectionError

    (context,) = contexts
    assert (context.method, context.args, context.attempt) == (guard.attempts, (), 2)
    assert isinstance(context.failure, ConnectionError)


def test_blocks_count_as_calls_do() -> None:
    policies: dict[str, Any] = {
        "retry": again(),
        "circuit_breaker": CircuitBreaker(),
        "timeout": Timeout(1000),
        "bulkhead": Bulkhead(1),
    }
    called, looped = Guard(**policies, name="called"), Guard(**policies, name="looped")

    def body(moods: list[bool]) -> None:
        if moods.pop():
            raise ConnectionError

    for moods in ([False], [False, True, True], [True, True, True]):
        with contextlib.suppress(ConnectionError):
            called.call(body, list(moods))
        with contextlib.suppress(ConnectionError):
            for attempt in looped.attempts():
                with attempt:
                    body(moods)

    assert counts_of(looped) == counts_of(called)
    called.close()
    looped.close()


def test_a_stop_iteration_comes_out_of_a_block_as_one() -> None:
    """The coroutine that runs the call must not treat it as its own end."""
    guard = Guard(retry=again(retry_on=StopIteration, max_retries=1), bulkhead=Bulkhead(1))
    numbers: list[int] = []

    with pytest.raises(StopIteration):
        for attempt in guard.attempts():
            with attempt:
                numbers.append(attempt.number)
                next(iter(()))

    assert numbers == [1, 2]
    assert is_free(guard)


# Deadlines


def test_a_deadline_interrupts_the_block_on_its_thread() -> None:
    """R2: it does so on the main thread, and on others."""
    guard = Guard(timeout=Timeout(50), bulkhead=Bulkhead(9))
    found: list[Any] = []

    def run() -> None:
        try:
            with guard.attempt():
                try:
                    while True:
                        sum(range(100))
                except Interrupted:
                    found.append("interrupted")
                    raise
        except TimeoutException as error:
            found.append(error)

    run()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)

    assert [str(one) for one in found] == ["interrupted", f"{guard.name}: timed out after 0.05 s"] * 2


def test_a_block_that_ends_late_by_return_gives_no_result() -> None:
    """R2: its result is discarded; the block cannot be repeated, for the loop is over."""
    guard = Guard(retry=again(), timeout=Timeout(1000, interrupt=False))
    numbers: list[int] = []

    def by_return() -> str:
        for attempt in guard.attempts():
            with attempt:
                numbers.append(attempt.number)
                clock.sleep(2)
                return "too late"
        return "never"

    def by_break() -> None:
        while True:
            for attempt in guard.attempts():
                with attempt:
                    numbers.append(attempt.number)
                    clock.sleep(2)
                    break

    def going_round() -> None:
        for attempt in guard.attempts():
            with attempt:
                numbers.append(attempt.number)
                clock.sleep(2)
            for _ in range(3):
                clock.sleep(0)

    with virtual_time() as clock:
        for run, made in ((by_return, [1]), (by_break, [1]), (going_round, [1, 2, 3])):
            numbers.clear()
            with pytest.raises(TimeoutException):
                run()
            assert numbers == made


def test_a_block_of_a_coroutine_that_ends_late_by_return_gives_no_result() -> None:
    guard = Guard(retry=again(), timeout=Timeout(1000))
    numbers: list[int] = []

    async def by_return() -> str:
        async for attempt in guard.attempts():
            async with attempt:
                numbers.append(attempt.number)
                clock.sleep(2)
                return "too late"
        return "never"

    async def going_round() -> None:
        async for attempt in guard.attempts():
            async with attempt:
                numbers.append(attempt.number)
                clock.sleep(2)
            await asyncio.sleep(0)

    with virtual_time() as clock:
        for run, made in ((by_return, [1]), (going_round, [1, 2, 3])):
            numbers.clear()
            with pytest.raises(TimeoutException):
                clock.run(run())
            assert numbers == made


def test_a_cancellation_from_elsewhere_stays_one() -> None:
    """R3: it stays one even where the deadline passes in the same step."""
    guard = Guard(retry=again(), timeout=Timeout(1000), bulkhead=Bulkhead(1))

    async def body() -> None:
        async for attempt in guard.attempts():
            async with attempt:
                await asyncio.sleep(30)

    async def main(seconds: float) -> int:
        task = asyncio.create_task(body())
        await asyncio.sleep(seconds)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with guard.attempt():
            return task.cancelling()

    with virtual_time() as clock:
        assert clock.run(main(0.5)) == 1
        assert clock.run(main(1.0)) == 1


def test_a_generator_that_holds_a_block_open_lets_its_caller_be() -> None:
    """The deadline interrupts the block, and no code that runs while it is suspended; it ends late."""
    guard = Guard(timeout=Timeout(50), bulkhead=Bulkhead(1))

    def pages() -> Iterator[int]:
        with guard.attempt():
            yield 1
            yield 2

    def read() -> None:
        for _ in pages():
            until = threading.Event()
            until.wait(0.2)
            for _ in range(100_000):
                pass
            assert remaining() is None
            sleep(0.01)

    with pytest.raises(TimeoutException):
        read()
    assert is_free(guard)


def test_an_asynchronous_generator_that_holds_a_block_open_lets_its_caller_be() -> None:
    guard = Guard(timeout=Timeout(1000), bulkhead=Bulkhead(1))

    async def pages() -> AsyncIterator[int]:
        async with guard.attempt():
            yield 1
            yield 2

    async def read() -> None:
        async for _ in pages():
            await asyncio.sleep(3)

    async def main() -> int:
        with pytest.raises(TimeoutException):
            await read()
        async with guard.attempt():
            task = asyncio.current_task()
            assert task is not None
            return task.cancelling()

    with virtual_time() as clock:
        assert clock.run(main()) == 0


def test_a_context_manager_may_hold_a_block_for_its_caller() -> None:
    """`contextlib`'s, an own class and an `ExitStack` may: the code inside is interrupted."""
    guard = Guard(timeout=Timeout(50), bulkhead=Bulkhead(1))

    @contextlib.contextmanager
    def session() -> Iterator[str]:
        with guard.attempt():
            yield "session"

    class Session:
        def __enter__(self) -> None:
            self.attempt = guard.attempt()
            self.attempt.__enter__()

        def __exit__(self, *error: object) -> bool | None:
            return self.attempt.__exit__(*error)  # type: ignore[arg-type]

    @contextlib.contextmanager
    def stack() -> Iterator[None]:
        with contextlib.ExitStack() as entered:
            entered.enter_context(guard.attempt())
            yield

    for made in (session(), Session(), stack()):
        interrupted = False
        with pytest.raises(TimeoutException), made:  # type: ignore[attr-defined]
            try:
                while True:
                    sum(range(100))
            except Interrupted:
                interrupted = True
                raise
        assert interrupted
        assert is_free(guard)


def test_an_asynchronous_context_manager_may_hold_a_block_for_its_caller() -> None:
    guard = Guard(timeout=Timeout(1000), bulkhead=Bulkhead(1))

    @contextlib.asynccontextmanager
    async def session() -> AsyncIterator[None]:
        async with guard.attempt():
            yield

    async def main() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(TimeoutException):
            async with session():
                await asyncio.sleep(30)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(guard.attempt())
        return loop.time() - began

    with virtual_time() as clock:
        assert clock.run(main()) == pytest.approx(1.0)


def test_generators_leave_their_blocks_in_any_order() -> None:
    """No deadline of an open block is lost with that of another, and none stays."""
    guard, other = Guard(timeout=Timeout(60_000)), Guard(timeout=Timeout(30_000))

    def held(by: Guard) -> Iterator[float | None]:
        with by.attempt():
            yield remaining()
            yield remaining()

    first, second = held(guard), held(other)
    assert (next(first) or 0) > 50
    assert 50 > (next(second) or 0) > 20
    first.close()
    assert 50 > (next(second) or 0) > 20
    second.close()
    assert remaining() is None

    with guard.attempt():
        third = held(other)
        next(third)
    third.close()
    assert remaining() is None


def entered(guard: Guard) -> Generator[None]:
    """Enter a block of *guard*, as a dependency of a framework does; closing it leaves the block."""

    def held() -> Generator[None]:
        with guard.attempt():
            yield

    block = held()
    next(block)
    return block


def leave_elsewhere(block: Generator[None]) -> None:
    """Leave *block* on another thread."""
    thread = threading.Thread(target=block.close)
    thread.start()
    thread.join(30)


def test_a_block_may_end_on_another_thread() -> None:
    guard = Guard(timeout=Timeout(50), bulkhead=Bulkhead(1))

    block = entered(guard)
    leave_elsewhere(block)
    sleep(0.1)

    assert is_free(guard)


@pytest.mark.parametrize("leave", [True, False], ids=["left elsewhere", "suspended"])
def test_a_block_that_its_thread_is_not_in_is_no_deadline_of_calls_on_other_threads(leave: bool) -> None:
    """A dependency of a framework is entered on one thread and left on another."""
    guard, attempts = Guard(timeout=Timeout(50)), list[float | None]()

    @asynchronous
    @retry(max_retries=1, delay=0, jitter=0)
    def load() -> Future[str]:
        attempts.append(remaining())
        if len(attempts) < 2:
            raise ConnectionError
        return completed_future("loaded")

    block = entered(guard)
    if leave:
        leave_elsewhere(block)
    sleep(0.1)

    assert load().result(30) == "loaded"
    assert attempts == [None, None]
    block.close()


def test_the_next_call_of_a_thread_forgets_a_block_that_was_left_on_another() -> None:
    """The thread would else ask for the time in each call until a block of its own began."""
    guard = Guard(timeout=Timeout(50))
    with deadline(1000):
        pass  # from now on calls ask

    block = entered(guard)
    leave_elsewhere(block)
    Guard(retry=Retry()).call(int)

    assert this_thread.deadlines.innermost is None


# Leaving early, and misuse


def leave_by_break(attempts: Any) -> None:
    for attempt in attempts:
        with attempt:
            break


def leave_by_return(attempts: Any) -> None:
    for attempt in attempts:
        with attempt:
            return


def leave_by_return_in_finally(attempts: Any) -> None:
    with warnings.catch_warnings(action="ignore", category=SyntaxWarning):  # from 3.14 on, where it is compiled
        exec(RETURN_IN_FINALLY, names := {})
    names["leave"](attempts)


RETURN_IN_FINALLY = """
def leave(attempts):
    for attempt in attempts:
        try:
            with attempt:
                raise ConnectionError
        finally:
            return
"""


def leave_between_blocks(attempts: Any) -> None:
    for attempt in attempts:
        with attempt:
            raise ConnectionError
        break


def leave_before_the_block(attempts: Any) -> None:
    for _ in attempts:
        break


def leave_by_an_exception_beside_the_block(attempts: Any) -> None:
    with contextlib.suppress(LookupError):
        for attempt in attempts:
            with attempt:
                raise ConnectionError
            raise LookupError


@pytest.mark.parametrize(
    "leave",
    [
        leave_by_break,
        leave_by_return,
        leave_by_return_in_finally,
        leave_between_blocks,
        leave_before_the_block,
        leave_by_an_exception_beside_the_block,
    ],
)
def test_a_loop_that_is_left_early_releases_everything(leave: Callable[[Any], None]) -> None:
    guard = Guard(retry=again(), timeout=Timeout(60_000), bulkhead=Bulkhead(1))

    leave(guard.attempts())

    assert is_free(guard)


def test_a_loop_that_is_left_between_its_blocks_is_a_call_that_failed() -> None:
    guard = Guard(retry=again(), name="left early")

    leave_between_blocks(guard.attempts())

    assert counts_of(guard)["ft.invocations.total {'result': 'exceptionThrown', 'fallback': 'notDefined'}"] == 1
    guard.close()


def test_a_block_that_is_never_left_is_left_with_its_owner() -> None:
    """A generator that is dropped ends its block."""
    guard = Guard(timeout=Timeout(60_000), bulkhead=Bulkhead(1))

    def held() -> Iterator[None]:
        for attempt in guard.attempts():
            with attempt:
                yield

    block = held()
    next(block)
    del block

    assert is_free(guard)


def test_a_block_is_garbage_in_any_order() -> None:
    """The collector may close the call before the generator that uses it."""
    guard = Guard(retry=again(), bulkhead=Bulkhead(1))
    before = {id(one) for one in gc.get_objects() if inspect.iscoroutine(one)}
    block = guard.attempt()
    block.__enter__()
    (call,) = [one for one in gc.get_objects() if inspect.iscoroutine(one) and id(one) not in before]

    call.close()
    del block

    assert is_free(guard)


def left_by_with(guard: Guard) -> Generator[None, None, None]:
    with guard.attempt():
        yield


def left_in_a_loop(guard: Guard) -> Generator[None, None, None]:
    for attempt in guard.attempts():
        with attempt:
            yield


def left_by_deadline(guard: Guard) -> Generator[None, None, None]:
    with deadline(60_000):
        yield


@types.coroutine
def stop() -> Generator[None, None, None]:
    yield


async def left_by_async_with(guard: Guard) -> None:
    async with guard.attempt():
        await stop()


async def left_in_an_async_loop(guard: Guard) -> None:
    async for attempt in guard.attempts():
        async with attempt:
            await stop()


async def left_in_async_deadline(guard: Guard) -> None:
    async with deadline(60_000):
        await stop()


@pytest.mark.parametrize("several", [False, True], ids=["one", "several"])
@pytest.mark.parametrize(
    "leave",
    [
        left_by_with,
        left_in_a_loop,
        left_by_deadline,
        left_by_async_with,
        left_in_an_async_loop,
        left_in_async_deadline,
    ],
)
def test_a_block_lets_generator_exit_pass_whatever_the_collector_has_closed_before(
    leave: Callable[[Guard], Any], several: bool
) -> None:
    """The generators of a block are garbage together, and the collector closes them in any order."""
    guard = Guard(retry=again(), timeout=Timeout(60_000), bulkhead=Bulkhead(1))

    async def main(chosen: int) -> int:
        collect_garbage()
        block = leave(guard)
        block.send(None)
        parts: list[Any] = [one for one in gc.get_objects() if inspect.isgenerator(one) or inspect.iscoroutine(one)]
        parts = [one for one in parts if one.__name__ in ("run", "call", "run_block")]
        for part in parts[chosen:] if several else parts[chosen : chosen + 1]:
            part.close()
        block.close()
        return len(parts)

    number = asyncio.run(main(0))
    for chosen in range(1, number):
        asyncio.run(main(chosen))

    assert number >= 4
    assert is_free(guard)


def test_a_loop_whose_block_is_not_entered_is_refused() -> None:
    """The loop would have no end."""
    guard = Guard(retry=again())

    with pytest.raises(RuntimeError, match="attempt 1 has not ended"):
        for _ in guard.attempts():
            pass


def test_an_attempt_is_entered_once() -> None:
    guard = Guard(bulkhead=Bulkhead(1))
    attempt = guard.attempt()
    with attempt:
        pass

    with pytest.raises(RuntimeError, match="once"), attempt:
        pytest.fail("it began again")
    assert is_free(guard)


def test_the_blocks_of_one_loop_are_entered_in_one_way() -> None:
    guard = Guard(retry=again(), bulkhead=Bulkhead(1))

    async def main() -> None:
        for attempt in guard.attempts():
            if attempt.number == 1:
                async with attempt:
                    raise ConnectionError
            else:
                with attempt:
                    pytest.fail("it began")

    with pytest.raises(RuntimeError, match="all of them"):
        asyncio.run(main())
    assert is_free(guard)


def test_each_loop_over_attempts_is_a_call() -> None:
    attempts = Guard(retry=again()).attempts()

    for _ in range(2):
        numbers = []
        for attempt in attempts:
            with attempt:
                numbers.append(attempt.number)
        assert numbers == [1]


def test_blocks_nest() -> None:
    """Each has its own deadline and permit, and the outer one ends them all."""
    outer, inner = (
        Guard(timeout=Timeout(1000), bulkhead=Bulkhead(1)),
        Guard(timeout=Timeout(5000), bulkhead=Bulkhead(1)),
    )

    with virtual_time(), pytest.raises(TimeoutException, match=outer.name), outer.attempt(), inner.attempt():
        sleep(3)

    assert is_free(outer)
    assert is_free(inner)


# Signals

POLICIES: dict[str, Any] = {
    "retry": Retry(max_retries=0),
    "circuit_breaker": CircuitBreaker(request_volume_threshold=1, delay=0),
    "timeout": Timeout(60_000),
    "bulkhead": Bulkhead(1, 1),
    "rate_limit": RateLimit(1_000_000),
}


def blocks(guard: Guard, form: str) -> Any:
    return guard.attempts() if form == "loop" else [guard.attempt()]


def run_blocks(guard: Guard, form: str, fails: bool) -> str:
    for attempt in blocks(guard, form):
        with attempt:
            if fails:
                raise ConnectionError
    return "served"


async def run_blocks_of_coroutine(guard: Guard, form: str, fails: bool) -> str:
    for attempt in blocks(guard, form):
        async with attempt:
            await asyncio.sleep(0)
            if fails:
                raise ConnectionError
    return "served"


@pytest.mark.usefixtures("struck_coroutines_collected")
@pytest.mark.filterwarnings("ignore:.*was never awaited:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:.*:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("fails", [False, True], ids=["served", "failed"])
@pytest.mark.parametrize("form", ["once", "loop"])
@pytest.mark.parametrize("run", [run_blocks, run_blocks_of_coroutine])
@sampled(23)
def test_an_exception_of_a_handler_in_the_library_loses_nothing(run: Any, form: str, fails: bool, step: int) -> None:
    """R11: it comes out of every step; the next block gets the permit and the place of the probe."""

    def outcome(guard: Guard, strike: Any, fails: bool) -> object:
        async def main() -> object:
            with strike or contextlib.nullcontext():
                return await run(guard, form, fails)

        try:
            if run is run_blocks_of_coroutine:
                return asyncio.run(main())
            with strike or contextlib.nullcontext():
                return run(guard, form, fails)
        except (Exception, Struck) as error:
            return type(error)

    wrong = []
    for strike in strikes(step=step):
        guard = Guard(**POLICIES)
        outcome(guard, None, True)  # opens the circuit, whose next call is its only probe
        first, second = outcome(guard, strike, fails), outcome(guard, None, False)
        if second != "served" or (strike.where and first is not Struck) or remaining() is not None:
            wrong.append((strike.where, first, second))

    assert not wrong


@pytest.mark.usefixtures("struck_coroutines_collected")
@pytest.mark.filterwarnings("ignore:.*was never awaited:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:.*:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("run", [run_blocks, run_blocks_of_coroutine])
def test_an_exception_of_a_handler_where_a_block_ends_is_the_failure_of_that_block(run: Any) -> None:
    """A time limit of the application is retried: the next block is a whole one with one permit."""

    def limit() -> None:
        raise TimeoutError("the time limit of the application")

    async def awaited(strike: Any, guard: Guard) -> object:
        with strike:
            return await run(guard, "loop", False)

    wrong = []
    for strike in strikes("block.py", handle=limit):
        guard = Guard(retry=again(), timeout=Timeout(60_000), bulkhead=Bulkhead(1))
        guard.call(int)
        try:
            if run is run_blocks_of_coroutine:
                found: object = asyncio.run(awaited(strike, guard))
            else:
                with strike:
                    found = run(guard, "loop", False)
        except TimeoutError as error:
            found = str(error)
        if found not in ("served", "the time limit of the application") or not is_free(guard):
            wrong.append((strike.where, found))

    assert not wrong
