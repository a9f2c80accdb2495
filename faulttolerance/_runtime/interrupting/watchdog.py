"""The one thread that interrupts calls at their deadlines, and runs the timers of the library.

``next`` is when it will look again. A caller stores its deadline in the chain first and reads ``next`` afterwards; the
watchdog sets ``next`` to infinity first and reads the chains afterwards. One of them sees what the other did.

An interruption is withdrawn in the same way: the caller takes its deadline off the chain first and reads ``fired``
afterwards; the watchdog stores ``fired`` first and reads the chain afterwards. While ``busy`` names the caller's
thread, the caller waits for the outcome. So nothing arrives after its call is over.

No lock is taken here by any thread but the watchdog's own: an interruption, a finalizer or a signal handler may land
between any two steps of a caller.
"""

from __future__ import annotations

import heapq
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import dropwhile, islice
from math import inf
from types import FrameType
from typing import Any, cast

from ..._log import ERROR, log
from ..._strategy.exception_set import never_match
from ..fork import at_fork, stop_at_end_of_subinterpreter
from ..native import allows_watching, get_ident, get_native_id, native
from ..one_step import frames_of_threads, once, stack_of, uncollected_once
from . import safe_point
from .activity import Activity, cpu_of, sleeps
from .inner_loop import find_loop
from .instructions import may_call
from .sleeper import Sleeper
from .thread_deadlines import (
    HAS_GIL,
    Entry,
    ThreadDeadlines,
    current_greenlet,
    deadlines_of_threads,
    depth,
    due,
    forget_other_threads,
    is_open,
    prune,
    stands,
    this_thread,
    unmasked,
)

__all__ = [
    "OTHER_GREENLETS",
    "Interrupted",
    "PendingInterrupt",
    "Watchdog",
    "interruption_for",
    "on_signal",
    "watchdog",
    "withdraw",
]

_LOOK_AGAIN = 0.0005
"""Seconds until the next look at a thread that moves, and may soon come to a better place."""
_LOOK_OFTEN = 0.005
_LOOK_SELDOM = 0.05
"""The same, at the longest, for a thread that does not move: in the first second, and later."""
_SWITCH_OFTEN = 0.0001
"""Seconds after which a thread that moves, and never stands well, is to give way to the look; usually that is 5 ms."""
_PRESSED_FOR = 10.0
"""Seconds for which that is tried."""
_SEND_AGAIN = (0.001, 0.005, 0.05, 0.5, 1.0)
"""Seconds after which a signal is repeated: one that comes just before a blocking call is lost.

Code in C that waits in turns, and looks only between them whether a signal has come, may begin its turn anew at each
(gRPC: 0.2 s).
"""
_MOST_LOOKS = 250
"""How often to ask the system, while no other thread runs, whether a signal has arrived; some milliseconds."""
_LONGEST_SLEEP = 86400.0

OTHER_GREENLETS = "other greenlets ran in its thread"
"""Why a call is not interrupted while another stack than its own stands on the thread."""

_CAN_SIGNAL = hasattr(signal, "pthread_kill")


class Interrupted(BaseException):
    """Raised in the body of a guarded call when its deadline passes, or when the call is cancelled; once for each.

    It is no ``Exception``, so that handlers of errors let it pass. A body may catch it to put things in order and raise
    it on; one that swallows it goes on, and its call still ends in ``TimeoutException``.
    """

    owner: Entry = None
    """The deadline that interrupts; ``None`` where an application raised this itself."""

    def __init__(self, *args: object) -> None:
        # The interpreter makes it, in the thread that is interrupted, where it was sent to that thread.
        super().__init__(*args)
        deadlines = this_thread.deadlines
        fired = deadlines.in_flight
        if fired is not None and id(fired) in deadlines.sent:
            self.owner = fired
            deadlines.in_flight = None
            watchdog.look_after(deadlines)


never_match(Interrupted)


