"""The four ways in which the client calls the service."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from faulttolerance import TimeoutException, bulkhead, circuit_breaker, deadline, retry, retry_budget, timeout

attempts = 0
"""How many requests were sent."""


class Refused(Exception):
    """The service has answered something else than 200."""


MAY_PASS = (OSError, Refused, TimeoutException)
"""What another attempt may cure; a refusal of our own is none of it."""


async def fetch(port: int) -> None:
    """Send one request, and read the answer."""
    global attempts  # one client per process
    attempts += 1
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET / HTTP/1.1\r\nHost: backend\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
    finally:
        writer.close()
    if not answer.startswith(b"HTTP/1.1 200"):
        raise Refused(answer[:30])


async def unguarded(port: int) -> None:
    """Hope."""
    await fetch(port)


@retry(max_retries=3, delay=50, jitter=50, retry_on=MAY_PASS)
@timeout(600)
async def retried(port: int) -> None:
    """Give up early, and try again: what most services do."""
    await fetch(port)


@retry(max_retries=3, delay=50, jitter=50, retry_on=MAY_PASS)
@circuit_breaker(request_volume_threshold=20, delay=1000)
@timeout(600)
async def broken(port: int) -> None:
    """Let a circuit breaker call less while too much fails."""
    await fetch(port)


@deadline(1000)
@retry(max_retries=3, delay=50, jitter=50, retry_on=MAY_PASS)
@retry_budget(ratio=0.1)
@timeout(600)
@bulkhead(30, latency=300, waiting_task_queue=10, max_wait=150)
async def limited(port: int) -> None:
    """Send what the service can answer in time, as long as somebody waits, and retry what calls that go well pay for.

    Without load nine in ten requests take no longer than 150 ms: `latency` is twice that, and 30 at once are more than
    is ever of use.
    """
    await fetch(port)


WAYS: dict[str, Callable[[int], Awaitable[None]]] = {
    "nothing": unguarded,
    "time-out, retries": retried,
    "and a breaker": broken,
    "limit, budget, deadline": limited,
}
