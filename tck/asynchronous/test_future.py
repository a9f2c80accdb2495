"""The future that an offloaded call returns."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError, InvalidStateError
from contextlib import suppress
from typing import Any

import pytest

from faulttolerance._execution.future import Future, completed_future

PATIENCE = 20.0


async def outcome(future: Future[Any]) -> Any:
    return await future


def test_completed_future_has_its_result() -> None:
    """A value that is there already can be returned as a future."""
    future = completed_future("ready")

    assert isinstance(future, concurrent.futures.Future)
    assert (future.done(), future.cancelled(), future.result(0)) == (True, False, "ready")


def test_future_is_generic() -> None:
    """Annotations may name the class of its result."""
    assert Future[int].__origin__ is Future  # type: ignore[attr-defined]


def test_cancelling_is_done_at_once_even_while_running() -> None:
    """As in Java: it is cancelled and done, refuses its result, and drops a later one."""
    future: Future[int] = Future()
    future.set_running_or_notify_cancel()

    cancelled = future.cancel()
    future.complete(1)
    future.fail(ValueError())

    assert cancelled
    assert (future.cancelled(), future.done(), future.running()) == (True, True, False)
    for timeout in (0.0, None):
        with pytest.raises(CancelledError):
            future.result(timeout)
    with pytest.raises(CancelledError):
        future.exception()


def test_cancelling_again_says_that_it_is_cancelled() -> None:
    """A second caller that cancels gets the same answer."""
    future: Future[int] = Future()

    assert future.cancel()
    assert future.cancel(may_interrupt=False)


@pytest.mark.parametrize("finish", [lambda f: f.complete(1), lambda f: f.fail(ValueError())], ids=["result", "failure"])
def test_cancelling_comes_too_late_for_a_future_with_an_outcome(finish: Callable[[Future[int]], None]) -> None:
    """An outcome stays."""
    future: Future[int] = Future()
    asked: list[bool] = []
    future._stop = asked.append
    finish(future)

    assert not future.cancel()
    assert not future.cancelled()
    assert not asked


def test_cancelling_stops_the_work_before_anybody_hears_of_it() -> None:
    """By the time that the future is done, the call has released its permits, and is counted."""
    future: Future[int] = Future()
    asked: list[tuple[bool, bool]] = []
    future._stop = lambda may_interrupt: asked.append((may_interrupt, future.done()))

    future.cancel(may_interrupt=False)
    future.cancel()

    assert asked == [(False, False)]


def test_cancelling_reaches_waiters_and_callbacks() -> None:
    """``wait``, ``as_completed`` and callbacks see a cancelled future as done, once."""
    future: Future[int] = Future()
    seen: list[object] = []
    future.add_done_callback(seen.append)
    other: Future[int] = Future()
    waiting = concurrent.futures.as_completed([future, other])
    threading.Timer(0.0, future.cancel).start()

    first = next(waiting)

    assert first is future
    assert concurrent.futures.wait([future], timeout=0).done == {future}
    assert seen == [future]
    other.cancel()


def test_no_lock_is_held_while_a_callback_runs() -> None:
    """A callback may wait for another thread that uses the same future."""
    future: Future[int] = Future()
    looked = threading.Event()

    def look() -> None:
        future.cancel()
        looked.set()

    def callback(_: object) -> None:
        threading.Thread(target=look).start()
        assert looked.wait(PATIENCE)

    future.add_done_callback(callback)

    future.cancel()

    assert looked.is_set()


def test_a_cancelled_future_is_not_run_by_an_executor() -> None:
    """``set_running_or_notify_cancel`` answers as executors expect, and logs nothing."""
    future: Future[int] = Future()
    future.cancel()

    assert not future.set_running_or_notify_cancel()
    with pytest.raises(InvalidStateError):
        future.set_result(1)


def test_ends_at_the_same_time_leave_a_single_outcome() -> None:
    """Completing, failing and cancelling at once leave one outcome, and callbacks run once."""
    for _ in range(200):
        race = Race()
        threads = [threading.Thread(target=deed) for deed in (race.complete, race.fail, race.cancel)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)

        assert race.future.done()
        assert race.answers == [race.future.cancelled()]
        assert race.calls == [race.future]


class Race:
    """Three ways to end one future, taken at the same time."""

    def __init__(self) -> None:
        self.future: Future[int] = Future()
        self.calls: list[object] = []
        self.answers: list[bool] = []
        self.go = threading.Barrier(3)
        self.future.add_done_callback(self.calls.append)

    def complete(self) -> None:
        self.go.wait(PATIENCE)
        self.future.complete(1)

    def fail(self) -> None:
        self.go.wait(PATIENCE)
        self.future.fail(ValueError())

    def cancel(self) -> None:
        self.go.wait(PATIENCE)
        self.answers.append(self.future.cancel())


# Following another future


@pytest.mark.parametrize("make", [Future, concurrent.futures.Future], ids=["ours", "of Python"])
def test_a_future_follows_another(make: Callable[[], concurrent.futures.Future[int]]) -> None:
    """Result, failure and cancellation arrive, with no thread in between."""
    error = ValueError("no")
    with_result, with_error, cancelled = make(), make(), make()
    outer: list[Future[int]] = [Future(), Future(), Future()]
    for future, other in zip(outer, (with_result, with_error, cancelled), strict=True):
        future.follow(other)

    with_result.set_result(1)
    with_error.set_exception(error)
    cancelled.cancel()

    assert outer[0].result(0) == 1
    assert outer[1].exception(0) is error
    assert outer[2].cancelled()


@pytest.mark.parametrize("may_interrupt", [True, False])
def test_cancelling_a_follower_cancels_the_followed_future(may_interrupt: bool) -> None:
    """The two are one future to the holder of the outer one."""
    future, other, plain = Future[int](), Future[int](), concurrent.futures.Future[int]()
    asked: list[bool] = []
    other._stop = asked.append
    future.follow(other)
    second: Future[int] = Future()
    second.follow(plain)

    future.cancel(may_interrupt)
    second.cancel()

    assert (other.cancelled(), plain.cancelled()) == (True, True)
    assert asked == [may_interrupt]


def test_a_future_that_was_cancelled_first_cancels_the_future_to_follow() -> None:
    """The order of the two does not matter."""
    future, other = Future[int](), Future[int]()
    future.cancel()

    future.follow(other)

    assert other.cancelled()


# Awaiting


def test_a_loop_awaits_the_outcome() -> None:
    """Result and failure come out of ``await``, whether they were there before or not."""
    late, failed = Future[int](), Future[int]()
    threading.Timer(0.0, late.complete, (1,)).start()
    failed.fail(ValueError("no"))

    async def main() -> None:
        assert await late == 1
        assert await late == 1
        with pytest.raises(ValueError, match="no"):
            await failed

    asyncio.run(main())


def test_several_loops_await_one_future() -> None:
    """It belongs to no loop, whether they await it one after another or at once (rule L6)."""
    future: Future[int] = Future()
    waiting = threading.Barrier(4)
    results: list[int] = []

    async def main() -> None:
        task = asyncio.ensure_future(outcome(future))
        await asyncio.sleep(0)
        await asyncio.to_thread(waiting.wait, PATIENCE)
        results.append(await task)

    threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(3)]
    for thread in threads:
        thread.start()
    waiting.wait(PATIENCE)
    future.complete(1)
    for thread in threads:
        thread.join(PATIENCE)
    asyncio.run(outcome(future))

    assert results == [1, 1, 1]


def test_gather_and_wait_for_take_it() -> None:
    """Asyncio's own tools take any awaitable."""
    first, second = completed_future(1), Future[int]()
    threading.Timer(0.0, second.complete, (2,)).start()

    async def main() -> tuple[int, int]:
        one, two = await asyncio.wait_for(asyncio.gather(first, second), PATIENCE)
        return one, two

    assert asyncio.run(main()) == (1, 2)


