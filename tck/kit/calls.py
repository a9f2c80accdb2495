"""Many calls of guarded methods at once, each held at a barrier of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from .barrier import Barrier
from .clock import Clock
from .convention import Invoke

__all__ = ["Call", "Calls"]

_START_SECONDS = 3.0
_POLL_SECONDS = 0.1
_WATCH_SECONDS = 0.5
_EVENTUALLY_SECONDS = 10.0
"""The tolerances of the official kit."""


class Call:
    """One call, whose body waits at its barrier until that is opened."""

    def __init__(self, clock: Clock, barrier: Barrier, future: Future[Any]) -> None:
        self._clock = clock
        self._barrier = barrier
        self.future = future
        """The result of the call where that is a future, else the future of its outcome."""

    @property
    def has_started(self) -> bool:
        """Whether the body has been at its barrier."""
        return self._barrier.is_reached

    @property
    def is_over(self) -> bool:
        """Whether the caller has the outcome."""
        return self.future.done()

    def await_start(self) -> None:
        """Wait until the body is at its barrier."""
        self._barrier.await_arrival(self._clock.within(_START_SECONDS))

    def release(self) -> None:
        """Open the barrier of the body."""
        self._barrier.open()

    def result(self, seconds: float = _START_SECONDS) -> Any:
        """Return the call's result, or raise its exception."""
        return self.future.result(self._clock.within(seconds))

    def failure(self, seconds: float = _START_SECONDS) -> type[BaseException | None]:
        """Return the class of the exception of the call; ``NoneType`` if the call returned."""
        return type(self.future.exception(self._clock.within(seconds)))


class Calls:
    """Starts calls in one of the conventions; the first argument of the methods is the barrier of the call."""

    def __init__(self, invoke: Invoke, clock: Clock) -> None:
        self._invoke = invoke
        self._clock = clock
        self._started: list[Call] = []
        self._barriers: list[Barrier] = []

    def start(self, method: Callable[..., Any], *args: Any) -> Call:
        """Start a call: on a thread of its own, on the pool, or on a loop of its own."""
        barrier = Barrier()
        self._barriers.append(barrier)
        if self._invoke.convention == "blocking":
            future = self._clock.start(method, barrier, *args)
        elif self._invoke.convention == "offloaded":
            future = method(barrier, *args)
        else:
            future = self._clock.start(self._clock.run, method(barrier, *args))
        call = Call(self._clock, barrier, future)
        self._started.append(call)
        return call

    def start_running(self, method: Callable[..., Any], *args: Any) -> Call:
        """Start a call, and wait until its body is at its barrier."""
        call = self.start(method, *args)
        call.await_start()
        return call

    def start_waiting(self, method: Callable[..., Any], *args: Any) -> Call:
        """Start a call, and check that its body does not begin."""
        call = self.start(method, *args)
        self.watch()
        assert not call.has_started
        return call

    def watch(self, seconds: float = _WATCH_SECONDS) -> None:
        """Wait, so that an unexpected event has time to happen."""
        self._clock.sleep(seconds)

    def eventually(self, condition: Callable[[], bool]) -> None:
        """Wait until *condition* holds; look every 100 ms."""
        stopwatch = self._clock.stopwatch()
        while not condition():
            assert stopwatch.elapsed < self._clock.within(_EVENTUALLY_SECONDS), "it did not happen in time"
            self._clock.sleep(_POLL_SECONDS)

    def end(self) -> None:
        """Open every barrier, and wait for the end of the calls."""
        for barrier in self._barriers:
            barrier.open()
        wait([call.future for call in self._started], self._clock.within(_START_SECONDS))
