"""Deadlines of coroutines leave nothing behind."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from faulttolerance import asynchronous, bulkhead, circuit_breaker, timeout
from faulttolerance._runtime.task_deadlines import rings_of


def test_calls_of_one_length_are_watched_by_one_timer() -> None:
    """However many attempts there are, a loop has one ring per length of a time-out, and none of them stays in it."""

    @timeout(5000)
    async def inline() -> None: ...

    @asynchronous
    @timeout(5000)
    async def apart() -> None: ...

    async def main() -> tuple[int, int]:
        for _ in range(50):
            await inline()
            await apart()
        rings = rings_of(asyncio.get_running_loop())
        return len(rings), sum(len(ring.pending) for ring in rings.values())

    assert asyncio.run(main()) == (1, 0)


class Interrupting(asyncio.Task[Any]):
    """A task amidst whose beginning of a deadline a signal's handler raises."""

    interrupts = False

    def cancelling(self) -> int:
        if self.interrupts:
            self.interrupts = False
            raise KeyboardInterrupt
        return super().cancelling()


def test_an_interruption_as_a_deadline_begins_comes_out_and_gives_the_probe_back() -> None:
    """R0, R11: nothing of the deadline is there yet, and what the breaker gave is settled as control flow."""
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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_coroutine_that_no_task_runs_keeps_its_permit_over_a_fork() -> None:
    """L5: whoever drives it by hand is the thread that forks."""

    @timeout(5000)
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
