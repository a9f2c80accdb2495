"""Functions that run when a deadline passes, and never after their block (rule S1); places of late bodies (rule S2)."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import pytest

from faulttolerance import (
    Guard,
    Interrupted,
    TimeoutException,
    asynchronous,
    deadline,
    on_deadline,
    retry,
    sleep,
    timeout,
    uninterruptible,
)
from faulttolerance._deadline import interruption
from faulttolerance._deadline.threads.callbacks import DeadlineCallback
from faulttolerance._deadline.threads.chain import this_thread
from faulttolerance._deadline.threads.watchdog import watchdog
from faulttolerance.policies import Timeout
from faulttolerance.testing import virtual_time
from kit.program import output_of
from kit.struck import Strike, Struck, sampled, strikes
from kit.tiers import few_and_many
from kit.waiting import wait_until

PATIENCE = 20.0
LONG = """
    with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < 200000000)
    select count(*) from numbers"""
"""A query that takes far longer than anybody waits."""


def on_thread(function: Callable[[], Any]) -> Any:
    """Return the result or the exception of *function* on a thread beside the main one."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(function())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert outcome, "it never ended"
    return outcome[0]


class Calls(list[int]):
    """A function that lists the threads that called it."""

    def __call__(self) -> None:
        self.append(threading.get_ident())


# Ending what no interruption ends


def memory() -> closing[sqlite3.Connection]:
    """Return a database that any thread may use and interrupt, closed behind the block."""
    return closing(sqlite3.connect(":memory:", check_same_thread=False))


def test_a_query_of_sqlite_on_a_thread_ends_at_the_deadline() -> None:
    """S1: its C code obeys ``interrupt()``, and no interruption; the exception of the body is the cause."""

    @timeout(100)
    def count() -> Any:
        with memory() as connection, on_deadline(connection.interrupt):
            try:
                return connection.execute(LONG).fetchall()
            except sqlite3.OperationalError as error:
                raise LookupError("no count") from error

    began = time.monotonic()
    failure = on_thread(count)

    assert type(failure) is TimeoutException
    assert isinstance(failure.__cause__, LookupError | Interrupted)
    assert time.monotonic() - began < PATIENCE / 2


def test_a_socket_on_a_thread_ends_at_the_deadline() -> None:
    """S1: off the main thread no signal ends a blocking call; a shutdown of the socket does."""
    here, there = socket.socketpair()

    @timeout(100)
    def receive() -> bytes:
        with on_deadline(lambda: here.shutdown(socket.SHUT_RDWR)):
            return here.recv(1)

    began = time.monotonic()
    failure = on_thread(receive)
    here.close()
    there.close()

    assert type(failure) is TimeoutException
    assert time.monotonic() - began < PATIENCE / 2


def test_an_offloaded_query_ends_at_its_deadline_and_gives_its_thread_back() -> None:
    """S1: the caller is free at the deadline anyway; the body ends as well."""
    # Long enough that the statement is under way on a busy machine: SQLite ignores an interrupt just before it.
    ended = threading.Event()

    @asynchronous
    @timeout(400)
    def count() -> Any:
        try:
            with memory() as connection, on_deadline(connection.interrupt):
                return connection.execute(LONG).fetchall()
        finally:
            ended.set()

    with pytest.raises(TimeoutException):
        count().result(PATIENCE)

    assert ended.wait(PATIENCE)


def test_a_query_that_a_coroutine_handed_to_a_thread_ends_at_its_deadline() -> None:
    """S1: the thread inherits the deadline, and the loop goes on meanwhile."""
    ended: list[BaseException] = []

    def count() -> None:
        with memory() as connection, on_deadline(connection.interrupt):
            try:
                connection.execute(LONG).fetchall()
            except sqlite3.OperationalError as error:
                ended.append(error)

    @timeout(100)
    async def ask() -> None:
        await asyncio.to_thread(count)

    with pytest.raises(TimeoutException):
        asyncio.run(ask())

    wait_until(lambda: ended)


