"""Time as the tests see it: the same test runs on a virtual clock and on the real one."""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

import faulttolerance
from faulttolerance import Interrupted
from faulttolerance.testing import VirtualClock as LibraryClock

__all__ = ["Clock", "RealClock", "Stopwatch", "VirtualClock"]

P = ParamSpec("P")
T = TypeVar("T")

_PIECE_SECONDS = 0.005


class Clock(ABC):
    """Time, as far as a test may use it; durations are in seconds."""

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor
        """By how much the tolerances of the official kit are widened."""

    @abstractmethod
    def monotonic(self) -> float:
        """Return the seconds since some moment."""

    @abstractmethod
    def work(self, seconds: float) -> None:
        """Work for so long, in a body or outside, and ignore every interruption."""

    @abstractmethod
    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on an event loop of its own, as ``asyncio.run`` does."""

    @abstractmethod
    def start(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function on a thread of its own; return the future of its result."""

    def sleep(self, seconds: float) -> None:
        """Wait for so long; in a body, until it is interrupted."""
        faulttolerance.sleep(seconds)

    def within(self, seconds: float) -> float:
        """Return a bound or a tolerance of the official kit as it applies on this machine."""
        return seconds * self.factor

    def stopwatch(self) -> Stopwatch:
        """Return a running stopwatch."""
        return Stopwatch(self)


class Stopwatch:
    """Measures the time since it was made."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds until now."""
        return self._clock.monotonic() - self._began


class VirtualClock(Clock):
    """Time that passes once everybody waits for it."""

    def __init__(self, clock: LibraryClock) -> None:
        super().__init__()
        self._clock = clock

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def work(self, seconds: float) -> None:
        self._clock.advance(seconds)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return self._clock.run(main)

    def start(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return self._clock.start(function, *args, **kwargs)


class RealClock(Clock):
    """The system's clock."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__(factor)
        self._is_over = False

    def end(self) -> None:
        """Stop the work that still goes on: the test that started it is over."""
        self._is_over = True

    def monotonic(self) -> float:
        return time.monotonic()

    def work(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            try:
                while time.monotonic() < end and not self._is_over:
                    time.sleep(_PIECE_SECONDS)
                return
            except Interrupted:
                continue

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(main)

    def start(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def work() -> None:
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=work, name=f"kit {function.__qualname__}", daemon=True).start()
        return future
