"""The client service: what a shop's front asks its backend, each call guarded as its purpose asks for.

A page that cannot show the stock is better than no page: reads have short time-outs and a substitute.
An order must not be lost: it is tried until it is taken, and carries a key so that it is never taken twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import httpx

from faulttolerance import (
    ExecutionContext,
    Future,
    TimeoutException,
    asynchronous,
    bulkhead,
    circuit_breaker,
    completed_future,
    fallback,
    remaining,
    retry,
    timeout,
)


class ServerError(Exception):
    """The backend answered that it cannot answer."""


TRANSIENT = (httpx.TransportError, ServerError, TimeoutException)
"""What another attempt may cure. A refusal (4xx) is none of these: it would be refused again."""

MISTAKES = (AttributeError, NameError, TypeError)
"""What no substitute may hide: a mistake in this file would look like an outage of the backend."""

BEST_SELLERS = (3, 14, 15)


class Product(NamedTuple):
    """What a page shows."""

    number: int
    name: str
    cents: int | None


class BestSellers:
    """Recommends the same to everyone, where nothing personal is to be had."""

    def handle(self, context: ExecutionContext) -> tuple[int, ...]:
        return BEST_SELLERS


class Storefront:
    """The backend as the shop's pages see it. One instance serves all threads and one event loop."""

    def __init__(self, backend: str) -> None:
        self._http = httpx.Client(base_url=backend, limits=httpx.Limits(max_connections=None))
        self._async_http = httpx.AsyncClient(base_url=backend, limits=httpx.Limits(max_connections=None))
        self._seen: dict[int, Product] = {}

    # What a page shows: soon, or something else instead.

    @fallback(fallback_method="product_as_last_seen", skip_on=MISTAKES)
    @retry(max_retries=2, delay="20ms", jitter="20ms", retry_on=TRANSIENT)
    @circuit_breaker(request_volume_threshold=20, failure_ratio=0.75, delay="300ms", fail_on=TRANSIENT)
    @timeout("250ms")
    def product(self, number: int) -> Product:
        """Name and price; as last seen where the backend does not tell."""
        found = content(self._http.get(f"/products/{number}", timeout=patience()))
        self._seen[number] = Product(number, found["name"], found["cents"])
        return self._seen[number]

    def product_as_last_seen(self, number: int) -> Product:
        """The substitute of `product`: it takes what `product` takes."""
        return self._seen.get(number, Product(number, f"Product {number}", None))

    @fallback(lambda context: None, skip_on=MISTAKES)
    @retry(max_retries=2, delay="20ms", jitter="20ms", retry_on=TRANSIENT)
    @circuit_breaker(request_volume_threshold=20, failure_ratio=0.75, delay="300ms", fail_on=TRANSIENT)
    @timeout("250ms")
    async def stock(self, number: int) -> int | None:
        """How many pieces there are; `None` where that is not known."""
        found = content(await self._async_http.get(f"/stock/{number}"))
        return int(found["pieces"])

    @fallback(BestSellers, skip_on=MISTAKES)
    @timeout("600ms")
    @bulkhead(3, waiting_task_queue=3)
    async def recommendations(self, customer: int) -> tuple[int, ...]:
        """What else to look at. It is dear to compute: few at once, some wait, the rest see best-sellers."""
        found = content(await self._async_http.get(f"/recommendations/{customer}"))
        return tuple(found["products"])

    # What must happen, however long it takes.

    @retry(max_retries=-1, delay="100ms", jitter="80ms", max_duration="10s", retry_on=TRANSIENT)
    @timeout("500ms")
    def order(self, key: str) -> str:
        """The receipt. The backend takes each key once, so that trying again is safe."""
        return str(content(self._http.post(f"/orders/{key}", timeout=patience()))["receipt"])

    @asynchronous
    @retry(max_retries=-1, delay="100ms", jitter="80ms", max_duration="10s", retry_on=TRANSIENT)
    @timeout("500ms")
    @bulkhead(8, waiting_task_queue=100)
    def mail(self, key: str) -> Future[str]:
        """Confirm by mail, behind the customer's back: the page does not wait for it."""
        return completed_future(str(content(self._http.post(f"/mails/{key}", timeout=patience()))["receipt"]))

    def close(self) -> None:
        self._http.close()

    async def aclose(self) -> None:
        await self._async_http.aclose()


def content(answer: httpx.Response) -> dict[str, Any]:
    """What the backend said; raises for an error, of the server's or of ours."""
    if answer.is_server_error:
        raise ServerError(answer.status_code)
    content: dict[str, Any] = answer.raise_for_status().json()
    return content


def patience() -> float:
    """Seconds to wait for the network: what the guard's time-out has left, else httpx's own default.

    A coroutine is cancelled at its deadline and needs none of this. A thread that is blocked in a read can be
    interrupted by nobody (but the main one), so that the read is told when to give up.
    """
    left = remaining()
    return 5.0 if left is None else max(left, 0.001)
