"""Guards in httpx: transports with a circuit for each host, which send repeatable requests again.

>>> import httpx
>>> from faulttolerance.policies import Retry, Timeout
>>> client = httpx.Client(transport=GuardedTransport(retry=Retry(retry_on=httpx.HTTPError), timeout=Timeout("2s")))
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import httpcore
import httpx

from .. import Guard, exceptions
from ._http import METHODS, STATUSES, GuardedClient, RequestRecord, origin_of
from ._sending import current_record
from ._time import monotonic, time_limit

if TYPE_CHECKING:
    from typing import Unpack

    from .._extensions.keywords import GuardPolicies

__all__ = [
    "AsyncGuardedTransport",
    "BulkheadFull",
    "CircuitOpen",
    "GuardedTransport",
    "RateLimited",
    "RefusedRequest",
    "RequestTimeout",
    "Throttled",
]

T = TypeVar("T", bound=httpx.BaseTransport | httpx.AsyncBaseTransport)

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)
"""Failures of requests that never left."""
_MAX_BODY_BYTES = 64 * 1024
"""Bytes of the body of a failing response that are read, so that its connection is free while the guard waits."""
_MAX_BODY_SECONDS = 1.0
"""The seconds after which no further part is read."""


class RequestTimeout(exceptions.TimeoutException, httpx.TimeoutException):
    """A time-out of the guard, or of a deadline around it."""


class RefusedRequest(exceptions.RefusedException, httpx.TransportError):
    """A request that the guard did not admit: the base of the refusals."""


class CircuitOpen(RefusedRequest, exceptions.CircuitBreakerOpenException):
    """A refusal: the circuit of the origin is open."""


class RateLimited(RefusedRequest, exceptions.RateLimitException):
    """A refusal: more requests were made in the window than the rate limit allows."""


class BulkheadFull(RefusedRequest, exceptions.BulkheadException):
    """A refusal: as many requests run (and wait) as the bulkhead allows."""


class Throttled(RefusedRequest, exceptions.ThrottleException):
    """A refusal: the adaptive throttle spares the host the request."""


class _Timeouts(dict[str, float | None]):
    """The time-outs of a request: each step of the client gets at most the time that is left when it begins."""

    def get(self, step: str, default: Any = None) -> Any:
        return time_limit(super().get(step, default))


class _PartlyReadBody(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of a failing response: its beginning is read until it is whole, too long or too slow."""

    def __init__(self, stream: Any, parts: Any) -> None:
        self._until = monotonic() + _MAX_BODY_SECONDS
        self._stream = stream
        self.rest = parts
        """Yields the parts that were not read."""
        self.start = b""
        """What was read."""

    def is_enough_with(self, part: bytes) -> bool:
        """Store *part*, and return whether no further part is to be read."""
        self.start += part
        return len(self.start) >= _MAX_BODY_BYTES or monotonic() >= self._until

    def __iter__(self) -> Iterator[bytes]:
        yield self.start
        yield from self.rest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.start
        async for part in self.rest:
            yield part

    def close(self) -> None:
        self._stream.close()

    async def aclose(self) -> None:
        await self._stream.aclose()


def _read_start(stream: httpx.SyncByteStream) -> httpx.SyncByteStream:
    """Return the body of a failing response, read as far as it comes soon; a whole body frees its connection."""
    body = _PartlyReadBody(stream, iter(stream))
    for part in body.rest:
        if body.is_enough_with(part):
            return body
    stream.close()
    return httpx.ByteStream(body.start)


async def _read_start_async(stream: httpx.AsyncByteStream) -> httpx.AsyncByteStream:
    """Return the same in coroutines."""
    body = _PartlyReadBody(stream, aiter(stream))
    async for part in body.rest:
        if body.is_enough_with(part):
            return body
    await _close_shielded(stream)
    return httpx.ByteStream(body.start)


class _Guarded(GuardedClient, Generic[T]):
    """The common decisions of both transports."""

    _default: ClassVar[type[Any]]
    """The class of the transport that sends if none is passed."""

    _failures = (httpx.TransportError, httpx.HTTPStatusError)
    _mistakes = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)
    _status_error = httpx.HTTPStatusError
    _client_error = httpx.HTTPError
    _client_timeout = httpx.TimeoutException
    _timeout = RequestTimeout
    _refusal = RefusedRequest

    def __init__(
        self,
        guard: Guard | None = None,
        transport: T | None = None,
        *,
        statuses: Collection[int] = STATUSES,
        methods: Collection[str] = METHODS,
        name: str = "",
        **policies: Unpack[GuardPolicies],
    ) -> None:
        super().__init__(guard, transport, name, policies, statuses, methods)
        self._transport: T = self._default() if transport is None else transport

    def _begin(self, request: httpx.Request) -> str:
        """Limit each step of *request* to the time that is left, and return its origin."""
        timeouts = request.extensions.get("timeout") or {}
        request.extensions = {**request.extensions, "timeout": _Timeouts(timeouts)}
        url = request.url
        return origin_of(url.scheme, url.raw_host.decode("ascii"), url.port)

    def _is_at_hand(self, request: httpx.Request) -> bool:
        return isinstance(request.stream, httpx.ByteStream)


def _failing(request: httpx.Request, response: httpx.Response) -> httpx.HTTPStatusError:
    response.request = request  # as the client does
    words = f"{response.status_code} {response.reason_phrase} for {request.method} {request.url}"
    return httpx.HTTPStatusError(words, request=request, response=response)


