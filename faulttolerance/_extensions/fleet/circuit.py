"""The circuit that the processes of a fleet share, in the view of one process (rules F3, F4 and F6).

The local breaker remains the only place of state: it judges while it is closed, and refuses while it is open. A
transition of the fleet's circuit moves the local breaker too, and an opening of the local breaker is written to the
fleet. Only a probe needs the permission of the fleet.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import inf
from typing import Any, Final, NamedTuple

from ..._strategy.circuit_breaker import CircuitBreaker
from ..._strategy.circuit_state import CLOSED, HALF_OPEN, OPEN, CircuitEra
from ..._strategy.gate import Era, GateAround
from ..._strategy.verdict import FAILURE, SUCCESS, Verdict
from .protocol import ABSENT, CircuitRecord, Link, OpenCircuit, Question, TakePlace, Tell

__all__ = ["SharedCircuit"]

_LEASE: Final = 1.0
_LONGEST_LEASE: Final = 30.0
"""The seconds for which an unused place is requested; the rarer the calls here, the longer."""
_PROBE: Final = 60.0
"""The seconds for which a probe keeps its place if the circuit has no delay."""
_PAUSE: Final = 0.02
"""The seconds after which a refused place is requested again."""


class _Lease(NamedTuple):
    """A place for the next call."""

    holder: str
    until: float
    """The moment until which certainly no other process has the place."""
    ends: float
    """The moment until which this process keeps the place."""


_NO_LEASE: Final = _Lease("", -inf, 0.0)


class SharedCircuit(GateAround):
    """A circuit breaker that follows the fleet's circuit and gets its probes from it. A closed one sends no questions.

    The thread that receives an answer first passes it to ``follow``, and then to the question's own callback. No
    question is asked while a lock is held.

    Args:
        key: The name of the circuit in the fleet.
        breaker: The circuit in this process; its lock is held while anything is changed here.
        link: The way to the fleet.
        new_holder: Returns a name for a place, unique over all processes.
        deliver: Reports the transitions of the breaker that other processes caused.
    """

    __slots__ = (
        "__weakref__", "_asks_until", "_deliver", "_is_joined", "_is_reset", "_lease", "_link",
        "_new_holder", "_older", "_pause_until", "_probes", "_record", "_refused_at", "_written", "key",
    )  # fmt: skip

    _gate: CircuitBreaker

    def __init__(
        self,
        key: str,
        breaker: CircuitBreaker,
        link: Link,
        new_holder: Callable[[], str],
        deliver: Callable[[CircuitBreaker], object],
    ) -> None:
        super().__init__(breaker)  # pyright: ignore[reportArgumentType]  # both are called by position
        self.key = key
        self._link = link
        self._new_holder = new_holder
        self._deliver = deliver
        # The breaker's lock guards all attributes below.
        self._record = ABSENT  # the last record that was followed
        self._older = 0
        self._is_joined = self._is_reset = False
        self._written: CircuitEra | None = None  # the stay in the open state that the fleet knows
        self._lease = _NO_LEASE
        self._probes: dict[Hashable, str] = {}  # the holders of their places
        self._refused_at = self._pause_until = self._asks_until = -inf

    # The state of the fleet's circuit

    def follow(self, record: CircuitRecord | None, now: float) -> None:
        """Apply the fleet's *record* to the breaker; ``None`` means that the fleet is lost, so the breaker decides."""
        asked: tuple[Question | None, Tell] = None, _ignore
        with self._gate.lock:
            if record is None:
                self._leave_locked()
            else:
                asked = self._follow_locked(record, now)
        if self._gate.transitions:
            self._deliver(self._gate)
        question, tell = asked
        if question is not None:
            self._link.ask_about(self, question, tell)

    def _follow_locked(self, record: CircuitRecord, now: float) -> tuple[Question | None, Tell]:
        known, is_back = self._record, not self._is_joined
        self._is_joined = True
        # Answers may arrive out of order; a server that lost its data returns the lower version again and again.
        if 0 < record.version < known.version and record.version != self._older and not is_back:
            self._older = record.version
            return None, _ignore
        self._older = 0
        is_news = record.version != known.version
        if not record.version or (record.state == CLOSED and (not is_news or (is_back and not known.version))):
            self._record = record if record.version else known
            return self._opening_locked(now), _ignore
        state = HALF_OPEN if record.state == OPEN and not record.wait else record.state
        is_reset, is_alike = self._is_reset, self._gate.state.name == state == HALF_OPEN
        if is_news or (is_back and not is_reset and not is_alike):
            self._gate.follow(state, record.wait / 1e6, record.reopened, record.reason, now)
        if is_news:  # only now: after an interruption above, the record is followed next time
            self._forget_locked()
            self._record = record
        holder, until, ends = self._lease
        if now < until < min(now, ends - _LONGEST_LEASE) + _LONGEST_LEASE / 2:
            return self._wish_locked(holder, ends, now)
        return None, _ignore

    def _leave_locked(self) -> None:
        if self._is_joined:
            # A reset holds until the fleet's circuit moves, even if the fleet is lost in between.
            self._is_reset = self._record.state != CLOSED and self._gate.state.is_closed
        self._is_joined = False
        self._lease, self._asks_until = _NO_LEASE, -inf

    def _forget_locked(self) -> None:
        """Remove the places of another version of the circuit."""
        self._lease = _NO_LEASE
        self._probes.clear()
        self._refused_at = self._pause_until = -inf

    def keep_only(self) -> None:
        """Remove places and answers of the parent process, in the child of a fork."""
        self._leave_locked()
        self._forget_locked()

    def _opening_locked(self, now: float) -> OpenCircuit | None:
        """Return the question that writes the open circuit to the fleet; ``None`` if it is not open, or forced."""
        era: Any = self._gate.state
        if era.is_closed or era.is_forced:
            return None
        self._written = era
        last, left = self._gate.last_failure, _micros(max(0.0, era.until - now))
        reason = f"{'a probe' if era.reopened else 'calls'} failed{f', last {last}' if last else ''}"
        return OpenCircuit(self.key, self._record.version, left, era.reopened, reason)

    # Calls

    @property
    def state(self) -> Era:
        """The state of the breaker."""
        return self._gate.state

    def admit(self, me: Hashable, ident: int, now: float) -> Era:
        """Admit the attempt *me* if there is a place in the fleet; else request a place, for the next attempt.

        Raises:
            CircuitBreakerOpenException: If there is no place.
        """
        breaker = self._gate
        probe: Era | None = None
        question: TakePlace | None = None
        tell: Tell = _ignore
        with breaker.lock:
            era = breaker.state
            if not self._is_joined or era.is_closed or era.is_forced or now < era.until:
                return breaker.admit(me, ident, now)
            holder, until, _ = self._lease
            if now < until:
                self._lease = _NO_LEASE
                self._probes[me] = holder
                probe = breaker.admit_probe(me, ident, now)
                question = self._place(holder, "start", breaker.delay or _PROBE)
            elif now >= max(self._pause_until, self._asks_until):
                # Without this, processes with rare calls would take the place from each other before a call could use
                # it.
                rarity = 2 * (now - self._refused_at) if self._refused_at > -inf else 0.0
                question, tell = self._wish_locked(self._new_holder(), now + rarity, now)
            self._refused_at = now
        is_asked = question is None or self._link.ask_about(self, question, tell)
        if probe is not None:
            return probe
        if not is_asked:
            return breaker.admit(me, ident, now)
        if holder and now < self._lease.until:  # the lease ran out, and the answer came at once
            return self.admit(me, ident, now)
        raise breaker.refusal(max(0.0, self._pause_until - now))

    def _wish_locked(self, holder: str, ends: float, now: float) -> tuple[TakePlace, Tell]:
        """Return the question for a new place, or to keep the held place, and the callback for its answer."""
        patience, self._lease = self._link.patience, _NO_LEASE  # unused until the answer arrives
        length = max(min(ends - now, _LONGEST_LEASE), _LEASE, 4 * patience)
        self._asks_until = now + max(_LEASE, 2 * patience)  # for a question that a signal kept from being sent
        until = now + length - min(2 * patience, length / 2)  # allows for the time of the transfer

        def tell(answer: CircuitRecord | None) -> None:
            with self._gate.lock:
                self._asks_until = -inf
                if answer is None or answer.version != self._record.version:
                    return
                if answer.is_granted:
                    self._lease = _Lease(holder, until, ends)
                else:
                    self._pause_until = now + max(answer.wait / 1e6, _PAUSE)

        return self._place(holder, "wish", length), tell

    def _place(self, holder: str, step: Any, length: float = 0.0) -> TakePlace:
        places, version = self._gate.success_threshold, self._record.version
        return TakePlace(self.key, version, holder, places, _micros(length), step)

    def settle(self, era: Era, me: Hashable, verdict: Verdict, now: float, failure: str = "") -> None:
        """Settle the attempt *me* that *era* admitted, and write to the fleet if the circuit moves."""
        breaker = self._gate
        breaker.settle(era, me, verdict, now, failure)
        if not self._probes and (not era.is_closed or breaker.state is era):
            return
        question: Question | None = None
        with breaker.lock:
            holder = self._probes.get(me)
            if holder is not None:
                if verdict is FAILURE and breaker.state.name == OPEN:
                    self._lease = _NO_LEASE
                    question = self._opening_locked(now)
                question = question or self._place(holder, "success" if verdict is SUCCESS else "end")
            elif era.is_closed and breaker.state not in (era, self._written) and self._record.state == CLOSED:
                question = self._opening_locked(now)
        if question is not None:
            self._link.ask_about(self, question, _ignore)
        self._probes.pop(me, None)  # only now: an interruption above lets it be settled again

    def is_idle(self, now: float) -> bool:
        """Return whether the circuit holds no place in the fleet and requests none."""
        return not self._probes and now >= max(self._lease.until, self._asks_until)


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _ignore(_: object) -> None:
    """Do nothing: ``follow`` has already processed the answer."""
