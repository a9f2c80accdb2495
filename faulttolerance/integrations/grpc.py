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
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from fnmatch import fnmatchcase
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]

from .. import Guard, exceptions
from .._shown import one_or_several
from ..exceptions import Fault, raise_faults
from ..policies import CircuitBreaker, FailWhen, HonorRetryAfter, PartitionBy, Retry, RetryWhen
from ._grpc_server import AsyncRefusalInterceptor, RefusalInterceptor
from ._refusals import client_exception
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

_Code = grpc.StatusCode
_Continuation = Callable[[Any, Any], Any]
_DETAILS = ("method", "metadata", "credentials", "wait_for_ready", "compression")

AGAIN = frozenset({_Code.UNAVAILABLE, _Code.RESOURCE_EXHAUSTED})
"""Codes after which a call may be made again: the service did not accept it."""
FAILURES = AGAIN | {_Code.DEADLINE_EXCEEDED, _Code.INTERNAL, _Code.UNKNOWN, _Code.DATA_LOSS}
"""Codes that are failures of the service; the others are answers to the request."""
_NOT_TAKEN = {
    "hedge": "None: it would send a call twice that may be sent only once",
    "coalesce": "None: only one caller can read a call",
    "fallback": "None: a call is more than a response; put a fallback around the code that calls the stub",
    "retry_when": "None: `retry_on` of Retry and `methods` decide which calls are sent again",
}


class _LocalError(grpc.aio.AioRpcError):  # type: ignore[misc]
    """A call that ended here: users of gRPC catch it, and may query it as a call or a future."""

    _code: ClassVar[grpc.StatusCode] = _Code.UNAVAILABLE
    __repr__ = Exception.__repr__
    __reduce__ = Exception.__reduce__

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return str(self)

    def initial_metadata(self) -> tuple[()]:
        return ()

    trailing_metadata = initial_metadata

    def debug_error_string(self) -> str:
        return ""

    def result(self, timeout: float | None = None) -> NoReturn:
        raise self

    def exception(self, timeout: float | None = None) -> Self:
        return self

    def done(self) -> bool:
        return True

    def cancel(self) -> bool:
        return False

    cancelled = running = is_active = cancel

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        callback(self)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> NoReturn:
        raise self


class CallTimeout(exceptions.TimeoutException, _LocalError):
    """A time-out of the guard; ``code()`` is ``DEADLINE_EXCEEDED``."""

    _code = _Code.DEADLINE_EXCEEDED
    result: Any = _LocalError.result


class RefusedCall(exceptions.RefusedException, _LocalError):
    """A call that the guard did not admit: the base of the refusals; ``code()`` is ``UNAVAILABLE``."""

    result: Any = _LocalError.result


class CircuitOpen(RefusedCall, exceptions.CircuitBreakerOpenException):
    """A refusal: the circuit of the service is open."""


class RateLimited(RefusedCall, exceptions.RateLimitException):
    """A refusal: more calls were made in the window than the rate limit allows."""


class BulkheadFull(RefusedCall, exceptions.BulkheadException):
    """A refusal: as many calls run (and wait) as the bulkhead allows."""


class Throttled(RefusedCall, exceptions.ThrottleException):
    """A refusal: the adaptive throttle spares the service the call."""


class _StartedCall(BaseException):
    """A started call on its way out of its guard: neither a success nor a failure yet."""

    def __init__(self, call: Any) -> None:
        super().__init__(call)
        self.call = call


_is_repeatable: ContextVar[bool] = ContextVar("faulttolerance.integrations.grpc", default=False)
"""Whether the running call may be made again though it may have arrived."""