def interruption_for(deadlines: ThreadDeadlines, entry: Entry) -> Interrupted:
    """What the running thread, *deadlines*, is to raise for *entry*."""
    prune(deadlines)
    deadlines.sent[id(entry)] = entry
    interrupted = Interrupted.__new__(Interrupted)
    interrupted.owner = entry
    if deadlines.in_flight is entry:
        deadlines.in_flight = None
    watchdog.look_after(deadlines)
    return interrupted


def withdraw(deadlines: ThreadDeadlines) -> None:
    """Take back what is on its way to the running thread, *deadlines*, unless it is raised from here."""
    while watchdog.busy is deadlines:
        native.sleep(0)
    entry = deadlines.in_flight
    if entry is None:
        return
    if deadlines.sent.pop(id(entry), None) is not None:
        deadlines.withdrawn = entry
        if _sender is not None:
            _sender(deadlines.ident, _nothing)
    deadlines.in_flight = None
    watchdog.look_after(deadlines)


class Timer:
    """A callback that is due at a moment; made by ``Watchdog.call_at``."""

    __slots__ = ("_alive", "callback", "when")

    def __init__(self, alive: dict[Timer, None], when: float, callback: Callable[[], object]) -> None:
        self.when = when
        self.callback = callback
        self._alive = alive
        alive[self] = None

    def __lt__(self, other: Timer) -> bool:
        return self.when < other.when

    def cancel(self) -> None:
        """Forget the callback if it has not begun."""
        self._alive.pop(self, None)


class PendingInterrupt:
    """How it goes with one deadline that has passed."""

    __slots__ = (
        "_wait",
        "at",
        "cpu",
        "entry",
        "has_moved",
        "has_told_loop",
        "looks",
        "refused_at",
        "send_at",
        "signals",
        "since",
        "why",
    )

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.at: tuple[int, int] | None = None
        """Where the thread was seen last."""
        self.refused_at: tuple[int, int] = (0, 0)
        """Where the handler of the signal saw that it was no place for an interruption."""
        self.has_moved = False
        """Whether it was somewhere else when it was last looked at."""
        self.has_told_loop = False
        """Whether the loop that runs in the call was told to end."""
        self.looks = 0
        """How often in a row it was seen there without having done anything."""
        self.signals = 0
        self.send_at = -inf
        """When to repeat the signal."""
        self.why: str | None = None
        """What kept the thread from being interrupted when it was last looked at."""
        self.since = -inf
        """When it was first seen there."""
        self.cpu = -1.0
        """The processor time that it had used by then."""
        self._wait = _LOOK_AGAIN

    def look(self, at: tuple[int, int], cpu: float, now: float) -> None:
        """Note where the thread stands, and the processor time that it has used."""
        self.has_moved = at != self.at and self.at is not None
        if at == self.at and cpu == self.cpu:
            self.looks += 1
            self._wait = min(self._wait * 1.5, _LOOK_SELDOM)
        else:
            self.at, self.cpu, self.since = at, cpu, now
            self.looks = 1
            self._wait = _LOOK_AGAIN

    def again(self, late_by: float) -> float:
        """When to look again."""
        return native.monotonic() + (self._wait if late_by > 1.0 else min(self._wait, _LOOK_OFTEN))


