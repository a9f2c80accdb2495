"""Guards in gRPC: interceptors for clients and servers, of threads and of asyncio.

>>> import grpc
>>> from faulttolerance.policies import CircuitBreaker, Retry
>>> again = Retry(max_retries=2, retry_on=grpc.RpcError)
>>> guarded = GuardedCalls(retry=again, circuit_breaker=CircuitBreaker(), methods="Get*")
>>> channel = grpc.intercept_channel(grpc.insecure_channel("localhost:50051"), guarded)
>>> channel.close()
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import grpc  # type: ignore[import-untyped]

from .. import RefusedException, TimeoutException, on_deadline
from ._grpc_aio import AsyncGuardedCalls
from ._grpc_rules import (
    AGAIN,
    FAILURES,
    BulkheadFull,
    CallTimeout,
    CircuitOpen,
    GrpcRules,
    RateLimited,
    RefusedCall,
    StartedCall,
    Throttled,
    as_grpc_error,
    is_repeatable,
    split_method,
)
from ._grpc_server import AsyncRefusalInterceptor, RefusalInterceptor
from ._time import time_limit

if TYPE_CHECKING:
    from typing import Unpack

    from .._extensions.keywords import GuardPolicies

__all__ = [
    "AGAIN",
    "FAILURES",
    "AsyncGuardedCalls",
    "AsyncRefusalInterceptor",
    "BulkheadFull",
    "CallTimeout",
    "CircuitOpen",
    "GuardedCalls",
    "RateLimited",
    "RefusalInterceptor",
    "RefusedCall",
    "Throttled",
]

_Continuation = Callable[[Any, Any], Any]


class GuardedCalls(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[misc]
    grpc.StreamStreamClientInterceptor,  # type: ignore[misc]
):
    """An interceptor that runs the calls of a channel under a guard with a state for each service.

    It is for ``grpc.intercept_channel``.

    A call gets ``remaining()`` as its own time-out, where that is shorter. Failures come out as from gRPC. A refusal or
    a time-out of the guard comes out as a ``RefusedCall`` or ``CallTimeout``, each a ``grpc.RpcError`` with a
    ``code()``, and the library's exception, too.

    The guard ends with the response. Where responses are a stream, it ends with the first response, and the call begins
    when the first response is requested. For calls that stream both ways, and for ``future`` of a stub, the guard only
    admits the start, and records the end: they are refused like others, and fail like others, but are neither sent
    again nor held by a bulkhead.

    Args:
        failures: Codes that are failures of the service.
        again: Codes after which a call may be made again.
        methods: Patterns of the methods that may be called again, as ``"Get*"`` or ``"shop.Orders/*"``. Streams of
            requests never are.
        name: The name of the guard, as in ``Guard``.
        **policies: The policies of the guard, as in ``Guard``, except ``hedge``, ``coalesce``, ``fallback`` and
            ``retry_when``; without any, a circuit breaker. ``partition_by`` is by default ``PartitionBy("service")``;
            ``"method"`` is available, too. A ``Retry`` that names no failures means ``grpc.RpcError`` and time-outs of
            the guard.

    Raises:
        FaultToleranceDefinitionException: One of these is something else.
    """

    def __init__(
        self,
        *,
        failures: Collection[grpc.StatusCode] = FAILURES,
        again: Collection[grpc.StatusCode] = AGAIN,
        methods: str | Iterable[str] = "*",
        name: str = "",
        **policies: Unpack[GuardPolicies],
    ) -> None:
        self._rules = GrpcRules(type(self).__name__, name, policies, failures, again, methods)
        self.guard = self._rules.guard

    def intercept_unary_unary(self, continuation: _Continuation, client_call_details: Any, request: Any) -> Any:
        """Run a call under the guard."""
        if _is_for_later():
            return self._begin(continuation, client_call_details, request)
        return self._run(_finish, continuation, client_call_details, request, is_at_hand=True)

    def intercept_stream_unary(
        self, continuation: _Continuation, client_call_details: Any, request_iterator: Any
    ) -> Any:
        """Run a call with a stream of requests, once."""
        if _is_for_later():
            return self._begin(continuation, client_call_details, request_iterator)
        return self._run(_finish, continuation, client_call_details, request_iterator, is_at_hand=False)

    def intercept_unary_stream(self, continuation: _Continuation, client_call_details: Any, request: Any) -> Any:
        """Return the responses of a call, which begins when the first response is requested."""

        def begin(stream: _Stream) -> Any:
            details = _within_deadline(client_call_details)  # of the whole stream, whatever the guard's time-out
            return self._run(_begin_stream, continuation, details, request, stream, is_at_hand=True)

        return _Stream(begin)

    def intercept_stream_stream(
        self, continuation: _Continuation, client_call_details: Any, request_iterator: Any
    ) -> Any:
        """Start a call that streams both ways."""
        return self._begin(continuation, _within_deadline(client_call_details), request_iterator, is_whole=False)

    def _run(self, function: Callable[..., Any], *given: Any, is_at_hand: bool) -> Any:
        """Run *function* under the guard; return the call, or the exception that stands for a failed call."""
        service, method = split_method(given[1].method)
        token = is_repeatable.set(is_at_hand and self._rules.may_repeat(method))
        try:
            return self.guard.call(function, service, method, *given)
        except StartedCall as started:
            return started.call
        except grpc.RpcError as failure:
            return failure
        except (RefusedException, TimeoutException) as failure:
            return as_grpc_error(failure)
        finally:
            is_repeatable.reset(token)

    def _begin(self, continuation: _Continuation, details: Any, requests: Any, *, is_whole: bool = True) -> Any:
        call = self._run(_let_begin if is_whole else _let_stream, continuation, details, requests, is_at_hand=False)
        if not isinstance(call, (RefusedCall, CallTimeout)):
            service, method = split_method(details.method)
            call.add_done_callback(lambda over: self._rules.record_end(service, method, over.code()))
        return call


def _finish(service: str, method: str, continuation: _Continuation, details: Any, request: Any) -> Any:
    call = continuation(_within_deadline(details), request)
    call.result()  # of a call that has ended; raises its failure
    return call


def _begin_stream(
    service: str, method: str, continuation: _Continuation, details: Any, request: Any, stream: _Stream
) -> Any:
    call = continuation(details, request)
    stream.run(call)
    return call


def _let_begin(service: str, method: str, continuation: _Continuation, details: Any, request: Any) -> Any:
    raise StartedCall(continuation(_within_deadline(details), request))


def _let_stream(service: str, method: str, continuation: _Continuation, details: Any, requests: Any) -> Any:
    raise StartedCall(continuation(details, requests))


def _is_for_later() -> bool:
    """Return whether ``future`` of a stub calls the interceptor: a wait for the response would defeat its purpose."""
    return sys._getframe(2).f_code.co_name == "future"


class _Stream:
    """The responses of a call, which is started, and started again, until the first response is there.

    All other attributes are those of the call.

    Args:
        begin: Returns the call; it is called with this object, whose ``run`` it calls.
    """

    def __init__(self, begin: Callable[[_Stream], Any]) -> None:
        self._begin = begin
        self._lock = Lock()
        self._call: Any = None
        self._running: Any = None
        self._first: list[Any] = []
        self._is_cancelled = False

    def run(self, call: Any) -> None:
        """Wait for the first response."""
        self._running = call
        try:
            if self._is_cancelled:
                call.cancel()
            with on_deadline(call.cancel):
                self._first = [next(call)]
        except StopIteration:
            self._first = []
        except BaseException:
            call.cancel()  # nobody reads it
            raise

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        call = self._begun()
        return self._first.pop() if self._first else next(call)

    def cancel(self) -> bool:
        """Cancel the call, also while its first response is awaited."""
        self._is_cancelled = True
        return self._running is None or bool(self._running.cancel())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._begun(), name)

    def _begun(self) -> Any:
        with self._lock:
            if self._call is None:
                self._call = self._begin(self)
            return self._call


class _Details(NamedTuple):
    """The details of a call."""

    method: Any
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: Any
    compression: Any


def _within_deadline(details: Any) -> _Details:
    """Return *details* with the time that is left as the time-out, unless there is a shorter one."""
    values = [getattr(details, name, None) for name in _Details._fields]
    return _Details(*values)._replace(timeout=time_limit(values[1]))
