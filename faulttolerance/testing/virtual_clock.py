"""A clock whose time passes as soon as every thread waits for it to pass."""

from __future__ import annotations

import math
import random
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from inspect import CO_COROUTINE
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, ParamSpec, TypeAlias, TypeVar

from .._deadline.clock import clock as shared_clock, next_deadline, raise_if_expired
from .._deadline.threads.chain import this_thread
from .._log import ERROR, WARNING, log
from .._platform.event_loop import loop_here
from .stall_detector import StallDetector
from .thread_observer import STARTING, ThreadObserver, ThreadStates, place_of
from .waiter import VirtualTimeStalled, Waiter, in_ticks, settle

if TYPE_CHECKING:
    from ..typing import Alarm
    from .virtual_loop import VirtualLoop

Seed: TypeAlias = float | str | bytes | None
P = ParamSpec("P")
T = TypeVar("T")

_JOIN_SECONDS = 1.0
"""Real seconds in which the threads of a clock have to end once its block has."""


_FOREIGN_LOOP = (
    "virtual_time() is active, and this event loop does not follow it: delays would take real time here, and deadlines"
    " of coroutines would not pass. Run the coroutine by clock.run(...), or let"
    " faulttolerance.testing.active_clock.loop_factory create the loop: in pytest-asyncio by the hook"
    " pytest_asyncio_loop_factories, in anyio by the fixture anyio_backend, in a TestClient by backend_options."
    " With the fixture ft_clock the first two do so automatically, except for loops of a wider scope than the test"
)


class _Timer(NamedTuple):
    """A callback that is due at a moment."""

    clock: VirtualClock
    when: float
    order: int
    callback: Callable[[], object]

    def cancel(self) -> None:
        """Drop the callback if it has not begun."""
        with self.clock._changed:
            self.clock._timers.pop(self, None)


