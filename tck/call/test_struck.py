"""R0, R11: a call gives back all that it holds, wherever in the library the handler of a signal raises."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

import pytest

import faulttolerance as ft
from faulttolerance import testing
from faulttolerance._execution.loop_thread import loop_thread
from faulttolerance._execution.thread_attempt import AwaitedTask
from kit.struck import Strike, Struck, sampled, strikes

pytestmark = [
    pytest.mark.usefixtures("struck_coroutines_collected"),
    # Between the making of a coroutine and its first step.
    pytest.mark.filterwarnings("ignore:.*was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*:pytest.PytestUnraisableExceptionWarning"),
]

FINE = "served"


POLICIES: dict[str, Any] = {
    "retry": ft.policies.Retry(max_retries=0),
    "circuit_breaker": ft.policies.CircuitBreaker(request_volume_threshold=1, delay=0),
    "timeout": ft.policies.Timeout(60_000),
    "bulkhead": ft.policies.Bulkhead(1, 1),
    "rate_limit": ft.policies.RateLimit(1_000_000),
}


def under_all(function: Callable[..., Any]) -> Any:
    """Return *function* under the policies that hold something for a call."""
    for decorate in (
        ft.retry(max_retries=0),
        ft.circuit_breaker(request_volume_threshold=1, delay=0),
        ft.timeout(60_000),
        ft.bulkhead(1, 1),
        ft.rate_limit(1_000_000),
    ):
        function = decorate(function)
    return function


class Subject:
    """A guarded function, made anew for each strike, whose circuit lets one probe pass."""

    def __init__(self, convention: str) -> None:
        self.is_on_loop = convention in ("async def", "Guard.call_async")
        self.fails = True
        self.call = self._guarded(convention)
        self.outcome()  # opens the circuit, whose next call is its only probe
        self.fails = False

    def answer(self) -> str:
        if self.fails:
            raise ConnectionError
        return FINE

    async def answer_async(self) -> str:
        return self.answer()

    def _guarded(self, convention: str) -> Callable[[], Any]:
        if convention == "def":
            return under_all(lambda: self.answer())  # type: ignore[no-any-return]
        if convention == "async def":

            async def answer() -> str:
                return self.answer()

            return under_all(answer)  # type: ignore[no-any-return]
        guard = ft.Guard(**POLICIES)
        if convention == "Guard.call":
            return lambda: guard.call(self.answer)
        return lambda: guard.call_async(self.answer_async)

    def outcome(self, strike: Strike | None = None) -> object:
        """Return the outcome of one call, at which *strike* is aimed."""
        try:
            if self.is_on_loop:
                return asyncio.run(aimed_at(strike, self.call()))
            if strike is None:
                return self.call()
            with strike:
                return self.call()
        except (Exception, Struck) as error:
            return type(error)


async def aimed_at(strike: Strike | None, call: Any) -> object:
    """Return the outcome of *call* in a task of its own, under *strike*."""

    async def main() -> object:
        return await call

    task = asyncio.create_task(main())
    if strike is None:
        return await task
    with strike:
        return await task


@pytest.mark.parametrize("fails", [False, True], ids=["served", "failed"])
@pytest.mark.parametrize("convention", ["def", "async def", "Guard.call", "Guard.call_async"])
@sampled(13)
def test_an_exception_of_a_handler_in_the_library_loses_nothing(convention: str, fails: bool, step: int) -> None:
    """The exception comes out; the next call gets the permit and the place of the probe, and is served."""
    wrong = []
    for strike in strikes(step=step):
        subject = Subject(convention)
        subject.fails = fails
        first = subject.outcome(strike)
        subject.fails = False
        second = subject.outcome()
        if second != FINE or (strike.where and first is not Struck):
            wrong.append((strike.where, first, second))

    assert not wrong


@sampled(13)
def test_a_block_ends_wherever_a_handler_raises(step: int) -> None:
    """Interruptions arrive again afterwards: a call that passes its deadline is interrupted, and so is a task."""

    @ft.timeout(1)
    def block(strike: Strike) -> None:
        try:
            with strike, ft.uninterruptible():
                pass
        except Struck:
            pass
        ft.sleep(10)

    @ft.timeout(1)
    async def block_in_task(strike: Strike) -> None:
        try:
            with strike, ft.uninterruptible():
                pass
        except Struck:
            pass
        await asyncio.sleep(10)

    wrong = []
    for strike in strikes(step=step):
        began = time.monotonic()
        with pytest.raises(ft.TimeoutException):
            block(strike)
        if time.monotonic() - began > 5:
            wrong.append(strike.where)
    for strike in strikes(step=step):
        began = time.monotonic()
        with pytest.raises(ft.TimeoutException):
            asyncio.run(block_in_task(strike))
        if time.monotonic() - began > 5:
            wrong.append(strike.where)

    assert not wrong


@sampled(13)
def test_an_exception_of_a_handler_in_a_call_that_is_a_task_loses_nothing(step: int) -> None:
    """The exception comes out of the call, and the next call is served."""
    wrong = []
    for strike in strikes(step=step):
        failures: list[type[Exception]] = [ConnectionError]

        async def answer(failures: list[type[Exception]] = failures) -> str:
            if failures:
                raise failures.pop()
            return FINE

        call = ft.asynchronous(under_all(answer))

        async def main(strike: Strike | None, call: Any = call) -> object:
            async def one() -> object:
                return await call()

            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda loop, context: None)
            return await asyncio.wait_for(aimed_at(strike, one()), 10)

        def outcome_of(strike: Strike | None, main: Callable[[Any], Any] = main) -> object:
            try:
                return asyncio.run(main(strike))
            except (Exception, Struck) as error:
                return type(error)

        outcome_of(None)  # opens the circuit, whose next call is its only probe
        first, second = outcome_of(strike), outcome_of(None)
        if second != FINE or (strike.where and first is not Struck):
            wrong.append((strike.where, first, second))

    assert not wrong


async def ending_of(call: Callable[[], Any]) -> object:
    """Return the outcome of *call* in a task of its own; a ``TimeoutError`` if it takes too long."""
    try:
        return await asyncio.wait_for(aimed_at(None, call()), 10)
    except (Exception, Struck) as error:
        return type(error)


async def linger() -> None:
    """Wait beyond any deadline."""
    await asyncio.sleep(30)


def awaited_on_the_loop() -> asyncio.Future[str]:
    """Return an awaitable result of a body, for the loop of its caller."""
    return asyncio.sleep(0.001, FINE)  # type: ignore[return-value]


def awaited_as_a_future() -> ft.Future[str]:
    """Return the result of a body while the loop of its caller waits for the future of the call."""
    time.sleep(0.001)
    return ft.completed_future(FINE)


CALLED_BACK = {
    "a deadline": (ft.timeout(5)(linger), ft.TimeoutException),
    "a deadline of a task": (ft.asynchronous(ft.timeout(5)(ft.bulkhead(2)(linger))), ft.TimeoutException),
    "what is awaited": (ft.asynchronous(ft.timeout(60_000)(ft.bulkhead(1, 1)(awaited_on_the_loop))), FINE),
    "a future": (ft.asynchronous(awaited_as_a_future), FINE),
}


@pytest.mark.parametrize("how_called", CALLED_BACK)
@sampled(13)
def test_an_exception_of_a_handler_in_a_callback_of_a_loop_keeps_no_caller_waiting(how_called: str, step: int) -> None:
    """The loop only records the exception; the waiting caller is called back, and so is the next caller."""
    call, usual = CALLED_BACK[how_called]

    async def scene(strike: Strike | None) -> list[object]:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        with strike if strike is not None else nullcontext():
            found = [await ending_of(call)]
        return [*found, await ending_of(call)]

    asyncio.run(scene(None))
    wrong = []
    for strike in strikes(
        *(
            "resolve/awaitable.py",
            "_execution/thread_attempt.py",
            "_platform/loop_callback.py",
            "checks/callback.py",
            "resolve/callback.py",
            "future.py",
            "_deadline/task.py",
            "_deadline/queue.py",
            "_execution/task.py",
        ),
        step=step,
    ):
        first, second = asyncio.run(scene(strike))
        # It is raised in the code of a call, too; and a task that was made, but not got, begins before its stand-in.
        if second != usual or first not in (usual, Struck, RuntimeError):
            wrong.append((strike.where, first, second))

    assert not wrong


class Queue:
    """A queue for one permit, which another call holds."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.guard = ft.Guard(bulkhead=ft.policies.Bulkhead(1, 5), timeout=ft.policies.Timeout(60_000))
        self.guard.call(str)

    async def hold(self) -> str:
        await self.free.wait()
        return FINE

    async def serve(self) -> str:
        return FINE

    def call(self, function: Callable[[], Any]) -> Any:
        return self.guard.call_async(function)


