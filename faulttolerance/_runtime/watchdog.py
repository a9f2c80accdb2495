"""The one thread that interrupts calls at their deadlines, and runs the timers of the library.

``next`` is when it will look again. A caller that begins a deadline stores it in its chain first and reads ``next``
afterwards; the watchdog sets ``next`` to infinity first and reads the chains afterwards. One of them sees the other.
"""

from __future__ import annotations

import _thread
import heapq
import signal
import sys
import time
from collections.abc import Callable
from math import inf
from types import FrameType
from typing import Any

from .._strategy.exception_set import never_match
from . import safe_point
from .fork import at_fork
from .slot import Entry, Slot, all_slots, contains, expired, forget_other_slots, slots, unmasked

__all__ = ["Interrupted", "Watchdog", "watchdog"]

_LOOK_AGAIN = 0.0005
_SEND_AGAIN = (0.001, 0.005, 0.05)
_monotonic = time.monotonic


class Interrupted(BaseException):
    """Raised in the body of a guarded call when its deadline passes, or when the call is cancelled; once for each.

    It is no ``Exception``, so that handlers of errors let it pass. A body may catch it to put things in order and raise it
    on; one that swallows it goes on, and its call still ends in ``TimeoutException``.
    """

    owner: Entry = None
    """The deadline that interrupts; ``None`` where an application raised this itself."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        slot = slots.slot
        self.owner = slot.fired
        slot.fired = None
        if expired(slot, _monotonic()) is not None:
            watchdog.wake()


never_match(Interrupted)


class Timer:
    """A callback that is due at a moment; made by ``Watchdog.call_at``."""

    __slots__ = ("_callback", "_watchdog", "when")

    def __init__(self, watchdog: Watchdog, when: float, callback: Callable[[], object]) -> None:
        self.when = when
        self._watchdog = watchdog
        self._callback: Callable[[], object] | None = callback

    def __lt__(self, other: Timer) -> bool:
        return self.when < other.when

    @property
    def is_cancelled(self) -> bool:
        """Whether the callback is not going to be called (any more)."""
        return self._callback is None

    def cancel(self) -> None:
        """Forget the callback if it has not begun."""
        if self._callback is not None:
            self._callback = None
            self._watchdog.forgot_timer()

    def run(self) -> None:
        """Call the callback, unless it was cancelled meanwhile."""
        callback, self._callback = self._callback, None
        if callback is None:
            return
        try:
            callback()
        except Exception:
            import logging

            logging.getLogger("faulttolerance").exception("a timer's callback failed")


class Watchdog:
    """Looks at the deadlines of all threads whenever one passes."""

    def __init__(self) -> None:
        self.next: float = inf
        """When it will look again; who begins an earlier deadline calls ``wake``."""
        self.busy: Slot | None = None
        """The thread that is being interrupted right now; it has to wait before it withdraws the interruption."""
        self.signum: int | None = getattr(signal, "SIGURG", None)
        self._paused = False
        self._renew()

    def _renew(self) -> None:
        self._sleep = _thread.allocate_lock()
        self._sleep.acquire()
        self._claim = _thread.allocate_lock()
        self._starting = _thread.allocate_lock()
        self._ended = _thread.allocate_lock()
        self._running = False
        self._stopping = False
        self._native_id = 0
        self._timers: list[Timer] = []
        self._timing = _thread.allocate_lock()
        self._cancelled = 0
        self.busy = None

    # What callers do

    def wake(self) -> None:
        """Look at the chains soon; starts the thread where there is none."""
        if self._paused:
            return
        self.next = -inf
        self._rouse()

    def _rouse(self) -> None:
        if not self._running:
            self._start()
        try:
            self._sleep.release()
        except RuntimeError:
            pass  # it has not yet gone to sleep since it was woken last

    def _start(self) -> None:
        with self._starting:
            if self._running:
                return
            self._running = True
            try:
                _thread.start_new_thread(self._run, ())
            except RuntimeError:  # the interpreter is ending, or there is no thread to be had: deadlines end late
                self._running = False
                self.next = inf

    def pause(self) -> None:
        """Interrupt nobody until ``resume``; timers go on."""
        with self._claim:
            self._paused = True
            self.next = -inf

    def resume(self) -> None:
        """Interrupt again."""
        with self._claim:
            self._paused = False
            self.next = inf
        self.wake()

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        """Run a short callback on this thread at *when*; what it raises is logged."""
        timer = Timer(self, when, callback)
        with self._timing:
            heapq.heappush(self._timers, timer)
            first = self._timers[0] is timer
        if first:
            self._rouse()
        return timer

    def forgot_timer(self) -> None:
        """Note that a timer was cancelled; cancelled ones are dropped before they outnumber the others."""
        with self._timing:
            self._cancelled += 1
            if self._cancelled > 32 and self._cancelled * 2 > len(self._timers):
                self._timers = [timer for timer in self._timers if not timer.is_cancelled]
                heapq.heapify(self._timers)
                self._cancelled = 0

    # Its thread

    def _run(self) -> None:
        self._native_id = _thread.get_native_id()
        self._ended.acquire(False)
        while not self._stopping:
            if not self._paused:
                self.next = inf
            now = _monotonic()
            soonest = self._look(now)
            if not self._paused:
                self.next = soonest
            soonest = min(soonest, self._run_timers())
            if soonest == inf:
                self._sleep.acquire()
            else:
                self._sleep.acquire(timeout=max(0.0, min(soonest - _monotonic(), 1e6)))
        self._running = False
        self._ended.release()

    def _run_timers(self) -> float:
        while True:
            with self._timing:
                timers = self._timers
                while timers and timers[0].is_cancelled:
                    heapq.heappop(timers)
                    self._cancelled -= 1
                if not timers:
                    return inf
                if timers[0].when > _monotonic():
                    return timers[0].when
                timer = heapq.heappop(timers)
            timer.run()

    def _look(self, now: float) -> float:
        """Interrupt whom it is time to interrupt; when to look again."""
        soonest = inf
        for slot in all_slots():
            if slot.top is None:
                continue
            if slot.fired is not None:
                soonest = min(soonest, self._fire(slot, slot.fired, now))
                continue
            entry = None if self._paused and not slot.asked else expired(slot, now)
            if entry is not None:
                soonest = min(soonest, self._fire(slot, entry, now))
            for one in unmasked(slot.top):
                if one[0] > now:
                    soonest = min(soonest, one[0])
        return soonest

    def _fire(self, slot: Slot, entry: Entry, now: float) -> float:
        """Interrupt one thread for one deadline; when to look again for it."""
        with self._claim:
            gate = slot.gate
            if gate is not None:
                gate()
                return inf
            if slot.fired is not None:
                if slot.is_main:
                    self._send_signal(slot)
                    return now + 0.001
                return inf
            self.busy = slot
            try:
                slot.fired = entry
                if not any(one is entry for one in unmasked(slot.top)):
                    slot.fired = None
                    return inf
                frame = sys._current_frames().get(slot.ident)
                if not safe_point.is_safe(frame, now - entry[0]):
                    slot.fired = None
                    return now + _LOOK_AGAIN
                if slot.is_main:
                    self._send_signal(slot)
                    return now + 0.001
                slot.sent += (entry,)
                _raise_in(slot.ident, Interrupted)
                return inf
            finally:
                self.busy = None

    def _send_signal(self, slot: Slot) -> None:
        if self.signum is not None and signal.getsignal(self.signum) is handle_signal:
            signal.pthread_kill(slot.ident, self.signum)

    # Fork

    def stop(self) -> None:
        """End the thread and wait until it is gone."""
        if not self._running:
            return
        self._stopping = True
        self._rouse()
        self._ended.acquire()
        self._ended.release()
        self._stopping = False

    def begin_again(self) -> None:
        """Go on after a fork."""
        if not self._paused:
            self.wake()

    def begin_anew(self) -> None:
        """Begin in the child of a fork."""
        forget_other_slots()
        self._renew()
        self.begin_again()


def handle_signal(signum: int, frame: FrameType | None) -> None:
    """Raise ``Interrupted`` in the main thread where one is on its way and this is the place for it."""
    slot = slots.slot
    entry = slot.fired
    if entry is None or not any(one is entry for one in unmasked(slot.top)):
        return
    if contains(slot.sent, entry) or not safe_point.is_safe(frame, _monotonic() - entry[0]):
        return
    slot.sent += (entry,)
    raise Interrupted


def _raise_in(ident: int, exception: type[BaseException] | None) -> int:
    import ctypes

    argument: Any = ctypes.py_object(exception) if exception is not None else None
    return ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), argument)


watchdog = Watchdog()
at_fork(before=watchdog.stop, parent=watchdog.begin_again, child=watchdog.begin_anew)
