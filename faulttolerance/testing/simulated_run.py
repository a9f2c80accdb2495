"""One run of a simulation: callers on threads of their own, one of which at a time goes on, and time between them."""

from __future__ import annotations

import math
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from .._platform.unpatched import native
from .line_tracer import Trace, is_free, is_own
from .schedule import MAX_POINTS, Plan, Schedule
from .simulated_threads import Due, SimulatedThread
from .stall_detector import StallDetector
from .thread_observer import ThreadObserver, place_of
from .waiter import VirtualTimeStalled, in_ticks

if TYPE_CHECKING:
    from .simulated_loop import SimulatedLoop

START_TIME: Final = 2.0**20
"""The moment at which every run begins."""
_MAX_STEPS: Final = 100_000
_REAL_SECONDS: Final = 0.02
"""The seconds between two looks of the thread that started the run, which checks whether it moves."""
_LAST_SECONDS: Final = 1.0
"""The seconds for which the run waits for a thread that is to end, and may be stuck."""
_GIVEN_UP: Final = "the simulated run was given up"


class SimulatedRun:
    """Simulated threads, time, and the turn. Only the thread with the turn touches anything; so there is no lock."""

    def __init__(self, plan: Plan, trace: Trace | None, records_history: bool) -> None:
        self.plan = plan
        self.trace = trace
        self.schedule = Schedule(plan)
        self.now = START_TIME
        self.ready: dict[SimulatedThread, None] = {}
        """The threads that can go on, in the order in which they became so; the thread that has the turn, too."""
        self.current: SimulatedThread
        self.checks: list[tuple[Callable[[], object], str]] = []
        self.failure: BaseException | None = None
        self.history: list[str] | None = [] if records_history else None
        self.steps = 0
        self.joining_callers = 0
        self.alive = 0
        """The number of simulated threads that are not over, without loops."""
        self.is_abandoned = False
        self.is_stuck = False
        """Whether the run waited for something that is not simulated, or for ever; that takes seconds."""
        self.is_over = True
        """Whether nothing goes on: before the run began, too."""
        self.loops: list[SimulatedLoop] = []
        self._simulated_threads: list[SimulatedThread] = []
        self._due: list[tuple[float, int, Due]] = []
        self._order = 0
        self._locks: dict[int, Any] = {}
        """The locks that were taken between lines where callers are stopped."""
        self._started: Counter[str] = Counter()
        self._chances: dict[str, random.Random] = {}
        self._is_checking = False
        self._finished = threading.Lock()
        self._finished.acquire()

    # Beginning and ending, on the thread that simulates

    def run_scenario(self, work: Callable[[], object]) -> None:
        """Run *work* and all that it starts, until nothing of it goes on."""
        first = self.start_thread("scenario", work)
        self.current, self.is_over = first, False
        first.gate.release()
        try:
            self._wait_until_finished()
        finally:
            self.is_abandoned = self.is_abandoned or not self.is_over
            self.is_over = True
            for thread in self._simulated_threads:
                self._unwind(thread)
            for loop in self.loops:
                loop.discard()

    def _wait_until_finished(self) -> None:
        seen, observer, stall_detector = (0, 0), ThreadObserver(), StallDetector(native.monotonic)
        while not self._finished.acquire(timeout=_REAL_SECONDS):
            if (now := (self.steps, self.current.points)) != seen:
                seen, stall_detector = now, StallDetector(native.monotonic)
            stall_detector.count(self.current.ident not in observer.observe((), tick=True).running)
            if stall_detector.is_stalled:
                self.is_stuck = True
                where = place_of(sys._current_frames().get(self.current.ident))
                words = "what is not simulated: a thread, input, or a lock that no `with` in switch_in takes"
                self.fail(VirtualTimeStalled(f"{self.current.name} waits {where} for {words}"))
                return

    def _unwind(self, thread: SimulatedThread) -> None:
        if thread.loop is not None:
            thread.loop.stop()
        try:
            thread.gate.release()
        except RuntimeError:
            pass  # it runs, or is stuck
        thread.system_thread.join(_LAST_SECONDS)

    def fail(self, error: BaseException) -> None:
        """Record the first failure; the rest of the run goes on undisturbed, and in the plain order."""
        if self.failure is None and not (self.is_abandoned and isinstance(error, VirtualTimeStalled)):
            self.failure = error

    def _abandon(self, error: BaseException) -> None:
        self.fail(error)
        self.is_abandoned = True
        self._finished.release()

    # Simulated threads

    def start_thread(self, name: str, work: Callable[[], object]) -> SimulatedThread:
        """Create a thread named *name* that runs *work* by itself when its turn comes."""
        thread = SimulatedThread(self, name, work)
        self._simulated_threads.append(thread)
        self.ready[thread] = None
        self.alive += 1
        return thread

    def name_for(self, what: str) -> str:
        """Return a name for a thread that the current thread starts; it depends only on what its caller did before."""
        owner = self.current_name().rpartition(" of ")[2]
        self._started[owner] += 1
        return f"{what} {self._started[owner]} of {owner}"

    def current_name(self) -> str:
        """Return the name of the caller that has the turn; on a loop, the name of the task."""
        loop = self.current.loop
        return self.current.name if loop is None else loop.current_name() or self.current.name

    def random_numbers(self) -> random.Random:
        """Return the random numbers of the caller that has the turn: they depend on no other caller."""
        who = self.current_name()
        return self._chances.setdefault(who, random.Random(f"{self.plan.seed!r} {who}"))

    def has_turn(self) -> bool:
        """Return whether the calling thread has the turn."""
        return not self.is_over and self.current.ident == threading.get_ident()

    def end(self, thread: SimulatedThread) -> None:
        """Record that *thread* is over, and pass the turn to another thread."""
        thread.is_over = True
        self.ready.pop(thread, None)
        if thread.loop is None:
            self.alive -= 1
        if not self.is_abandoned and not self.is_over:
            self._hand_over(thread, "ends")

    # Turns

    def switch_point(self) -> None:
        """Stop the current thread here if the schedule says so."""
        thread = self.current
        thread.points += 1
        if thread.points < thread.next_stop or self._is_checking or self.is_abandoned or self.failure is not None:
            return
        thread.next_stop = self.schedule.next_stop(thread.name, thread.points)
        if thread.points >= MAX_POINTS:
            self.is_stuck = True
            where = place_of(sys._getframe())
            self._abandon(VirtualTimeStalled(f"the run does not end: {thread.name} goes on and on {where}"))
        self._hand_over(thread, "is stopped")

    def at_line(self, locks: list[Any]) -> None:
        """Stop as ``switch_point`` does, before a line; if the line takes *locks*, wait until they are free."""
        if self._is_checking:
            return
        self.switch_point()
        if locks:
            self._locks.update((id(lock), lock) for lock in locks)
            self.await_locks(*locks)

    def await_locks(self, *locks: Any) -> None:
        """Pass the turn to others until all *locks* of others are free."""
        others = [lock for lock in locks if not is_own(lock)]
        if not self.is_abandoned:
            self.wait_until(lambda: all(map(is_free, others)))

    def wait_until(self, may_go: Callable[[], bool]) -> None:
        """Pass the turn to others until *may_go*, which is called on any thread."""
        if may_go():
            return
        self._raise_if_not_allowed()
        thread = self.current
        thread.may_go = may_go
        try:
            thread.points += 1
            self._hand_over(thread, "waits")
        finally:
            thread.may_go = None

    def new_wait(self) -> Due:
        """Return the end of a wait of the current thread, which then goes on when its turn comes."""
        return Due(partial(self.ready.setdefault, self.current))

    def wait(self, wait: Due, when: float = math.inf) -> None:
        """Pass the turn to others until *wait*, of the current thread, is over, at the moment *when* at the latest."""
        thread = self.current
        self._raise_if_not_allowed()
        if wait.is_over:
            return
        if when < math.inf:
            self.add(when, wait)
        del self.ready[thread]
        thread.points += 1
        self._hand_over(thread, "waits")

    def _raise_if_not_allowed(self) -> None:
        if self.is_abandoned:
            raise VirtualTimeStalled(_GIVEN_UP)
        if self._is_checking:
            raise RuntimeError("an invariant has to wait; it may only read")

    def add(self, when: float, due: Due) -> None:
        """Schedule *due* for a moment."""
        self._order += 1
        heappush(self._due, (in_ticks(when), self._order, due))

    def step(self) -> None:
        """Count a step between two tasks of a loop, whose thread may be stopped there."""
        self.switch_point()
        self._check()
        if self.is_abandoned:
            self._sleep(self.current)

    def _hand_over(self, thread: SimulatedThread, why: str) -> None:
        self._check()
        target = self._next(thread) if not self.is_abandoned else None
        if target is thread:
            return
        if target is None:
            if not thread.is_over:
                self._sleep(thread)
            return
        if self.history is not None:
            where = "" if why == "ends" else place_of(sys._getframe(1))
            self.record(f"{thread.name} {why}{where and ' '}{where}; {target.name} goes on")
        if thread in self.ready:
            del self.ready[thread]
            self.ready[thread] = None  # behind those that can go on already
        self.current = target
        target.gate.release()
        if not thread.is_over:
            self._sleep(thread)

    def _sleep(self, thread: SimulatedThread) -> None:
        thread.gate.acquire()
        if self.is_abandoned and not thread.is_unwound:
            thread.is_unwound = True
            raise VirtualTimeStalled(_GIVEN_UP)

    def _next(self, thread: SimulatedThread) -> SimulatedThread | None:
        while True:
            options = [one for one in self.ready if one.may_go is None or one.may_go()]
            if options:
                break
            if self.are_alone():
                self.is_over = True
                self._finished.release()
                return None
            if not self._move_time():
                self._abandon(VirtualTimeStalled(f"no caller can continue: {'; '.join(self._waiting_callers())}"))
                return None
        plain = options.index(thread) if thread in options else 0
        if self.failure is not None or len(options) == 1:
            return options[plain]
        return options[self.schedule.choose(thread.name, thread.points, [one.name for one in options], plain)]

    def _move_time(self) -> bool:
        due = self._due
        while due and due[0][2].is_over:
            heappop(due)
        if not due:
            return False
        self.now = max(self.now, due[0][0])
        while due and due[0][0] <= self.now:
            heappop(due)[2].fire()
        return True

    def are_alone(self) -> bool:
        """Return whether nothing goes on any more, except simulated threads that wait for just that."""
        return self.alive <= self.joining_callers and not any(loop.is_busy() for loop in self.loops)

    def _waiting_callers(self) -> Sequence[str]:
        frames = sys._current_frames()
        waiting = [one for one in self._simulated_threads if not one.is_over and one.loop is None]
        return [f"{one.name} waits {place_of(frames.get(one.ident))}" for one in waiting] + [
            words for loop in self.loops for words in loop.waiting_tasks()
        ]

    def record(self, what: str) -> None:
        """Record an occurrence, for people."""
        if self.history is not None:
            self.history.append(f"{self.now - START_TIME:8.3f} s  {what}")

    # Invariants

    def _check(self) -> None:
        """Count a step, and check every invariant."""
        self.steps += 1
        if self.steps > _MAX_STEPS and not self.is_abandoned:
            self._abandon(VirtualTimeStalled(f"the run does not end: {_MAX_STEPS:,} steps were made"))
        if self.failure is not None or self._is_checking or not self.checks:
            return
        if self._locks and not all(map(is_free, self._locks.values())):
            return  # a thread is in the middle of the step, and the invariant may take the same lock
        self._is_checking = True
        try:
            for check, what in self.checks:
                if check() is False:
                    self.failure = AssertionError(f"{what} does not hold, after {self.current_name()} went on")
                    return
        except BaseException as error:  # noqa: BLE001  # it is the failure of the run
            self.failure = error
        finally:
            self._is_checking = False
