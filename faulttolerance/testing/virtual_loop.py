"""An event loop on the virtual clock: where other loops would wait for a timer, it waits for virtual time."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from functools import partial
from typing import Any

from .._deadline.clock import next_deadline
from .._deadline.threads.inner_loop import end_loop
from .virtual_clock import VirtualClock
from .waiter import Waiter


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that takes part in a virtual clock from each ``run_...`` until it returns.

    Functions in its executors hold time as well. Once the ``virtual_time()`` block is over, it goes on in real time.
    """

    _clock_resolution = property(lambda loop: math.ulp(loop.time()), lambda loop, _: None)
    """The loop runs timers that are due before its time plus this: a nanosecond is nothing beside months of seconds."""

    def __init__(self, clock: VirtualClock) -> None:
        self.virtual_clock = clock
        self._waits: _LoopWait | None = None
        self._executor_calls: dict[_ExecutorCall, None] = {}
        """The functions that threads of executors are calling for this loop."""
        super().__init__(_Selector(self, clock))

    def time(self) -> float:
        """Return the seconds on the virtual clock."""
        return self.virtual_clock._loop_time()

    def run_forever(self) -> None:
        """Run until ``stop`` is called; the thread holds time whenever it does not wait for events."""
        with self.virtual_clock.working():
            super().run_forever()

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback, from any thread; time does not move any more before it has run."""
        waits = self._waits
        if waits is not None:
            self.virtual_clock.wake(waits)
        return super().call_soon_threadsafe(callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run a function in an executor; threads hold time from when they could begin with it until it is over."""
        if executor is not None and not isinstance(executor, ThreadPoolExecutor):
            return super().run_in_executor(executor, func, *args)
        executor_call = _ExecutorCall(self.virtual_clock, self._executor_calls, func)
        future = super().run_in_executor(executor, executor_call, *args)
        executor_call.executor = executor or getattr(self, "_default_executor", None)
        self.virtual_clock.send(executor_call, executor_call.can_begin)
        future.add_done_callback(lambda _: self.virtual_clock.begin(executor_call))  # it may have been cancelled before
        return future


class _ExecutorCall:
    """A function that a thread of an executor is to call."""

    def __init__(self, clock: VirtualClock, started: dict[_ExecutorCall, None], function: Callable[..., Any]) -> None:
        self.executor: object = None
        self._clock = clock
        self._started = started
        self._function = function

    def can_begin(self) -> bool:
        """Return whether the function waits although there is a thread that could call it."""
        started = self._started.copy()
        at_work = sum(executor_call.executor is self.executor for executor_call in started)
        return self not in started and at_work < getattr(self.executor, "_max_workers", math.inf)

    def __call__(self, *args: Any) -> Any:
        with self._clock.working():
            self._started[self] = None
            self._clock.begin(self)
            try:
                return self._function(*args)
            finally:
                del self._started[self]

    def __reduce__(self) -> tuple[Any, ...]:
        """Become the function alone for another interpreter, that of an ``InterpreterPoolExecutor``: time waits."""
        return partial, (self._function,)


class _Selector(selectors.DefaultSelector):
    """A selector that waits for input as any other, but for time on the virtual clock."""

    def __init__(self, loop: VirtualLoop, clock: VirtualClock) -> None:
        super().__init__()
        self._loop = loop
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the ready descriptors; none once the time is over, or at a deadline of the calling thread."""
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self._clock.has_ended:
            return super().select(timeout)
        seconds, now, deadline = math.inf if timeout is None else timeout, self._clock._loop_time(), next_deadline()
        if deadline <= now and end_loop(now):
            return super().select(0)
        if deadline > now:
            seconds = min(seconds, deadline - now)
        wait = self._loop._waits = _LoopWait(self._loop, self)
        try:
            if not self._clock.wait_for_input(wait, seconds):
                ready = super().select()
        finally:
            self._loop._waits = None
            self._clock.wake(wait)
        wait.conclude()
        return ready


class _LoopWait(Waiter):
    """A loop that waits for input or for its next timer, and sleeps in its selector."""

    def __init__(self, loop: VirtualLoop, selector: selectors.BaseSelector) -> None:
        super().__init__()
        self._loop = loop
        self._selector = selector

    def wake(self) -> None:
        """Wake the thread."""
        asyncio.SelectorEventLoop.call_soon_threadsafe(self._loop, lambda: None)

    def is_awake(self) -> bool:
        """Return whether there is input."""
        return bool(self._selector.select(0))
