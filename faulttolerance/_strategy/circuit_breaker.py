"""The states of the circuit breaker, and its moves between them (specification, chapter Circuit Breaker).

It is a ``Gate``, which documents the protocol. An attempt is settled against the state that admitted it, or not at all.
"""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

import math
import sys
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import ClassVar, Final

from ..exceptions import CircuitBreakerOpenException
from .back_off import varied
from .circuit_state import (
    CLOSED,
    HALF_OPEN,
    NONE_YET,
    OPEN,
    CircuitSnapshot,
    CircuitValues,
    StateName,
    Transition,
    Transitions,
)
from .condition import Condition, in_seconds
from .gate import GateState
from .rolling_window import RollingWindow, TimeWindow
from .verdict import FAILURE, NEUTRAL, SUCCESS, Verdict

__all__ = ["CLOSED", "HALF_OPEN", "OPEN", "CircuitBreaker", "CircuitState", "CircuitValues", "StateName", "Transition"]

_REST: Final = 60.0
_NOTHING_SPENT: Mapping[StateName, float] = {CLOSED: 0.0, OPEN: 0.0, HALF_OPEN: 0.0}


class CircuitState(GateState):
    """One stay in one state; a closed circuit is clean with a window full of successes."""

    __slots__ = ("is_forced", "name", "since", "used")

    def __init__(self, name: StateName, since: float, until: float = -math.inf, *, is_forced: bool = False) -> None:
        self.is_closed = name == CLOSED
        self.is_clean = False
        self.name: StateName = name
        self.since = since
        self.used = since
        """When the last result came, unless the window was full of successes."""
        self.until = until
        self.is_forced = is_forced
        """Whether nothing but a reset ends it."""


class Closed(CircuitState):
    """The closed state: attempts pass; their verdicts fill the window, which is assessed when it is full."""

    __slots__ = ("window",)

    def __init__(self, window: RollingWindow | TimeWindow, since: float, is_forced: bool = False) -> None:
        super().__init__(CLOSED, since, is_forced=is_forced)
        self.window = window  # guarded by the breaker's lock


class Open(CircuitState):
    """The open state: attempts are refused until a moment; then the next attempt makes the circuit half-open.

    Args:
        since: The moment at which the circuit opened.
        until: The end of the refusals; infinity where the circuit was forced open.
        reopened: How many times in a row the circuit had been half-open before.
        chance: The random number that varies how long the circuit is open.
    """

    __slots__ = ("chance", "reopened")

    def __init__(self, since: float, until: float, reopened: int = 0, chance: float = 0.5) -> None:
        super().__init__(OPEN, since, until, is_forced=until == math.inf)
        self.reopened = reopened
        self.chance = chance


class HalfOpen(CircuitState):
    """The half-open state: a few probes pass and decide together."""

    __slots__ = ("overdue", "probes", "reopened", "successes")

    def __init__(self, since: float, reopened: int = 0, is_forced: bool = False) -> None:
        super().__init__(HALF_OPEN, since, is_forced=is_forced)
        self.reopened = reopened
        # All guarded by the breaker's lock.
        self.successes = 0
        self.probes: dict[Hashable, tuple[int, float]] = {}  # by attempt: its thread, and when it was admitted
        self.overdue: dict[Hashable, tuple[int, float]] = {}  # probes that gave their place up; their verdicts count


