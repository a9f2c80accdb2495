"""Rules R3, R7 and R8: the object that an asynchronous call returns, and its uses by callers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import gc
import inspect
import threading
import warnings
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import wraps
from typing import Any

import pytest

from faulttolerance import (
    BulkheadException,
    CircuitBreakerOpenException,
    Future,
    Interrupted,
    TimeoutException,
    asynchronous,
    asynchronous_non_blocking,
    bulkhead,
    circuit_breaker,
    coalesce,
    completed_future,
    custom_backoff,
    deadline,
    fail_when,
    fallback,
    honor_retry_after,
    rate_limit,
    remaining,
    retry,
    retry_when,
    sleep,
    timeout,
)
from faulttolerance.typing import AsyncCall
from kit import Clock, Invoke, stacked

PATIENCE = 20.0

Held = Callable[[], list[str]]


class Failed(Exception):
    """The failure of bodies."""


@asynchronous
async def served(value: int = 7) -> int:
    await asyncio.sleep(0)
    return value


@asynchronous
async def failed() -> int:
    await asyncio.sleep(0)
    raise Failed


# R7: only wrong arguments are raised by the call


@pytest.mark.parametrize("kind", ["offloaded", "task"])
def test_call_raises_nothing_but_wrong_arguments(clock: Clock, kind: str) -> None:
    """R7: refusals of every policy come out of the returned object."""
    policies = stacked(
        asynchronous,
        rate_limit(3, window=60),
        circuit_breaker(request_volume_threshold=2, failure_ratio=1.0),
        bulkhead(1, waiting_task_queue=1),
    )

    def offloaded(order: int) -> Future[None]:
        raise Failed

    async def task(order: int) -> None:
        raise Failed

    service = policies(offloaded if kind == "offloaded" else task)
    for arguments in ((), (1, 2)):
        with pytest.raises(TypeError):
            service(*arguments)

    async def main() -> list[Any]:
        return [(await asyncio.gather(service(1), return_exceptions=True))[0] for _ in range(3)]

    outcomes = [type(one) for one in clock.run(main())]

    assert outcomes == [Failed, Failed, CircuitBreakerOpenException]


def test_an_error_about_wrong_arguments_names_the_function_as_a_plain_call_does() -> None:
    """R7: a log that shows nothing but the error's text says which call was wrong."""
    with pytest.raises(TypeError, match=r"^failed\(\) takes 0 positional arguments but 1 was given$"):
        failed(1)  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", ["offloaded", "task"])
def test_a_decorator_below_provides_arguments_and_takes_others(clock: Clock, kind: str) -> None:
    """R7: the arguments of a call are those of the function that is called, whatever ``functools.wraps`` says."""

    def offloaded(order: int, *, session: str) -> Any:
        return order, session

    async def task(order: int, *, session: str) -> Any:
        return order, session

    function: Callable[..., Any] = offloaded if kind == "offloaded" else task
    service = asynchronous(wraps(function)(lambda order, trace="": function(order, session="s" + trace)))

    async def main() -> list[Any]:
        return [await service(1), await service(2, trace="7")]

    assert clock.run(main()) == [(1, "s"), (2, "s7")]


def test_a_function_whose_compiler_hides_its_parameters_takes_its_arguments() -> None:
    """The code of a coroutine function that mypyc compiled shows no parameters: the function alone checks them."""

    class Compiled:
        __name__ = __qualname__ = "send"
        __code__ = (lambda: None).__code__.replace(co_flags=inspect.CO_COROUTINE)
        __defaults__ = __kwdefaults__ = __annotations__ = None

        async def __call__(self, letter: str) -> str:
            return f"{letter} sent"

    send: Any = asynchronous(Compiled())

    async def main() -> str:
        return str(await send("a letter"))

    assert asyncio.run(main()) == "a letter sent"


# R7a: @asynchronous async def


