"""Rules R2, R2a, R2b and R11 from the view of an application, on the main thread and on another one, in real time."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import pytest

from faulttolerance import (
    Interrupted,
    TimeoutException,
    bulkhead,
    circuit_breaker,
    remaining,
    retry,
    sleep,
    timeout,
    uninterruptible,
)
from faulttolerance._deadline.threads.chain import this_thread
from kit.tiers import few_and_many

Held: TypeAlias = Callable[[], list[str]]
Run: TypeAlias = Callable[[Callable[[], Any]], Any]


@pytest.fixture(params=["main thread", "another thread"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Yield a function that runs another one on the thread of the test."""
    with runner(request.param) as found:
        yield found


@pytest.fixture(params=["main thread", "another thread"])
def run_interruptibly(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Yield such a function for each thread on which Python code is interrupted."""
    with runner(request.param) as found:
        yield found


@contextlib.contextmanager
def runner(where: str) -> Iterator[Run]:
    if where == "main thread":
        yield lambda function: function()
        return
    with ThreadPoolExecutor(1) as pool:
        yield lambda function: pool.submit(function).result(30)


def busy(seconds: float) -> None:
    """Compute for *seconds*."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def test_body_is_interrupted_and_the_caller_gets_a_time_out(run_interruptibly: Run) -> None:
    """R2: ``Interrupted`` is no ``Exception``; the time-out is raised from it, soon after the deadline."""
    heard = []

    @timeout(50)
    def service() -> None:
        try:
            busy(20)
        except Exception:
            heard.append("an Exception")
        except BaseException as error:
            heard.append(type(error).__name__)
            raise

    def call() -> tuple[float, BaseException]:
        began = time.monotonic()
        with pytest.raises(TimeoutException) as raised:
            service()
        return time.monotonic() - began, raised.value

    took, error = run_interruptibly(call)

    assert heard == ["Interrupted"]
    assert isinstance(error.__cause__, Interrupted)
    assert 0.05 <= took < 5


@few_and_many("times", 40, 300)
def test_interruption_never_arrives_after_its_call(run: Run, times: int) -> None:
    """R2: deadlines that pass at about the end of the body; many of them, and none outside."""

    @timeout(2)
    def service(seconds: float) -> None:
        busy(seconds)

    def calls() -> list[str]:
        strays = []
        for number in range(times):
            try:
                try:
                    service(0.0017 + number % 7 * 0.0001)
                except TimeoutException:
                    pass
                busy(0.0005)
            except BaseException as error:
                strays.append(repr(error))
        return strays

    assert run(calls) == []


@few_and_many("times", 8, 40)
@pytest.mark.parametrize("what", ["logging", "queue", "lock"])
def test_locks_of_the_standard_library_are_not_left_held(run_interruptibly: Run, what: str, times: int) -> None:
    """R2a: an interruption waits until the body is out of code that holds one."""
    items: queue.Queue[int] = queue.Queue()
    lock = threading.Lock()
    logger = logging.getLogger("rules.interrupted")
    logger.propagate = False
    handler = logging.Handler()
    handler.emit = lambda record: None  # type: ignore[method-assign]
    logger.handlers = [handler]

    def use() -> None:
        if what == "logging":
            logger.warning("line")
        elif what == "queue":
            items.put(1)
            items.get()
        else:
            with lock:
                pass

    @timeout(1)
    def service() -> None:
        while True:
            use()
            busy(0.0001)

    def calls() -> None:
        for _ in range(times):
            with contextlib.suppress(TimeoutException):
                service()

    run_interruptibly(calls)
    after = threading.Thread(target=use, daemon=True)
    after.start()
    after.join(10)

    assert not after.is_alive()


def test_uninterruptible_block_is_finished_and_the_deadline_raised_at_its_end(run_interruptibly: Run) -> None:
    """R2b: no statement of the block is left out; the one after it is not reached."""
    steps = []

    @timeout(20)
    def service() -> None:
        with uninterruptible():
            busy(0.1)
            steps.append("finished")
        busy(5)
        steps.append("went on")

    def call() -> None:
        with pytest.raises(TimeoutException):
            service()

    run_interruptibly(call)

    assert steps == ["finished"]


def test_remaining_is_that_of_the_innermost_deadline(run: Run) -> None:
    """R2b: in seconds, and never more than an enclosing one has left."""
    seen: list[float | None] = []

    @timeout(100_000)
    def inner() -> None:
        seen.append(remaining())

    @timeout(10_000)
    def outer() -> None:
        seen.append(remaining())
        inner()

    run(outer)

    assert seen[0] is not None
    assert seen[1] is not None
    assert 5 < seen[0] <= 10
    assert seen[1] <= seen[0]
    assert run(remaining) is None


def test_outer_deadline_ends_inner_retries_and_everything_is_given_back(run: Run, held: Held) -> None:
    """R2, R11, B29: an inner guard neither retries nor judges an attempt that an enclosing deadline ended."""
    attempts = []

    class Client:
        @retry(max_retries=-1, jitter=0)
        @circuit_breaker(request_volume_threshold=1)
        @timeout(60_000)
        @bulkhead(1)
        def inner(self) -> str:
            attempts.append(None)
            sleep(20) if len(attempts) == 1 else None
            return "served"

        @timeout(300)
        def outer(self) -> None:
            self.inner()

    client = Client()

    def call() -> str:
        with pytest.raises(TimeoutException, match="outer"):
            client.outer()
        assert len(attempts) == 1
        return client.inner()

    assert run(call) == "served"
    assert held() == []


@few_and_many("times", 12, 60)
def test_tiny_outer_deadlines_lose_no_permit(run_interruptibly: Run, held: Held, times: int) -> None:
    """R11: this test makes some of them; the stress test makes thousands."""

    class Client:
        @circuit_breaker(request_volume_threshold=1_000_000)
        @timeout(60_000)
        @bulkhead(1)
        def inner(self, turns: int) -> None:
            for _ in range(turns):
                pass

        @timeout(0.3)
        def outer(self) -> None:
            while True:
                for turns in range(0, 3000, 100):
                    self.inner(turns)

    client = Client()

    def calls() -> list[list[str]]:
        found = []
        for _ in range(times):
            with contextlib.suppress(TimeoutException):
                client.outer()
            found += [left] if (left := held()) else []
        return found

    assert run_interruptibly(calls) == []


@few_and_many("step", 9, 1, "moments")
@pytest.mark.parametrize("whose", ["inner", "outer"])
def test_a_guarded_function_in_c_that_returns_as_it_is_interrupted_loses_nothing(
    held: Held, whose: str, step: int
) -> None:
    """R11: the signal may come in the call of the driver, and take effect once that has returned."""
    inner = timeout(5 if whose == "inner" else 60_000)(time.sleep)
    guarded = circuit_breaker(request_volume_threshold=1_000_000)(bulkhead(1)(inner))
    outer = timeout(5 if whose == "outer" else 60_000)(lambda seconds: guarded(seconds))
    causes = []

    for seconds in [*(0.012 + number % 40 / 1000 for number in range(0, 80, step)), 20.0]:
        with pytest.raises(TimeoutException) as caught:
            outer(seconds)
        causes.append(type(caught.value.__cause__))
        assert held() == []
        assert this_thread.deadlines.in_flight is None

    assert causes[-1] is Interrupted