class Watchdog:
    """Looks at the deadlines of all threads whenever one passes."""

    def __init__(self) -> None:
        self.next: float = inf
        """When it will look again; who begins an earlier deadline calls ``wake``."""
        self.busy: ThreadDeadlines | None = None
        """The thread that is being interrupted at this moment."""
        self.signum: int | None = getattr(signal, "SIGURG", None)
        """What interrupts blocking calls of the main thread; ``None``: nothing does."""
        self.is_paused = False
        self.is_deaf = False
        """Whether the main thread notices signals in blocking calls only."""
        self._installed: int | None = None
        self._activity: Activity | None = None
        self._forks = 0
        self._renew()

    def _renew(self) -> None:
        self._sleep = native.allocate_lock()
        self._sleep.acquire()
        self._starting = native.allocate_lock()
        self._ended = native.allocate_lock()
        self._running = False
        self._stopping = False
        self._ident = 0
        self._native_id = 0
        self._handle: Any = None
        self._alive: dict[Timer, None] = {}
        self._incoming: deque[Timer] = deque()
        self._heap: list[Timer] = []
        self._next_timer: float = inf
        if self._activity is not None:
            self._activity.close()
            self._activity = None
        self._is_pressed = False
        """Whether a thread that moves was looked at in vain in this round."""
        self.is_blind = False
        """Whether the system does not tell what the main thread does."""
        self.busy = None
        self.next = -inf if self.is_paused else inf

    # What callers do

    def wake(self) -> None:
        """Look at the chains soon; the thread is started where there is none."""
        if not self.is_paused:
            self.next = -inf  # nobody else needs to wake it
            self.rouse()

    def rouse(self) -> None:
        """Make the thread go through its round."""
        if not self._running:
            self._start()
        try:
            self._sleep.release()
        except RuntimeError:
            pass  # it was woken already, and has not yet gone to sleep since

    def look_after(self, deadlines: ThreadDeadlines) -> None:
        """Look again at a thread whose interruption was delivered or withdrawn; others may have waited for that."""
        if deadlines.innermost is not None:
            self.wake()

    def _start(self) -> None:
        if not allows_watching:
            self.next = inf if not self.is_paused else self.next
            return
        if self._forks or not self._starting.acquire(False):
            return
        try:
            if not self._running and self._ended.acquire(False):
                stop_at_end_of_subinterpreter()
                self._running = True
                self._stopping = False
                try:
                    if sys.version_info >= (3, 13):
                        self._handle = native.start_joinable_thread(self._run, daemon=True)
                    else:
                        native.start_thread(self._run, ())
                except RuntimeError:  # the interpreter is ending, or no thread is to be had: deadlines end late
                    self._running = False
                    self._ended.release()
                    if not self.is_paused:
                        self.next = inf
        finally:
            self._starting.release()

    def pause(self) -> None:
        """Let deadlines interrupt nobody until ``resume``; what was asked for, and the timers, are still seen to."""
        self.is_paused = True
        self.next = -inf
        while self.busy is not None:
            native.sleep(0)

    def resume(self) -> None:
        """Interrupt again."""
        if self.is_paused:
            self.is_paused = False
            self.wake()

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        """Run a short callback on this thread at *when*; what it raises is logged."""
        timer = Timer(self._alive, when, callback)
        self._incoming.append(timer)
        if when < self._next_timer or len(self._heap) + len(self._incoming) > 2 * len(self._alive) + 64:
            self._next_timer = -inf
            self.rouse()
        return timer

    # Its thread

    def _run(self) -> None:
        self._ident = get_ident()
        self._native_id = get_native_id()
        while not self._stopping:
            if not self.is_paused:
                self.next = inf
            soonest = self._round()
            if not self.is_paused:
                self.next = soonest
            self._next_timer = inf
            until = self._next_timer = self._run_timers()
            self._rest(min(soonest, until) - native.monotonic())
        self._running = False
        self._ended.release()
        if not self._forks:
            self._look_around()

    def _rest(self, seconds: float) -> None:
        """Sleep for *seconds*, or until somebody wakes it; where a thread rarely stands well, wait for it less long."""
        usual = often = sys.getswitchinterval()
        if self._is_pressed:
            self._is_pressed = False
            sys.setswitchinterval(min(usual, _SWITCH_OFTEN))
            often = sys.getswitchinterval()
        self._sleep.acquire(timeout=max(0.0, min(seconds, _LONGEST_SLEEP)))
        if often != usual and sys.getswitchinterval() == often:  # and nobody else has changed it meanwhile
            sys.setswitchinterval(usual)

    def _run_timers(self) -> float:
        """Run what is due; when the next one is."""
        heap, incoming, alive = self._heap, self._incoming, self._alive
        while incoming:
            heapq.heappush(heap, incoming.popleft())
        if len(heap) > 2 * len(alive) + 64:
            heap[:] = [timer for timer in heap if timer in alive]
            heapq.heapify(heap)
        while heap:
            first = heap[0]
            if first in alive:
                if first.when > native.monotonic():
                    return first.when
                heapq.heappop(heap)
                if alive.pop(first, first) is None:
                    self._call(first.callback)
            else:
                heapq.heappop(heap)
        return inf

    def _call(self, callback: Callable[[], object]) -> None:
        try:
            callback()
        except BaseException as error:  # others wait for this thread
            log(ERROR, "a timer's callback failed", error=error)

    def _round(self) -> float:
        """Look at every thread; when to do so again."""
        soonest = inf
        needs_sender = False
        for deadlines in deadlines_of_threads():
            if not HAS_GIL:
                deadlines.order.clear()
            if deadlines.innermost is not None:
                has_signal = deadlines.is_main and self.owns_signal() and not self.is_deaf
                needs_sender = needs_sender or not (_tried or has_signal)
                soonest = min(soonest, self._see_to(deadlines))
        if needs_sender:
            _find_sender()
            return -inf
        return soonest

    def _see_to(self, deadlines: ThreadDeadlines) -> float:
        now = native.monotonic()
        soonest = inf
        if not self.is_paused:
            for entry in unmasked(deadlines.innermost):
                if entry[0] > now:
                    soonest = min(soonest, entry[0])
        if deadlines.requested:
            soonest = min(soonest, self._forget_requested(deadlines, now))
        entry = due(deadlines, -inf if self.is_paused else now)
        if entry is not None:
            soonest = min(soonest, self._pursue(deadlines, entry, now))
        return soonest

    def _forget_requested(self, deadlines: ThreadDeadlines, now: float) -> float:
        """Forget requests that were met, or found their call over or not begun within a second; when to look again."""
        soonest = inf
        for key, (entry, since) in list(deadlines.requested.items()):
            if key in deadlines.sent:
                deadlines.requested.pop(key, None)
            elif not stands(deadlines, entry):
                if now - since > 1.0:
                    deadlines.requested.pop(key, None)
                else:
                    soonest = now + 0.001
        return soonest

    def _pursue(self, deadlines: ThreadDeadlines, entry: Entry, now: float) -> float:
        """Interrupt one thread for one deadline if it stands well; when to look again."""
        gate = deadlines.gate
        if gate is not None:
            gate()  # who sleeps here raises the interruption itself
            return now + 0.001
        by_signal = deadlines.is_main and self.owns_signal()
        is_deaf = by_signal and self.is_deaf
        if deadlines.in_flight is not None and (id(deadlines.in_flight) in deadlines.sent or not by_signal):
            return inf  # under way, or about to be withdrawn
        if is_deaf and deadlines.pending_interrupt is not None and deadlines.pending_interrupt.send_at > now:
            by_signal = False  # a signal was sent, and ends what waits; nothing else notices it
        if not (by_signal or (HAS_GIL and _sender is not None)):
            return inf
        pending = deadlines.pending_interrupt
        if pending is None or pending.entry is not entry:
            pending = deadlines.pending_interrupt = PendingInterrupt(entry)
        requested = deadlines.requested.get(id(entry))
        late_by = now - (entry[0] if requested is None else requested[1])
        if not HAS_GIL:
            # The frames of a thread that runs at this moment must not be looked at; the handler looks at its own.
            pending.look(pending.refused_at, 0.0, now)
            if pending.send_at <= now:
                self._signal(deadlines, entry, pending, None)
            return pending.again(late_by)
        frame = frames_of_threads().get(deadlines.ident)
        if frame is None:
            return pending.again(late_by)
        stack = stack_of(frame)
        if "greenlet" in sys.modules and not safe_point.is_of_call(stack, entry):
            pending.why = OTHER_GREENLETS
            return pending.again(late_by)
        layers = depth(deadlines, entry)
        loop = find_loop(stack, layers)
        if loop is not None and not pending.has_told_loop:
            pending.has_told_loop = True
            loop.tell(deadlines, entry)
        if loop is not None and loop.is_idle and late_by < 1.0:
            return pending.again(late_by)  # it is about to end by itself
        if self._aim(deadlines, pending, frame, late_by, layers, by_signal):
            return inf
        self._is_pressed = self._is_pressed or (pending.has_moved and _LOOK_OFTEN < late_by < _PRESSED_FOR)
        return pending.again(late_by)

    def _aim(
        self,
        deadlines: ThreadDeadlines,
        pending: PendingInterrupt,
        frame: FrameType,
        late_by: float,
        layers: int,
        by_signal: bool,
    ) -> bool:
        """Interrupt a thread that stands in *frame* if that does no harm; whether it was sent the exception."""
        entry, now = pending.entry, native.monotonic()
        activity = self._activity_of_main(deadlines) if by_signal and pending.why is not None else None
        sleeper = Sleeper(frame) if safe_point.is_in_condition_wait(frame) else None
        if activity is not None:
            cpu = activity.cpu()
        else:
            cpu = cpu_of(deadlines.native_id) if late_by > 1.0 or sleeper is not None else 0.0
        pending.look(safe_point.place(frame), cpu, now)
        is_still = now - pending.since >= max(0.01, 2.5 * sys.getswitchinterval())
        # One that has woken up by itself may wait for the interpreter only, and be hit amidst the end of its wait.
        may_be_awake = not (by_signal or safe_point.IS_EXACT) and sleeper is not None and sleeper.is_timed
        pending.why = safe_point.objection(
            frame,
            late_by,
            exact=by_signal or safe_point.IS_EXACT,
            asleep=is_still and cpu > 0.0 if may_be_awake else pending.looks > 1,
            standing=is_still and not by_signal,
            blind=by_signal and self.is_blind,
            depth=layers,
        )
        if not by_signal:
            return pending.why is None and self._shoot(deadlines, entry, frame)
        if pending.send_at > now:
            return False
        is_deaf = pending.why is None and self._misses_signals(pending, frame, late_by, layers)
        if is_deaf and self._shoot(deadlines, entry, frame):
            return True
        if pending.why is None or pending.has_moved:
            # One that moves is somewhere else by the time that it notices; the handler looks at where that is.
            self._signal(deadlines, entry, pending, None)
        elif (
            activity is not None
            and is_still
            and safe_point.objection(frame, late_by, exact=True, blocked=True, depth=layers) is None
        ):
            self._signal(deadlines, entry, pending, activity)
        return False

    def _shoot(self, deadlines: ThreadDeadlines, entry: Entry, frame: FrameType) -> bool:
        """Send the exception to a thread, unless it has left the place where it was seen; whether that was done."""
        ident, instruction = deadlines.ident, frame.f_lasti
        prune(deadlines)
        # Made beforehand: below, every step up to the shot is one of those between which the interpreter never switches
        # threads, which excludes calls as such. An iteration over something written in C is none.
        look = uncollected_once(sys._current_frames)
        shot = _shot_at(ident)
        sleeper = Sleeper(frame) if safe_point.is_in_condition_wait(frame) else None
        takes, leaves, wakes, gives = _NO_SLEEPER
        if sleeper is not None:
            if not sleeper.is_usual:
                return False
            takes, leaves, wakes, gives = (
                sleeper.takes_lock(), sleeper.leaves(), sleeper.wakes(), sleeper.gives_lock()
            )  # fmt: skip
        frames: dict[int, FrameType] = {}
        done = False
        self.busy = deadlines
        deadlines.in_flight = entry
        if is_open(deadlines, entry):
            deadlines.sent[id(entry)] = entry
            for frames in look:
                if ident in frames and frames[ident] is frame and frame.f_lasti == instruction:
                    for is_free in takes:
                        if is_free:
                            try:
                                for _ in leaves:
                                    break
                                for count in shot:
                                    done = count > 0
                                    break
                                for _ in wakes:
                                    break
                            except (RuntimeError, ValueError):
                                pass  # it was notified, and is about to go on by itself
                            for _ in gives:
                                break
                        break
                break
            if not done:
                del deadlines.sent[id(entry)]
        if not done:
            deadlines.in_flight = None
        self.busy = None
        frames.clear()  # it holds the frame of this method, and that would hold it
        return done

    # The main thread

    def _misses_signals(self, pending: PendingInterrupt, frame: FrameType, late_by: float, layers: int) -> bool:
        """Whether the main thread is better sent an exception, which it notices where it stands, or soon.

        A signal it notices at the next place where it looks. Where that is code that is left in peace, as in a loop
        that does nothing but call such code, or under a trace function, every signal would be in vain.
        """
        if not pending.signals or may_call(frame.f_code, frame.f_lasti):
            return False
        if not safe_point.IS_EXACT and safe_point.objection(frame, late_by, exact=False, depth=layers) is not None:
            return False
        if not _tried:
            _find_sender()
        return HAS_GIL and _sender is not None

    def owns_signal(self) -> bool:
        """Whether our handler stands; an application may have put its own in the place at any time."""
        return self.signum is not None and _CAN_SIGNAL and signal.getsignal(self.signum) is on_signal

    def install_handler(self, deadlines: ThreadDeadlines) -> None:
        """Have the signal handled here, if nothing else handles it; called by the main thread, whose is *deadlines*."""
        deadlines.is_ready = True
        signum, installed = self.signum, self._installed
        try:
            if installed is not None and installed != signum:
                if signal.getsignal(installed) is on_signal:
                    signal.signal(installed, signal.SIG_DFL)
                self._installed = None
            if signum is not None and _CAN_SIGNAL and signal.getsignal(signum) in (signal.SIG_DFL, on_signal):
                signal.signal(signum, on_signal)
                self._installed = signum
        except ValueError:  # the main thread of a sub-interpreter: signals are not its own
            self.signum = None

    def _signal(
        self, deadlines: ThreadDeadlines, entry: Entry, pending: PendingInterrupt, activity: Activity | None
    ) -> None:
        """Send the signal; with *activity* only if that shows the main thread blocked at this very moment."""
        kill = once(signal.pthread_kill, deadlines.ident, cast("int", self.signum))
        self.busy = deadlines
        deadlines.in_flight = entry
        sent = False
        if not HAS_GIL:
            deadlines.order.clear()
        if is_open(deadlines, entry):
            if activity is None:
                sent = next(kill, 0) is None
            else:
                # As in ``_shoot``, no other thread runs from the first look to the last. So nothing but the signal can
                # end what the main thread waits for: it has come out of that with nothing taken once it has run, and
                # sleeps again, for the interpreter's lock. Otherwise the handler, at the same place, is to refuse.
                cpu, at = pending.cpu, pending.at
                has_run = dropwhile(cpu.__eq__, islice(activity.clocks, 20 * _MOST_LOOKS))
                sleeps_again = filter(sleeps, islice(activity.states, _MOST_LOOKS))
                for state in activity.states:
                    for used in activity.clocks:
                        if used == cpu and b") S " in state:
                            for _ in kill:
                                sent = True
                                break
                            for _ in has_run:
                                for _ in sleeps_again:
                                    deadlines.seen_blocked = at
                                    break
                                break
                        break
                    break
        if sent:
            pending.send_at = native.monotonic() + _SEND_AGAIN[min(pending.signals, len(_SEND_AGAIN) - 1)]
            pending.signals += 1
        else:
            deadlines.in_flight = None
        self.busy = None

    def _activity_of_main(self, deadlines: ThreadDeadlines) -> Activity | None:
        if self._activity is None and not self.is_blind:
            try:
                self._activity = Activity(deadlines.ident)
            except (ImportError, AttributeError, OSError):
                self.is_blind = True
        return self._activity

    # Forking

    def stop(self) -> None:
        """End the thread and wait until it is gone; it is not started until ``begin_again``."""
        self._forks += 1
        if not self._running or self._ident == get_ident():
            return
        self._stopping = True
        self.rouse()
        if self._ended.acquire(timeout=1.0):  # a timer's callback may take its time
            self._ended.release()
            self._wait_until_gone()

    def _wait_until_gone(self) -> None:
        if self._handle is not None:
            self._handle.join()
            self._handle = None
            return
        path = f"/proc/self/task/{self._native_id}"
        for _ in range(100):
            if not os.path.exists(path):
                return
            native.sleep(0.0001)

    def begin_again(self) -> None:
        """Go on, in the parent of a fork."""
        self._forks -= 1
        if not self._forks:
            self._stopping = False
            self._look_around()

    def begin_anew(self) -> None:
        """Go on, in the child of a fork: the deadlines of the forking thread still hold, others are gone."""
        # CPython 3.13 goes on to tell of signals whoever was the main thread before.
        self.is_deaf = HAS_GIL and sys.version_info >= (3, 13) and (self.is_deaf or get_ident() != native.main_ident)
        forget_other_threads()
        self._forks = 0
        self._renew()
        if this_thread.deadlines.innermost is not None:
            self.install_handler(this_thread.deadlines)
        self._look_around()

    def _look_around(self) -> None:
        """Start the thread again where it has something to do, and else as soon as it has."""
        if not self.is_paused:
            self.next = inf
        self._next_timer = inf
        if self._alive or any(deadlines.innermost is not None for deadlines in deadlines_of_threads()):
            self.rouse()


