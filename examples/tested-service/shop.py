"""A shop that calls a bank and a warehouse over the network, and is guarded against both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from faulttolerance import (
    ExecutionContext,
    bulkhead,
    circuit_breaker,
    fallback,
    partition_by,
    rate_limit,
    retry,
    retry_budget,
    sleep,
    timeout,
)

Transport = Callable[[str], str]
"""Sends a request, and gives what came back."""


def _kept_for_later(context: ExecutionContext) -> str:
    return f"order {context.parameters[0]} is kept for later"


class Shop:
    def __init__(self, transport: Transport) -> None:
        self._send = transport

    @fallback(_kept_for_later)
    @circuit_breaker(request_volume_threshold=4, delay=30_000, fail_on=ConnectionError)
    @retry(max_retries=3, delay=200, jitter=0, retry_on=ConnectionError)
    @retry_budget(burst=20)
    @timeout("2s")
    @bulkhead(10)
    def pay(self, order: int) -> str:
        return self._send(f"pay {order}")

    @partition_by("host")
    @circuit_breaker(request_volume_threshold=2, delay=30_000)
    def stock(self, host: str) -> str:
        return self._send(f"stock at {host}")

    @rate_limit(100, window="1s")
    @timeout("500ms")
    def search(self, words: str) -> str:
        if words == "everything":
            sleep(60)
        return self._send(f"search {words}")

    @retry(max_retries=2, delay="1s", jitter=0, retry_on=ConnectionError)
    async def ship(self, order: int) -> str:
        await asyncio.sleep(0.1)
        return self._send(f"ship {order}")


def answering(*answers: str | Exception) -> Transport:
    """Make a transport that gives *answers* one after the other, and then the last one again and again."""
    left = list(answers)

    def send(request: str) -> str:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return send