class VirtualClock:
    """Time and chance under the control of a test; created by ``virtual_time``.

    Time begins at the next full second of the real monotonic clock, so that a circuit that was opened before does not
    see it go back. It moves by itself to the next due moment as soon as every thread waits: threads inside a guard, of
    the pool or of this clock have to sleep in the library for that, other threads may wait for anything. Events that
    are due at one moment happen one after the other, in the order of their requests, each when all wait again.
    """

    in_use: ClassVar[VirtualClock | None] = None
    """The clock of the ``virtual_time()`` block that is active."""

    def __init__(self, seed: Seed = 0) -> None:
        self._random = random.Random(seed)
        self._real_time = shared_clock.monotonic
        self._changed = threading.Condition()  # over an RLock: a signal handler may wake a loop at any place
        # All that follows is guarded by _changed.
        self._now = float(math.ceil(self._real_time()))
        self._asked = 0
        self._waiting: dict[Waiter, None] = {}
        self._timers: dict[_Timer, None] = {}
        self._executor_calls: dict[object, Callable[[], bool]] = {}
        """Return, by call, whether another thread is to begin it, and could."""
        self._is_calling = False
        self._observer = ThreadObserver()
        self._ignored: set[int] = set()
        self._stall_detector = StallDetector(self._real_time)
        self._time_thread: threading.Thread | None = None
        self._started: list[threading.Thread] = []
        self._ended_at: float | None = None

    # The protocol of a clock, for the library

    def monotonic(self) -> float:
        """Return the seconds on this clock; they go on with real time once the block has ended."""
        if self._ended_at is None:
            self._look_at_loop()
        return self._loop_time()

    def random(self) -> float:
        """Return the next number of the seeded generator, in [0, 1)."""
        return self._random.random()

    def sleep(self, seconds: float, alarm: Alarm | None = None) -> None:
        """Wait until the clock has moved on by *seconds*, to a deadline of the calling thread, or until *alarm* rings.

        Raises:
            Interrupted: At the deadline.
            VirtualTimeStalled: Time cannot pass, or the ``virtual_time()`` block ended meanwhile.
        """
        deadlines = this_thread.deadlines
        sleeper = Waiter(deadlines)

        def go_on() -> None:
            self.wake(sleeper)
            sleeper.wake()

        end = self._now + in_ticks(seconds)
        outer = deadlines.gate  # of the sleep in which a signal's handler sleeps
        deadlines.gate = go_on
        try:
            if alarm is not None:
                alarm.ends(go_on)
            while True:
                raise_if_expired(self._now)
                if self._now >= end or (alarm is not None and alarm.rings):
                    return
                with self._changed:
                    is_over = self._wait(sleeper, min(end, next_deadline()))
                if not is_over:
                    sleeper.sleep()
                sleeper.conclude()
        finally:
            deadlines.gate = outer
            self.wake(sleeper)

    def call_at(self, when: float, callback: Callable[[], object]) -> _Timer:
        """Run a short callback, on a thread of this clock, once the time has come."""
        with self._changed:
            timer = _Timer(self, when, self._next_order(), callback)
            self._timers[timer] = None
            self._wake_time_thread()
        return timer

    # The methods for tests

    def advance(self, seconds: float) -> None:
        """Advance time by *seconds*, whichever thread holds it; events that become due on the way happen in order.

        Before each step and at the end, all work that was started runs until it waits again, for a second of real time
        at most; ``advance(0)`` does just that. Called inside a guarded body it stands for work that takes so long: no
        deadline interrupts it, the call ends late. Threads that advance time at once do so side by side.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"time advances by a finite number of seconds >= 0, not by {seconds!r}")
        target = Waiter()
        with self._changed:
            self._raise_if_ended()
            target.when, target.order = self._now + in_ticks(seconds), math.inf
            self._waiting[target] = None
            self._stall_detector = StallDetector(self._real_time)
            self._wake_time_thread()
        try:
            target.sleep()
        finally:
            self.wake(target)
        target.conclude()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine as ``asyncio.run`` does, on a loop that follows this clock, and return its result.

        ``asyncio.sleep`` and ``asyncio.timeout`` follow it, too. Loops may run in several threads at once.
        """
        import asyncio

        with asyncio.Runner(loop_factory=self.loop_factory) as runner:
            return runner.run(main)

    def loop_factory(self) -> VirtualLoop:
        """Return a new event loop that follows this clock, for ``asyncio.Runner`` and the hooks of test frameworks."""
        from .virtual_loop import VirtualLoop

        return VirtualLoop(self)

    def start(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Return the future of a call of *function* on a thread of its own, for which time waits until it is over.

        Threads that are started at one moment run side by side; ``advance(0)`` after each lets it come to its first
        wait before the next one begins.
        """
        future: Future[T] = Future()
        call = partial(copy_context().run, function, *args, **kwargs)

        def work() -> None:
            taking_part, ident = self._observer.registered, threading.get_ident()
            taking_part.add(ident)
            settle(future, call)
            taking_part.discard(ident)

        name = getattr(function, "__qualname__", repr(function))
        thread = threading.Thread(target=work, name=f"virtual-time {name}", daemon=True)
        with self._changed:
            self._raise_if_ended()
            self._started.append(thread)
        thread.start()
        return future

    # The protocol for the threads and loops of this clock

    def _loop_time(self) -> float:
        """Return the same seconds as ``monotonic``, on a loop that follows this clock."""
        return self._now if self._ended_at is None else self._now + self._real_time() - self._ended_at

    def wait_for_input(self, waiter: Waiter, seconds: float) -> bool:
        """Register the wait of a loop; return whether *seconds* or the block are over, else it waits until woken."""
        with self._changed:
            return self.has_ended or self._wait(waiter, self._now + seconds)

    def wake(self, waiter: Waiter) -> None:
        """Record that a thread goes on although its time has not come."""
        with self._changed:
            self._waiting.pop(waiter, None)

    @property
    def has_ended(self) -> bool:
        """Whether the ``virtual_time()`` block is over, and the real clock is in use again."""
        return self._ended_at is not None

    # Waiting: under the lock

    def _look_at_loop(self) -> None:
        loop = loop_here()
        if loop is None or getattr(loop, "virtual_clock", None) is self:
            return
        # A coroutine of a guard or of a test fails here; a function sleeps on this clock as usual.
        if sys._getframe(2).f_code.co_flags & CO_COROUTINE:
            log(ERROR, "%s", _FOREIGN_LOOP)  # the loop of a test client ends by this error, and shows another one
            raise VirtualTimeStalled(_FOREIGN_LOOP)

    def _raise_if_ended(self) -> None:
        if self._ended_at is not None:
            raise RuntimeError("the virtual_time() block of this clock has ended")

    def _next_order(self) -> int:
        self._raise_if_ended()
        self._asked += 1
        return self._asked

    def _wait(self, waiter: Waiter, when: float) -> bool:
        """Register a waiting thread; return true if all others wait already and it is the next: time has moved then."""
        waiter.when, waiter.order = when, self._next_order()
        self._waiting[waiter] = None
        if not (self._is_advanced() or self._is_calling) and self._next_due() is waiter and self._may_move(tick=False):
            self._move(waiter)
            return True
        if when < math.inf:
            self._wake_time_thread()
        return False

    # Moving: under the lock

    def _wake_time_thread(self) -> None:
        if self._time_thread is None:
            self._time_thread = threading.Thread(target=self._run_time_thread, name="virtual-time", daemon=True)
            self._time_thread.start()
        self._changed.notify_all()

    def _run_time_thread(self) -> None:
        time_thread, tick = threading.current_thread(), False
        with self._changed:
            while self._time_thread is time_thread:
                if self._next_due() is None:
                    self._changed.wait()
                    tick = False
                elif self._may_move(tick):
                    self._move()
                    tick = False
                else:
                    tick = not self._changed.wait(self._stall_detector.poll_seconds)

    def _may_move(self, tick: bool) -> bool:
        waiting = [*self._waiting]  # at once: a signal handler may change it at any place
        asleep = {getattr(self._time_thread, "ident", None), *(waiter.ident for waiter in waiting)}
        states = self._observer.observe(asleep, tick)
        running = states.running
        if any(waiter.is_awake() for waiter in waiting) or any(may() for may in [*self._executor_calls.values()]):
            running.add(STARTING)
        if tick:
            self._stall_detector.count(not running)
        # Of a thread that is over, another one may have the identifier; and any may have come into a guard.
        self._ignored &= running - states.participants.keys()
        running -= self._ignored
        if states.participants and not self._is_advanced():
            if self._stall_detector.is_stalled:
                self._stall(states)
            return False
        if self._stall_detector.has_waited_long:  # other threads need not end, and the next step does not wait for them
            self._ignored |= running - {STARTING} - states.participants.keys()
        return not running or self._stall_detector.has_waited_long

    def _is_advanced(self) -> bool:
        """Return whether a thread advances time, which is behind all else that is due at the end of that."""
        return any(waiter.order == math.inf for waiter in [*self._waiting])

    def _next_due(self) -> Waiter | _Timer | None:
        candidates: list[Waiter | _Timer] = [*self._waiting, *self._timers]
        due = min(candidates, key=_in_order, default=None)
        return due if due is not None and due.when < math.inf else None

    def _move(self, awake: Waiter | None = None) -> None:
        """Move time to the next due moment, and trigger its event; *awake* is the waiter of the calling thread."""
        self._stall_detector = StallDetector(self._real_time)
        due = self._next_due()
        assert due is not None
        self._now = max(self._now, in_ticks(due.when))
        if isinstance(due, Waiter):
            del self._waiting[due]
            if due is not awake:
                due.wake()
            return
        del self._timers[due]
        self._is_calling = True
        self._changed.release()
        try:
            due.callback()
        except Exception as error:  # noqa: BLE001  # it is logged
            log(ERROR, "a callback of the clock failed", error=error)
        finally:
            self._changed.acquire()
            self._is_calling = False

    def _stall(self, states: ThreadStates) -> None:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        holders = ", ".join(
            f"thread {names.get(ident, ident)!r} {place_of(frame)}"
            for ident, frame in sorted(states.participants.items())
        )
        reason = f"virtual time is held by {holders}; code that blocks outside the library needs clock.advance()"
        self._end_waits(reason)
        log(WARNING, "%s", reason)
        self._stall_detector = StallDetector(self._real_time)

    def _end_waits(self, reason: str) -> None:
        """Raise ``VirtualTimeStalled`` in all threads that wait for a moment."""
        for waiter in [*self._waiting]:
            if waiter.when < math.inf:
                self.wake(waiter)
                waiter.failure = reason
                waiter.wake()

    # Beginning and ending

    def _end(self) -> None:
        """Stop; the real clock is in use again. Calls that wait for a timer go on in real time."""
        with self._changed:
            now = self._ended_at = self._real_time()
            self._end_waits("the virtual_time() block ended while this thread slept")
            timers = sorted(self._timers, key=_in_order)
            self._timers.clear()
            time_thread, self._time_thread = self._time_thread, None
            self._changed.notify_all()
        if time_thread is not None:
            time_thread.join()
        for timer in timers:
            shared_clock.call_at(now + max(0.0, timer.when - self._now), timer.callback)
        for thread in self._started:
            thread.join(_JOIN_SECONDS)

    def _reset_in_child(self) -> None:
        """Reset the clock in a forked child, where only the calling thread exists."""
        self._changed = threading.Condition()
        self._time_thread = None
        self._waiting.clear()
        self._executor_calls.clear()
        self._started.clear()
        self._observer.registered &= {threading.get_ident()}


def _in_order(due: Waiter | _Timer) -> tuple[float, float]:
    return due.when, due.order
