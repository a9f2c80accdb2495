"""Other libraries, put together as their documentation shows it."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import aiobreaker
import backoff
import circuitbreaker
import failsafe
import func_timeout
import hyx.bulkhead
import hyx.circuitbreaker
import hyx.fallback
import hyx.ratelimit
import hyx.retry
import hyx.timeout
import interlock
import prometheus_client
import purgatory
import pybreaker
import stamina
import stopit
import tenacity
import tenacity.asyncio
from httpware.middleware import resilience as httpware

__all__ = [
    "Turns",
    "async_singles",
    "async_stacks",
    "bare",
    "bare_async",
    "failing",
    "refusing",
    "sync_singles",
    "sync_stacks",
]

Call = Callable[[Any], Any]
AsyncCall = Callable[[Any], Awaitable[Any]]

_LONG = 60.0
logging.getLogger("backoff").setLevel(logging.CRITICAL)


def bare(x: Any) -> Any:
    return x


async def bare_async(x: Any) -> Any:
    return x


class _Answer:
    """Stands for the request and the response of an HTTP client, which httpware looks at."""

    method = "GET"
    status_code = 200
    extensions: Mapping[str, Any] = MappingProxyType({})


_ANSWER = _Answer()


def _answer(request: Any) -> Any:
    return request


async def _answer_async(request: Any) -> Any:
    return request


def _middleware(middleware: Any, follow: Call = _answer) -> Call:
    def call(x: Any) -> Any:
        return middleware(_ANSWER, follow)

    return call


def _middleware_async(middleware: Any, follow: AsyncCall = _answer_async) -> AsyncCall:
    async def call(x: Any) -> Any:
        return await middleware(_ANSWER, follow)

    return call


def _semaphore(function: Call) -> Call:
    semaphore = threading.BoundedSemaphore(64)

    def call(x: Any) -> Any:
        if not semaphore.acquire(blocking=False):
            raise RuntimeError("full")
        try:
            return function(x)
        finally:
            semaphore.release()

    return call


def _try(function: Call) -> Call:
    def call(x: Any) -> Any:
        try:
            return function(x)
        except Exception:  # noqa: BLE001  # that is what a fallback does
            return 0

    return call


def _stopit_thread(function: Call) -> Call:
    def call(x: Any) -> Any:
        with stopit.ThreadingTimeout(_LONG):
            return function(x)

    return call


def _executor(function: Call) -> Call:
    pool = ThreadPoolExecutor(2)

    def call(x: Any) -> Any:
        return pool.submit(function, x).result(_LONG)

    return call


_counter = prometheus_client.Counter("peer_calls", "calls", registry=prometheus_client.CollectorRegistry())


def _counted(function: Call) -> Call:
    def call(x: Any) -> Any:
        result = function(x)
        _counter.inc()
        return result

    return call


def _tenacity(function: Any) -> Any:
    return tenacity.retry(stop=tenacity.stop_after_attempt(4), wait=tenacity.wait_none())(function)


def _stamina(function: Any) -> Any:
    return stamina.retry(on=ValueError, attempts=4, wait_initial=0, wait_jitter=0)(function)


def _backoff(function: Any) -> Any:
    return backoff.on_exception(backoff.constant, ValueError, max_tries=4, interval=0, jitter=None)(function)


def _pybreaker(function: Call) -> Call:
    return pybreaker.CircuitBreaker(fail_max=20)(function)  # type: ignore[no-any-return]


def _circuit(function: Any) -> Any:
    return circuitbreaker.CircuitBreaker(failure_threshold=20)(function)


def _interlock() -> Any:
    config = interlock.Config(minimum_number_of_calls=2, wait_duration_in_open=86_400.0)
    return interlock.CircuitBreaker(name="bench", config=config)


def sync_singles() -> dict[str, dict[str, Call]]:
    """One policy each, by kind. ``try/except`` and the semaphore are no libraries; they show what is left to save."""
    window = {"failure_rate_threshold": 0.5, "window_seconds": 30.0, "minimum_calls": 20}
    breakers = purgatory.SyncCircuitBreakerFactory()
    return {
        "retry": {
            "tenacity": _tenacity(bare),
            "stamina": _stamina(bare),
            "backoff": _backoff(bare),
            "httpware Retry": _middleware(httpware.Retry()),
        },
        "circuit_breaker": {
            "pybreaker": _pybreaker(bare),
            "aiobreaker": aiobreaker.CircuitBreaker()(bare),
            "purgatory": breakers("bench")(bare),
            "circuitbreaker": _circuit(bare),
            "interlock": _interlock()(bare),
            "httpware rate window": _middleware(httpware.CircuitBreaker(**window)),
            "httpware consecutive": _middleware(httpware.CircuitBreaker()),
        },
        "bulkhead": {
            "BoundedSemaphore": _semaphore(bare),
            "httpware Bulkhead": _middleware(httpware.Bulkhead(max_concurrent=64)),
        },
        "timeout": {
            "stopit thread": _stopit_thread(bare),
            "func-timeout": lambda x: func_timeout.func_timeout(_LONG, bare, (x,)),
            "executor": _executor(bare),
        },
        "fallback": {
            "try/except": _try(bare),
            "circuitbreaker fallback": circuitbreaker.CircuitBreaker(fallback_function=bare)(bare),
        },
    }


def sync_stacks() -> dict[str, Call]:
    """Everything at once, on any thread."""
    return {
        "stack tenacity+pybreaker+executor": _counted(_try(_tenacity(_pybreaker(_executor(_semaphore(bare)))))),
        "stack stamina+pybreaker+stopit": _counted(_try(_stamina(_pybreaker(_stopit_thread(_semaphore(bare)))))),
    }


async def _under_timeout(x: Any) -> Any:
    async with asyncio.timeout(_LONG):
        return await bare_async(x)


def _try_async(function: AsyncCall) -> AsyncCall:
    async def call(x: Any) -> Any:
        try:
            return await function(x)
        except Exception:  # noqa: BLE001  # that is what a fallback does
            return 0

    return call


def async_singles() -> dict[str, AsyncCall]:
    """Each alone; to be made where a loop runs."""
    policy = failsafe.Failsafe(retry_policy=failsafe.RetryPolicy(allowed_retries=3))
    return {
        "asyncio.timeout": _under_timeout,
        "pyfailsafe retry": lambda x: policy.run(bare_async, x),
        "circuitbreaker async": _circuit(bare_async),
        "httpware AsyncTimeout": _middleware_async(httpware.AsyncTimeout(timeout=_LONG)),
        # For one loop: it looks at the clock only once its bucket is empty, and lets more calls through for that.
        "hyx rate limit": hyx.ratelimit.tokenbucket(1_000_000_000, 1.0, 1_000_000_000)(bare_async),
    }


def async_stacks() -> dict[str, AsyncCall]:
    async def zero(result: Any, *args: Any, **kwargs: Any) -> int:
        return 0

    guarded = hyx.bulkhead.bulkhead(max_concurrency=64, max_capacity=128)(bare_async)
    guarded = hyx.timeout.timeout(_LONG)(guarded)
    guarded = hyx.circuitbreaker.consecutive_breaker()(guarded)
    guarded = hyx.retry.retry(attempts=4, backoff=0)(guarded)
    guarded = hyx.fallback.fallback(zero)(guarded)
    stack: Any = _answer_async
    for middleware in (
        httpware.AsyncBulkhead(max_concurrent=64),
        httpware.AsyncTimeout(timeout=_LONG),
        httpware.AsyncCircuitBreaker(),
        httpware.AsyncRetry(),
    ):
        stack = functools.partial(middleware, next=stack)

    async def httpware_stack(x: Any) -> Any:
        return await stack(_ANSWER)

    return {"stack hyx": guarded, "stack httpware": httpware_stack}


class Turns:
    """Fails at every other call."""

    def __init__(self) -> None:
        self.turn = 0

    def call(self, x: Any) -> Any:
        self.turn ^= 1
        if self.turn:
            raise ValueError
        return x

    async def call_async(self, x: Any) -> Any:
        self.turn ^= 1
        if self.turn:
            raise ValueError
        return x


def failing() -> tuple[dict[str, Call], dict[str, AsyncCall]]:
    """One exception, no delay, then success."""
    turns = Turns()

    async def by_hand(x: Any) -> Any:
        try:
            return await turns.call_async(x)
        except ValueError:
            return await turns.call_async(x)

    def by_hand_sync(x: Any) -> Any:
        try:
            return turns.call(x)
        except ValueError:
            return turns.call(x)

    policy = failsafe.Failsafe(retry_policy=failsafe.RetryPolicy(allowed_retries=3))
    hyx_turns, failsafe_turns, tenacity_turns = Turns(), Turns(), Turns()
    return {
        "bare": by_hand_sync,
        "tenacity": _tenacity(Turns().call),
        "backoff": _backoff(Turns().call),
        "tenacity, no sleep": tenacity.retry(stop=tenacity.stop_after_attempt(4), sleep=lambda seconds: None)(
            tenacity_turns.call
        ),
    }, {
        "bare": by_hand,
        "hyx async": hyx.retry.retry(attempts=4, backoff=0)(hyx_turns.call_async),
        "pyfailsafe async": lambda x: policy.run(failsafe_turns.call_async, x),
    }


def refusing() -> tuple[dict[str, Call], dict[str, AsyncCall]]:
    """Functions behind circuits that are to be opened, and one that raises by itself."""

    def fails(x: Any) -> Any:
        raise ValueError

    async def fails_async(x: Any) -> Any:
        raise ValueError

    policy = failsafe.Failsafe(circuit_breaker=failsafe.CircuitBreaker(2, _LONG * 60))
    return {
        "bare": fails,
        "circuitbreaker": circuitbreaker.CircuitBreaker(2, recovery_timeout=86_400)(fails),
        "pybreaker": pybreaker.CircuitBreaker(fail_max=2, reset_timeout=86_400)(fails),
        "aiobreaker": aiobreaker.CircuitBreaker(2, timedelta(days=1))(fails),
        "interlock": _interlock()(fails),
    }, {
        "bare": fails_async,
        "circuitbreaker": circuitbreaker.CircuitBreaker(2, recovery_timeout=86_400)(fails_async),
        "interlock": _interlock()(fails_async),
        "pyfailsafe": lambda x: policy.run(fails_async, x),
    }