def test_call_is_a_coroutine_to_everybody() -> None:
    """R7a, P3: ``inspect``, ``collections.abc`` and ``asyncio`` take it for one."""
    call = served()
    try:
        assert inspect.iscoroutinefunction(served)
        assert isinstance(call, Coroutine)
        assert inspect.isawaitable(call)
        assert asyncio.iscoroutine(call)
    finally:
        call.close()


def test_all_of_asyncio_takes_it(clock: Clock) -> None:
    """R7a: ``run``, ``create_task``, ``TaskGroup``, ``gather``, ``wait_for``, ``shield``, ``timeout`` take a call."""

    async def main() -> list[int]:
        async with asyncio.TaskGroup() as group:
            in_group = group.create_task(served(1))
        return [
            in_group.result(),
            await asyncio.create_task(served(2)),
            *await asyncio.gather(served(3), served(4)),
            await asyncio.wait_for(served(5), 1),
            await asyncio.shield(served(6)),
            await asyncio.ensure_future(served(7)),
            await served(8),
        ]

    assert clock.run(main()) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_asyncio_run_takes_it() -> None:
    """R7a: also a call that was made where no loop runs."""
    assert asyncio.run(served(9)) == 9
    with pytest.raises(Failed):
        asyncio.run(failed())


def test_group_of_tasks_ends_with_the_failure_of_one(clock: Clock, held: Held) -> None:
    """R7a, R0: the other tasks are cancelled, and release their permits."""

    @asynchronous
    @bulkhead(2)
    async def slow() -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(slow())
            group.create_task(slow())
            group.create_task(failed())

    with pytest.raises(ExceptionGroup) as raised:
        clock.run(main())

    assert raised.group_contains(Failed)
    assert held() == []


def test_call_starts_at_once_where_a_loop_runs(clock: Clock) -> None:
    """R7a: no caller has to await it; elsewhere it starts when it is awaited."""
    started: list[str] = []

    @asynchronous
    async def note(where: str) -> None:
        started.append(where)

    outside = note("outside")

    async def main() -> None:
        inside = note("inside")
        await asyncio.sleep(0.01)
        assert started == ["inside"]
        await outside
        await inside

    clock.run(main())

    assert started == ["inside", "outside"]


def test_call_may_be_awaited_more_than_once(clock: Clock) -> None:
    """R7a: by one task after another, and by several at once; it runs once."""
    runs = []

    @asynchronous
    async def once() -> int:
        runs.append(None)
        await asyncio.sleep(1)
        return len(runs)

    async def main() -> list[int]:
        call = once()

        async def wait() -> int:
            return await call

        return [*await asyncio.gather(wait(), wait()), await call, call.result()]

    assert clock.run(main()) == [1, 1, 1, 1]


@pytest.mark.parametrize("start", [served, failed])
def test_call_that_is_done_may_be_awaited_once_its_loop_is_closed(start: Callable[[], AsyncCall[int]]) -> None:
    """R7a: as the future of an ``@asynchronous def`` may be."""

    async def begin() -> AsyncCall[int]:
        call = start()
        await asyncio.gather(call, return_exceptions=True)
        return call

    async def outcome(call: AsyncCall[int]) -> object:
        try:
            return await call
        except Failed:
            return Failed

    assert asyncio.run(outcome(asyncio.run(begin()))) == (7 if start is served else Failed)


def test_call_gives_its_result_to_each_task_that_awaits_it(clock: Clock) -> None:
    """R7a: at the same time, after a time-out under ``shield``, and after its end."""

    async def main() -> list[int]:
        call = served()
        both = await asyncio.gather(asyncio.create_task(call), asyncio.create_task(call))
        late = served()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(late), 0)
        return [*both, *await asyncio.gather(call), *await asyncio.gather(late), await late]

    assert clock.run(main()) == [7, 7, 7, 7, 7]