class _Rules:
    """The rules by which clients judge calls: a guard, the codes of failures, the methods that may be called again."""

    def __init__(
        self,
        *,
        failures: Collection[grpc.StatusCode] = FAILURES,
        again: Collection[grpc.StatusCode] = AGAIN,
        methods: str | Iterable[str] = "*",
        name: str = "",
        **policies: Unpack[GuardPolicies],
    ) -> None:
        where = type(self).__name__
        given: dict[str, Any] = {kind: policy for kind, policy in policies.items() if policy is not None}
        failures, again, self._patterns = map(one_or_several, (failures, again, methods))
        faults = [
            Fault(f"{where}({kind})", "is set", given[kind], allowed)
            for kind, allowed in _NOT_TAKEN.items()
            if kind in given
        ]
        for of, codes in (("failures", failures), ("again", again)):
            if wrong := [code for code in codes if not isinstance(code, grpc.StatusCode)]:
                faults.append(Fault(f"{where}({of})", f"contains {wrong[0]!r}", wrong[0], "members of grpc.StatusCode"))
        if wrong := [pattern for pattern in self._patterns if not isinstance(pattern, str)]:
            faults.append(Fault(f"{where}(methods)", f"contains {wrong[0]!r}", wrong[0], "patterns, such as 'Get*'"))
        raise_faults(faults)
        self._failures = frozenset(failures)
        given = given or {"circuit_breaker": CircuitBreaker()}
        given.setdefault("partition_by", PartitionBy("service"))
        if isinstance(retry := given.get("retry"), Retry):
            given["retry_when"] = RetryWhen(exception=_may_follow(retry, frozenset(again)))
            given.setdefault("honor_retry_after", HonorRetryAfter(max_delay=30_000))
        gate = given.get("circuit_breaker") or given.get("adaptive_throttle")
        if gate is not None and getattr(gate, "fail_on", None) == CircuitBreaker().fail_on:
            given.setdefault("fail_when", FailWhen(exception=self._is_failure))
        self.guard = Guard(name=name, **given)
        self._prepare()

    def _prepare(self) -> None:
        """Prepare what a subclass has besides."""

    def _may_repeat(self, method: str) -> bool:
        """Return whether *method*, as ``shop.Orders/Get``, may be called again though a call may have arrived."""
        name = method.rpartition("/")[2]
        return any(fnmatchcase(method, pattern) or fnmatchcase(name, pattern) for pattern in self._patterns)

    def _is_failure(self, failure: BaseException) -> bool:
        own = (exceptions.TimeoutException, exceptions.BulkheadException)
        return isinstance(failure, own) or _code_of(failure) in self._failures

    def _record_end(self, service: str, method: str, code: grpc.StatusCode | None) -> None:
        """Record the end of a call that the guard only let begin."""
        if code is None or code is _Code.CANCELLED:
            return
        # The caller of the call has the failure, or the circuit opened meanwhile.
        with suppress(grpc.RpcError, exceptions.RefusedException):
            self.guard._judge(_end, service, method, code)


def _end(service: str, method: str, code: grpc.StatusCode) -> None:
    if code is not _Code.OK:
        raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata())


def _may_follow(retry: Retry, again: frozenset[grpc.StatusCode]) -> Callable[[BaseException], bool]:
    """Return a predicate on failures: those that *retry* names, or time-outs and failed calls; codes as in *again*."""
    retry_on: Any = retry.retry_on
    abort_on: Any = retry.abort_on
    is_named = retry_on != Retry().retry_on

    def may_follow(failure: BaseException) -> bool:
        if isinstance(failure, abort_on) or not _is_repeatable.get():
            return False
        code = _code_of(failure)
        if code is not None and code not in again:
            return False
        return isinstance(failure, retry_on if is_named else (exceptions.TimeoutException, grpc.RpcError))

    return may_follow


def _code_of(failure: BaseException) -> grpc.StatusCode | None:
    """Return the code of a failed call; ``None`` if *failure* is no failed call, or a refusal of a guard."""
    if not isinstance(failure, grpc.RpcError) or isinstance(failure, exceptions.RefusedException):
        return None
    code = failure.code() if hasattr(failure, "code") else None
    return code if isinstance(code, grpc.StatusCode) else None


def _split_method(method: str | bytes) -> tuple[str, str]:
    """Split ``/shop.Orders/Get`` into ``shop.Orders`` and ``shop.Orders/Get``."""
    text = (method.decode() if isinstance(method, bytes) else method).lstrip("/")
    return text.rpartition("/")[0], text