async def struck_in_the_queue(strike: Strike) -> tuple[object, ...]:
    """Strike calls while they wait for their turn, and while they get it."""
    queue = Queue()
    holder = asyncio.create_task(queue.call(queue.hold))
    await asyncio.sleep(0)
    with strike:
        waiter = asyncio.create_task(queue.call(queue.serve))
        behind = asyncio.create_task(queue.call(queue.serve))
        for _ in range(3):
            await asyncio.sleep(0)
        queue.free.set()
        found = await asyncio.gather(holder, waiter, asyncio.wait_for(behind, 5), return_exceptions=True)
    last = await asyncio.wait_for(queue.call(queue.serve), 5)
    return (*(type(one) if isinstance(one, BaseException) else one for one in found), last)


async def struck_at_the_admission(strike: Strike) -> tuple[object, ...]:
    """Strike a synchronous call that leaves while a coroutine waits."""
    queue = Queue()
    await queue.call(queue.serve)
    waiting = queue.call(queue.serve)

    def wait_behind() -> str:
        sys.settrace(None)
        waiting.send(None)
        sys.settrace(strike.begin)
        return FINE

    def leave() -> object:
        try:
            with strike:
                return queue.guard.call(wait_behind)
        except Struck:
            if not waiting.cr_await:
                waiting.close()
            return Struck

    found = leave()
    if waiting.cr_frame is not None:
        try:
            waiting.send(None)
        except StopIteration as end:
            return found, end.value, await asyncio.wait_for(queue.call(queue.serve), 5)
    return found, await asyncio.wait_for(queue.call(queue.serve), 5)


