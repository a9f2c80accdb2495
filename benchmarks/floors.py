"""What a call costs at least: the cheapest code that keeps what is promised, for one choice of policies.

Every floor keeps what every guarded call owes (``docs/explanation/rules.md``): each class has its own state (L1), which
any thread and any loop may use (L6); each outcome is counted in its series, the calls that raise included; the clock
may be replaced; of each event it is asked whether a listener, the log or a span wants it. Configuration costs a floor
nothing: other values would replace the function. Neither does what only other calls meet: such a place raises
``NotImplementedError``.
"""

from __future__ import annotations

import logging
from asyncio import sleep
from collections.abc import Callable
from sys import modules
from threading import RLock
from typing import Any

from opentelemetry import trace
from opentelemetry.context import get_current

from faulttolerance import CircuitBreakerOpenException, RateLimitException, RefusedException
from faulttolerance._deadline.clock import clock
from faulttolerance._deadline.interruption import remaining

__all__ = ["rate_limited_async", "refusing", "refusing_async", "retrying_async"]

_LONG = 86_400.0
_FOLD = 1024
_LOG, _DEBUG = logging.getLogger("benchmarks"), logging.DEBUG
_FIND_SPAN = trace.get_current_span
_LISTENERS: tuple[Callable[..., object], ...] = ()
_VETOES: tuple[Callable[..., object], ...] = ()


class _State:
    """What all callers share: a circuit that is open, a window that has just begun."""

    def __init__(self) -> None:
        self.until = clock.monotonic() + _LONG
        self.calls = 0
        self.lock = RLock()


def _guard(make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """Return the method in place of the guarded one; *make* returns the call for one class."""
    home: type | None = None
    calls: dict[type, Callable[..., Any]] = {}

    def call(args: Any, kwargs: Any) -> Any:
        raise NotImplementedError

    def guard(*args: Any, **kwargs: Any) -> Any:
        if type(args[0]) is home:
            return call(args, kwargs)
        return enter(type(args[0]))(args, kwargs)

    def enter(kind: type) -> Callable[..., Any]:
        nonlocal call, home
        if home is None:
            home, call = kind, make()
            return call
        return calls.setdefault(kind, make())

    return guard


def refusing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return *function* behind an open circuit."""

    def make() -> Callable[..., Any]:
        circuit, refusals = _State(), list[None]()

        def call(args: Any, kwargs: Any) -> Any:
            if (wait := circuit.until - clock.monotonic()) > 0:
                refusals.append(None)
                if len(refusals) >= _FOLD:
                    refusals.clear()
                if (
                    _LISTENERS
                    or (_LOG.level or _LOG.root.level) <= _DEBUG
                    or get_current()
                    or trace.get_current_span is not _FIND_SPAN
                ):
                    raise NotImplementedError
                raise CircuitBreakerOpenException("circuit is open", wait)
            return function(*args, **kwargs)

        return call

    return _guard(make)


def refusing_async(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the coroutine function *function* behind an open circuit."""

    def make() -> Callable[..., Any]:
        circuit, refusals = _State(), list[None]()

        async def call(args: Any, kwargs: Any) -> Any:
            if (wait := circuit.until - clock.monotonic()) > 0:
                refusals.append(None)
                if len(refusals) >= _FOLD:
                    refusals.clear()
                if (
                    _LISTENERS
                    or (_LOG.level or _LOG.root.level) <= _DEBUG
                    or get_current()
                    or trace.get_current_span is not _FIND_SPAN
                ):
                    raise NotImplementedError
                raise CircuitBreakerOpenException("circuit is open", wait)
            return await function(*args, **kwargs)

        return call

    return _guard(make)


def retrying_async(function: Callable[..., Any], retry_on: tuple[type[Exception], ...] = (Exception,)) -> Any:
    """Return the coroutine function *function*, called up to four times within a long time and within all deadlines.

    In a task of trio it raises before the body runs (O3). It records what a note (R1) and the cause of a refusal would
    say, and whether another guard has retried the failure (T6). The application may veto (T7). From the second retry on
    other tasks run before it.
    """

    def make() -> Callable[..., Any]:
        at_once, retried, retries, failed = list[None](), list[None](), list[None](), list[None]()

        async def call(args: Any, kwargs: Any) -> Any:
            if "trio" in modules:
                raise NotImplementedError
            began, attempts = clock.monotonic(), 1
            kind: type[BaseException] | None = None
            failure: BaseException | None = None
            try:
                while True:
                    try:
                        result = await function(*args, **kwargs)
                        break
                    except retry_on as error:
                        elapsed = clock.monotonic() - began
                        if kind is not type(error):
                            if kind is not None:
                                raise NotImplementedError from error
                            kind = type(error)
                        if not isinstance(error, RefusedException):
                            failure = error
                        left = remaining()
                        if attempts > 3 or elapsed > _LONG or (left is not None and left <= 0):
                            raise
                        if _VETOES or hasattr(error, "__notes__"):
                            raise NotImplementedError from error
                        if (
                            _LISTENERS
                            or (_LOG.level or _LOG.root.level) <= _DEBUG
                            or (attempts == 1 and (get_current() or trace.get_current_span is not _FIND_SPAN))
                        ):
                            raise NotImplementedError from error
                    if attempts > 1:
                        await sleep(0)
                    attempts += 1
                    retries.append(None)
                    if len(retries) >= _FOLD:
                        retries.clear()
            except BaseException:
                failed.append(None)
                raise
            finally:
                del failure
            if attempts == 1:
                at_once.append(None)
                if len(at_once) >= _FOLD:
                    at_once.clear()
            else:
                retried.append(None)  # cleared with the retries, in each of which such a call has an entry
                if _LISTENERS or (_LOG.level or _LOG.root.level) <= _DEBUG:
                    raise NotImplementedError
            return result

        return call

    return _guard(make)


def rate_limited_async(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the coroutine function *function*, called rarely enough; its window does not end."""

    def make() -> Callable[..., Any]:
        window, ended = _State(), list[None]()

        async def call(args: Any, kwargs: Any) -> Any:
            now = clock.monotonic()
            with window.lock:
                if now > window.until or window.calls >= 1_000_000_000:
                    raise RateLimitException("rate limit is exceeded", 0.0)
                window.calls += 1
            result = await function(*args, **kwargs)
            ended.append(None)
            if len(ended) >= _FOLD:
                ended.clear()
            return result

        return call

    return _guard(make)
