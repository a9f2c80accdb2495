"""Virtual time: waits that pass at once, work that holds it, and the order of events."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType

import pytest

import faulttolerance
from faulttolerance import (
    CircuitBreakerOpenException,
    Future,
    TimeoutException,
    asynchronous,
    bulkhead,
    circuit_breaker,
    completed_future,
    deadline,
    on_deadline,
    remaining,
    retry,
    sleep,
    timeout,
    uninterruptible,
)
from faulttolerance._deadline.clock import clock as shared_clock
from faulttolerance._deadline.threads.watchdog import watchdog
from faulttolerance._execution.pool import pool
from faulttolerance._platform.atomic import frames_of_threads
from faulttolerance.testing import VirtualClock, VirtualTimeStalled, configured, thread_observer, virtual_time
from faulttolerance.testing.active_clock import loop_factory
from faulttolerance.testing.stall_detector import StallDetector
from kit.program import python
from kit.waiting import wait_until

PATIENCE = 20.0
"""Real seconds after which something that must happen did not."""


@pytest.fixture
def clock() -> Iterator[VirtualClock]:
    with virtual_time() as clock:
        yield clock


@pytest.fixture
def elapsed(clock: VirtualClock) -> Callable[[], float]:
    """A function that returns the virtual seconds since the test began, to the microsecond."""
    began = clock.monotonic()
    return lambda: round(clock.monotonic() - began, 6)


class Outage(Exception):
    """The failure of the guarded functions of this file."""


@retry(max_retries=3, delay=1000, jitter=0)
def down() -> None:
    raise Outage


@retry(max_retries=3, delay=1000, jitter=0)
async def down_async() -> None:
    raise Outage


@timeout(500)
def slow() -> None:
    sleep(60)


@asynchronous
def offloaded(seconds: float) -> Future[float]:
    sleep(seconds)
    return completed_future(seconds)


# Sleeping


def test_a_sleep_of_the_library_passes_at_once(elapsed: Callable[[], float]) -> None:
    """An hour of virtual time takes hardly any real time."""
    began = time.monotonic()

    sleep(3600)

    assert elapsed() == 3600
    assert time.monotonic() - began < PATIENCE


def test_delays_between_attempts_pass_at_once(elapsed: Callable[[], float]) -> None:
    """Three retries after a second each are three seconds of virtual time."""
    with pytest.raises(Outage):
        down()

    assert elapsed() == 3.0


@pytest.mark.parametrize("seed", [0, 7, "a word"])
def test_the_same_seed_gives_the_same_jitter(seed: int | str) -> None:
    """Jitter comes from the generator of the clock, and from nowhere else."""

    @retry(max_retries=5, delay=1000, jitter=500)
    def shaky() -> None:
        raise Outage

    def total() -> float:
        with virtual_time(seed=seed) as clock:
            began = clock.monotonic()
            with pytest.raises(Outage):
                shaky()
            return clock.monotonic() - began

    first, second = total(), total()

    assert first == second
    assert first % 1.0 != 0.0


def test_a_deadline_ends_a_sleep_when_it_passes(elapsed: Callable[[], float]) -> None:
    """A sleep that would go beyond the deadline is interrupted there, and not a moment later."""
    with pytest.raises(TimeoutException):
        slow()

    assert elapsed() == 0.5


def test_the_nested_deadline_that_passes_first_ends_the_sleep(elapsed: Callable[[], float]) -> None:
    """If the deadline of the outer guard passes first, the inner guard is not blamed for it."""
    seen: list[BaseException] = []

    @timeout(2000)
    def inner() -> None:
        sleep(60)

    @timeout(500)
    def outer() -> None:
        try:
            inner()
        except BaseException as error:
            seen.append(error)
            raise

    with pytest.raises(TimeoutException, match="outer"):
        outer()

    assert [type(one) for one in seen] == [faulttolerance.Interrupted]
    assert elapsed() == 0.5


def test_a_deadline_interrupts_once(elapsed: Callable[[], float]) -> None:
    """A body that swallows the interruption sleeps on undisturbed, and still ends in a time-out."""

    @timeout(500)
    def stubborn() -> None:
        try:
            sleep(60)
        except faulttolerance.Interrupted:
            sleep(60)

    with pytest.raises(TimeoutException):
        stubborn()

    assert elapsed() == 60.5


def test_a_deadline_that_is_held_back_ends_no_sleep(elapsed: Callable[[], float]) -> None:
    """Inside ``uninterruptible()`` a sleep goes on to its end; the deadline interrupts behind it."""
    reached: list[float] = []

    @timeout(500)
    def careful() -> None:
        with uninterruptible():
            sleep(2)
            reached.append(elapsed())
        reached.append(elapsed())

    with pytest.raises(TimeoutException):
        careful()

    assert reached == [2.0]


def test_the_rest_of_a_deadline_is_virtual_time(clock: VirtualClock) -> None:
    """``remaining()`` counts down as the clock moves."""

    @timeout(500)
    def body() -> float | None:
        sleep(0.2)
        return remaining()

    assert body() == pytest.approx(0.3)


def test_a_cancelled_call_is_interrupted_in_its_sleep(clock: VirtualClock) -> None:
    """An interruption without a deadline ends a sleep as well, at the time at which it was asked for."""
    asleep, interrupted = threading.Event(), threading.Event()
    holder = threading.Event()

    @asynchronous
    def endless() -> Future[None]:
        asleep.set()
        try:
            sleep(3600)
        except faulttolerance.Interrupted:
            interrupted.set()
            raise
        return completed_future(None)

    blocked = clock.start(holder.wait)  # else the hour would be over at once
    future = endless()
    assert asleep.wait(PATIENCE)
    future.cancel()

    assert interrupted.wait(PATIENCE)
    holder.set()
    assert blocked.result(PATIENCE)


def test_sums_of_delays_do_not_depend_on_when_the_test_began(clock: VirtualClock) -> None:
    """Ten times 0.1 s are not less than a second, in spite of binary fractions."""
    began = clock.monotonic()

    for _ in range(10):
        sleep(0.1)

    assert 1.0 <= clock.monotonic() - began < 1.0 + 1e-7


# Circuits


def test_a_circuit_half_opens_once_the_clock_has_moved(clock: VirtualClock) -> None:
    """The delay of an open circuit breaker passes by ``advance`` as it would by waiting."""

    @circuit_breaker(request_volume_threshold=2, delay=5000)
    def flaky() -> None:
        raise Outage

    for _ in range(2):
        with pytest.raises(Outage):
            flaky()
    with pytest.raises(CircuitBreakerOpenException) as refused:
        flaky()
    clock.advance(refused.value.retry_after)

    with pytest.raises(Outage):
        flaky()


# Several threads


def test_threads_sleep_side_by_side(clock: VirtualClock, elapsed: Callable[[], float]) -> None:
    """Time moves to the next event that is due, in order, and takes every thread along."""
    log: list[tuple[str, float]] = []

    def work(name: str, seconds: float) -> None:
        for _ in range(3):
            sleep(seconds)
            log.append((name, elapsed()))

    calls = [clock.start(work, name, seconds) for name, seconds in (("a", 1.0), ("b", 1.5), ("c", 4.0))]
    concurrent.futures.wait(calls, PATIENCE)

    times = [at for _, at in log]
    assert times == sorted(times)
    assert sorted(log) == [
        *(("a", at) for at in (1.0, 2.0, 3.0)),
        *(("b", at) for at in (1.5, 3.0, 4.5)),
        *(("c", at) for at in (4.0, 8.0, 12.0)),
    ]


def test_threads_that_were_begun_one_after_the_other_begin_at_the_same_time(
    clock: VirtualClock, elapsed: Callable[[], float]
) -> None:
    """Time does not move while the test still starts its threads, although the first of them sleep already."""

    @bulkhead(100)
    def body() -> None:
        began.append(elapsed())
        sleep(1)

    began: list[float] = []
    threads = [threading.Thread(target=body) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert began == [0.0] * 20
    assert elapsed() == 1.0


def test_events_of_the_same_moment_happen_in_the_order_in_which_they_were_asked_for(clock: VirtualClock) -> None:
    """Each thread has its turn, and runs until it waits again, before the next one wakes."""
    log: list[str] = []

    def work(name: str) -> None:
        sleep(1)
        log.append(f"{name} wakes")
        log.append(f"{name} sleeps")
        sleep(1)
        log.append(f"{name} ends")

    def begin() -> list[concurrent.futures.Future[None]]:
        calls = []
        for name in "abcd":
            calls.append(clock.start(work, name))
            clock.advance(0)  # until it sleeps
        return calls

    calls = clock.start(begin).result(PATIENCE)  # it holds time, so that nobody wakes before all sleep
    concurrent.futures.wait(calls, PATIENCE)

    first, second = log[:8], log[8:]
    assert first == [f"{name} {does}" for name in "abcd" for does in ("wakes", "sleeps")]
    assert second == [f"{name} ends" for name in "abcd"]


def test_time_waits_for_a_thread_that_computes(clock: VirtualClock, elapsed: Callable[[], float]) -> None:
    """A participant that runs is never overtaken, however long it takes."""
    began = threading.Event()
    seen: list[float] = []

    def compute() -> None:
        began.set()
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            pass
        seen.append(elapsed())

    call = clock.start(compute)
    assert began.wait(PATIENCE)
    sleep(60)
    call.result(PATIENCE)

    assert seen == [0.0]
    assert elapsed() == 60


def test_a_thread_that_waits_outside_every_guard_does_not_hold_time(elapsed: Callable[[], float]) -> None:
    """Threads without a guard may block for as long as they like."""
    release, blocking = threading.Event(), threading.Lock()
    blocking.acquire()
    threads = [
        threading.Thread(target=release.wait, daemon=True),
        threading.Thread(target=blocking.acquire, daemon=True),
        threading.Thread(target=time.sleep, args=(0.1,), daemon=True),
    ]
    for thread in threads:
        thread.start()

    sleep(60)

    assert elapsed() == 60
    release.set()
    blocking.release()
    for thread in threads:
        thread.join()


def test_time_waits_for_a_thread_without_a_guard_for_a_second_once(
    elapsed: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that computes for ever is no business of the clock, however many steps time takes."""
    monkeypatch.setattr("faulttolerance.testing.stall_detector._LONG_SECONDS", 0.2)
    began = time.monotonic()
    over = threading.Event()

    def compute() -> None:
        while not over.is_set():
            pass

    thread = threading.Thread(target=compute, daemon=True)
    thread.start()
    for _ in range(100):
        sleep(60)
    over.set()
    thread.join()

    assert elapsed() == 6000
    assert time.monotonic() - began < PATIENCE


