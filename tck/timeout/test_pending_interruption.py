"""R0, R11: the interruption for an enclosing call is on its way when the body fails by itself."""

from __future__ import annotations

import asyncio
import operator
import threading
from ctypes import c_ulong, py_object, pythonapi
from functools import partial
from typing import Any

import pytest

from faulttolerance import Guard, Interrupted, bulkhead, circuit_breaker, guards, retry, timeout
from faulttolerance._deadline.threads.chain import Entry
from faulttolerance._deadline.threads.pending_interrupt import OTHER_GREENLETS, OURS, PendingInterrupt
from faulttolerance.policies import Bulkhead, CircuitBreaker, Timeout

GUARDS: list[dict[str, Any]] = [{}, {"timeout": Timeout(60_000)}, {"timeout": Timeout(60_000, interrupt=False)}]


def fail_meanwhile() -> None:
    """Fail in C code, during which an interruption came; Python code raises it at its next call."""
    send = pythonapi["PyThreadState_SetAsyncExc"]  # the attribute calls a function of the library
    come = partial(send, c_ulong(threading.get_ident()), py_object(Interrupted))
    list(map(operator.call, [come, list[str]().pop]))  # type: ignore[list-item]


@pytest.mark.parametrize("more", GUARDS)
def test_waiter_of_the_bulkhead_gets_the_permit(more: dict[str, Any]) -> None:
    """The interrupted call leaves, and the call that waits behind it starts."""
    guard = Guard(bulkhead=Bulkhead(1, 1), **more)
    inside, go_on = threading.Event(), threading.Event()

    def body() -> None:
        inside.set()
        go_on.wait(10)
        fail_meanwhile()

    async def wait_behind() -> str:
        return "served"

    async def main() -> str:
        call = asyncio.create_task(asyncio.to_thread(guard.call, body))
        await asyncio.to_thread(inside.wait, 10)
        waiter = asyncio.create_task(guard.call_async(wait_behind))
        await asyncio.sleep(0)
        go_on.set()
        found = await asyncio.wait_for(waiter, 10)
        with pytest.raises(Interrupted):
            await call
        return found

    assert asyncio.run(main()) == "served"


@pytest.mark.parametrize("more", GUARDS)
def test_place_of_the_probe_is_given_back(more: dict[str, Any]) -> None:
    """An interrupted probe is no verdict on the callee, and the next call is a probe."""
    guard = Guard(circuit_breaker=CircuitBreaker(request_volume_threshold=1, failure_ratio=1.0, delay=0), **more)
    with pytest.raises(ZeroDivisionError):
        guard.call(lambda: 1 / 0)

    with pytest.raises(Interrupted):
        guard.call(fail_meanwhile)

    assert guard.call(lambda: "served") == "served"


def test_attempt_is_counted_as_ended_by_control_flow() -> None:
    """R0: it is not retried; its policies count it, and the circuit has no result of it."""

    @retry(max_retries=3, jitter=0)
    @circuit_breaker
    @timeout(60_000)
    @bulkhead(1)
    def service() -> None:
        fail_meanwhile()

    with pytest.raises(Interrupted):
        service()

    (found,) = [one for one in guards() if one.method is service]
    counted = {metric: dict(tags) for (metric, tags), count in found.counts.items() if count and "state" not in metric}
    assert counted == {
        "ft.invocations.total": {"result": "exceptionThrown", "fallback": "notDefined"},
        "ft.retry.calls.total": {"retried": "false", "retryResult": "exceptionNotRetryable"},
        "ft.timeout.calls.total": {"timedOut": "false"},
        "ft.bulkhead.calls.total": {"bulkheadResult": "accepted"},
    }


ENTRY: Entry = (1.0, None)


IN_C = "it was in C code"


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ([OURS], OURS),
        ([IN_C, OURS], IN_C),
        ([OURS, IN_C], IN_C),
        ([IN_C, None], IN_C),
        ([OURS, None], OURS),
        ([OTHER_GREENLETS, OURS], OTHER_GREENLETS),
        ([OTHER_GREENLETS, None, OURS], OTHER_GREENLETS),
        ([OTHER_GREENLETS, IN_C], IN_C),
    ],
)
def test_reason_that_says_most_of_the_body_is_given(seen: list[str | None], said: str | None) -> None:
    """R2: an end of the call, or a chance to interrupt it by then, hides no cause."""
    pending = PendingInterrupt(ENTRY)

    for why in seen:
        pending.record_reason(why)

    assert pending.why == said