class CircuitBreaker:
    """A circuit, which decides which attempts pass, and which their verdicts move.

    All durations and moments are in seconds of one monotonic clock.

    Args:
        name: The owner of the circuit, for the message of a refusal.
        values: The values of the circuit.
        chance: Returns a number in [0, 1), which varies a doubled delay by a tenth.
        now: The moment of creation; the time spent closed counts from here.
    """

    __slots__ = (  # there is one for each of many keys
        "_chance", "_entered", "_spent", "last_failure", "lock", "message", "name", "opened_total", "state",
        "transitions", "values",
    )  # fmt: skip

    judges_refusals: ClassVar = True

    def __init__(
        self, name: str, values: CircuitValues, *, chance: Callable[[], float] = lambda: 0.5, now: float
    ) -> None:
        self.name = name
        self.values = values
        self._chance = chance
        self.state: CircuitState = Closed(self._new_window(), now)
        """The state that admits attempts now: the one reference that a transition swaps, under the lock."""
        self.transitions = NONE_YET
        """The transitions that were not delivered yet."""
        self.opened_total = 0
        """How often the circuit moved from closed to open."""
        self.message = ""
        """The message of a refusal, once the circuit has opened."""
        self.last_failure = ""
        """The class of the last failure since the last reset, for people."""
        self._spent: Mapping[StateName, float] = _NOTHING_SPENT  # guarded by the lock
        self._entered = now  # guarded by the lock; infinity while no time counts
        # Reentrant: a signal handler or a finalizer may call the guarded function while its thread holds the lock.
        self.lock = threading.RLock()
        """The lock that is held while the circuit changes; other parts of the guard may use it, too."""

    def admit(self, attempt_id: Hashable, ident: int, now: float) -> GateState:
        """Admit the attempt of thread *ident* while the circuit is not closed; return the state that admitted it.

        The first attempt after the delay makes the circuit half-open.

        Raises:
            CircuitBreakerOpenException: The circuit is open, or as many probes as may run are under way.
        """
        state = self.state
        if now < state.until:
            raise CircuitBreakerOpenException(self.message, state.until - now)
        with self.lock:
            state = self._update_locked(now)
            if isinstance(state, Closed):
                return state
            if isinstance(state, HalfOpen) and self._has_probe_place_locked(state, now):
                state.probes[attempt_id] = (ident, now)
                return state
        raise CircuitBreakerOpenException(self.message, max(0.0, state.until - now))

    def admit_probe(self, attempt_id: Hashable, ident: int, now: float) -> GateState:
        """Admit the attempt *attempt_id* of thread *ident* as a probe; the fleet has granted its place."""
        with self.lock:
            state = self._update_locked(now)
            if isinstance(state, HalfOpen):
                state.probes[attempt_id] = (ident, now)
            return state

    def settle(self, state: GateState, attempt_id: Hashable, verdict: Verdict, now: float, failure: str = "") -> None:
        """Record the verdict on the attempt *attempt_id* that *state* admitted; without effect if that state is over.

        *failure* names the class of a failure, for people. A name is kept because the object would keep its traceback.
        """
        has_failed, chance = verdict == FAILURE, 0.5
        if has_failed and not state.is_closed and self.values.max_delay > self.values.delay:
            chance = self._chance()  # the application may have chosen the source: not under the lock
        with self.lock:
            if state is not self.state:
                return
            if has_failed:
                self.last_failure = failure
            if state.is_closed:
                closed: Closed = state  # type: ignore[assignment]  # only a Closed is closed
                if verdict == NEUTRAL:
                    return
                closed.is_clean = False  # first: a signal's handler may raise before it is assessed
                closed.used = now
                window = closed.window
                window.record(has_failed, now)
                if window.is_full:
                    failures, results = window.failures, window.results
                    if not failures:
                        closed.is_clean = not window.expires
                    elif failures / results >= self.values.failure_ratio and not closed.is_forced:
                        self._open_locked(now, f"{failures} of {results} failed")
            elif isinstance(state, HalfOpen):
                if state.probes.pop(attempt_id, None) is None and state.overdue.pop(attempt_id, None) is None:
                    return
                state.used = now
                if has_failed:
                    self._open_locked(now, "a probe failed", state.reopened + 1, chance)
                elif verdict == SUCCESS:
                    state.successes += 1
                    self._close_when_proven_locked(state, now)

    def refusal(self, wait: float) -> CircuitBreakerOpenException:
        """Return the exception for a caller that is refused for *wait* seconds."""
        return CircuitBreakerOpenException(self.message, wait)

    def reset(self, now: float) -> None:
        """Close the circuit and drop every result; also end ``force``."""
        with self.lock:
            self._update_locked(now)
            self.last_failure = ""
            self._move_locked(Closed(self._new_window(), now), now)

    def force(self, now: float, name: StateName) -> None:
        """Open or close the circuit until ``reset``: results of a closed one are still counted, and open nothing.

        Half-open, it goes on by its probes.
        """
        with self.lock:
            self._update_locked(now)
            reason = "by force_open, until it is reset" if name == OPEN else ""
            self._move_locked(self._forced(name, now), now, reason)

    def _forced(self, name: StateName, now: float) -> CircuitState:
        """Return the state *name* until ``reset``."""
        if name == HALF_OPEN:
            return HalfOpen(now, is_forced=True)
        return Open(now, math.inf) if name == OPEN else Closed(self._new_window(), now, is_forced=True)

    def follow(self, state: StateName, wait: float, reopened: int, reason: str, now: float) -> None:
        """Move to *state*, the state of the fleet's circuit; a forced circuit stays as it is.

        Args:
            state: The state.
            wait: For how long an open circuit refuses.
            reopened: How many times in a row a probe has opened it.
            reason: Why it is open, for people.
            now: The moment.
        """
        with self.lock:
            current = self._update_locked(now)
            if current.is_forced or (current.is_closed and state == CLOSED):
                return
            if state == CLOSED:
                self._move_locked(Closed(self._new_window(), now), now)
            elif state == HALF_OPEN:
                self._move_locked(HalfOpen(now, reopened), now)
            else:
                since, failure = (current.since, self.last_failure) if isinstance(current, Open) else (now, "")
                because = f", {reason}" if reason else ""
                because = f"in the fleet{because}, next probe in {wait:g} s"
                self._move_locked(Open(since, now + wait, reopened), now, because, failure)

    def reconfigure(self, values: CircuitValues, now: float) -> None:
        """Replace the values and keep the state: the newest results stay, ``delay`` counts from the opening."""
        with self.lock:
            self._update_locked(now)
            self.values = values
            state = self.state
            if isinstance(state, Closed):
                self._resize_locked(state, now)  # where it has failed under the new values, the next result opens it
                window = state.window
                state.is_clean = window.is_full and not window.failures and not window.expires
            elif isinstance(state, Open) and not state.is_forced:
                length = self._length(state.reopened, state.chance)
                state.until = max(state.since + length, now)  # the time already spent open stays spent
            elif isinstance(state, HalfOpen):
                # Else, under a lowered threshold that is reached already, no probe could be admitted to close it.
                self._close_when_proven_locked(state, now)

    def reset_after_fork(self, ident: int) -> None:
        """Drop what other threads than *ident* hold: they do not exist after a fork. Call it in the child only."""
        self.lock = threading.RLock()
        self.transitions.clear()
        self.transitions = NONE_YET
        state = self.state
        if isinstance(state, HalfOpen):
            for places in (state.probes, state.overdue):
                for attempt_id, (holder, _) in list(places.items()):
                    if holder != ident:
                        del places[attempt_id]

    def state_name(self, now: float) -> StateName:
        """Return the state: half-open as soon as the delay is over, even without a call."""
        state = self.state
        return HALF_OPEN if isinstance(state, Open) and now >= state.until else state.name

    def snapshot(self, now: float) -> CircuitSnapshot:
        """Return the circuit's values at a moment; the state is right even without a call, as in ``state_name``."""
        with self.lock:
            state = self.state
            results, failures = state.window.held(now) if isinstance(state, Closed) else (0, 0)
            is_over = isinstance(state, Open) and now >= state.until
            half_open_at = state.until if isinstance(state, Open) and not is_over and not state.is_forced else None
            return CircuitSnapshot(
                self.name,
                HALF_OPEN if is_over else state.name,
                state.is_forced,
                state.until if is_over else state.since,
                results,
                failures,
                self.opened_total,
                half_open_at,
                self.last_failure,
            )

    def condition(self, now: float) -> Condition:
        """Return the condition of the circuit."""
        seen = self.snapshot(now)
        is_open, end = seen.state == OPEN, ", forced" if seen.forced else ""
        if seen.half_open_at is not None:
            end = f", half-open in {in_seconds(seen.half_open_at - now)}"
        words = f"{seen.state} for {in_seconds(now - seen.since)}" if is_open else seen.state
        return Condition(words + end, is_impaired=seen.forced or seen.state != CLOSED, is_down=is_open)

    def is_idle(self, now: float) -> bool:
        """Return whether the circuit can be dropped without loss: it is closed, and its window holds no failure."""
        with self.lock:
            state = self.state
            return isinstance(state, Closed) and not state.is_forced and not state.window.held(now)[1]

    def is_at_rest(self, now: float) -> bool:
        """Return whether the circuit refused nothing for a minute, whatever failed, and no attempt ended meanwhile."""
        state = self.state
        return not state.is_forced and now - max(state.used, state.until) >= _REST

    def copy_force(self, other: "CircuitBreaker", now: float) -> None:
        """Force the circuit into the state into which *other* is forced, if any; this is no transition of its own."""
        forced = other.state
        if forced.is_forced and not self.state.is_forced:
            with self.lock:
                self._update_locked(now)
                self._enter_locked(self._forced(forced.name, now), now)

    def continue_counts(self, other: "CircuitBreaker", now: float) -> None:
        """Add the counts of *other*, which no longer exists, to those of this circuit."""
        spent = {state: other.time_in(state, now) for state in _NOTHING_SPENT}
        with self.lock:
            self._spent = {state: seconds + spent[state] for state, seconds in self._spent.items()}
            self.opened_total += other.opened_total

    def time_in(self, state: StateName, now: float) -> float:
        """Return the seconds spent in *state* since creation or ``start_counting``, without those that do not count.

        The number never falls.
        """
        with self.lock:
            current = self.state
            spent = self._spent[state]
            end = min(now, current.until) if isinstance(current, Open) else now
            if current.name == state:
                spent += max(0.0, end - self._entered)
            elif state == HALF_OPEN and isinstance(current, Open):
                spent += max(0.0, now - max(current.until, self._entered))
            return spent

    def start_counting(self, now: float) -> None:
        """Reset ``time_in`` and ``opened_total`` to 0."""
        with self.lock:
            self._update_locked(now)
            self._spent = _NOTHING_SPENT
            if self._entered < math.inf:
                self._entered = now
            self.opened_total = 0

    def count_time(self, counts: bool, now: float) -> None:
        """Start or stop to count the time for ``time_in``: it does not count while no call asks the circuit."""
        with self.lock:
            if counts == (self._entered < math.inf):
                return
            if counts:
                self._entered = now
            else:
                self._update_locked(now)
                self._spend_locked(now)
                self._entered = math.inf

    def deliver(self, listener: Callable[[StateName, StateName, str], object]) -> None:
        """Notify *listener* of every transition that was not delivered, in the order in which they happened.

        No lock of the circuit is held meanwhile. While one thread delivers, others leave their transitions to it. An
        error of *listener* propagates; the transitions after it are kept for the next delivery.
        """
        transitions = self.transitions
        # The outer loop handles a transition that another thread added between the inner loop's end and the release.
        while transitions and transitions.claim(sys._getframe()):
            try:
                while transitions:
                    listener(*transitions.pop(0))
            finally:
                transitions.release()

    def _has_probe_place_locked(self, state: HalfOpen, now: float) -> bool:
        places = self.values.success_threshold - state.successes
        if len(state.probes) >= places:
            for attempt_id, probe in list(state.probes.items()):
                if 0 < self.values.delay < now - probe[1]:
                    state.overdue[attempt_id] = state.probes.pop(attempt_id)
        return len(state.probes) < places

    def _close_when_proven_locked(self, state: HalfOpen, now: float) -> None:
        if state.successes >= self.values.success_threshold:
            self._move_locked(Closed(self._new_window(), now), now)

    def _open_locked(self, now: float, reason: str, reopened: int = 0, chance: float = 0.5) -> None:
        length, failure = self._length(reopened, chance), self.last_failure
        last = f", last {failure}" if failure else ""
        state = Open(now, now + length, reopened, chance)
        self._move_locked(state, now, f"{reason}{last}, next probe in {length:g} s", failure)

    def _length(self, reopened: int, chance: float) -> float:
        """Return how long the circuit is open after probes have opened it *reopened* times in a row."""
        delay, max_delay = self.values.delay, self.values.max_delay
        if not reopened or max_delay <= delay:
            return delay
        length = min(delay * 2.0 ** min(reopened, 1000), max_delay)
        return max(delay, varied(length, length / 10, chance, max_delay))

    def _new_window(self) -> RollingWindow | TimeWindow:
        size, seconds = self.values.request_volume_threshold, self.values.window
        return TimeWindow(size, seconds) if seconds else RollingWindow(size)

    def _resize_locked(self, state: Closed, now: float) -> None:
        """Adapt the window to the values; the newest results stay, except in a window of another kind."""
        window, new = state.window, self._new_window()
        if type(window) is not type(new):
            state.window = new
        elif isinstance(window, TimeWindow):
            window.resize(new.size, new.expires, now)
        elif window.size != new.size:
            window.resize(new.size)

    def _update_locked(self, now: float) -> CircuitState:
        state = self.state
        if isinstance(state, Open) and now >= state.until:
            self._move_locked(HalfOpen(state.until, state.reopened), state.until)
        elif isinstance(state, HalfOpen):
            self._close_when_proven_locked(state, now)  # where a signal's handler raised before that was done
        return self.state

    def _move_locked(self, state: CircuitState, at: float, reason: str = "", failure: str = "") -> None:
        old = self.state.name
        self._enter_locked(state, at, failure)
        if old != state.name:
            self.opened_total += old == CLOSED and state.name == OPEN
            if self.transitions is NONE_YET:
                self.transitions = Transitions()
            self.transitions.append(Transition(old, state.name, reason))

    def _enter_locked(self, state: CircuitState, at: float, failure: str = "") -> None:
        self._spend_locked(at)
        if isinstance(state, Open) or not self.message:
            because = f" after {failure}" if failure else ""
            self.message = f"{self.name}: circuit breaker is open{because}"  # callers that see the new state need it
        self.state = state

    def _spend_locked(self, at: float) -> None:
        """Add the time up to *at* to that of the present state."""
        # Threads read the clock before they get here, so moments may arrive in the wrong order.
        name = self.state.name
        self._spent = {**self._spent, name: self._spent[name] + max(0.0, at - self._entered)}
        self._entered = max(at, self._entered)
