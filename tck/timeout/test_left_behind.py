"""The number of bodies that are left behind after their time-out (rule O2)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from faulttolerance import Future, Guard, TimeoutException, asynchronous, completed_future, timeout
from faulttolerance._metrics.counters import ledger
from faulttolerance._strategy.left_behind import LeftBehind
from faulttolerance.policies import Timeout
from faulttolerance.testing import virtual_time
from kit.waiting import wait_until

PATIENCE = 20.0


def abandoned(method: str) -> float | None:
    """Return the gauge of the method whose name ends so; ``None`` where it has none yet."""
    counts = ledger.read().counts
    return next(
        (values.get(("ft.timeout.abandoned", ())) for name, values in counts.items() if name.endswith(method)), None
    )


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Yield an event that ends every body."""
    event = threading.Event()
    yield event
    event.set()


def stubborn(event: threading.Event, begun: list[int]) -> None:
    """Run until the event is set, whatever interrupts; record the beginning in *begun*."""
    begun.append(threading.get_ident())
    for _ in range(3):  # a deadline interrupts once, wherever the loop is then
        with contextlib.suppress(BaseException):
            while not event.is_set():
                time.sleep(0.005)


def test_bodies_on_threads_are_counted_until_they_end(release: threading.Event) -> None:
    """O2: ``ft.timeout.abandoned`` is there once a body was left behind, and goes back to 0."""
    begun: list[int] = []

    @asynchronous
    @timeout(30)
    def on_threads() -> Future[None]:
        stubborn(release, begun)
        return completed_future(None)

    before = abandoned("on_threads")
    while len(begun) < 3:  # on a busy machine a call may time out before its body begins
        for future in [on_threads() for _ in range(3 - len(begun))]:
            with pytest.raises(TimeoutException):
                future.result(PATIENCE)

    assert before is None
    wait_until(lambda: abandoned("on_threads") == 3)
    release.set()
    wait_until(lambda: abandoned("on_threads") == 0)


def test_tasks_that_ignore_their_cancellation_are_counted_until_they_end() -> None:
    """O2: tasks of ``@asynchronous async def``; a task that was cancelled in time does not count."""
    ends: list[asyncio.Event] = []

    @asynchronous
    @timeout(20)
    async def in_task(is_stubborn: bool) -> None:
        end = asyncio.Event()
        ends.append(end)
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                if not is_stubborn:
                    raise

    async def main() -> list[float | None]:
        found = []
        for is_stubborn in (False, True, True):
            with pytest.raises(TimeoutException):
                await in_task(is_stubborn)
            await asyncio.sleep(0.01)
            found.append(abandoned("in_task"))
        for end in ends:
            end.set()
        await asyncio.sleep(0.01)
        return [*found, abandoned("in_task")]

    assert asyncio.run(main()) in ([0, 1, 2, 0], [None, 1, 2, 0])


def test_a_guard_counts_its_calls_on_threads(release: threading.Event) -> None:
    """O2: ``Guard.call_async`` of a plain function."""
    guard = Guard(name="left-behind-guard", timeout=Timeout(30))
    begun: list[int] = []

    async def main() -> None:
        while not begun:  # as above
            with pytest.raises(TimeoutException):
                await guard.call_async(stubborn, release, begun)

    asyncio.run(main())

    wait_until(lambda: abandoned("left-behind-guard") == 1)
    release.set()
    wait_until(lambda: abandoned("left-behind-guard") == 0)


def test_a_caller_that_waits_for_a_late_body_leaves_none_behind() -> None:
    """O2: a synchronous call ends with its body."""

    @timeout(10, interrupt=False)
    def waits() -> None:
        clock.advance(0.03)

    with virtual_time() as clock, pytest.raises(TimeoutException):
        waits()

    assert abandoned("waits") is None


def test_a_body_that_is_collected_is_forgotten() -> None:
    """A task of a loop that was closed never ends."""

    class Body:
        pass

    left_behind = LeftBehind()
    body, other = Body(), Body()
    for one in (body, body, other):
        left_behind.add(one)
    counts = [left_behind.count]
    left_behind.remove(other)
    left_behind.remove(other)
    counts.append(left_behind.count)
    del body, one
    counts.append(left_behind.count)
    left_behind.add(other)
    left_behind.reset_after_fork(0)

    assert [*counts, left_behind.count] == [2, 1, 0, 0]