@pytest.mark.parametrize("interrupt", [True, False])
def test_it_is_called_once_for_each_deadline_and_not_by_the_body(interrupt: bool) -> None:
    """S1: on a thread of the library; also where ``interrupt=False`` leaves the body itself in peace."""
    calls = Calls()
    leave = threading.Event()

    @timeout(100, interrupt=interrupt)
    def wait() -> None:
        with on_deadline(calls), on_deadline(leave.set):
            leave.wait(PATIENCE)
            end = time.monotonic() + 0.05
            while time.monotonic() < end:
                pass

    for _ in range(3):
        leave.clear()
        with pytest.raises(TimeoutException):
            wait()

    assert len(calls) == 3
    assert threading.get_ident() not in calls


@pytest.mark.parametrize("rest", [sleep, time.sleep])
def test_it_is_called_before_the_body_is_interrupted(rest: Callable[[float], None]) -> None:
    """S1: an interrupted body would leave the block before the call."""
    order: list[str] = []

    @timeout(100)
    def wait() -> None:
        with on_deadline(lambda: order.append("called")):
            try:
                rest(PATIENCE)
            except Interrupted:
                with uninterruptible():
                    time.sleep(0.02)
                order.append("interrupted")
                raise

    for _ in range(5):
        with pytest.raises(TimeoutException):
            wait()

    assert order == ["called", "interrupted"] * 5


def test_the_innermost_block_is_called_first() -> None:
    """S1: blocks are unwound as ``finally`` is, and each function is called."""
    order: list[str] = []

    @timeout(100)
    def wait() -> None:
        with (
            on_deadline(lambda: order.append("outer")),
            on_deadline(lambda: order.append("inner")),
            uninterruptible(),
        ):
            pass
        with on_deadline(lambda: order.append("outer")), on_deadline(lambda: order.append("inner")):
            sleep(PATIENCE)

    with pytest.raises(TimeoutException):
        wait()

    assert order == ["inner", "outer"]


def test_of_nested_deadlines_the_nearest_counts() -> None:
    """S1: either of the two guards may have it; a guarded call inside the block has its own."""
    calls = Calls()

    @timeout(100)
    def outer() -> None:
        @timeout(60_000)
        def inner() -> None:
            with on_deadline(calls):
                sleep(PATIENCE)

        inner()

    @timeout(60_000)
    def calm() -> None:
        with on_deadline(calls), pytest.raises(TimeoutException):
            timeout(20)(sleep)(PATIENCE)

    with pytest.raises(TimeoutException):
        outer()
    calm()

    assert len(calls) == 1


def test_each_attempt_has_its_own_deadline() -> None:
    """S1: the next attempt of the retry is ended again."""
    calls = Calls()

    @retry(max_retries=2, delay=0, jitter=0)
    @timeout(100)
    def wait() -> None:
        with on_deadline(calls):
            sleep(PATIENCE)

    with pytest.raises(TimeoutException):
        wait()

    assert len(calls) == 3


def test_without_a_deadline_it_does_nothing() -> None:
    """S1: the same code runs outside of guards."""
    calls = Calls()

    with on_deadline(calls):
        pass

    assert not calls
    assert not this_thread.deadlines.callbacks


def test_an_uninterruptible_block_holds_the_call_back() -> None:
    """S1: nothing interrupts an ``uninterruptible()`` block, by any means."""
    calls = Calls()
    seen: list[int] = []

    @timeout(100)
    def write() -> None:
        with on_deadline(calls), uninterruptible():
            time.sleep(0.2)
            seen.append(len(calls))
        sleep(PATIENCE)

    with pytest.raises(TimeoutException):
        write()

    assert seen == [0]


def test_a_block_is_not_entered_once_the_deadline_has_passed() -> None:
    """S1: its work would have to be ended at once."""
    entered: list[str] = []

    @timeout(20)
    def late() -> None:
        try:
            with uninterruptible():
                time.sleep(0.04)
                try:
                    with on_deadline(lambda: entered.append("called")):
                        entered.append("held back")
                except Interrupted:
                    entered.append("never")
        finally:
            entered.append("over")

    with pytest.raises(TimeoutException):
        late()

    assert entered == ["held back", "over"]


# Never after the block


def test_a_block_that_is_left_waits_for_a_call_that_is_under_way() -> None:
    """S1: the resource of the call may be given to another owner right behind the block."""
    began, end = threading.Event(), threading.Event()
    order: list[str] = []

    def cancel() -> None:
        began.set()
        end.wait(PATIENCE)
        order.append("called")

    @timeout(100, interrupt=False)
    def work() -> None:
        with on_deadline(cancel):
            began.wait(PATIENCE)
            threading.Timer(0.05, end.set).start()
        order.append("left")

    with pytest.raises(TimeoutException):
        work()

    assert order == ["called", "left"]