class GuardedCalls(
    _Rules,
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

    The guard ends with the response. Where responses are a stream, and for ``future`` of a stub, the guard only admits
    the start, and records the end: such calls are refused like others, and fail like others, but are neither sent again
    nor held by a bulkhead.

    Args:
        failures: Codes that are failures of the service.
        again: Codes after which a call may be made again.
        methods: Patterns of the methods that may be called again, as ``"Get*"`` or ``"shop.Orders/*"``. Streams never
            are.
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
        return self._run(_awaited_way(), _in_time(continuation), client_call_details, request, True)

    def intercept_stream_unary(
        self, continuation: _Continuation, client_call_details: Any, request_iterator: Any
    ) -> Any:
        """Run a call with a stream of requests, once."""
        return self._run(_awaited_way(), _in_time(continuation), client_call_details, request_iterator)

    def intercept_unary_stream(self, continuation: _Continuation, client_call_details: Any, request: Any) -> Any:
        """Start a call that streams its responses."""
        return self._run(_let_begin, continuation, _within_deadline(client_call_details), request)

    def intercept_stream_stream(
        self, continuation: _Continuation, client_call_details: Any, request_iterator: Any
    ) -> Any:
        """Start a call that streams both ways."""
        return self.intercept_unary_stream(continuation, client_call_details, request_iterator)

    def _run(
        self, function: Callable[..., Any], continuation: _Continuation, details: Any, request: Any, again: bool = False
    ) -> Any:
        """Run *function* under the guard; return the call, or the exception that stands for a failed call."""
        service, method = _split_method(details.method)
        token = _is_repeatable.set(again and function is _finish and self._may_repeat(method))
        try:
            return self.guard.call(function, service, method, continuation, details, request)
        except _StartedCall as started:
            if not hasattr(started.call, "add_done_callback"):
                return self._until_end(service, method, started.call)
            started.call.add_done_callback(lambda over: self._record_end(service, method, over.code()))
            return started.call
        except grpc.RpcError as failure:
            return failure
        except (exceptions.RefusedException, exceptions.TimeoutException) as failure:
            return client_exception(failure, CallTimeout, RefusedCall)
        finally:
            _is_repeatable.reset(token)

    def _until_end(self, service: str, method: str, responses: Iterable[Any]) -> Iterator[Any]:
        """Yield the *responses* of an interceptor that returns a generator, as OpenTelemetry's; record their end."""
        try:
            yield from responses
            self._record_end(service, method, _Code.OK)
        except grpc.RpcError as failure:
            self._record_end(service, method, _code_of(failure))
            raise


def _finish(service: str, method: str, continuation: _Continuation, details: Any, request: Any) -> Any:
    call = continuation(details, request)
    call.result()  # of a call that has ended; raises its failure
    return call


def _let_begin(service: str, method: str, continuation: _Continuation, details: Any, request: Any) -> Any:
    raise _StartedCall(continuation(details, request))


def _awaited_way() -> Callable[..., Any]:
    """Return how to call: where ``future`` of a stub calls the interceptor, a wait would defeat its purpose."""
    return _let_begin if sys._getframe(2).f_code.co_name == "future" else _finish


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


class AsyncGuardedCalls(_Rules, list[Any]):
    """The same as ``GuardedCalls`` for ``grpc.aio``: four interceptors that share one guard.

    ``grpc.aio.insecure_channel(target, interceptors=AsyncGuardedCalls())``, or ``[*AsyncGuardedCalls(), other]``. The
    guard only admits the start of calls with a stream of requests, too.
    """

    def _prepare(self) -> None:
        self._told: set[asyncio.Task[None]] = set()
        self.extend(kind(self) for kind in (_UnaryUnary, _UnaryStream, _StreamUnary, _StreamStream))

    async def _run(self, function: Callable[..., Any], continuation: _Continuation, details: Any, request: Any) -> Any:
        service, method = _split_method(details.method)
        token = _is_repeatable.set(function is _finish_async and self._may_repeat(method))
        try:
            return await self.guard.call_async(function, service, method, continuation, details, request)
        except _StartedCall as started:
            started.call.add_done_callback(lambda over: self._tell(service, method, over))
            return started.call
        except grpc.RpcError:
            raise  # of another guard inside, it is converted already
        except (exceptions.RefusedException, exceptions.TimeoutException) as failure:
            raise client_exception(failure, CallTimeout, RefusedCall) from failure
        finally:
            _is_repeatable.reset(token)

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

    async def _begin(self, continuation: _Continuation, client_call_details: Any, request: Any) -> Any:
        return await self._run(_let_begin_async, continuation, _within_deadline(client_call_details), request)

    async def _begin_in_time(self, continuation: _Continuation, client_call_details: Any, request: Any) -> Any:
        return await self._run(_let_begin_async, _in_time(continuation), client_call_details, request)


class _UnaryUnary(_Guarded, grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    async def intercept_unary_unary(self, continuation: _Continuation, client_call_details: Any, request: Any) -> Any:
        return await self._run(_finish_async, _in_time(continuation), client_call_details, request)


class _StreamUnary(_Guarded, grpc.aio.StreamUnaryClientInterceptor):  # type: ignore[misc]
    intercept_stream_unary = _Guarded._begin_in_time  # pyright: ignore[reportAssignmentType]


class _UnaryStream(_Guarded, grpc.aio.UnaryStreamClientInterceptor):  # type: ignore[misc]
    intercept_unary_stream = _Guarded._begin  # pyright: ignore[reportAssignmentType]


class _StreamStream(_Guarded, grpc.aio.StreamStreamClientInterceptor):  # type: ignore[misc]
    intercept_stream_stream = _Guarded._begin  # pyright: ignore[reportAssignmentType]


async def _finish_async(service: str, method: str, continuation: _Continuation, details: Any, request: Any) -> Any:
    call = await continuation(details, request)
    await call
    return call


async def _let_begin_async(service: str, method: str, continuation: _Continuation, details: Any, request: Any) -> Any:
    raise _StartedCall(await continuation(details, request))
