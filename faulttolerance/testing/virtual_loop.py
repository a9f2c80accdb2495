"""An event loop on the virtual clock: where other loops would wait for a timer, it waits for virtual time."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context
from typing import Any, ClassVar

from .._deadline.clock import next_deadline
from .._deadline.threads.inner_loop import end_loop
from .virtual_clock import VirtualClock
from .waiter import Waiter, in_ticks


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that follows the virtual clock in use, from each ``run_...`` until it returns; else it runs in real time.

    Its time never goes back. Functions in its executors hold virtual time as well.
    """

    _clock_resolution = property(lambda loop: math.ulp(loop.time()), lambda loop, _: None)
    """The loop runs timers that are due before its time plus this: a nanosecond is nothing beside months of seconds."""
    _default_executor: Any
    running: ClassVar[dict[VirtualLoop, None]] = {}
    """The loops that run, in any thread."""

    def __init__(self, clock: VirtualClock | None) -> None:
        self._followed = clock, 0.0
        """The clock that it follows, or followed last, and the seconds by which its time is ahead of that clock."""
        self._waits: _LoopWait | None = None
        self._at_work: dict[object, Any] = {}
        """The executors of the functions that threads are calling for this loop."""
        super().__init__(_Selector(self))

    @property
    def virtual_clock(self) -> VirtualClock | None:
        """The clock that it follows, or followed last."""
        return self._followed[0]

    def time(self) -> float:
        """Return the seconds on the virtual clock."""
        clock, ahead = self._followed
        return super().time() if clock is None else ahead + clock._loop_time()

    def follow(self, clock: VirtualClock | None) -> None:
        """Continue on *clock*, if any, from the present time of the loop; it may be waiting in real time."""
        if clock is not None and clock is not self.virtual_clock:
            self._followed = clock, in_ticks(self.time() - clock._loop_time())
            with suppress(RuntimeError):  # it was closed meanwhile
                super().call_soon_threadsafe(lambda: None)

    def run_forever(self) -> None:
        """Run until ``stop`` is called; the thread holds time whenever it does not wait for events."""
        self.running[self] = None
        try:
            self.follow(VirtualClock.in_use)
            super().run_forever()
        finally:
            del self.running[self]

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback, from any thread; time does not move any more before it has run."""
        waits = self._waits
        if waits is not None:
            waits.clock.wake(waits)
        return super().call_soon_threadsafe(callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run a function in an executor; threads hold time from when they could begin with it until it is over."""
        clock = self.virtual_clock
        if clock is None or (executor is not None and not isinstance(executor, ThreadPoolExecutor)):
            return super().run_in_executor(executor, func, *args)
        at_work, waiting, errand = self._at_work, clock._executor_calls, object()

        def call(*args: Any) -> Any:
            at_work[errand] = executor
            waiting.pop(errand, None)
            try:
                return func(*args)
            finally:
                del at_work[errand]

        future = super().run_in_executor(executor, call, *args)
        used = executor or self._default_executor  # the loop has none any more once it is closed

        def can_begin() -> bool:
            """Return whether the function waits although there is a thread that could call it."""
            return errand not in at_work and [*at_work.copy().values()].count(executor) < used._max_workers

        waiting[errand] = can_begin
        future.add_done_callback(lambda _: waiting.pop(errand, None))  # it may have been cancelled before
        return future


class _Selector(selectors.DefaultSelector):
    """A selector that waits for input as any other, but for time on the virtual clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the ready descriptors; none once the time is over, or at a deadline of the calling thread."""
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        clock = self._loop.virtual_clock
        if clock is None or clock.has_ended:
            return super().select(timeout)
        seconds, now, deadline = math.inf if timeout is None else timeout, clock._loop_time(), next_deadline()
        if deadline <= now and end_loop(now):
            return super().select(0)
        if deadline > now:
            seconds = min(seconds, deadline - now)
        wait = self._loop._waits = _LoopWait(self._loop, self, clock)
        try:
            if not clock.wait_for_input(wait, seconds):
                ready = super().select()
        finally:
            self._loop._waits = None
            clock.wake(wait)
        if not clock.has_ended:
            wait.conclude()
        return ready


class _LoopWait(Waiter):
    """A loop that waits for input or for its next timer, and sleeps in its selector."""

    def __init__(self, loop: VirtualLoop, selector: selectors.BaseSelector, clock: VirtualClock) -> None:
        super().__init__()
        self.clock = clock
        self._loop = loop
        self._selector = selector

    def wake(self) -> None:
        """Wake the thread."""
        asyncio.SelectorEventLoop.call_soon_threadsafe(self._loop, lambda: None)

    def is_awake(self) -> bool:
        """Return whether there is input."""
        return bool(self._selector.select(0))