def test_call_is_cancelled_with_a_task_that_has_not_begun_to_await_it(clock: Clock) -> None:
    """R7a: as in a group of tasks that fails at once."""

    async def main() -> bool:
        call = served()
        waiting = asyncio.create_task(call)
        waiting.cancel()
        await asyncio.wait([waiting])
        await asyncio.sleep(1)
        return waiting.cancelled() and call.cancelled()

    assert clock.run(main())


def test_call_is_a_handle(clock: Clock) -> None:
    """R7a: ``cancel``, ``done``, ``result`` and ``cancelled`` tell its state."""

    @asynchronous
    async def slow() -> int:
        await asyncio.sleep(60)
        return 7

    async def main() -> list[object]:
        first, second = slow(), slow()
        with pytest.raises(asyncio.InvalidStateError):
            first.result()
        before = first.done()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return [before, first.done(), first.cancelled(), await second, second.done(), second.cancelled()]

    assert clock.run(main()) == [False, True, True, 7, True, False]


def test_call_is_kept_alive_until_it_is_done(clock: Clock) -> None:
    """R7a: loops hold their tasks weakly; a call without a reference to it is not collected."""
    ended = []
    turns: list[weakref.ref[asyncio.Future[None]]] = []

    @asynchronous
    async def waiting() -> None:
        turn = asyncio.get_running_loop().create_future()
        turns.append(weakref.ref(turn))
        await turn
        ended.append(None)

    async def main() -> None:
        waiting()
        await asyncio.sleep(0.1)
        gc.collect()
        turn = turns[0]()
        assert turn is not None, "the call was collected"
        turn.set_result(None)
        await asyncio.sleep(0.1)

    clock.run(main())

    assert ended == [None]


def test_call_that_is_over_is_freed(clock: Clock) -> None:
    """R7a, L4: no reference to it, nor to its result, remains."""

    class Result:
        pass

    @asynchronous
    async def make() -> Result:
        return Result()

    async def main() -> weakref.ref[Result]:
        return weakref.ref(await make())

    kept = clock.run(main())
    gc.collect()

    assert kept() is None


def test_call_that_has_failed_under_a_deadline_is_freed(uncollected: None) -> None:
    """R7a, L4: without the garbage collector."""

    class Value:
        pass

    @asynchronous
    async def fail(value: Value) -> None:
        raise Failed(value)

    async def main() -> bool:
        value = Value()
        gone = weakref.ref(value)
        async with deadline(60_000):
            with suppress(Failed):
                await fail(value)
        del value
        await asyncio.sleep(0)
        return gone() is None

    assert asyncio.run(main())


@pytest.mark.parametrize("kind", ["coroutine", "awaitable of a thread"])
def test_call_that_was_ended_is_freed(uncollected: None, kind: str) -> None:
    """R7a, L4: with its arguments, as soon as its body has ended, without the garbage collector."""

    class Value:
        pass

    async def hang(value: Value) -> None:
        await asyncio.sleep(60)

    def begin(value: Value) -> Awaitable[None]:
        return hang(value)

    service: Any = asynchronous(timeout(50)(hang if kind == "coroutine" else begin))

    async def main() -> bool:
        value = Value()
        gone = weakref.ref(value)
        call = service(value)
        if kind == "coroutine":
            await asyncio.sleep(0.01)
            call.cancel()
        with suppress(asyncio.CancelledError, TimeoutException):
            await call
        del value, call
        for _ in range(100):
            if gone() is None:
                return True
            await asyncio.sleep(0.01)
        return False

    assert asyncio.run(main())


