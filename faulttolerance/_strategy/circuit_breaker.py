"""The circuit breaker's states, and when it moves from one to the next (specification, chapter Circuit Breaker).

It is a ``Gate``, which says how it is asked. A call is settled against the era that admitted it, or not at all.
"""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

import math
import sys
import threading
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager
from typing import ClassVar, Final, Literal, NamedTuple, TypeAlias

from ..exceptions import CircuitBreakerOpenException
from .gate import Era
from .rolling_window import RollingWindow
from .verdict import FAILURE, NEUTRAL, SUCCESS, Verdict

__all__ = [
    "CLOSED",
    "HALF_OPEN",
    "OPEN",
    "CircuitBreaker",
    "CircuitEra",
    "Closed",
    "HalfOpen",
    "Open",
    "StateName",
    "Transition",
]

StateName: TypeAlias = Literal["closed", "open", "half-open"]

CLOSED: Final = "closed"
OPEN: Final = "open"
HALF_OPEN: Final = "half-open"

_NEVER: Final = -math.inf
_NOTHING_SPENT: Mapping[StateName, float] = {CLOSED: 0.0, OPEN: 0.0, HALF_OPEN: 0.0}


class Transition(NamedTuple):
    """The circuit moved from one state to another."""

    old: StateName
    new: StateName
    reason: str
    """Why the circuit opened, and until when; empty for the other moves."""


class _Transitions(list[Transition]):
    """Those that wait to be delivered, oldest first."""

    __slots__ = ("claim",)

    def __init__(self) -> None:
        super().__init__()
        self.claim = threading.Lock()
        """Held by the thread that delivers."""


_NONE_YET = _Transitions()
"""Stands for those of every circuit that has never moved; nothing is ever added to it."""


class CircuitEra(Era):
    """One stay in one state; a closed circuit is clean with a window full of successes."""

    __slots__ = ("name",)

    name: StateName


class Closed(CircuitEra):
    """Calls pass; their results fill the window, which is assessed when it is full."""

    __slots__ = ("last_failure", "window")

    def __init__(self, size: int) -> None:
        self.is_closed = True
        self.name = CLOSED
        self.until = _NEVER
        # Both guarded by the breaker's lock.
        self.window = RollingWindow(size)
        self.last_failure = ""
        self.is_clean = False

    def review_locked(self) -> None:
        """Find out anew whether the window is full of successes."""
        self.is_clean = self.window.is_full and not self.window.failures


class Open(CircuitEra):
    """Calls are refused until a moment; then the next one makes the circuit half-open."""

    __slots__ = ("is_forced", "since")

    def __init__(self, since: float, until: float) -> None:
        self.is_closed = False
        self.is_clean = False
        self.name = OPEN
        self.since = since
        self.until = until
        self.is_forced = until == math.inf


class HalfOpen(CircuitEra):
    """A few probes pass and decide together."""

    __slots__ = ("overdue", "probes", "successes")

    def __init__(self) -> None:
        self.is_closed = False
        self.is_clean = False
        self.name = HALF_OPEN
        self.until = _NEVER
        # All guarded by the breaker's lock.
        self.successes = 0
        self.probes: dict[Hashable, tuple[int, float]] = {}  # by attempt: its thread, and when it was admitted
        self.overdue: dict[Hashable, tuple[int, float]] = {}  # those that gave their place up; their verdicts count


