"""Guarded calls of gRPC on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]

from .. import RefusedException, TimeoutException
from ._grpc_rules import AGAIN, FAILURES, GrpcRules, StartedCall, as_grpc_error, is_repeatable, split_method
from ._time import time_limit

if TYPE_CHECKING:
    from typing import Unpack

    from .._extensions.keywords import GuardPolicies

_Continuation = Callable[[Any, Any], Any]


class AsyncGuardedCalls(list[Any]):
    """The same as ``GuardedCalls`` for ``grpc.aio``: four interceptors that share one guard.

    ``grpc.aio.insecure_channel(target, interceptors=AsyncGuardedCalls())``, or ``[*AsyncGuardedCalls(), other]``. The
    guard only admits the start of calls with a stream of requests; for other calls it ends as in ``GuardedCalls``.
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
        rules = GrpcRules(type(self).__name__, name, policies, failures, again, methods)
        self.guard = rules.guard
        super().__init__(kind(rules) for kind in (_UnaryUnary, _UnaryStream, _StreamUnary, _StreamStream))


class _Guarded:
    """The common part of the four kinds."""

    def __init__(self, rules: GrpcRules) -> None:
        self._rules = rules
        self._told: set[asyncio.Task[None]] = set()

    async def _run(self, function: Callable[..., Any], continuation: _Continuation, details: Any, request: Any) -> Any:
        service, method = split_method(details.method)
        token = is_repeatable.set(self._rules.may_repeat(method))
        try:
            return await self._rules.guard.call_async(function, service, method, continuation, details, request)
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
            self._rules.record_end(service, method, await call.code())

        task = asyncio.get_running_loop().create_task(tell())
        self._told.add(task)
        task.add_done_callback(self._told.discard)


class _UnaryUnary(_Guarded, grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    async def intercept_unary_unary(self, continuation: _Continuation, client_call_details: Any, request: Any) -> Any:
        return await self._run(_finish, continuation, client_call_details, request)


class _UnaryStream(_Guarded, grpc.aio.UnaryStreamClientInterceptor):  # type: ignore[misc]
    async def intercept_unary_stream(self, continuation: _Continuation, client_call_details: Any, request: Any) -> Any:
        details = _within_deadline(client_call_details)  # of the whole stream
        return await self._run(_begin_stream, continuation, details, request)


class _StreamUnary(_Guarded, grpc.aio.StreamUnaryClientInterceptor):  # type: ignore[misc]
    async def intercept_stream_unary(
        self, continuation: _Continuation, client_call_details: Any, request_iterator: Any
    ) -> Any:
        return await self._run(_let_begin, continuation, client_call_details, request_iterator)


class _StreamStream(_Guarded, grpc.aio.StreamStreamClientInterceptor):  # type: ignore[misc]
    async def intercept_stream_stream(
        self, continuation: _Continuation, client_call_details: Any, request_iterator: Any
    ) -> Any:
        details = _within_deadline(client_call_details)
        return await self._run(_let_stream, continuation, details, request_iterator)


async def _finish(service: str, method: str, continuation: _Continuation, details: Any, request: Any) -> Any:
    call = await continuation(_within_deadline(details), request)
    await call
    return call


async def _begin_stream(service: str, method: str, continuation: _Continuation, details: Any, request: Any) -> Any:
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


async def _let_begin(service: str, method: str, continuation: _Continuation, details: Any, requests: Any) -> Any:
    raise StartedCall(await continuation(_within_deadline(details), requests))


async def _let_stream(service: str, method: str, continuation: _Continuation, details: Any, requests: Any) -> Any:
    raise StartedCall(await continuation(details, requests))


def _within_deadline(details: Any) -> Any:
    return details._replace(timeout=time_limit(details.timeout))