def test_call_that_is_never_awaited_without_a_loop_makes_no_coroutine() -> None:
    """R7a, R10: nothing was begun, so Python reports nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        served()
        gc.collect()


# R3: attempts as tasks


def test_caller_does_not_wait_for_an_attempt_that_ignores_its_cancellation(clock: Clock, held: Held) -> None:
    """R3: the next retry does not either; the bulkhead counts the attempt until it really ends."""
    ended = []

    @asynchronous
    @retry(max_retries=1, jitter=0)
    @timeout(1000)
    @bulkhead(2, waiting_task_queue=1)
    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(10)
            ended.append(clock.monotonic())

    async def main() -> tuple[float, int, type[BaseException]]:
        began = clock.monotonic()
        with pytest.raises(TimeoutException):
            await stubborn()
        took = clock.monotonic() - began
        ended_then = len(ended)
        with pytest.raises(TimeoutException) as raised:
            await stubborn()
        await asyncio.sleep(30)
        return took, ended_then, type(raised.value)

    took, ended_then, _ = clock.run(main())

    assert took == pytest.approx(2, abs=0.01)
    assert ended_then == 0
    assert held() == []


def test_attempt_of_a_coroutine_without_asynchronous_is_waited_for(clock: Clock) -> None:
    """R8: it runs in the caller's task."""

    @timeout(1000)
    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(10)

    async def main() -> float:
        began = clock.monotonic()
        with pytest.raises(TimeoutException):
            await stubborn()
        return clock.monotonic() - began

    assert clock.run(main()) == pytest.approx(11, abs=0.01)


@pytest.mark.parametrize("kind", ["asyncio", "task"])
def test_cancellation_at_the_tick_of_the_deadline_is_not_lost(clock: Clock, kind: str) -> None:
    """R3, B26: a cancellation from outside stays one, even in the turn of the loop in which the deadline passes."""

    @timeout(1000)
    async def body() -> None:
        await asyncio.sleep(60)

    method: Any = asynchronous(body) if kind == "task" else body

    async def main(offset: float) -> str:
        task = asyncio.ensure_future(_waiting(method))
        asyncio.get_running_loop().call_later(1.0 + offset, task.cancel)
        await asyncio.wait([task])
        if task.cancelled():
            return "cancelled"
        return type(task.exception()).__name__

    outcomes = [clock.run(main(offset)) for offset in (-0.001, 0.001)]
    at_once = clock.run(main(0.0))

    assert outcomes == ["cancelled", "TimeoutException"]
    assert at_once in {"cancelled", "TimeoutException"}


async def _waiting(method: Callable[[], Awaitable[None]]) -> None:
    await method()


@pytest.mark.parametrize("kind", ["asyncio", "task"])
def test_cancelled_task_under_asyncio_timeout_keeps_its_count(clock: Clock, kind: str) -> None:
    """R3, B26: a time-out of ours leaves no cancellation behind for ``asyncio.timeout`` to stumble over."""

    @timeout(1000)
    async def body() -> None:
        await asyncio.sleep(60)

    method: Any = asynchronous(body) if kind == "task" else body

    async def main() -> tuple[int, str]:
        with pytest.raises(TimeoutException):
            await method()
        task = asyncio.current_task()
        assert task is not None
        cancelling = task.cancelling()
        try:
            async with asyncio.timeout(0.5):
                await method()
        except TimeoutError as error:
            return cancelling + task.cancelling(), type(error).__name__
        return -1, ""

    assert clock.run(main()) == (0, "TimeoutError")


# R7b: @asynchronous def


def test_offloaded_call_returns_a_future_of_both_worlds(clock: Clock) -> None:
    """R7b: ``concurrent.futures`` and loops take it; the body has the caller's context on a daemon thread."""
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request")

    @asynchronous
    def body() -> Future[tuple[str, bool, bool]]:
        thread = threading.current_thread()
        return completed_future((request.get(), thread.daemon, thread is threading.main_thread()))

    request.set("r-1")
    future = body()

    async def main() -> Any:
        return await body()

    assert isinstance(future, Future)
    assert isinstance(future, concurrent.futures.Future)
    assert future.result(10) == ("r-1", True, False)
    assert clock.run(main()) == ("r-1", True, False)
    assert list(concurrent.futures.as_completed([body()], 10))


