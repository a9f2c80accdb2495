"""Guards in gRPC: interceptors for clients and servers, of threads and of asyncio.

>>> import grpc
>>> from faulttolerance.policies import CircuitBreaker, Retry
>>> again = Retry(max_retries=2, retry_on=grpc.RpcError)
>>> guarded = GuardedCalls(retry=again, circuit_breaker=CircuitBreaker(), methods="Get*")
>>> channel = grpc.intercept_channel(grpc.insecure_channel("localhost:50051"), guarded)
>>> channel.close()
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from threading import Lock
from types import SimpleNamespace
from typing import Any, Self

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]

from .. import RefusedException, TimeoutException, on_deadline
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
_DETAILS = ("method", "metadata", "credentials", "wait_for_ready", "compression")


class GuardedCalls(
    GrpcRules,
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

    def intercept_unary_unary(self, continuation: _Continuation, client_call_details: Any, request: Any) -> Any:
        """Run a call under the guard."""
        if _is_for_later():
            return self._run(_let_begin, _in_time(continuation), client_call_details, request)
        return self._run(_finish, _in_time(continuation), client_call_details, request, is_at_hand=True)

    def intercept_stream_unary(
        self, continuation: _Continuation, client_call_details: Any, request_iterator: Any
    ) -> Any:
        """Run a call with a stream of requests, once."""
        function = _let_begin if _is_for_later() else _finish
        return self._run(function, _in_time(continuation), client_call_details, request_iterator)

    def intercept_unary_stream(self, continuation: _Continuation, client_call_details: Any, request: Any) -> Any:
        """Return the responses of a call, which begins when the first response is requested."""

        def begin(stream: _Stream) -> Any:
            details = _within_deadline(client_call_details)  # of the whole stream, whatever the guard's time-out
            return self._run(stream.run, continuation, details, request, is_at_hand=True)

        return _Stream(begin)

    def intercept_stream_stream(
        self, continuation: _Continuation, client_call_details: Any, request_iterator: Any
    ) -> Any:
        """Start a call that streams both ways."""
        return self._run(_let_begin, continuation, _within_deadline(client_call_details), request_iterator)

    def _run(self, function: Callable[..., Any], *given: Any, is_at_hand: bool = False) -> Any:
        """Run *function* under the guard; return the call, or the exception that stands for a failed call."""
        service, method = split_method(given[1].method)
        token = is_repeatable.set(is_at_hand and self._may_repeat(method))
        try:
            return self.guard.call(function, service, method, *given)
        except StartedCall as started:
            started.call.add_done_callback(lambda over: self._record_end(service, method, over.code()))
            return started.call
        except grpc.RpcError as failure:
            return failure
        except (RefusedException, TimeoutException) as failure:
            return as_grpc_error(failure)
        finally:
            is_repeatable.reset(token)


def _finish(service: str, method: str, continuation: _Continuation, details: Any, request: Any) -> Any:
    call = continuation(details, request)
    call.result()  # of a call that has ended; raises its failure
    return call


def _let_begin(service: str, method: str, continuation: _Continuation, details: Any, request: Any) -> Any:
    raise StartedCall(continuation(details, request))


def _is_for_later() -> bool:
    """Return whether ``future`` of a stub calls the interceptor: a wait for the response would defeat its purpose."""
    return sys._getframe(2).f_code.co_name == "future"


class _Stream:
    """The responses of a call, which is started, and started again, until the first response is there.

    All other attributes are those of the call.

    Args:
        begin: Returns the call; it is called with this object, whose ``run`` is an attempt of the guard.
    """

    def __init__(self, begin: Callable[[_Stream], Any]) -> None:
        self._begin = begin
        self._lock = Lock()
        self._call: Any = None
        self._running: Any = None
        self._first: list[Any] = []
        self._is_cancelled = False

    def run(self, service: str, method: str, continuation: _Continuation, details: Any, request: Any) -> Any:
        """Start the call, wait for its first response, and return the call."""
        self._running = call = continuation(details, request)
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
        return call

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


def _in_time(continuation: _Continuation) -> _Continuation:
    """Return *continuation* for a call that ends at the deadline of its attempt."""
    return lambda details, request: continuation(_within_deadline(details), request)


def _within_deadline(details: Any) -> Any:
    """Return *details* with the time that is left as the time-out, unless there is a shorter one."""
    timeout = time_limit(getattr(details, "timeout", None))
    if "timeout" in getattr(details, "_fields", ()):
        return details._replace(timeout=timeout)
    # They are of another interceptor.
    return SimpleNamespace(timeout=timeout, **{name: getattr(details, name, None) for name in _DETAILS})


# On asyncio


class AsyncGuardedCalls(GrpcRules, list[Any]):
    """The same as ``GuardedCalls`` for ``grpc.aio``: four interceptors that share one guard.

    ``grpc.aio.insecure_channel(target, interceptors=AsyncGuardedCalls())``, or ``[*AsyncGuardedCalls(), other]``. The
    guard only admits the start of calls with a stream of requests; for other calls it ends as in ``GuardedCalls``.
    """

    def _prepare(self) -> None:
        self._told: set[asyncio.Task[None]] = set()
        self.extend(kind(self) for kind in (_UnaryUnary, _UnaryStream, _StreamUnary, _StreamStream))

    async def _run(self, function: Callable[..., Any], continuation: _Continuation, details: Any, request: Any) -> Any:
        service, method = split_method(details.method)
        token = is_repeatable.set(self._may_repeat(method))
        try:
            return await self.guard.call_async(function, service, method, continuation, details, request)
        except StartedCall as started:
            started.call.add_done_callback(lambda over: self._tell(service, method, over))
            return started.call
        except grpc.RpcError:
            raise
        except (RefusedException, TimeoutException) as failure:
            raise as_grpc_error(failure) from failure
        finally:
            is_repeatable.reset(token)

    def _tell(self, service: str, method: str, call: Any) -> None:
        async def tell() -> None:
            self._record_end(service, method, await call.code())

        task = asyncio.get_running_loop().create_task(tell())
        self._told.add(task)
        task.add_done_callback(self._told.discard)


class _Guarded:
    """The common part of the four kinds."""

    def __init__(self, calls: AsyncGuardedCalls) -> None:
        self._run = calls._run


class _UnaryUnary(_Guarded, grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    async def intercept_unary_unary(self, continuation: _Continuation, client_call_details: Any, request: Any) -> Any:
        return await self._run(_finish_async, _in_time(continuation), client_call_details, request)


class _UnaryStream(_Guarded, grpc.aio.UnaryStreamClientInterceptor):  # type: ignore[misc]
    async def intercept_unary_stream(self, continuation: _Continuation, client_call_details: Any, request: Any) -> Any:
        details = _within_deadline(client_call_details)  # of the whole stream
        return await self._run(_begin_stream_async, continuation, details, request)


class _StreamUnary(_Guarded, grpc.aio.StreamUnaryClientInterceptor):  # type: ignore[misc]
    async def intercept_stream_unary(
        self, continuation: _Continuation, client_call_details: Any, request_iterator: Any
    ) -> Any:
        return await self._run(_let_begin_async, _in_time(continuation), client_call_details, request_iterator)


class _StreamStream(_Guarded, grpc.aio.StreamStreamClientInterceptor):  # type: ignore[misc]
    async def intercept_stream_stream(
        self, continuation: _Continuation, client_call_details: Any, request_iterator: Any
    ) -> Any:
        details = _within_deadline(client_call_details)
        return await self._run(_let_begin_async, continuation, details, request_iterator)


async def _finish_async(service: str, method: str, continuation: _Continuation, details: Any, request: Any) -> Any:
    call = await continuation(details, request)
    await call
    return call


async def _begin_stream_async(
    service: str, method: str, continuation: _Continuation, details: Any, request: Any
) -> Any:
    call = await continuation(details, request)
    responses = aiter(call)
    try:
        first = [await anext(responses)]
    except StopAsyncIteration:
        first = []
    except BaseException:
        call.cancel()  # nobody reads it
        raise
    return _again(first, responses)


async def _again(first: list[Any], rest: AsyncIterator[Any]) -> AsyncIterator[Any]:
    for response in first:
        yield response
    async for response in rest:
        yield response


async def _let_begin_async(service: str, method: str, continuation: _Continuation, details: Any, requests: Any) -> Any:
    raise StartedCall(await continuation(details, requests))