def test_time_waits_again_for_a_thread_that_has_waited_since_it_computed(
    elapsed: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second that a thread without a guard may compute begins anew, as for another thread with its identifier."""
    monkeypatch.setattr("faulttolerance.testing.stall_detector._LONG_SECONDS", 0.5)
    over, again = threading.Event(), threading.Event()
    seen: list[float] = []

    def compute_twice() -> None:
        while not over.is_set():
            pass
        again.wait()
        until = time.monotonic() + 0.1
        while time.monotonic() < until:
            pass
        seen.append(elapsed())

    thread = threading.Thread(target=compute_twice, daemon=True)
    thread.start()
    sleep(60)
    over.set()
    while not again._cond._waiters:  # type: ignore[attr-defined]
        time.sleep(0.001)
    sleep(60)
    again.set()
    sleep(60)
    thread.join()

    assert seen == [120]


def test_time_waits_for_a_thread_that_has_come_into_a_guard_since_it_computed_outside(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``advance`` lets its work run, as that of any other guarded call."""
    monkeypatch.setattr("faulttolerance.testing.stall_detector._LONG_SECONDS", 0.5)
    over, entered = threading.Event(), threading.Event()
    seen: list[float] = []

    @bulkhead(1)
    def guarded() -> None:
        began = clock.monotonic()
        entered.set()
        until = time.monotonic() + 0.1
        while time.monotonic() < until:
            pass
        seen.append(clock.monotonic() - began)

    def compute() -> None:
        while not over.is_set():
            pass
        guarded()

    thread = threading.Thread(target=compute, daemon=True)
    thread.start()
    sleep(60)
    over.set()
    while not entered.is_set():
        pass
    clock.advance(60)
    thread.join()

    assert seen == [0]


@pytest.mark.stress
def test_a_guard_that_blocks_elsewhere_stalls_time_and_is_named(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """After a second of real time the sleeper is told which thread holds time, and at which line; so is the log."""
    entered, release = threading.Event(), threading.Event()

    @bulkhead(1)
    def blocked() -> None:
        entered.set()
        release.wait()

    thread = threading.Thread(target=blocked, name="the culprit")
    thread.start()
    assert entered.wait(PATIENCE)
    began = time.monotonic()
    with pytest.raises(VirtualTimeStalled) as stalled:
        down()
    release.set()
    thread.join()

    line = blocked.__wrapped__.__code__.co_firstlineno + 3  # type: ignore[attr-defined]
    assert f"thread 'the culprit' at {os.path.basename(__file__)}:{line} in" in str(stalled.value)
    assert str(stalled.value) in caplog.text
    assert 0.9 < time.monotonic() - began < PATIENCE


def test_time_that_nobody_sleeps_through_is_logged_as_held(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a body blocks under a deadline, no sleeper is there in whom to raise; the log says what to do."""
    monkeypatch.setattr("faulttolerance.testing.stall_detector._LONG_SECONDS", 0.2)
    release = threading.Event()

    @asynchronous
    @timeout(500)
    def blocked() -> Future[None]:
        release.wait(PATIENCE)
        return completed_future(None)

    with caplog.at_level(logging.WARNING, "faulttolerance"):
        future = blocked()
        for _ in range(int(PATIENCE * 10)):
            with pytest.raises(concurrent.futures.TimeoutError):
                future.result(0.1)
            if caplog.text:
                break
    clock.advance(0.5)
    with pytest.raises(TimeoutException):
        future.result(PATIENCE)
    release.set()

    assert "virtual time is held by thread 'faulttolerance-" in caplog.text
    assert "clock.advance()" in caplog.text


# Advancing


def test_time_advances_although_nobody_sleeps(clock: VirtualClock, elapsed: Callable[[], float]) -> None:
    """Without sleepers there is nothing to do on the way."""
    clock.advance(90)
    clock.advance(0)

    assert elapsed() == 90


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_time_advances_by_possible_spans_only(clock: VirtualClock, seconds: float) -> None:
    """Time goes neither back nor to its end."""
    with pytest.raises(ValueError, match="finite number of seconds"):
        clock.advance(seconds)


def test_advancing_wakes_sleepers_that_are_due_on_the_way(clock: VirtualClock, elapsed: Callable[[], float]) -> None:
    """It does so past a guard that holds time, too; each sleeper sees the moment at which it was due."""
    entered, release = threading.Event(), threading.Event()
    woken: list[float] = []

    @bulkhead(1)
    def blocked() -> None:
        entered.set()
        release.wait(PATIENCE)

    def work() -> None:
        for _ in range(4):
            sleep(1)
            woken.append(elapsed())

    holder = clock.start(blocked)
    assert entered.wait(PATIENCE)
    sleeper = clock.start(work)
    clock.advance(2.5)
    seen = list(woken)
    clock.advance(10)

    assert seen == [1.0, 2.0]
    assert woken == [1.0, 2.0, 3.0, 4.0]
    assert elapsed() == 12.5
    release.set()
    concurrent.futures.wait([holder, sleeper], PATIENCE)


def test_a_body_that_advances_time_ends_late(clock: VirtualClock, elapsed: Callable[[], float]) -> None:
    """``advance`` stands for work that cannot be interrupted: the call ends in a time-out, its result is dropped."""

    @timeout(500)
    def work() -> str:
        clock.advance(0.7)
        return "too late"

    with pytest.raises(TimeoutException):
        work()

    assert elapsed() == 0.7


def test_bodies_that_advance_time_at_once_work_side_by_side(clock: VirtualClock, elapsed: Callable[[], float]) -> None:
    """Work of one, two and three seconds on three threads is over after three."""

    @bulkhead(3)
    def work(seconds: float) -> float:
        ready.release()
        assert everybody.wait(PATIENCE)
        clock.advance(seconds)
        return elapsed()

    ready, everybody = threading.Semaphore(0), threading.Event()
    calls = [clock.start(work, seconds) for seconds in (3.0, 1.0, 2.0)]
    for _ in calls:
        assert ready.acquire(timeout=PATIENCE)
    everybody.set()

    assert [call.result(PATIENCE) for call in calls] == [3.0, 1.0, 2.0]


def test_timers_run_in_the_order_of_their_moments(clock: VirtualClock, elapsed: Callable[[], float]) -> None:
    """They run on a thread of the clock without a lock, asked for in any order; a cancelled timer never runs."""
    log: list[tuple[str, float]] = []
    began = clock.monotonic()

    def note(name: str) -> Callable[[], None]:
        return lambda: log.append((name, elapsed()))

    def chain() -> None:
        log.append(("chain", elapsed()))
        clock.call_at(clock.monotonic() + 0.25, note("link"))

    clock.call_at(began + 2, note("late"))
    clock.call_at(began + 1, chain)
    clock.call_at(began + 1, note("second of two"))
    clock.call_at(began + 1, note("never")).cancel()
    clock.call_at(began - 1, note("overdue"))
    clock.advance(3)

    assert log == [("overdue", 0.0), ("chain", 1.0), ("second of two", 1.0), ("link", 1.25), ("late", 2.0)]


def test_a_timer_that_raises_is_logged(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    """The clock goes on without it."""

    def fail() -> None:
        raise Outage

    clock.call_at(clock.monotonic() + 1, fail)

    clock.advance(2)

    assert "a callback of the clock failed" in caplog.text


# The pool


def test_calls_on_threads_of_the_pool_run_side_by_side(clock: VirtualClock, elapsed: Callable[[], float]) -> None:
    """Ten calls of two seconds each, begun one after the other, take two seconds."""
    futures = [offloaded(2.0) for _ in range(10)]

    assert [future.result(PATIENCE) for future in futures] == [2.0] * 10
    assert elapsed() == 2.0


def test_calls_on_threads_of_the_pool_meet_their_deadlines_and_delays(
    clock: VirtualClock, elapsed: Callable[[], float]
) -> None:
    """The timers of the pool are those of the clock: three attempts of half a second, with a second between them."""

    @asynchronous
    @timeout(500)
    @retry(max_retries=2, delay=1000, jitter=0)
    def hopeless() -> Future[None]:
        sleep(60)
        return completed_future(None)

    with pytest.raises(TimeoutException):
        hopeless().result(PATIENCE)

    assert elapsed() == 3.5


@pytest.mark.parametrize("is_idle", [True, False], ids=["a thread that was idle", "a thread that is started"])
def test_a_call_that_begins_while_the_clock_looks_at_threads_holds_time(
    is_idle: bool, clock: VirtualClock, elapsed: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller waits already, and the thread of the call does not yet seem to work."""
    pool.stop_idle()
    looking, running, may_end = threading.Event(), threading.Event(), threading.Event()
    caller = threading.get_ident()

    def frames_after_a_call_has_begun() -> dict[int, FrameType]:
        """Return the frames after the call, at the first look; the call does not end before the second look."""
        if looking.is_set():
            may_end.set()
            return frames_of_threads()
        before = frames_of_threads().keys()
        looking.set()
        assert running.wait(PATIENCE)
        wait_until(lambda: frames_of_threads()[caller].f_code is threading.Condition.wait.__code__)
        frames = frames_of_threads()
        return frames if is_idle else {ident: frame for ident, frame in frames.items() if ident in before}

    @asynchronous
    def service() -> Future[float]:
        running.set()
        may_end.wait(1)  # in real time
        return completed_future(elapsed())

    @asynchronous
    def hold(barrier: threading.Barrier) -> Future[None]:
        barrier.wait(PATIENCE)
        return completed_future(None)

    if is_idle:  # so that one thread is idle while the other sleeps
        together = threading.Barrier(2)
        for held in [hold(together), hold(together)]:
            held.result(PATIENCE)
    monkeypatch.setattr(thread_observer, "frames_of_threads", frames_after_a_call_has_begun)
    nap = offloaded(3600)
    assert looking.wait(PATIENCE)

    assert service().result(PATIENCE) == 0
    assert nap.result(PATIENCE) == 3600


# Event loops


def test_coroutines_sleep_on_the_clock(clock: VirtualClock, elapsed: Callable[[], float]) -> None:
    """``asyncio.sleep`` and ``asyncio.timeout`` follow it, and the result comes back."""
    log: list[float] = []

    async def main() -> str:
        await asyncio.sleep(3600)
        log.append(elapsed())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(10)
        log.append(elapsed())
        return "done"

    assert clock.run(main()) == "done"
    assert log == [3600.0, 3605.0]


def test_guarded_coroutines_delay_and_time_out_on_the_clock(clock: VirtualClock, elapsed: Callable[[], float]) -> None:
    """Delays and deadlines of asynchronous guards are the loop's timers."""

    @timeout(500)
    async def slow_async() -> None:
        await asyncio.sleep(60)

    with pytest.raises(Outage):
        clock.run(down_async())
    with pytest.raises(TimeoutException):
        clock.run(slow_async())

    assert elapsed() == 3.5


def test_an_exception_of_a_coroutine_comes_out(clock: VirtualClock) -> None:
    """The clock adds nothing to it."""

    async def main() -> None:
        raise Outage

    with pytest.raises(Outage):
        clock.run(main())


def test_a_loop_cleans_up_after_itself(clock: VirtualClock) -> None:
    """As with ``asyncio.run``, tasks that are left are cancelled, and the loop is closed."""
    log: list[str] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            log.append("cancelled")

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        tasks.append(asyncio.create_task(forever()))
        await asyncio.sleep(1)

    tasks: list[asyncio.Task[None]] = []
    clock.run(main())

    assert log == ["cancelled"]
    assert loops[0].is_closed()


def in_a_block(run: Callable[[], None]) -> Callable[[], None]:
    def block() -> None:
        with deadline(1000):
            run()

    return block


@pytest.mark.parametrize("bound", [timeout(1000), deadline(1000), in_a_block], ids=["time-out", "deadline", "block"])
def test_a_loop_ends_with_the_call_that_runs_it(
    clock: VirtualClock, elapsed: Callable[[], float], bound: Callable[[Callable[[], None]], Callable[[], None]]
) -> None:
    """As in real time, the main task is cancelled at the deadline, and may clean up."""
    ended: list[float] = []

    async def main() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.5)
            ended.append(elapsed())
            raise

    def run() -> None:
        with on_deadline(lambda: ended.append(elapsed())):
            clock.run(main())

    with pytest.raises(TimeoutException):
        bound(run)()

    assert ended == [1.0, 1.5]


def test_a_loop_that_runs_for_ever_ends_late(clock: VirtualClock, elapsed: Callable[[], float]) -> None:
    """It has no task that could be cancelled; it waits for its timers, and spins for none."""
    loop = clock.loop_factory()
    loop.call_later(60, loop.stop)

    with pytest.raises(TimeoutException, match="1 s passed"), deadline(1000):
        loop.run_forever()
    loop.close()

    assert elapsed() == 60.0


def test_a_runner_uses_the_clocks_loops(clock: VirtualClock, elapsed: Callable[[], float]) -> None:
    """One loop may run several coroutines, one after the other."""

    async def main() -> None:
        await asyncio.sleep(30)

    with asyncio.Runner(loop_factory=clock.loop_factory) as runner:
        runner.run(main())
        runner.run(main())

    assert elapsed() == 60


def test_loops_of_several_threads_share_the_clock(clock: VirtualClock, elapsed: Callable[[], float]) -> None:
    """Time jumps only when all of them wait, to the event that is due first in any of them."""
    log: list[tuple[float, str]] = []

    async def main(name: str, seconds: float) -> None:
        for _ in range(3):
            await asyncio.sleep(seconds)
            log.append((elapsed(), name))

    def run(name: str, seconds: float) -> None:
        clock.run(main(name, seconds))

    loops = {"a": 1.0, "b": 1.3, "c": 10.0}
    concurrent.futures.wait([clock.start(run, *loop) for loop in loops.items()], PATIENCE)

    assert log == sorted((round(seconds * turn, 6), name) for name, seconds in loops.items() for turn in (1, 2, 3))


def test_a_loop_waits_for_threads_that_work_for_it(clock: VirtualClock, elapsed: Callable[[], float]) -> None:
    """Work in the executor of a loop takes as long as it takes, and no timer of the loop overtakes it."""

    def compute() -> float:
        time.sleep(0.1)
        return elapsed()

    async def main() -> float:
        async with asyncio.timeout(5):
            return await asyncio.to_thread(compute)

    assert clock.run(main()) == 0.0


def test_more_work_than_threads_still_lets_time_pass(clock: VirtualClock, elapsed: Callable[[], float]) -> None:
    """Work that waits for a thread of an executor holds time only if a thread is free to take it."""

    async def main() -> None:
        with concurrent.futures.ThreadPoolExecutor(2) as executor:
            loop = asyncio.get_running_loop()
            await asyncio.gather(*(loop.run_in_executor(executor, sleep, 1.0) for _ in range(6)))

    clock.run(main())

    assert elapsed() == 3.0


def test_time_passes_for_work_that_a_closed_loop_has_left(clock: VirtualClock, elapsed: Callable[[], float]) -> None:
    """The threads of its executor go on with it, one call after the other."""
    loop = clock.loop_factory()

    async def main() -> None:
        loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(1))
        loop.run_in_executor(None, sleep, 1.0)
        loop.run_in_executor(None, int)
        await asyncio.sleep(0.5)

    loop.run_until_complete(main())
    loop.close()
    clock.advance(1.0)

    assert elapsed() == 1.5


def test_coroutines_and_calls_on_threads_of_the_pool_share_the_clock(
    clock: VirtualClock, elapsed: Callable[[], float]
) -> None:
    """A loop that waits for the pool takes the time that the pool takes."""

    async def main() -> list[float]:
        return await asyncio.gather(*(offloaded(seconds) for seconds in (1.0, 2.0, 3.0)))

    assert clock.run(main()) == [1.0, 2.0, 3.0]
    assert elapsed() == 3.0


def test_input_from_another_thread_comes_before_the_next_timer(clock: VirtualClock) -> None:
    """A loop that was given something to do does not let time move until it has done it."""

    async def main() -> list[bool]:
        loop = asyncio.get_running_loop()
        in_time = []
        for _ in range(100):
            answer = loop.create_future()

            def reply(answer: asyncio.Future[float] = answer) -> None:
                sleep(0.5)
                loop.call_soon_threadsafe(answer.set_result, loop.time())

            call = clock.start(reply)
            asked = loop.time()
            replied = await asyncio.wait_for(answer, 1.0)
            in_time.append(loop.time() - replied == 0.0 and replied - asked == 0.5)
            call.result(PATIENCE)
        return in_time

    assert all(clock.run(main()))


def test_a_loop_that_is_blocked_stalls_the_others(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coroutine that blocks its thread holds time, as any participant does."""
    monkeypatch.setattr("faulttolerance.testing.stall_detector._LONG_SECONDS", 0.2)
    release, blocked = threading.Event(), threading.Event()

    async def block() -> None:
        blocked.set()
        release.wait()

    async def wait() -> None:
        await asyncio.sleep(60)

    blocker = clock.start(lambda: clock.run(block()))
    assert blocked.wait(PATIENCE)
    with pytest.raises(VirtualTimeStalled, match=r"<lambda>' at .*test_virtual_clock\.py"):
        clock.run(wait())

    release.set()
    blocker.result(PATIENCE)


def test_a_guarded_coroutine_is_refused_on_a_loop_of_real_time(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Delays would take real time there, and deadlines never pass; the message names a way to loops that follow.

    The log has it, too: a test client whose loop ends by the error shows that its own request was cancelled.
    """
    attempts = []

    @retry(delay=3_600_000, max_duration=0)
    async def fails() -> None:
        attempts.append(1)
        raise OSError

    for _ in range(2):
        with pytest.raises(VirtualTimeStalled, match="pytest_asyncio_loop_factories"):
            asyncio.run(fails())

    assert not attempts
    assert "TestClient by backend_options" in caplog.text


def test_a_guarded_function_is_let_pass_on_a_loop_of_real_time(clock: VirtualClock) -> None:
    """It sleeps on the clock itself."""

    async def main() -> None:
        with pytest.raises(Outage):
            down()

    before = clock.monotonic()
    asyncio.run(main())

    assert clock.monotonic() - before > 1


def test_a_loop_follows_each_clock_that_begins_while_it_runs() -> None:
    """Between the blocks it runs in real time, its time never goes back, and its timers keep their moments."""

    @retry(max_retries=1, delay=3_600_000, max_duration=0, jitter=0)
    async def fails() -> None:
        raise Outage

    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        times = [loop.time()]
        late, later = loop.create_future(), loop.create_future()
        loop.call_later(7200, late.set_result, None)
        loop.call_later(7300, later.set_result, None)
        for _ in range(2):
            with virtual_time() as clock:
                began = clock.monotonic()
                with pytest.raises(Outage):
                    await fails()
                assert clock.monotonic() - began == 3600
            times.append(loop.time())
            await asyncio.sleep(0.01)
            times.append(loop.time())
        await late
        assert not later.done()
        return times

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        times = runner.run(main())

    assert times == sorted(times)
    assert 7200 <= times[-1] - times[0] < 7200 + PATIENCE


def test_a_loop_in_another_thread_takes_part_in_each_clock_and_survives_them() -> None:
    """That is the loop of a test client that many tests share; it may have timers when a block ends."""
    ticks = []

    @timeout(3_600_000)
    async def slow() -> None:
        await asyncio.sleep(7200)

    async def tick() -> None:
        while True:
            await asyncio.sleep(1800)
            ticks.append(1)

    async def serve() -> None:
        ticker, stop = asyncio.create_task(tick()), asyncio.Event()
        started.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()
        ticker.cancel()

    def run() -> None:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(serve())

    started: concurrent.futures.Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = concurrent.futures.Future()
    thread = threading.Thread(target=run)
    thread.start()
    loop, stop = started.result(PATIENCE)
    for _ in range(2):
        with virtual_time(), pytest.raises(TimeoutException):
            asyncio.run_coroutine_threadsafe(slow(), loop).result(PATIENCE)
    answer = asyncio.run_coroutine_threadsafe(asyncio.sleep(0, "alive"), loop).result(PATIENCE)
    loop.call_soon_threadsafe(stop.set)
    thread.join(PATIENCE)

    assert len(ticks) in {3, 4}
    assert answer == "alive"


# Beginning and ending


def test_time_begins_where_real_time_is() -> None:
    """Events before the block lie neither in its future nor long ago."""
    before = shared_clock.monotonic()
    with virtual_time() as clock:
        began = clock.monotonic()

    assert 0.0 <= began - before <= 1.5


def test_the_real_clock_is_back_after_the_block() -> None:
    """All four functions of the clock are back, and no thread of the virtual one is left."""
    before = (shared_clock.monotonic, shared_clock.random, shared_clock.sleep, shared_clock.call_at)
    threads = set(threading.enumerate())

    with virtual_time() as clock:
        clock.call_at(clock.monotonic() + 1, lambda: None)
        clock.start(sleep, 5)
        clock.advance(2)

    assert (shared_clock.monotonic, shared_clock.random, shared_clock.sleep, shared_clock.call_at) == before
    assert not shared_clock.is_virtual
    assert {thread for thread in threading.enumerate() if thread.name.startswith("virtual-time")} <= threads


def test_the_real_clock_is_back_after_a_failure() -> None:
    """The block may end by an exception."""
    with pytest.raises(Outage), virtual_time():
        raise Outage

    assert not shared_clock.is_virtual


def test_a_sleeper_does_not_outlive_the_block() -> None:
    """A thread that is left behind asleep is woken with the reason."""
    release = threading.Event()
    with virtual_time() as clock:
        clock.start(release.wait)
        left = clock.start(sleep, 60)
        clock.advance(0)
    release.set()

    with pytest.raises(VirtualTimeStalled, match=r"virtual_time\(\) block ended"):
        left.result(PATIENCE)


def test_a_timer_that_is_left_runs_in_real_time() -> None:
    """A call that waits for its delay when the block ends is not forgotten."""
    done = threading.Event()
    with virtual_time() as clock:
        clock.call_at(clock.monotonic() + 0.01, done.set)
        ran_inside = done.is_set()

    assert not ran_inside
    assert done.wait(PATIENCE)


def test_a_loop_that_outlives_the_block_goes_on_in_real_time() -> None:
    """Its time never goes back."""
    with virtual_time() as clock:
        loop = clock.loop_factory()
        clock.advance(100)
        before = loop.time()
    try:
        loop.run_until_complete(asyncio.sleep(0.01))

        assert before + 0.01 <= loop.time() < before + PATIENCE
    finally:
        loop.close()


def test_the_library_has_one_clock_at_a_time() -> None:
    """A block inside another one would leave two clocks for one library."""
    with virtual_time(), pytest.raises(RuntimeError, match="active already"), virtual_time():
        pass

    assert not shared_clock.is_virtual


def test_a_clock_whose_block_has_ended_moves_no_more() -> None:
    """It says so, instead of waiting for nobody."""
    with virtual_time() as clock:
        pass

    with pytest.raises(RuntimeError, match="has ended"):
        clock.advance(1)
    with pytest.raises(RuntimeError, match="has ended"):
        clock.sleep(1)


FORKING = """
import os, threading
import faulttolerance
from faulttolerance.testing import virtual_time

with virtual_time() as clock:
    began = clock.monotonic()
    done = threading.Event()
    clock.call_at(began + 90, done.set)
    child = os.fork()
    faulttolerance.sleep(60)
    late = threading.Timer(0.05, lambda: None)
    late.start()
    faulttolerance.sleep(60)
    right = clock.monotonic() - began == 120 and done.is_set()
    if not child:
        os._exit(0 if right else 1)
    assert right
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    late.join()
"""


@pytest.mark.outside
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_time_goes_on_in_both_processes_after_a_fork() -> None:
    """The child has no thread of the clock, and starts another one when it needs it."""
    done = python(FORKING, "-W", "ignore", seconds=PATIENCE)  # from Python 3.12 on, of a fork beside threads

    assert (done.returncode, done.stderr) == (0, "")


# StallDetector


class RealTime:
    """The clock of the system, which the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.patience = StallDetector(lambda: self.now)

    def look(self, times: int, every: float, is_idle: bool = True) -> None:
        for _ in range(times):
            self.now += every
            self.patience.count(is_idle)


def test_patience_is_over_after_an_idle_second() -> None:
    """It is not over before that second, after any work until then."""
    real = RealTime()
    real.look(3000, every=0.001, is_idle=False)
    while_busy = real.patience.is_stalled
    real.look(900, every=0.001)
    early = real.patience.is_stalled
    real.look(200, every=0.001)

    assert (while_busy, early, real.patience.is_stalled) == (False, False, True)


def test_patience_ends_some_time() -> None:
    """It ends even while a computation goes on for ever."""
    real = RealTime()
    real.look(2000, every=0.0051, is_idle=False)

    assert real.patience.is_stalled


def test_patience_does_not_count_time_in_which_the_process_could_not_run() -> None:
    """A machine that sleeps, or runs something else, stalls nobody."""
    real = RealTime()
    real.look(20, every=60.0)

    assert not real.patience.is_stalled


# Determinism


def test_the_same_seed_gives_the_same_course_of_events() -> None:
    """Threads, loops, the pool and jitter together leave the same record in every run."""

    @retry(max_retries=4, delay=300, jitter=200)
    def shaky() -> None:
        raise Outage

    @retry(max_retries=4, delay=300, jitter=200)
    async def shaky_async() -> None:
        raise Outage

    def record() -> list[tuple[str, float]]:
        log: list[tuple[str, float]] = []
        with virtual_time(seed=11) as clock:
            began = clock.monotonic()

            def note(name: str) -> None:
                log.append((name, round(clock.monotonic() - began, 6)))

            def thread() -> None:
                sleep(0.1)
                with pytest.raises(Outage):
                    shaky()
                note("thread")

            async def loop() -> None:
                await asyncio.sleep(0.2)
                with pytest.raises(Outage):
                    await shaky_async()
                note("loop")

            calls: list[concurrent.futures.Future[None]] = [
                clock.start(thread),
                clock.start(lambda: clock.run(loop())),
                clock.start(lambda: note(str(offloaded(0.7).result()))),
            ]
            for call in calls:
                call.result(PATIENCE)
        return log

    records = [record() for _ in range(30)]

    assert records == [records[0]] * 30
    assert len(records[0]) == 3


# Configuration for a block


def test_configuration_holds_for_its_block() -> None:
    """Keys that a test sets are gone after the block."""
    attempts: list[int] = []

    @retry(max_retries=1, delay=0, jitter=0)
    def body() -> None:
        attempts.append(1)
        raise Outage

    def count() -> int:
        attempts.clear()
        with pytest.raises(Outage):
            body()
        return len(attempts)

    counts = [count()]
    with configured({"Retry/maxRetries": 4}):
        counts.append(count())
        with configured({"MP_Fault_Tolerance_NonFallback_Enabled": "false"}):
            counts.append(count())
    counts.append(count())

    assert counts == [2, 5, 1, 2]


def test_the_librarys_own_loop_follows_the_clock() -> None:
    """A coroutine from a method on a thread of the pool passes its time at once, even if its caller has no loop."""

    async def answer() -> str:
        await asyncio.sleep(3600)
        return "answer"

    @asynchronous
    def later() -> Awaitable[str]:
        return answer()

    with virtual_time() as clock:
        began = clock.monotonic()

        assert later().result(5) == "answer"  # type: ignore[attr-defined]
        assert clock.monotonic() - began == pytest.approx(3600)


def test_time_waits_for_the_interruption_of_a_call_that_was_cancelled(clock: VirtualClock) -> None:
    """It ends the sleep of the call at the moment of the cancellation, however long it takes to get there."""
    ended: list[tuple[str, float]] = []
    began = clock.monotonic()

    @asynchronous
    @timeout(9000)
    def load() -> Future[None]:
        try:
            sleep(5)
        except BaseException as error:
            ended.append((type(error).__name__, clock.monotonic() - began))
            raise
        return completed_future(None)

    call = load()
    clock.sleep(1)
    watchdog.call_at(time.monotonic(), lambda: time.sleep(0.05))  # the watchdog has something else to do
    call.cancel()
    clock.sleep(9)

    assert ended == [("Interrupted", pytest.approx(1))]


def test_loops_wait_for_their_timers_also_after_months() -> None:
    """Virtual time begins at that of the machine, beside whose seconds the precision of a loop may be nothing."""
    program = """
        import asyncio
        from faulttolerance.testing import simulate, virtual_time

        async def wait():
            await asyncio.sleep(1e9)

        def scenario(simulation):
            simulation.start(wait)
            simulation.join()

        with virtual_time() as virtual:
            virtual.run(wait())
        simulate(scenario, seeds=range(1))
        print("over")
    """
    assert python(program, seconds=20).stdout == "over\n"