@pytest.mark.parametrize("scene", [struck_in_the_queue, struck_at_the_admission])
@sampled(13)
def test_an_exception_of_a_handler_loses_no_turn_in_the_queue(scene: Any, step: int) -> None:
    """Only the struck call ends by the exception; the call behind it gets the permit in time."""
    wrong = []
    for strike in strikes(step=step):
        found = asyncio.run(scene(strike))
        if sum(one is Struck for one in found) != bool(strike.where) or found[-1] != FINE:
            wrong.append((strike.where, found))

    assert not wrong


class Offloaded:
    """A function on threads of the pool, made anew for each strike, whose circuit lets one probe pass."""

    def __init__(self) -> None:
        self.fails = True
        self.begun = 0

        def answer() -> ft.Future[str]:
            self.begun += 1
            if self.fails:
                raise ConnectionError
            return ft.completed_future(FINE)

        self.call = ft.asynchronous(under_all(answer))
        self.call_queueing = ft.asynchronous(ft.timeout(60_000)(ft.bulkhead(1, 1)(answer)))
        assert type(self.call().exception(10)) is ConnectionError
        self.fails = False
        self.begun = 0


def made_under(strike: Strike, call: Callable[[], Any]) -> Any:
    """Return the future that *call* makes under *strike*; ``None`` if the strike hits."""
    try:
        with strike:
            return call()
    except Struck:
        return None


