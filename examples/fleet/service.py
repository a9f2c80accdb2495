"""What all four processes run: two functions that ask the backend, under one guard that the whole fleet shares."""

from __future__ import annotations

import asyncio
import http.client
import threading
from collections.abc import Callable

from faulttolerance import Guard, RateLimitException
from faulttolerance.policies import CircuitBreaker, FleetWide, RateLimit, RateLimitType, Timeout

VALUE = 100
"""Calls per second that the backend allows its callers, all of them together."""
BURST = 20
"""Calls that it takes at once after a rest."""
THRESHOLD = 20
DELAY = 1.5
"""Seconds that the circuit is open before the fleet sends a probe."""


class Unavailable(Exception):
    """The backend has answered something else than 200."""


prices = Guard(
    name="shop.prices",
    rate_limit=RateLimit(VALUE, type=RateLimitType.SMOOTH, burst=BURST),
    circuit_breaker=CircuitBreaker(request_volume_threshold=THRESHOLD, delay=f"{DELAY}s", skip_on=RateLimitException),
    timeout=Timeout("2s"),
    fleet_wide=FleetWide(),
)
"""The fleet knows limit and circuit by the guard's name; a method with decorators is known by its own.

A refusal by the rate limit is no failure of the backend: `skip_on` says so.
"""

_own = threading.local()


@prices
def price(port: int, begun: Callable[[], object]) -> bytes:
    """Ask on the thread of the caller, over its connection."""
    begun()
    connection = getattr(_own, "connection", None)
    if connection is None:
        connection = _own.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/price")
        answer = connection.getresponse()
        found: bytes = answer.read()
    except BaseException:
        connection.close()
        raise
    if answer.status != 200:
        raise Unavailable(answer.status)
    return found


@prices
async def price_async(port: int, begun: Callable[[], object]) -> bytes:
    """Ask in a task, over a connection of its own."""
    begun()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /price HTTP/1.1\r\nHost: backend\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
    finally:
        writer.close()
    if not answer.startswith(b"HTTP/1.1 200"):
        raise Unavailable(answer[9:12].decode())
    return answer.partition(b"\r\n\r\n")[2]
