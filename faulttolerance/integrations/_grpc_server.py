"""Refusals, time-outs and deadlines of calls in servers of gRPC, of threads and of asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]

from ._inbound import deadline_block, rounded_down
from ._refusals import answer_to

_CODES = {
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
_NO_MORE: Any = object()


class RefusalInterceptor(grpc.ServerInterceptor):  # type: ignore[misc]
    """An interceptor that ends refused calls with ``UNAVAILABLE`` or ``RESOURCE_EXHAUSTED``.

    ``grpc.server(pool, interceptors=[RefusalInterceptor()])``. Late calls end with ``DEADLINE_EXCEEDED``. ``RetryInfo``
    states when to try again, where that is known. The time that the caller of a call waits is the ``deadline`` of its
    handler. Other exceptions stay as they are.
    """

    def intercept_service(self, continuation: Callable[[Any], Any], handler_call_details: Any) -> Any:
        """Return the handler, which answers refusals and time-outs."""
        return _answering(continuation(handler_call_details))


class AsyncRefusalInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """The same for ``grpc.aio.server``; handlers may be plain functions there, too."""

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        """Return the handler, which answers refusals and time-outs."""
        return _answering(await continuation(handler_call_details))


def _answering(handler: Any) -> Any:
    """Return a handler that answers the exceptions of *handler*."""
    if handler is None:
        return None
    kind = "_".join("stream" if one else "unary" for one in (handler.request_streaming, handler.response_streaming))
    behavior = getattr(handler, kind)
    if iscoroutinefunction(behavior):
        answer: Any = _awaited
    elif isasyncgenfunction(behavior):
        answer = _async_stream
    else:
        answer = _stream if handler.response_streaming else _unary
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    return make(partial(answer, behavior), handler.request_deserializer, handler.response_serializer)


def _unary(behavior: Callable[..., Any], request: Any, context: Any) -> Any:
    return _step(context, behavior, request, context)


def _stream(behavior: Callable[..., Any], request: Any, context: Any) -> Iterator[Any]:
    responses = iter(_step(context, behavior, request, context))
    while (response := _step(context, next, responses, _NO_MORE)) is not _NO_MORE:
        yield response


async def _awaited(behavior: Callable[..., Awaitable[Any]], request: Any, context: Any) -> Any:
    return await _step_async(context, behavior, request, context)


async def _async_stream(behavior: Callable[..., AsyncIterator[Any]], request: Any, context: Any) -> AsyncIterator[Any]:
    responses = aiter(behavior(request, context))
    while (response := await _step_async(context, anext, responses, _NO_MORE)) is not _NO_MORE:
        yield response


def _step(context: Any, function: Callable[..., Any], *args: Any) -> Any:
    """Call *function* within the time of its call; the code that sends a response is not interrupted."""
    try:
        with _in_time(context):
            return function(*args)
    except Exception as failure:
        if end := _end(failure, context):
            context.abort(*end)
        raise


async def _step_async(context: Any, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    try:
        async with _in_time(context):
            return await function(*args)
    except Exception as failure:
        if end := _end(failure, context):
            await context.abort(*end)
        raise


def _in_time(context: Any) -> Any:
    left = context.time_remaining()
    return deadline_block(None if left is None or left > 1e8 else rounded_down(left))  # years are no deadline


def _end(failure: Exception, context: Any) -> tuple[grpc.StatusCode, str] | None:
    """Return the code and the words for *failure*, and set the time to try again; ``None``: it is not answered here."""
    answer = answer_to(failure)
    if answer is None:
        return None
    if wait := int(answer.headers.get("Retry-After", 0)):
        info = ("google.rpc.retryinfo-bin", _retry_info(wait))
        # The context of a plain function in a server of asyncio does not show what it has.
        context.set_trailing_metadata([*(getattr(context, "trailing_metadata", tuple)() or ()), info])
    return _CODES[answer.status], answer.words


def _retry_info(seconds: int) -> bytes:
    """Encode a ``google.rpc.RetryInfo``: the first field of a ``Duration`` in its first field."""
    number = bytearray()
    while seconds > 0x7F:
        number.append(seconds & 0x7F | 0x80)
        seconds >>= 7
    return bytes([0x0A, len(number) + 2, 0x08, *number, seconds])