@pytest.mark.parametrize("fails", [False, True], ids=["served", "failed"])
@sampled(13)
def test_an_exception_of_a_handler_while_a_call_is_sent_to_a_thread_loses_nothing(fails: bool, step: int) -> None:
    """The exception comes out, the next call is served, and all threads can be shut down."""
    wrong = []
    for strike in strikes(step=step):
        subject = Offloaded()
        subject.fails = fails
        future = made_under(strike, subject.call)
        if future is not None:
            future.exception(10)
        subject.fails = False
        second = next((one for one in (outcome(subject.call) for _ in range(100)) if one == FINE), "refused")
        ended = ft.shutdown(10)
        testing.reset()
        if second != FINE or not ended or bool(strike.where) != (future is None):
            wrong.append((strike.where, future, second, ended))

    assert not wrong


@sampled(3)
def test_an_exception_of_a_handler_while_a_thread_is_made_for_a_call_loses_nothing(step: int) -> None:
    """A call starts a thread if none is parked; the next call is served, and all threads can be shut down."""
    wrong = []

    @ft.asynchronous
    def answer() -> ft.Future[str]:
        return ft.completed_future(FINE)

    for strike in strikes("pool.py", "fork.py", step=step):
        assert ft.shutdown(10)
        future = made_under(strike, answer)
        if future is not None:
            future.exception(10)
        found = answer().result(10)
        if found != FINE or not ft.shutdown(1):
            wrong.append((strike.where, found))

    assert not wrong


def test_an_exception_of_a_handler_on_the_loop_of_the_library_returns_the_loop_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it counts as idle while a call uses it. A handler may run there where greenlets replace threads."""
    begin, coming, wrong = AwaitedTask.begin, list[Strike](), []

    def begin_struck(*args: Any) -> None:
        with coming.pop() if coming else nullcontext():
            begin(*args)

    async def answer() -> str:
        return FINE

    @ft.asynchronous
    def call() -> Awaitable[str]:
        return answer()

    monkeypatch.setattr(AwaitedTask, "begin", begin_struck)
    for strike in strikes("thread_attempt.py"):
        coming.append(strike)
        call().exception(10)
        if loop_thread._users:
            wrong.append((strike.where, loop_thread._users))
            loop_thread._users = 0

    assert not wrong


def outcome(call: Callable[[], Any]) -> object:
    """Return the outcome of a call on a thread; wait after a refusal, as a struck body may have yet to end."""
    try:
        return call().result(10)
    except (ft.BulkheadException, ft.CircuitBreakerOpenException) as error:
        threading.Event().wait(0.01)
        return type(error)


@pytest.mark.parametrize("is_full", [False, True], ids=["next", "queued"])
@sampled(13)
def test_a_call_that_its_caller_never_got_is_never_begun(is_full: bool, step: int) -> None:
    """A handler raises while a call is made and no thread is free: the body does not run later."""
    wrong = []
    for strike in strikes(step=step):
        ft.configure(max_threads=1)
        subject = Offloaded()
        occupied, free = threading.Event(), threading.Event()

        @ft.asynchronous
        def occupy(occupied: threading.Event = occupied, free: threading.Event = free) -> ft.Future[str]:
            occupied.set()
            free.wait(10)
            return ft.completed_future(FINE)

        futures = [occupy()]
        assert occupied.wait(10)
        call = subject.call
        if is_full:
            call = subject.call_queueing
            futures.append(call())
        future = made_under(strike, call)
        free.set()
        found = [one.result(10) for one in futures]
        if future is None:
            found.append(call().result(10))
        else:
            future.exception(10)
            found.append(FINE)
        ended = ft.shutdown(10)
        testing.reset()
        if subject.begun != 1 + is_full or set(found) != {FINE} or not ended or bool(strike.where) != (future is None):
            wrong.append((strike.where, subject.begun, found, ended))

    assert not wrong