@pytest.mark.parametrize(
    ("policies", "attempts", "outcome"),
    [
        ([retry(max_retries=2, jitter=0, retry_on=StopIteration)], 3, StopIteration),
        ([retry(max_retries=2, jitter=0, retry_on=RuntimeError)], 1, StopIteration),
        ([fallback(lambda context: completed_future(type(context.failure)), apply_on=StopIteration)], 1, None),
        ([circuit_breaker(request_volume_threshold=1, fail_on=StopIteration)], 1, CircuitBreakerOpenException),
    ],
    ids=["retried", "not retried", "fallback", "breaker"],
)
def test_policies_know_a_body_that_raises_stop_iteration(
    policies: list[Any], attempts: int, outcome: type[Exception] | None
) -> None:
    """R7b: it is a failure like others, though no coroutine could raise it; it comes out as it is, with its note."""
    raised: list[StopIteration] = []

    def body() -> Future[Any]:
        raised.append(StopIteration("no more"))
        raise raised[-1]

    call = stacked(asynchronous, *policies)(body)
    first = call()
    failure = first.exception(10)

    assert len(raised) == attempts
    assert failure is (raised[-1] if outcome else None)
    assert hasattr(raised[-1], "__notes__") == (attempts > 1)
    if outcome is None:
        assert first.result() is StopIteration
    else:
        assert type(call().exception(10)) is outcome


def test_a_context_variable_that_a_body_sets_does_not_reach_the_next_attempt(invoke: Invoke) -> None:
    """R7b: each attempt of a call on a thread, and its fallback, sees the caller's context of that moment."""
    if invoke.convention != "offloaded":
        pytest.skip("about threads")
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    seen = []

    def instead(context: Any) -> Any:
        seen.append(variable.get())

    @fallback(instead)
    @retry(max_retries=1, jitter=0)
    @invoke.body
    async def service() -> None:
        seen.append(variable.get())
        variable.set(99)
        raise Failed

    variable.set(5)
    invoke(service)

    assert seen == [5, 5, 5]
    assert variable.get() == 5


def test_several_loops_share_one_limit(clock: Clock) -> None:
    """L6, R10: one bulkhead for threads with loops of their own, FIFO and woken across loops."""
    inside, most = 0, 0
    lock = threading.Lock()

    @bulkhead(3, waiting_task_queue=1000)
    async def service() -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        await asyncio.sleep(0.1)
        with lock:
            inside -= 1

    async def main() -> None:
        await asyncio.gather(*(service() for _ in range(10)))

    futures = [clock.start(clock.run, main()) for _ in range(4)]
    for future in futures:
        future.result(30)

    assert most == 3


@pytest.mark.parametrize("kind", ["asyncio", "task"])
def test_a_guard_serves_loops_one_after_another(kind: str) -> None:
    """L6, B34: no state of the guard belongs to a loop that was closed, contended or not."""

    @retry(max_retries=1, jitter=0)
    @circuit_breaker()
    @timeout(60_000)
    @bulkhead(1, waiting_task_queue=10)
    async def service() -> int:
        await asyncio.sleep(0)
        return 1

    method: Any = asynchronous(service) if kind == "task" else service

    async def main() -> int:
        return sum(await asyncio.gather(*(method() for _ in range(5))))

    assert [asyncio.run(main()) for _ in range(3)] == [5, 5, 5]


def test_waiter_of_a_loop_that_was_closed_does_not_keep_the_permit(held: Held) -> None:
    """L6: the permit of a waiter that cannot run goes to the next one."""

    @bulkhead(1, waiting_task_queue=10)
    async def service(entered: Callable[[], None] | None = None) -> str:
        if entered is not None:
            entered()
            await asyncio.sleep(0.2)
        return "served"

    loop = asyncio.new_event_loop()
    first = threading.Event()
    running = threading.Thread(target=lambda: asyncio.run(service(first.set)))
    running.start()
    first.wait(10)
    waiting: Any = loop.create_task(service())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    running.join()

    assert asyncio.run(asyncio.wait_for(service(), 5)) == "served"
    waiting._log_destroy_pending = False
    waiting.get_coro().close()
    del waiting
    gc.collect()
    assert held() == []