def test_of_leaving_and_calling_the_first_decides() -> None:
    """S1: a call that was begun at the deadline comes too late for a block that was left meanwhile."""
    calls = Calls()
    left, called = DeadlineCallback(calls, threading.Lock()), DeadlineCallback(calls, threading.Lock())

    left.revoke()
    left.revoke()
    claims = [left.claim(), called.claim(), called.claim()]
    called.call()
    called.call()
    called.revoke()

    assert claims == [False, True, False]
    assert len(calls) == 1


@few_and_many("times", 20, 150)
def test_it_is_never_called_for_a_block_that_was_left(times: int) -> None:
    """S1: not even for many blocks that end at about their deadline, on several threads."""
    wrong: list[str] = []

    class Resource:
        in_use = False

        def cancel(self) -> None:
            if not self.in_use:
                wrong.append("called outside")

    def use(seconds: float) -> None:
        resource = Resource()

        @timeout(3, interrupt=False)
        def work() -> None:
            resource.in_use = True
            with on_deadline(resource.cancel):
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    pass
            resource.in_use = False

        for _ in range(times):
            try:
                work()
            except TimeoutException:
                pass

    threads = [threading.Thread(target=use, args=(0.0028 + 0.0001 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


def test_a_function_that_takes_long_delays_no_other_deadline() -> None:
    """S1: each function is called on a thread of its own, and the watchdog goes on."""
    release = threading.Event()

    @timeout(20)
    def stuck() -> None:
        with on_deadline(lambda: release.wait(PATIENCE)):
            sleep(PATIENCE)

    thread = threading.Thread(target=on_thread, args=(stuck,), daemon=True)
    thread.start()
    time.sleep(0.05)
    began = time.monotonic()
    with pytest.raises(TimeoutException):
        timeout(20)(time.sleep)(PATIENCE)

    assert time.monotonic() - began < PATIENCE / 2
    assert thread.is_alive()
    release.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_an_exception_of_the_function_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """S1, R10: the call ends in its time-out."""

    def broken() -> None:
        raise ZeroDivisionError("a mistake")

    @timeout(100)
    def wait() -> None:
        with on_deadline(broken):
            sleep(PATIENCE)

    with pytest.raises(TimeoutException):
        wait()

    (record,) = [record for record in caplog.records if "on_deadline" in record.getMessage()]
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


class AsyncCancel:
    """An object that returns a coroutine when it is called."""

    async def __call__(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        "interrupt",
        pytest.param(asyncio.sleep, id="async def"),
        pytest.param(partial(asyncio.sleep, 1), id="partial"),
        pytest.param(AsyncCancel(), id="object"),
    ],
)
def test_an_object_that_is_no_plain_function_is_refused(wrong: Any) -> None:
    """S1: a coroutine function would do nothing."""
    with pytest.raises(TypeError, match=r"^on_deadline\(cancel\) is .*; allowed: a function without arguments"):
        on_deadline(wrong)


def test_blocks_may_be_entered_again_and_by_exit_stacks_and_by_hand() -> None:
    """S1: one object serves any number of entries, also nested ones."""
    calls = Calls()
    block = on_deadline(calls)

    @timeout(100)
    def work() -> None:
        with block:
            with block:
                pass
            with ExitStack() as stack:
                stack.enter_context(block)
            block.__enter__()
            block.__exit__(None, None, None)
            sleep(PATIENCE)

    with pytest.raises(TimeoutException):
        work()
    with ExitStack() as stack:
        stack.enter_context(block)

    assert len(calls) == 1
    assert not this_thread.deadlines.callbacks


def test_blocks_of_generators_end_in_any_order() -> None:
    """S1: each generator leaves its own entry, although others entered the same block later."""
    called: list[str] = []
    one = on_deadline(partial(called.append, "called"))

    def generator() -> Iterator[None]:
        with one:
            yield

    def within(first: Iterator[None]) -> None:
        second = generator()
        next(second)
        first.close()  # type: ignore[attr-defined]
        sleep(5)

    def outer() -> None:
        first = generator()
        next(first)
        timeout(1_000)(within)(first)

    with virtual_time(), pytest.raises(TimeoutException):
        timeout(60_000)(outer)()

    assert called == ["called"]


def test_nothing_is_called_after_another_thread_left_the_block() -> None:
    """S1: that thread has entered no block, so it leaves the latest entry of all."""
    calls = Calls()

    def work() -> None:
        stack = ExitStack()
        stack.enter_context(on_deadline(calls))
        assert on_thread(stack.close) is None
        sleep(5)

    with virtual_time(), pytest.raises(TimeoutException):
        timeout(1_000)(work)()

    assert not calls


def test_an_exception_that_leaves_the_block_passes() -> None:
    """S1: the block swallows nothing."""
    with pytest.raises(KeyError), on_deadline(print):
        raise KeyError("own")


def test_blocks_leave_no_timers_behind() -> None:
    """S1: a long deadline around many short blocks holds nothing for each of them."""

    @timeout(60_000)
    def work() -> None:
        for _ in range(2_000):
            with on_deadline(print):
                pass

    work()

    assert len(watchdog.timers.callbacks) < 100
    assert not this_thread.deadlines.callbacks


@sampled(11)
def test_wherever_the_handler_of_a_signal_raises_nothing_is_called_afterwards(step: int) -> None:
    """S1, R11: at every place of entering and leaving, the block is either over or was never begun."""
    wrong = []
    before: list[int] = []

    def work(strike: Strike, calls: Calls) -> None:
        try:
            with strike, on_deadline(calls):
                pass
        except Struck:
            pass
        before.append(len(calls))
        end = time.monotonic() + 0.012
        while time.monotonic() < end:
            pass

    for strike in strikes(step=step):
        calls, before = Calls(), []
        with pytest.raises(TimeoutException):
            timeout(8, interrupt=False)(work)(strike, calls)
        if before != [len(calls)] or this_thread.deadlines.callbacks:
            wrong.append((strike.where, list(calls)))

    assert not wrong


@sampled(11)
def test_wherever_the_handler_of_a_signal_raises_the_block_waits_for_the_call(step: int) -> None:
    """S1, R11: the handler raises once the call is over, and no block waits for ever."""
    wrong = []
    for strike in strikes(step=step):
        order: list[str] = []

        def cancel(order: list[str] = order) -> None:
            time.sleep(0.002)
            order.append("called")

        def work(strike: Strike = strike, order: list[str] = order, cancel: Callable[[], None] = cancel) -> None:
            try:
                with on_deadline(cancel), strike:
                    time.sleep(0.004)
                    strike.begin(sys._getframe(), "call", None)
            except Struck:
                pass
            order.append("left")

        with pytest.raises(TimeoutException):
            timeout(2, interrupt=False)(work)()
        if order[-1] != "left":
            wrong.append((strike.where, order))

    assert not wrong


# Coroutines


def test_in_a_coroutine_it_is_called_by_the_loop_before_the_cancellation() -> None:
    """S1: so the function may touch objects of the loop."""
    order: list[object] = []

    @timeout(100)
    async def wait() -> None:
        with on_deadline(lambda: order.append(asyncio.get_running_loop())):
            try:
                await asyncio.sleep(PATIENCE)
            except asyncio.CancelledError:
                order.append("cancelled")
                raise

    async def main() -> None:
        for decorate in (lambda function: function, asynchronous):
            order.clear()
            with pytest.raises(TimeoutException):
                await decorate(wait)()
            assert order == [asyncio.get_running_loop(), "cancelled"]

    asyncio.run(main())


def test_a_coroutine_whose_block_the_function_leaves_is_not_cancelled() -> None:
    """R2: the deadline has ended, and interrupts nothing."""

    async def main() -> bool:
        left, block = asyncio.Event(), deadline(20)

        def leave() -> None:
            left.set()
            block.__exit__(None, None, None)

        block.__enter__()
        with on_deadline(leave):
            return await left.wait()

    assert asyncio.run(main())


def test_in_a_coroutine_that_ends_in_time_it_is_not_called() -> None:
    """S1: neither in its block nor after it, while the call goes on."""
    calls = Calls()

    @timeout(100)
    async def work() -> str:
        with on_deadline(calls):
            await asyncio.sleep(0)
        await asyncio.sleep(PATIENCE)
        return "never"

    @timeout(60_000)
    async def quick() -> str:
        with on_deadline(calls):
            return "quick"

    async def main() -> str:
        with pytest.raises(TimeoutException):
            await work()
        return await quick()

    assert asyncio.run(main()) == "quick"
    assert not calls


def test_a_failure_that_the_function_causes_in_a_coroutine_is_the_cause() -> None:
    """S1: here the transport fails the future for which the coroutine waits."""

    @timeout(100)
    async def receive() -> None:
        waiting = asyncio.get_running_loop().create_future()
        with on_deadline(lambda: waiting.set_exception(ConnectionAbortedError("closed"))):
            try:
                await waiting
            except asyncio.CancelledError:
                await waiting

    with pytest.raises(TimeoutException) as caught:
        asyncio.run(receive())

    assert isinstance(caught.value.__cause__, ConnectionAbortedError | asyncio.CancelledError)


# Other time


def test_virtual_time_calls_it_at_the_deadline() -> None:
    """S1 under ``virtual_time()``: without real time, in threads and in coroutines."""
    calls = Calls()

    @timeout(3_600_000)
    def wait() -> None:
        with on_deadline(calls):
            sleep(1e6)

    @timeout(3_600_000)
    def wait_anyhow() -> Any:
        with on_deadline(calls):
            sleep(1e6)

    @timeout(3_600_000)
    async def wait_async() -> None:
        with on_deadline(calls):
            await asyncio.sleep(1e6)

    with virtual_time() as clock:
        with pytest.raises(TimeoutException):
            wait()
        with pytest.raises(TimeoutException):
            clock.run(wait_async())
        with pytest.raises(TimeoutException):
            asynchronous(wait_anyhow)().result()
        clock.advance(1)  # so that the body that was left behind comes to it

    wait_until(lambda: len(calls) == 3)


@pytest.mark.outside
def test_a_forked_child_waits_for_no_call_of_its_parent() -> None:
    """L5: the thread of the call does not exist in the child."""
    output = output_of(
        """
        import os, threading, time, warnings
        from faulttolerance import TimeoutException, on_deadline, timeout
        warnings.simplefilter("ignore", DeprecationWarning)
        began, end = threading.Event(), threading.Event()

        def cancel():
            began.set()
            end.wait(20)

        @timeout(50, interrupt=False)
        def work():
            with on_deadline(cancel):
                began.wait(20)
                child = os.fork()
                if child:
                    os.waitpid(child, 0)
                    end.set()
            return child

        try:
            work()
        except TimeoutException:
            print("over", flush=True)
        """
    )

    assert output.split() == ["over", "over"]


# Where a late body stood


def shop(seconds: float) -> None:
    time.sleep(seconds)  # the line that is told


SHOP_LINE = shop.__code__.co_firstlineno + 1


def test_a_late_end_says_where_it_stood_in_its_note_and_in_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S2: the function, also one that is written in C, the line of the application, and a remedy."""
    failure = on_thread(lambda: timeout(30)(shop)(0.2))

    assert type(failure) is TimeoutException
    (note,) = failure.__notes__
    where = f"in time.sleep, from test_on_deadline.py:{SHOP_LINE}; pass remaining() there as a time-out"
    assert note.endswith(where)
    (record,) = [record for record in caplog.records if record.name == "faulttolerance"]
    assert record.levelno == logging.WARNING
    assert re.search(r"timed out after 0\.03 s: it ended \d+\.\d+ s after its deadline", record.getMessage())
    assert record.getMessage().endswith(where)


def test_a_late_end_in_the_standard_library_names_module_and_function(caplog: pytest.LogCaptureFixture) -> None:
    """S2: the note has the line of the application that led there, too."""
    here, there = socket.socketpair()
    here.settimeout(0.2)

    def read(stream: Any) -> None:
        stream.read(1)

    with here, there, here.makefile("rb") as stream:
        failure = on_thread(lambda: timeout(30)(read)(stream))

    line = read.__code__.co_firstlineno + 1
    assert (
        f"in socket.recv_into, from test_on_deadline.py:{line}; pass remaining() there as a time-out"
        in failure.__notes__[0]
    )
    assert len([record for record in caplog.records if "socket.recv_into" in record.getMessage()]) == 1


def test_late_ends_at_one_place_are_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """S2: while a server is slow, every call ends late there; the others are logged at DEBUG."""
    caplog.set_level(logging.DEBUG, "faulttolerance")

    def rest() -> None:
        time.sleep(0.4)  # a busy machine looks late

    failures = [on_thread(lambda: timeout(30)(rest)()) for _ in range(2)]

    assert all("at its deadline it ran" in failure.__notes__[0] for failure in failures)
    levels = [record.levelno for record in caplog.records if "at its deadline it ran" in record.getMessage()]
    assert levels == [logging.WARNING, logging.DEBUG]


@pytest.mark.parametrize("function", [time.sleep, partial(time.sleep)], ids=["function", "partial"])
def test_a_late_end_of_a_function_in_c_names_the_line_that_called_its_guard(
    function: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    """S2: such a function has no frame of its own."""
    interruption._warned.clear()
    failure = on_thread(lambda: Guard(timeout(30), name="resting").call(function, 0.4))  # a busy machine looks late

    (note,) = failure.__notes__
    assert "; it was not interrupted: it was in a call of code that is not Python" in note
    assert "; at its deadline it ran in code that is not Python, from test_on_deadline.py:" in note
    assert len([record for record in caplog.records if "resting: timed out" in record.getMessage()]) == 1


def test_a_late_end_names_its_body_though_that_began_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """S2: not the code that called the guard, in which a busy machine may let the deadline pass."""
    threading.Timer(0.1, watchdog.wake).start()
    monkeypatch.setattr(watchdog, "wake", partial(time.sleep, 0.2))  # before the body

    failure = on_thread(lambda: Guard(timeout(30)).call(time.sleep, 0.4))

    assert "; at its deadline it ran in code that is not Python, from test_on_deadline.py:" in failure.__notes__[0]


def test_a_late_end_where_no_thread_could_be_started_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S2: in a container that allows no further thread, all calls end late."""
    interruption._warn.cache_clear()
    monkeypatch.setattr(watchdog, "is_running", False)
    monkeypatch.setattr(watchdog, "start", lambda: False)

    for _ in range(2):
        failure = on_thread(lambda: timeout(10)(time.sleep)(0.03))
        assert failure.__notes__[0].endswith("; it was not interrupted: no thread could be started to interrupt it")
    assert [record.levelno for record in caplog.records if "no thread could be started" in record.getMessage()] == [30]


def test_a_late_end_during_a_fork_does_not_say_that_no_thread_could_be_started(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S2: the watchdog rests meanwhile, and goes on afterwards."""
    interruption._warn.cache_clear()

    with monkeypatch.context() as fork:
        fork.setattr(watchdog, "forks", [None])
        watchdog.stop()
        failure = on_thread(lambda: timeout(10)(time.sleep)(0.03))
    watchdog.restart()

    assert "no thread" not in failure.__notes__[0]
    assert not caplog.records


def test_an_end_in_time_says_nothing_of_places(caplog: pytest.LogCaptureFixture) -> None:
    """S2: an interruption that arrived, or the call by ``on_deadline``, is explanation enough."""
    with pytest.raises(TimeoutException) as caught:
        timeout(20)(sleep)(PATIENCE)

    assert "at its deadline it ran" not in caught.value.__notes__[0]
    assert not [record for record in caplog.records if record.name == "faulttolerance"]


@pytest.mark.parametrize("limit", [timeout, deadline])
def test_the_note_of_a_call_that_the_function_ended_gives_no_reason(limit: Callable[[int], Any]) -> None:
    """S1: nothing needed to interrupt the call, of an attempt or as a whole."""
    calls = Calls()

    def work() -> None:
        with on_deadline(calls):
            time_now.advance(2)
            wait_until(lambda: calls)
            raise ConnectionError

    with virtual_time() as time_now, pytest.raises(TimeoutException) as caught:
        limit(1_000)(work)()

    assert caught.value.__notes__ == ["it ended 1.000 s after its deadline"]


def test_a_guard_that_only_ends_late_calls_it_too() -> None:
    """S1: ``Timeout(interrupt=False)`` of a ``Guard`` calls it."""
    leave = threading.Event()

    def work() -> None:
        with on_deadline(leave.set):
            leave.wait(PATIENCE)

    with pytest.raises(TimeoutException):
        Guard(timeout=Timeout(20, interrupt=False)).call(work)

    assert leave.is_set()
