"""Guards in requests: an adapter with a circuit for each host, which sends repeatable requests again.

>>> import requests
>>> from faulttolerance.policies import Retry, Timeout
>>> adapter = GuardedAdapter(retry=Retry(retry_on=requests.RequestException), timeout=Timeout("2s"))
>>> session = requests.Session()
>>> session.mount("http://", adapter)
>>> session.mount("https://", adapter)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.exceptions import ChunkedEncodingError, SSLError
from requests.utils import rewind_body
from urllib3.exceptions import ConnectTimeoutError, EmptyPoolError, NewConnectionError
from urllib3.util import Timeout

from .. import Guard, exceptions, uninterruptible
from ._http import METHODS, STATUSES, GuardedClient, RequestRecord, origin_of
from ._sending import current_record
from ._time import time_limit

if TYPE_CHECKING:
    from typing import Unpack

    from .._extensions.keywords import GuardPolicies

__all__ = [
    "BulkheadFull",
    "CircuitOpen",
    "GuardedAdapter",
    "RateLimited",
    "RefusedRequest",
    "RequestTimeout",
    "Throttled",
]


class RequestTimeout(exceptions.TimeoutException, requests.Timeout):
    """A time-out of the guard, or of a deadline around it."""

    response = None


class RefusedRequest(exceptions.RefusedException, requests.RequestException):
    """A request that the guard did not admit: the base of the refusals."""

    response = None


RefusedRequest.__new__ = requests.RequestException.__new__  # type: ignore[method-assign]


class CircuitOpen(RefusedRequest, exceptions.CircuitBreakerOpenException):
    """A refusal: the circuit of the origin is open."""


class RateLimited(RefusedRequest, exceptions.RateLimitException):
    """A refusal: more requests were made in the window than the rate limit allows."""


class BulkheadFull(RefusedRequest, exceptions.BulkheadException):
    """A refusal: as many requests run (and wait) as the bulkhead allows."""


class Throttled(RefusedRequest, exceptions.ThrottleException):
    """A refusal: the adaptive throttle spares the host the request."""


class GuardedAdapter(GuardedClient, BaseAdapter):
    """An adapter that sends requests under a guard with a state for each origin, and repeatable requests again.

    Responses and errors come out as from requests, the last response included; or a ``RefusedRequest`` or a
    ``RequestTimeout``, each of which is a ``requests.RequestException``, and the library's exception, too.

    Args:
        guard: A guard that other adapters may share, called with the parameters ``origin`` and ``request``; ``None``:
            the adapter creates its own, of *name* and *policies*.
        adapter: The adapter that sends, and is closed with this one; ``None``: a ``requests.adapters.HTTPAdapter``.
        statuses: Statuses of failing responses.
        methods: Methods that may be sent again though they may have arrived; others with an ``Idempotency-Key`` only.
        name: The name of its own guard, released by ``close``.
        **policies: The policies, as in ``Guard``; by default ``partition_by`` is ``PartitionBy("origin")``, and a
            ``retry`` comes with ``HonorRetryAfter(max_delay="30s")``. Without any: two retries after 200 and 400 ms,
            give or take 100 ms, and a circuit breaker, of failing responses, failures of connections and time-outs.

    Raises:
        FaultToleranceDefinitionException: If one of these is something else, a guard and policies are passed, or the
            guard hedges or coalesces.
    """

    _sends = "send"
    _failures = (requests.ConnectionError, requests.Timeout, ChunkedEncodingError, requests.HTTPError)
    _mistakes = (SSLError,)
    _status_error = requests.HTTPError
    _client_error = requests.RequestException
    _client_timeout = requests.Timeout
    _timeout = RequestTimeout
    _refusal = RefusedRequest

    def __init__(
        self,
        guard: Guard | None = None,
        adapter: BaseAdapter | None = None,
        *,
        statuses: Collection[int] = STATUSES,
        methods: Collection[str] = METHODS,
        name: str = "",
        **policies: Unpack[GuardPolicies],
    ) -> None:
        super().__init__(guard, adapter, name, policies, statuses, methods)
        self._adapter = HTTPAdapter() if adapter is None else adapter
        if isinstance(self._adapter, HTTPAdapter):
            _limit_waiting(self._adapter)

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Send *request* under the guard, which ends with the headers of the response."""
        url = urlsplit(str(request.url))
        origin = origin_of(url.scheme, url.hostname or "", url.port)
        response: requests.Response = self._exchange(
            self._attempt, origin, request, stream=stream, timeout=timeout, verify=verify, cert=cert, proxies=proxies
        )
        _limit_reading(response, timeout)
        return response

    def _attempt(self, origin: str, request: requests.PreparedRequest) -> requests.Response:
        record: RequestRecord = current_record.get()
        was_sent, timeout = record.is_sent, record.options["timeout"]
        self._close_all(record.begin())
        try:
            if was_sent and not _is_text(request):
                rewind_body(request)
            try:
                response = self._adapter.send(request, **record.options | {"timeout": _in_time(timeout)})
            except EmptyPoolError as error:
                raise requests.ConnectTimeout(error, request=request) from error
            record.response = response
            if response.status_code not in self._statuses:
                record.end()
                return response
            if record.obstacle is None and not record.options["stream"]:
                _limit_reading(response, timeout)
                response.content  # noqa: B018  # read it: its connection is free while the guard waits
            words = f"{response.status_code} {response.reason} for {request.method} {request.url}"
            raise requests.HTTPError(words, request=request, response=response)
        except BaseException as failure:
            record.end(failure, is_sent=not _is_unsent(failure))
            raise

    def _is_at_hand(self, request: Any) -> bool:
        """Return whether the body is text, or a file that can be read again from where it stood."""
        return _is_text(request) or isinstance(getattr(request, "_body_position", None), int)

    def close(self) -> None:
        """Close the inner adapter, and release the name of a guard of its own."""
        self._release()
        self._adapter.close()