# R8


def test_plain_function_that_returns_a_coroutine_is_reported_once() -> None:
    """R8: a synchronous guard does not see the failure of the coroutine, and says so."""

    async def inner() -> int:
        return 7

    @retry
    def service() -> Any:
        return inner()

    with pytest.warns(RuntimeWarning, match="service") as seen:
        coroutines = [service(), service()]

    assert len(seen) == 1
    assert [asyncio.run(one) for one in coroutines] == [7, 7]


def test_coroutine_function_queues_with_or_without_asynchronous(clock: Clock) -> None:
    """R8, R5: queue-style bulkhead."""

    @bulkhead(1, waiting_task_queue=1)
    async def plain() -> None:
        await asyncio.sleep(1)

    async def main(method: Any) -> list[Any]:
        return await asyncio.gather(*(method() for _ in range(3)), return_exceptions=True)

    for method in (plain, asynchronous(plain)):
        assert [type(one) for one in clock.run(main(method))] == [type(None), type(None), BulkheadException]


# R10


@pytest.mark.filterwarnings("error")
def test_rejected_coroutine_is_never_created(clock: Clock) -> None:
    """R10, B6: no refusal leaves a coroutine that was never awaited."""
    created = []

    class Callee:
        async def __call__(self) -> None:
            created.append(None)
            raise Failed

    guarded = circuit_breaker(request_volume_threshold=1)(Callee())

    async def main() -> list[Any]:
        return [await asyncio.gather(guarded(), return_exceptions=True) for _ in range(3)]

    results = clock.run(main())
    gc.collect()

    assert len(created) == 1
    assert [type(one[0]).__name__ for one in results] == ["Failed", *["CircuitBreakerOpenException"] * 2]


def test_closing_a_guarded_coroutine_releases_its_permits(held: Held) -> None:
    """R0: ``GeneratorExit`` may come at an await in a body, in the queue and in a delay."""

    @retry(delay=1000)
    @timeout(60_000)
    @bulkhead(1, waiting_task_queue=2)
    async def service(fails: bool) -> None:
        if fails:
            raise Failed
        await asyncio.sleep(60)

    async def main() -> None:
        for _ in range(2):
            running, waiting = service(False), service(False)
            for one in (running, waiting):
                one.send(None)
            waiting.close()
            running.close()
            delayed = service(True)
            delayed.send(None)
            delayed.close()

    asyncio.run(main())

    assert held() == []


def test_interruption_is_known_to_bodies_on_the_pool(clock: Clock) -> None:
    """R7b: ``cancel(True)`` interrupts; ``result`` raises ``CancelledError`` at once; a late value is dropped."""
    heard = threading.Event()

    @asynchronous
    @retry(max_retries=5)
    def body() -> Future[int]:
        try:
            sleep(60)
        except Interrupted:
            heard.set()
        return completed_future(7)

    future = body()
    clock.sleep(0.5)
    cancelled = future.cancel(True)

    with pytest.raises(concurrent.futures.CancelledError):
        future.result(0)
    assert cancelled
    assert future.done()
    assert heard.wait(10)


def test_a_call_is_of_the_class_that_its_type_names() -> None:
    """R7a: annotations are true at run time, for calls of both kinds."""

    @asynchronous
    async def coroutine() -> int:
        return 7

    @asynchronous_non_blocking
    def awaitable() -> Awaitable[int]:
        return coroutine()

    async def main() -> list[int]:
        calls = [coroutine(), awaitable()]
        assert all(isinstance(call, AsyncCall) and not hasattr(call, "__dict__") for call in calls)
        return [await call for call in calls]

    assert asyncio.run(main()) == [7, 7]


