"""A signal handler raises at any place of a hedged call: no attempt goes on, and no permit is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from faulttolerance import asynchronous, bulkhead, hedge, sleep, testing
from faulttolerance._execution.pool import pool
from faulttolerance._guard.declare import registry
from faulttolerance._policy import Bulkhead
from faulttolerance.testing import virtual_time
from kit import struck
from kit.struck import Strike, Struck, sampled

pytestmark = [
    pytest.mark.usefixtures("struck_coroutines_collected"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited"),
]

OURS = ("hedge/layer.py", "hedge/strategy.py", "_execution/task.py")


def strikes(*files: str, step: int) -> Iterator[Strike]:
    """Yield each place in turn, or each *step*-th, until a call has no further one."""
    number = 0
    for strike in struck.strikes(*files, step=step):
        number = strike.number
        yield strike
    assert number > 40


def guarded(function: Callable[[], Any]) -> Any:
    """Hedge *function*, the first attempt of which takes long, under a bulkhead."""
    testing.reset()
    return hedge(delay=100, quantile=0)(bulkhead(3)(function))


def held() -> dict[Any, int]:
    """Return the permits that are not back."""
    permits = (state.strategies.get(Bulkhead) for state in registry.every_state())
    return {key: thread for one in permits if one is not None for key, thread in one.held.items()}


@pytest.mark.parametrize("detached", [False, True])
@sampled(13)
def test_a_task_that_is_struck_leaves_no_attempt(detached: bool, step: int) -> None:
    """By rule H5: the caller or an attempt is struck, and all other attempts are ended."""
    began: list[None] = []

    async def load() -> str:
        began.append(None)
        await asyncio.sleep(5 if len(began) == 1 else 0.01)
        return "loaded"

    async def once(strike: Strike) -> int:
        began.clear()
        call = asynchronous(guarded(load)) if detached else guarded(load)  # with an unused budget
        try:
            with strike:
                await call()
        except Struck:
            pass
        await asyncio.sleep(1)
        return len(asyncio.all_tasks()) - 1

    with virtual_time() as clock:
        for strike in strikes(*OURS, step=step):
            left = clock.run(once(strike))

            assert (left, held()) == (0, {}), strike.where


@sampled(10)
def test_a_caller_that_is_struck_leaves_no_attempt_on_a_thread(step: int) -> None:
    """By rule H5: an attempt that began for a lost call is ended."""
    began: list[None] = []

    @asynchronous
    @guarded
    def load() -> Any:
        began.append(None)
        sleep(5 if len(began) == 1 else 0.01)
        return "loaded"

    with virtual_time() as clock:
        assert load().result(5) == "loaded"
        for strike in strikes(step=step):
            began.clear()
            try:
                with strike:
                    future = load()
            except Struck:
                pass
            else:
                assert future.result(5) == "loaded"
            clock.advance(1)
            until = time.monotonic() + 5
            while (held() or pool.calls) and time.monotonic() < until:
                time.sleep(0.001)

            assert (held(), pool.calls) == ({}, ()), strike.where