class _PoolInTime:
    """A pool of connections that waits for a free one until the nearest deadline, by itself.

    To urllib3 each exception but its own ``EmptyPoolError`` means that a connection was taken, and has to be replaced.
    """

    def _get_conn(self, timeout: float | None = None) -> Any:
        with uninterruptible():
            return super()._get_conn(time_limit(timeout))  # type: ignore[misc]

    def _get_timeout(self, timeout: Any) -> Any:
        return _in_time(super()._get_timeout(timeout))  # type: ignore[misc]  # the wait has taken some of the time


def _limit_waiting(adapter: HTTPAdapter) -> None:
    """Limit the wait of *adapter* for a free connection, where it waits: ``HTTPAdapter(pool_block=True)``."""
    find = adapter.get_connection_with_tls_context

    def pool_in_time(*args: Any, **options: Any) -> Any:
        pool = find(*args, **options)
        kind = type(pool)  # read once: the first requests of several threads may come here together
        if getattr(pool, "block", False) and not issubclass(kind, _PoolInTime):
            pool.__class__ = type(kind.__name__, (_PoolInTime, kind), {})
        return pool

    adapter.get_connection_with_tls_context = pool_in_time  # type: ignore[method-assign]


def _limit_reading(response: Any, timeout: Any) -> None:
    """Limit the wait for each part of the body by *timeout* and the time left now, no longer by that at the start."""
    read = timeout[-1] if isinstance(timeout, tuple) else getattr(timeout, "_read", timeout)
    with suppress(AttributeError, OSError, TypeError):  # no socket, a body that has ended, an urllib3.Timeout(total=9)
        response.raw._fp.fp.raw._sock.settimeout(time_limit(read))


def _is_text(request: Any) -> bool:
    return isinstance(request.body, (str, bytes, type(None)))


def _is_unsent(failure: BaseException) -> bool:
    """Return whether no connection was made at all."""
    if not isinstance(failure, requests.ConnectionError) or not failure.args:
        return False
    reason = getattr(failure.args[0], "reason", failure.args[0])
    reason = getattr(reason, "original_error", reason)
    return isinstance(reason, (ConnectTimeoutError, EmptyPoolError, NewConnectionError))


def _in_time(timeout: Any) -> Any:
    """Return a time-out that ends with the nearest deadline: a limit for connection and response in all."""
    if (left := time_limit(None)) is None:
        return timeout
    if not isinstance(timeout, Timeout):
        connect, read = timeout if isinstance(timeout, tuple) else (timeout, timeout)
        timeout = Timeout(connect=connect, read=read)
    within = timeout.clone()
    within.total = min(within.total, left) if isinstance(within.total, (int, float)) else left
    return within