def test_a_call_that_a_non_blocking_function_returns_is_awaited() -> None:
    """R7a: without an annotation, too; only a future of ``concurrent.futures`` would be the result itself."""

    @asynchronous_non_blocking
    def ask():  # type: ignore[no-untyped-def]
        return served()

    async def main() -> Any:
        return await ask()

    assert asyncio.run(main()) == 7


async def is_told(outcome: object) -> bool:
    return True


@pytest.mark.parametrize(
    "decorate",
    [
        honor_retry_after,
        custom_backoff(lambda: lambda failure: 0.0),
        retry_when(exception=is_told),
        lambda function: circuit_breaker(fail_when(exception=is_told)(function)),
    ],
    ids=["honor_retry_after", "custom_backoff", "retry_when", "fail_when"],
)
def test_an_offloaded_call_that_is_cancelled_awaits_no_function_of_the_application(
    decorate: Callable[..., Any],
) -> None:
    """It ends at once, and a call that shares its result takes its place."""
    begun, go_on = threading.Event(), threading.Event()

    @decorate
    @retry
    @coalesce(key=lambda: "")
    @asynchronous
    def load() -> Future[str]:
        begun.set()
        assert go_on.wait(20)
        return completed_future("loaded")

    leading = load()
    assert begun.wait(20)
    following = load()
    leading.cancel()
    go_on.set()

    assert following.result(20) == "loaded"


def test_an_offloaded_call_is_under_the_deadline_of_the_thread_that_made_it() -> None:
    """The deadline rules while the enclosing call lasts, also in nested bodies, and not afterwards."""
    go_on = threading.Event()

    @asynchronous
    def inner() -> Future[float | None]:
        return completed_future(remaining())

    @asynchronous
    def outer() -> Future[list[float | None]]:
        found = [remaining(), inner().result(10)]
        started.set()
        assert go_on.wait(10)
        return completed_future([*found, remaining(), inner().result(10)])

    started = threading.Event()

    @timeout(60_000)
    def call() -> Future[list[float | None]]:
        future = outer()
        assert started.wait(10)
        return completed_future(future)  # type: ignore[arg-type]

    future: Any = call().result()
    go_on.set()
    found = future.result(10)

    assert all(left is not None and 0 < left <= 60 for left in found[:2])
    assert found[2:] == [None, None]


@pytest.mark.parametrize("interrupt", [True, False])
def test_no_further_attempt_is_made_for_a_caller_that_timed_out(interrupt: bool) -> None:
    """The attempts end with the call that waits for them, as those of a coroutine do."""
    attempts: list[Future[None]] = []

    @asynchronous
    @retry(max_retries=-1, max_duration=0, delay=1, jitter=0)
    def stubborn() -> Future[None]:
        count.append(None)
        raise ConnectionError

    count: list[None] = []

    @timeout(50, interrupt=interrupt)
    def outer() -> None:
        attempts.append(stubborn())
        if interrupt:
            attempts[0].result(10)
        else:
            threading.Event().wait(0.1)

    with pytest.raises((TimeoutException, ConnectionError)):
        outer()

    assert type(attempts[0].exception(10)) is ConnectionError


def test_an_offloaded_call_is_tried_again_after_the_call_that_made_it_has_ended(clock: Clock) -> None:
    """A call that did not time out leaves nothing behind that could stop it, whatever the time is."""
    count: list[None] = []

    @asynchronous
    @retry(max_retries=3, delay=1, jitter=0)
    def stubborn() -> Future[str]:
        count.append(None)
        sleep(0.1)
        if len(count) < 3:
            raise ConnectionError
        return completed_future("served")

    @timeout(50)
    def outer() -> list[Future[str]]:
        return [stubborn()]

    future = outer()[0]
    clock.work(1)

    assert future.result(10) == "served"
