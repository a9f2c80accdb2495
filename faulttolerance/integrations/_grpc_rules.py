"""The common rules of gRPC interceptors: codes of failures, repeatable methods, and refusals that users can catch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextvars import ContextVar
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import grpc  # type: ignore[import-untyped]

from .. import (
    BulkheadException,
    CircuitBreakerOpenException,
    Guard,
    RateLimitException,
    RefusedException,
    TimeoutException,
)
from .._shown import one_or_several
from ..exceptions import Fault, ThrottleException, raise_faults
from ..policies import CircuitBreaker, FailWhen, HonorRetryAfter, PartitionBy, Retry, RetryWhen
from ._refusals import client_exception

if TYPE_CHECKING:
    from typing import Unpack

    from .._extensions.keywords import GuardPolicies

_Code = grpc.StatusCode

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


class CallTimeout(TimeoutException, _LocalError):
    """A time-out of the guard; ``code()`` is ``DEADLINE_EXCEEDED``."""

    _code = _Code.DEADLINE_EXCEEDED
    result: Any = _LocalError.result


class RefusedCall(RefusedException, _LocalError):
    """A call that the guard did not admit: the base of the refusals; ``code()`` is ``UNAVAILABLE``."""

    result: Any = _LocalError.result


class CircuitOpen(RefusedCall, CircuitBreakerOpenException):
    """A refusal: the circuit of the service is open."""


class RateLimited(RefusedCall, RateLimitException):
    """A refusal: more calls were made in the window than the rate limit allows."""


class BulkheadFull(RefusedCall, BulkheadException):
    """A refusal: as many calls run (and wait) as the bulkhead allows."""


class Throttled(RefusedCall, ThrottleException):
    """A refusal: the adaptive throttle spares the service the call."""


def as_grpc_error(failure: RefusedException | TimeoutException) -> CallTimeout | RefusedCall:
    """Convert *failure* of the library to an exception that is also gRPC's."""
    made = client_exception(failure, CallTimeout, RefusedCall)
    made.__cause__ = failure
    for note in getattr(failure, "__notes__", ()):
        made.add_note(note)
    return made


class StartedCall(BaseException):
    """A started call on its way out of its guard: neither a success nor a failure yet."""

    def __init__(self, call: Any) -> None:
        super().__init__(call)
        self.call = call


is_repeatable: ContextVar[bool] = ContextVar("faulttolerance.integrations.grpc", default=False)
"""Whether the running call may be made again though it may have arrived."""


class GrpcRules:
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
                faults.append(Fault(f"{where}({of})", f"contains {wrong[0]!r}", wrong[0], "codes, such as UNAVAILABLE"))
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
        own = (TimeoutException, BulkheadException)
        return isinstance(failure, own) or code_of(failure) in self._failures

    def _record_end(self, service: str, method: str, code: grpc.StatusCode | None) -> None:
        """Record the end of a call that the guard only let begin."""
        if code is None or code is _Code.CANCELLED:
            return
        token = is_repeatable.set(False)
        try:
            self.guard._judge(_end, service, method, code)
        except (grpc.RpcError, RefusedException):
            pass  # the caller of the call has it, or the circuit opened meanwhile
        finally:
            is_repeatable.reset(token)


def _end(service: str, method: str, code: grpc.StatusCode) -> None:
    if code is not _Code.OK:
        raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata())


def _may_follow(retry: Retry, again: frozenset[grpc.StatusCode]) -> Callable[[BaseException], bool]:
    """Return a predicate on failures: those that *retry* names, or time-outs and failed calls; codes as in *again*."""
    retry_on: Any = retry.retry_on
    abort_on: Any = retry.abort_on
    is_named = retry_on != Retry().retry_on

    def may_follow(failure: BaseException) -> bool:
        if isinstance(failure, abort_on) or not is_repeatable.get():
            return False
        code = code_of(failure)
        if code is not None and code not in again:
            return False
        return isinstance(failure, retry_on if is_named else (TimeoutException, grpc.RpcError))

    return may_follow


def code_of(failure: BaseException) -> grpc.StatusCode | None:
    """Return the code of a failed call; ``None`` if *failure* is no failed call, or a refusal of a guard."""
    if not isinstance(failure, grpc.RpcError) or isinstance(failure, RefusedException):
        return None
    code = failure.code() if hasattr(failure, "code") else None
    return code if isinstance(code, grpc.StatusCode) else None


def split_method(method: str | bytes) -> tuple[str, str]:
    """Split ``/shop.Orders/Get`` into ``shop.Orders`` and ``shop.Orders/Get``."""
    text = (method.decode() if isinstance(method, bytes) else method).lstrip("/")
    return text.rpartition("/")[0], text