def test_cancelling_the_task_that_awaits_cancels_the_future() -> None:
    """A future of asyncio is cancelled so, too."""
    future: Future[int] = Future()

    async def main() -> None:
        task = asyncio.ensure_future(outcome(future))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert future.cancelled()


def test_shield_keeps_the_future_from_being_cancelled() -> None:
    """A caller that only wants to stop waiting uses it."""
    future: Future[int] = Future()

    async def main() -> None:
        shielded = asyncio.ensure_future(asyncio.shield(outcome(future)))
        await asyncio.sleep(0)
        shielded.cancel()
        with pytest.raises(asyncio.CancelledError):
            await shielded
        assert not future.cancelled()
        future.complete(1)
        await asyncio.sleep(0)

    asyncio.run(main())


def test_awaiting_a_cancelled_future_raises_the_cancellation_of_asyncio() -> None:
    """``except Exception`` in a coroutine must not catch the cancellation, before or after it came."""
    before, while_awaited = Future[int](), Future[int]()
    before.cancel()
    threading.Timer(0.0, while_awaited.cancel).start()

    async def main(future: Future[int]) -> None:
        with pytest.raises(asyncio.CancelledError):
            await future

    asyncio.run(main(before))
    asyncio.run(main(while_awaited))


def test_a_failure_that_was_awaited_goes_with_its_future(uncollected: None) -> None:
    """The traceback of the failure does not keep the future, which holds the failure, until a garbage collection."""

    class Failure(Exception):
        pass

    kept: list[weakref.ref[Failure]] = []

    def failed() -> Future[None]:
        failure, future = Failure(), Future[None]()
        kept.append(weakref.ref(failure))
        future.fail(failure)
        return future

    async def main() -> None:
        with suppress(Failure):
            await failed()

    asyncio.run(main())
    assert kept[0]() is None


class Rejected(Exception):
    """Is false, as a list of its reasons would be that has none."""

    def __len__(self) -> int:
        return 0


@pytest.mark.parametrize("result_of", [Future.result, lambda future: asyncio.run(outcome(future))])
def test_a_failure_that_is_false_is_raised(result_of: Callable[[Future[None]], object]) -> None:
    """No call returns ``None`` because its exception has a length, and that is 0."""
    future: Future[None] = Future()
    future.fail(Rejected())

    with pytest.raises(Rejected):
        result_of(future)


def test_a_loop_that_was_closed_is_not_missed(caplog: pytest.LogCaptureFixture) -> None:
    """A future whose loop is gone completes in silence."""
    future: Future[int] = Future()
    loop = asyncio.new_event_loop()
    steps = future.__await__()

    async def begin() -> None:
        next(steps)

    loop.run_until_complete(begin())
    loop.close()

    future.complete(1)

    assert future.result(0) == 1
    assert not caplog.records
    steps.close()