def _remove_lost_connections(transport: object) -> list[Any]:
    """Remove lost connections from the pool of httpcore and return them; they have to be closed.

    A request that ends, by a time-out or a cancellation, while a new connection is assigned to it leaves the connection
    in the pool. The pool treats it as connecting, for ever: httpcore 1.0.9 and earlier. A pool of another kind is left
    alone.
    """
    pool: Any = getattr(transport, "_pool", None)
    if not issubclass(type(pool), httpcore.ConnectionPool | httpcore.AsyncConnectionPool):
        return []
    with pool._optional_thread_lock:
        taken = {id(one.connection) for one in pool._requests}
        lost = [one for one in pool._connections if id(one) not in taken and not (one.is_idle() or one.is_closed())]
        if not lost:
            return []
        for one in lost:
            pool._connections.remove(one)
        return [*lost, *pool._assign_requests_to_connections()]  # to the requests that wait for one


class GuardedTransport(_Guarded[httpx.BaseTransport], httpx.BaseTransport):
    """A transport that sends requests under a guard with a state for each origin, and repeatable requests again.

    Responses and errors come out as from httpx, the last response included; or a ``RefusedRequest`` or a
    ``RequestTimeout``, each of which is an ``httpx.TransportError``, and the library's exception, too.

    Args:
        guard: A guard that other transports may share, called with the parameters ``origin`` and ``request``; ``None``:
            the transport creates its own, of *name* and *policies*.
        transport: The transport that sends, and is closed with this one; ``None``: an ``httpx.HTTPTransport``.
        statuses: Statuses of failing responses.
        methods: Methods that may be sent again though they may have arrived; others with an ``Idempotency-Key`` only.
        name: The name of its own guard, released by ``close``.
        **policies: The policies, as in ``Guard``; by default ``partition_by`` is ``PartitionBy("origin")``, and a
            ``retry`` comes with ``HonorRetryAfter(max_delay="30s")``. Without any: two retries after 200 and 400 ms,
            give or take 100 ms, and a circuit breaker, of failing responses, failures of the transport and time-outs.

    Raises:
        FaultToleranceDefinitionException: If one of these is something else, a guard and policies are passed, or the
            guard hedges or coalesces.
    """

    _sends = "handle_request"
    _default = httpx.HTTPTransport

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send *request* under the guard, which ends with the headers of the response."""
        response: httpx.Response = self._exchange(self._attempt, self._begin(request), request)
        return response

    def _attempt(self, origin: str, request: httpx.Request) -> httpx.Response:
        record: RequestRecord = current_record.get()
        self._close_all(record.begin())
        try:
            record.response = response = self._transport.handle_request(request)
            if response.status_code not in self._statuses:
                record.end()
                return response
            if record.obstacle is None:  # its connection is free while the guard waits
                response.stream = _read_start(response.stream)  # type: ignore[arg-type]
            raise _failing(request, response)
        except BaseException as failure:
            record.end(failure, is_sent=not isinstance(failure, _NOT_SENT))
            self._close_all(_remove_lost_connections(self._transport))
            raise

    def close(self) -> None:
        """Close the inner transport, and release the name of a guard of its own."""
        self._release()
        self._transport.close()


async def _close_shielded(stream: Any) -> None:
    """Close *stream* to its end: httpcore loses the connection where a task is cancelled as it closes."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # trio
        await stream.aclose()
    else:
        await asyncio.shield(stream.aclose())


async def _close_all_shielded(several: Iterable[Any]) -> None:
    """Close responses or connections in the same way; an error does not concern the caller."""
    for one in several:
        with suppress(Exception):
            await _close_shielded(one)


class _ShieldedStream(httpx.AsyncByteStream):
    """The body of a response, closed to its end also where the task is cancelled meanwhile."""

    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._stream)

    async def aclose(self) -> None:
        await _close_shielded(self._stream)


class AsyncGuardedTransport(_Guarded[httpx.AsyncBaseTransport], httpx.AsyncBaseTransport):
    """The same as ``GuardedTransport`` for ``httpx.AsyncClient``, on asyncio; *transport* is asynchronous."""

    _sends = "handle_async_request"
    _default = httpx.AsyncHTTPTransport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send *request* under the guard, which ends with the headers of the response."""
        origin = self._begin(request)
        with self._recording(request) as record:
            try:
                record.given = await self.guard.call_async(self._attempt, origin, request)
            except Exception as failure:  # noqa: BLE001  # it is raised again
                record.given = self._response_after(failure, record)
            finally:
                await _close_all_shielded(record.left_over())
            return record.given  # type: ignore[no-any-return]

    async def _attempt(self, origin: str, request: httpx.Request) -> httpx.Response:
        record: RequestRecord = current_record.get()
        await _close_all_shielded(record.begin())
        try:
            record.response = response = await self._transport.handle_async_request(request)
            if isinstance(response.stream, httpx.AsyncByteStream):
                response.stream = _ShieldedStream(response.stream)
            if response.status_code not in self._statuses:
                record.end()
                return response
            if record.obstacle is None:  # as above
                response.stream = await _read_start_async(response.stream)  # type: ignore[arg-type]
            raise _failing(request, response)
        except BaseException as failure:
            record.end(failure, is_sent=not isinstance(failure, _NOT_SENT))
            await _close_all_shielded(_remove_lost_connections(self._transport))
            raise

    async def aclose(self) -> None:
        """Close the inner transport, and release the name of a guard of its own."""
        self._release()
        await self._transport.aclose()
