"""What a call costs at least: the cheapest code that keeps what is promised, for one choice of policies.

Any thread and any loop may call it, and all share one state. It reads the clock, counts what ended, and asks of each
event whether the log or a span wants it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import RLock
from time import monotonic
from typing import Any

from opentelemetry import trace

from faulttolerance import CircuitBreakerOpenException, RateLimitException
from faulttolerance._deadline.interruption import remaining

__all__ = ["rate_limited_async", "refusing", "refusing_async", "retrying_async"]

_LONG = 86_400.0
_FOLD = 1024
_LOG, _DEBUG = logging.getLogger("benchmarks"), logging.DEBUG


class _State:
    """What all callers share: a circuit that is open, a window that has just begun."""

    def __init__(self) -> None:
        self.until = monotonic() + _LONG
        self.calls = 0
        self.lock = RLock()


def _guard(call: Callable[..., Any]) -> Callable[..., Any]:
    def guard(*args: Any, **kwargs: Any) -> Any:
        return call(args, kwargs)

    return guard


def refusing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return *function* behind an open circuit."""
    circuit, refusals = _State(), list[None]()

    def call(args: Any, kwargs: Any) -> Any:
        if (wait := circuit.until - monotonic()) > 0:
            refusals.append(None)
            if len(refusals) >= _FOLD:
                refusals.clear()
            if (_LOG.level or _LOG.root.level) <= _DEBUG or trace.get_current_span().is_recording():
                raise NotImplementedError
            raise CircuitBreakerOpenException("circuit is open", wait)
        return function(*args, **kwargs)

    return _guard(call)


def refusing_async(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the coroutine function *function* behind an open circuit."""
    circuit, refusals = _State(), list[None]()

    async def call(args: Any, kwargs: Any) -> Any:
        if (wait := circuit.until - monotonic()) > 0:
            refusals.append(None)
            if len(refusals) >= _FOLD:
                refusals.clear()
            if (_LOG.level or _LOG.root.level) <= _DEBUG or trace.get_current_span().is_recording():
                raise NotImplementedError
            raise CircuitBreakerOpenException("circuit is open", wait)
        return await function(*args, **kwargs)

    return _guard(call)


def retrying_async(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the coroutine function *function*, called up to four times within a long time and within all deadlines."""
    ended, retries = list[None](), list[None]()

    async def call(args: Any, kwargs: Any) -> Any:
        began, attempts = monotonic(), 1
        while True:
            try:
                result = await function(*args, **kwargs)
                break
            except Exception as error:
                left = remaining()
                if attempts > 3 or monotonic() - began > _LONG or (left is not None and left <= 0):
                    raise
                if (_LOG.level or _LOG.root.level) <= _DEBUG or (
                    attempts == 1 and trace.get_current_span().is_recording()
                ):
                    raise NotImplementedError from error
            attempts += 1
            retries.append(None)
            if len(retries) >= _FOLD:
                retries.clear()
        ended.append(None)
        if len(ended) >= _FOLD:
            ended.clear()
        if attempts > 1 and (_LOG.level or _LOG.root.level) <= _DEBUG:
            raise NotImplementedError
        return result

    return _guard(call)


def rate_limited_async(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the coroutine function *function*, called rarely enough; its window does not end."""
    window, ended = _State(), list[None]()

    async def call(args: Any, kwargs: Any) -> Any:
        now = monotonic()
        with window.lock:
            if now > window.until or window.calls >= 1_000_000_000:
                raise RateLimitException("rate limit is exceeded", 0.0)
            window.calls += 1
        result = await function(*args, **kwargs)
        ended.append(None)
        if len(ended) >= _FOLD:
            ended.clear()
        return result

    return _guard(call)