class CircuitBreaker:
    """One circuit: which calls pass, and what their results do to it.

    All durations and moments are in seconds of one monotonic clock.

    Args:
        name: Whose circuit it is, for the message of a refusal.
        delay: How long the circuit stays open; also how long a probe keeps its place where another call asks for it
            (0: as long as it runs).
        request_volume_threshold: The length of the rolling window.
        failure_ratio: The circuit opens when this part of a full window failed. With 0 it opens at the first failure in
            a full window: no failure at all is no reason to open.
        success_threshold: Probes that must succeed to close the circuit.
        now: The moment of creation; the time spent closed counts from here.
    """

    __slots__ = (
        "_entered",
        "_failures_to_open",
        "_lock",
        "_spent",
        "delay",
        "failure_ratio",
        "message",
        "name",
        "opened_total",
        "request_volume_threshold",
        "state",
        "success_threshold",
        "transitions",
    )

    judges_refusals: ClassVar = True

    def __init__(
        self,
        name: str,
        delay: float,
        request_volume_threshold: int,
        failure_ratio: float,
        success_threshold: int,
        *,
        now: float,
    ) -> None:
        self.name = name
        self.delay = delay
        self.request_volume_threshold = request_volume_threshold
        self.failure_ratio = failure_ratio
        self.success_threshold = success_threshold
        self.state: CircuitEra = Closed(request_volume_threshold)
        """The era that admits calls now: the one reference that a transition swaps, under the lock."""
        self.transitions = _NONE_YET
        """The transitions that were not delivered yet."""
        self.opened_total = 0
        """How often the circuit moved from closed to open."""
        self.message = ""
        """The message for a refused caller, once the circuit has opened."""
        self._failures_to_open = _failures_to_open(request_volume_threshold, failure_ratio)
        self._spent: Mapping[StateName, float] = _NOTHING_SPENT  # guarded by _lock
        self._entered = now  # guarded by _lock
        # Reentrant: a signal handler or a finalizer may call the guarded function while its thread is in here.
        self._lock = threading.RLock()

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Held while the circuit is changed; reentrant, and free for others of the same method to use."""
        return self._lock

    def admit(self, me: Hashable, ident: int, now: float) -> Era:
        """Let the attempt *me* of thread *ident* through while the circuit is not closed; return the era that did.

        The first call after the delay makes the circuit half-open.

        Raises:
            CircuitBreakerOpenException: The circuit is open, or as many probes as may run are under way.
        """
        era = self.state
        if now < era.until:
            raise CircuitBreakerOpenException(self.message, era.until - now)
        with self._lock:
            self._catch_up_locked(now)
            era = self.state
            if isinstance(era, Closed):
                return era
            if isinstance(era, HalfOpen) and self._has_place_locked(era, now):
                era.probes[me] = (ident, now)
                return era
        raise CircuitBreakerOpenException(self.message, max(0.0, era.until - now))

    def settle(self, era: Era, me: Hashable, verdict: Verdict, now: float, failure: str = "") -> None:
        """Take the verdict on the attempt *me* that *era* admitted; without effect where that era is over.

        *failure* names the class of a failure, for people. The name and not the object, which would keep its traceback.
        """
        with self._lock:
            if era is not self.state:
                return
            if era.is_closed:
                closed: Closed = era  # type: ignore[assignment]  # no other one is
                if verdict is NEUTRAL:
                    return
                if verdict is FAILURE:
                    closed.last_failure = failure
                closed.is_clean = False  # first: a signal's handler may raise before it is assessed
                window = closed.window
                window.record(verdict is FAILURE)
                if window.is_full:
                    if window.failures >= self._failures_to_open:
                        self._open_locked(now, f"{window.failures} of {window.size} failed", closed.last_failure)
                    elif not window.failures:
                        closed.is_clean = True
            elif isinstance(era, HalfOpen):
                if era.probes.pop(me, None) is None and era.overdue.pop(me, None) is None:
                    return
                if verdict is FAILURE:
                    self._open_locked(now, "a probe failed", failure)
                elif verdict is SUCCESS:
                    era.successes += 1
                    self._close_when_proven_locked(era, now)

    def refusal(self, wait: float) -> CircuitBreakerOpenException:
        """Make the exception for a caller that is refused for *wait* seconds."""
        return CircuitBreakerOpenException(self.message, wait)

    def reset(self, now: float) -> None:
        """Close the circuit and forget every result; also ends ``force_open``."""
        with self._lock:
            self._catch_up_locked(now)
            self._move_locked(Closed(self.request_volume_threshold), now)

    def force_open(self, now: float) -> None:
        """Open the circuit until ``reset``."""
        with self._lock:
            self._catch_up_locked(now)
            self._move_locked(Open(now, math.inf), now, "by force_open, until it is reset")

    def reconfigure(
        self,
        delay: float,
        request_volume_threshold: int,
        failure_ratio: float,
        success_threshold: int,
        now: float,
    ) -> None:
        """Take new values and keep the state: the newest results stay, ``delay`` counts from the opening."""
        with self._lock:
            self._catch_up_locked(now)
            self.delay = delay
            self.request_volume_threshold = request_volume_threshold
            self.failure_ratio = failure_ratio
            self.success_threshold = success_threshold
            self._failures_to_open = _failures_to_open(request_volume_threshold, failure_ratio)
            era = self.state
            if isinstance(era, Closed):
                if era.window.size != request_volume_threshold:
                    era.window.resize(request_volume_threshold)
                era.review_locked()  # where it has failed under the new values, the next result opens it
            elif isinstance(era, Open):
                if not era.is_forced:
                    era.until = max(era.since + delay, now)  # what was spent open until now stays spent
            elif isinstance(era, HalfOpen):
                # Else a threshold that was lowered to what is reached already would admit no probe that could close it.
                self._close_when_proven_locked(era, now)

    def keep_only(self, ident: int) -> None:
        """Drop what other threads than *ident* held: they do not exist after a fork. Call it in the child only."""
        self._lock = threading.RLock()
        self.transitions.clear()
        self.transitions = _NONE_YET
        era = self.state
        if isinstance(era, Closed):
            era.window.recount()
            era.review_locked()
        elif isinstance(era, HalfOpen):
            for places in (era.probes, era.overdue):
                for me, (holder, _) in list(places.items()):
                    if holder != ident:
                        del places[me]

    def state_name(self, now: float) -> StateName:
        """The state; half-open as soon as the delay is over, also when nobody calls."""
        era = self.state
        return HALF_OPEN if isinstance(era, Open) and now >= era.until else era.name

    def time_in(self, state: StateName, now: float) -> float:
        """Seconds spent in *state* since creation, or since ``start_counting``; never less than before."""
        with self._lock:
            era = self.state
            spent = self._spent[state]
            end = min(now, era.until) if isinstance(era, Open) else now
            if era.name == state:
                spent += max(0.0, end - self._entered)
            elif state == HALF_OPEN and isinstance(era, Open):
                spent += max(0.0, now - max(era.until, self._entered))
            return spent

    def start_counting(self, now: float) -> None:
        """Set ``time_in`` and ``opened_total`` back to 0."""
        with self._lock:
            self._catch_up_locked(now)
            self._spent = _NOTHING_SPENT
            self._entered = now
            self.opened_total = 0

    def deliver(self, listener: Callable[[StateName, StateName, str], object]) -> None:
        """Tell *listener* every transition that was not delivered, in the order in which they happened.

        No lock of the circuit is held meanwhile. While one thread delivers, others leave their transitions to it.
        An error of *listener* comes out; the transitions after it are kept for the next delivery.
        """
        transitions = self.transitions
        # The outer loop finds what another thread added after the inner one ended and before the claim was dropped.
        while transitions and transitions.claim.acquire(blocking=False):
            try:
                while transitions:
                    listener(*transitions.pop(0))
            finally:
                transitions.claim.release()

    def _has_place_locked(self, era: HalfOpen, now: float) -> bool:
        if era.successes + len(era.probes) < self.success_threshold:
            return True
        for me, probe in list(era.probes.items()):
            if 0 < self.delay < now - probe[1]:
                era.overdue[me] = era.probes.pop(me)
        return era.successes + len(era.probes) < self.success_threshold

    def _close_when_proven_locked(self, era: HalfOpen, now: float) -> None:
        if era.successes >= self.success_threshold:
            self._move_locked(Closed(self.request_volume_threshold), now)

    def _open_locked(self, now: float, reason: str, failure: str) -> None:
        last = f", last {failure}" if failure else ""
        self._move_locked(Open(now, now + self.delay), now, f"{reason}{last}, next probe in {self.delay:g} s", failure)

    def _catch_up_locked(self, now: float) -> None:
        era = self.state
        if isinstance(era, Open) and now >= era.until:
            self._move_locked(HalfOpen(), era.until)
        elif isinstance(era, HalfOpen):
            self._close_when_proven_locked(era, now)  # where a signal's handler raised before that was done

    def _move_locked(self, era: CircuitEra, at: float, reason: str = "", failure: str = "") -> None:
        old = self.state.name
        # Threads read the clock before they get here, so moments may arrive in the wrong order.
        self._spent = {**self._spent, old: self._spent[old] + max(0.0, at - self._entered)}
        self._entered = max(at, self._entered)
        if isinstance(era, Open):
            because = f" after {failure}" if failure else ""
            self.message = f"{self.name}: circuit breaker is open{because}"  # whoever sees the new era needs it
        self.state = era
        if old != era.name:
            self.opened_total += old == CLOSED and era.name == OPEN
            if self.transitions is _NONE_YET:
                self.transitions = _Transitions()
            self.transitions.append(Transition(old, era.name, reason))


def _failures_to_open(size: int, ratio: float) -> int:
    """The least number of failures, but one, whose part of *size* reaches *ratio* as division says it.

    Found by division, not as ``ceil(size * ratio)``: 100 * 0.07 is a little more than 7.
    """
    size = min(size, sys.maxsize)  # a window longer than memory is never full
    count = max(1, math.ceil(size * ratio) - 1)
    while count / size < ratio:
        count += 1
    return count