def on_signal(signum: int, frame: FrameType | None) -> None:
    """Raise ``Interrupted`` in the main thread where a deadline has passed and this is the place for it."""
    deadlines = this_thread.deadlines
    entry, seen_blocked = deadlines.in_flight, deadlines.seen_blocked
    deadlines.seen_blocked = None  # it held for this moment
    if entry is None or id(entry) in deadlines.sent or not is_open(deadlines, entry) or frame is None:
        return
    if current_greenlet() is not None:
        if deadlines.pending_interrupt is not None:
            deadlines.pending_interrupt.why = OTHER_GREENLETS
        return
    blocked = seen_blocked is not None and seen_blocked == safe_point.place(frame)
    requested = deadlines.requested.get(id(entry))
    late_by = native.monotonic() - (entry[0] if requested is None else requested[1])
    layers, blind = depth(deadlines, entry), watchdog.is_blind or not HAS_GIL
    why = safe_point.objection(frame, late_by, exact=True, asleep=True, blocked=blocked, blind=blind, depth=layers)
    if why == safe_point.OURS and not HAS_GIL:
        # Nobody has seen whether the thread is blocked in the call of a guarded function, or has just come out of it.
        # What that returned comes too late in either case.
        why = safe_point.objection(frame, late_by, exact=True, asleep=True, blocked=True, depth=layers)
    if why is None and safe_point.is_in_condition_wait(frame) and not Sleeper(frame).leave():
        why = "it was being notified"
    if why is None:
        raise interruption_for(deadlines, entry)
    pending = deadlines.pending_interrupt
    if pending is not None:
        if why != safe_point.OURS or pending.why is None:
            pending.why = why
        pending.refused_at = safe_point.place(frame)
        pending.send_at = -inf  # this one was not lost, and need not be waited for


# Exceptions for other threads

_sender: Callable[[Any, Any], int] | None = None
"""``PyThreadState_SetAsyncExc``; ``None`` where there is none, and before it was first needed."""
_tried = False
_nothing: Any = None
_interrupted: Any = None


def _find_sender() -> None:
    # Not at import: it takes some 10 ms, which are better spent while the first deadline runs.
    global _sender, _nothing, _interrupted, _tried
    _tried = True
    if sys.implementation.name == "cpython":
        try:
            import ctypes

            sender = ctypes.pythonapi.PyThreadState_SetAsyncExc
        except (ImportError, AttributeError):
            return
        sender.argtypes = [ctypes.c_ulong, ctypes.py_object]
        sender.restype = ctypes.c_int
        _nothing, _interrupted = ctypes.py_object(), ctypes.py_object(Interrupted)
        _sender = sender


_NO_SLEEPER: tuple[Iterable[Any], ...] = ((True,), (), (), ())
"""The same steps where the thread does not sleep."""


def _shot_at(ident: int) -> Iterator[int]:
    assert _sender is not None
    return once(_sender, ident, _interrupted)


watchdog = Watchdog()
at_fork(before=watchdog.stop, parent=watchdog.begin_again, child=watchdog.begin_anew)
