"""The circuit that the processes of a fleet share, as one of them sees it (rules F3, F4 and F6).

The local breaker stays the one place of state: it judges while it is closed, and refuses while it is open. What moves
the circuit of the fleet moves it, too, and what moves it here is written there. Only a probe needs the fleet's leave.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import inf
from typing import Final, NamedTuple
from weakref import WeakSet

from .circuit_breaker import CircuitBreaker
from .circuit_state import CLOSED, HALF_OPEN, OPEN, CircuitEra
from .fleet import ABSENT, CircuitRecord, EndProbe, Leased, LeaseProbe, Link, OpenCircuit, Question, StartProbe, Tell
from .gate import Era, GateAround
from .verdict import FAILURE, SUCCESS, Verdict

__all__ = ["FleetGate", "SharedCircuit"]

_LEASE: Final = 1.0
_LONGEST_LEASE: Final = 30.0
"""Seconds for which a place is lent that no probe uses; the longer, the rarer calls are here."""
_PROBE: Final = 60.0
"""Seconds for which a probe keeps its place where the circuit has no delay."""
_EAGER: Final = 5
"""A place is asked for again at once after so many denials in a row; then there are pauses."""
_PAUSE: Final = 0.02


class _Lease(NamedTuple):
    """A place in the circuit as it is known, for a probe that has not begun."""

    holder: str
    until: float
    """Until when it is certain that nobody else has the place."""


class _Asked(NamedTuple):
    """A question for a place that was not answered yet."""

    holder: str
    version: int
    at: float
    length: float
    """For how long the place was asked for."""
    until: float
    """When no answer comes any more."""


class _Probe(NamedTuple):
    """An attempt that uses a place."""

    holder: str
    version: int


class SharedCircuit:
    """What a process knows of a circuit of the fleet, and the places that it holds there.

    Whoever answers its questions lets it ``follow`` what the answer says of the circuit, and then tells the answer. No
    question is asked while a lock is held.

    Args:
        key: Names it in the fleet.
        breaker: The circuit in this process; its lock is held while anything is changed here.
        link: Where the fleet is asked.
        new_holder: Names a place, as no other one in any process is named.
        deliver: Tells of the breaker's moves, which were caused elsewhere.
    """

    __slots__ = (
        "__weakref__", "_asked", "_breaker", "_deliver", "_denials", "_is_joined", "_is_reset", "_lease", "_link",
        "_new_holder", "_older", "_opening", "_pause_until", "_probes", "_record", "_wished_at", "key", "users",
    )  # fmt: skip

    def __init__(
        self,
        key: str,
        breaker: CircuitBreaker,
        link: Link,
        new_holder: Callable[[], str],
        deliver: Callable[[CircuitBreaker], object],
    ) -> None:
        self.key = key
        self.users: WeakSet[FleetGate] = WeakSet()
        """The gates that obey it; without one it is only observed, or switched off, and shares nothing."""
        self._breaker = breaker
        self._link = link
        self._new_holder = new_holder
        self._deliver = deliver
        # All guarded by the breaker's lock.
        self._record = ABSENT  # the last one that was followed
        self._older = 0
        self._is_joined = False
        self._is_reset = False
        self._opening: float | None = None  # until when an answer may come
        self._asked: _Asked | None = None
        self._lease: _Lease | None = None
        self._probes: dict[Hashable, _Probe] = {}
        self._denials = 0
        self._pause_until = self._wished_at = -inf

    # Where the fleet's circuit is

    def follow(self, record: CircuitRecord | None, now: float) -> None:
        """Take what the fleet has; ``None``: the fleet is lost, and the breaker alone decides."""
        question: OpenCircuit | None = None
        with self._breaker.lock:
            if record is None or not self.users:
                self._leave_locked()
            else:
                question = self._follow_locked(record, now)
        if self._breaker.transitions:
            self._deliver(self._breaker)
        if question is not None:
            self._link.ask(question, self._opened)

    def _follow_locked(self, record: CircuitRecord, now: float) -> OpenCircuit | None:
        known, era, is_back = self._record, self._breaker.state, not self._is_joined
        self._is_joined = True
        if not record.version:
            return self._opening_locked(era, now)
        # Answers may arrive in the wrong order; a server that has lost what it knew says so again and again.
        if record.version < known.version and record.version != self._older and not is_back:
            self._older = record.version
            return None
        self._older, self._record = 0, record
        is_news = record.version != known.version
        if record.state == CLOSED and (not is_news or (is_back and not known.version)):
            return self._opening_locked(era, now)
        if not is_news:
            is_alike = self._is_reset or (era.name == record.state == HALF_OPEN)
            if not is_back or is_alike:
                return None
        state = HALF_OPEN if record.state == OPEN and not record.wait else record.state
        if state != HALF_OPEN:
            self._wished_at = -inf
        if is_news:  # the places of before are none any more
            self._lease = None
            self._probes.clear()
        self._denials, self._pause_until = 0, -inf
        self._breaker.follow(state, record.wait / 1e6, record.reopened, record.reason, now)
        return None

    def _leave_locked(self) -> None:
        if self._is_joined:
            # What was reset holds until the fleet's circuit moves, also where it is lost meanwhile.
            self._is_reset = self._record.state != CLOSED and self._breaker.state.is_closed
        self._is_joined = False
        self._opening = self._asked = self._lease = None

    def keep_only(self) -> None:
        """Drop what is not of this process, in the child of a fork: no place, and no answer."""
        self._leave_locked()
        self._probes.clear()

    # Opening it

    def _opening_locked(self, era: CircuitEra, now: float) -> OpenCircuit | None:
        """Write that the circuit is open here, unless it is not, or that is being written."""
        if era.is_closed or era.is_forced or (self._opening is not None and now < self._opening):
            return None
        self._opening = now + self._patience
        left = max(0.0, era.until - now) if era.name == OPEN else 0.0
        return OpenCircuit(self.key, self._record.version, _micros(left), self._reason("calls failed"))

    def _opened(self, _: object) -> None:
        self._opening = None

    # Probes

    def admit(self, me: Hashable, ident: int, now: float) -> Era:
        """Let the attempt *me* through if it has a place in the fleet; else ask for one, for the next attempt.

        Raises:
            CircuitBreakerOpenException: It has none.
        """
        breaker, start, wish, is_stale = self._breaker, None, None, False
        with breaker.lock:
            era = breaker.state
            if not self._is_joined or era.is_closed or era.is_forced or now < era.until:
                return breaker.admit(me, ident, now)
            lease = self._lease
            if lease is not None and era.name == HALF_OPEN:
                is_stale = now >= lease.until
                if not is_stale and self._asked is None:
                    start = self._start_locked(lease, me, ident, now)
            if start is None:
                wish = self._wish_locked(now)
        if start is not None:
            self._link.ask(start, _ignore)
            return era
        if wish is not None:
            if not self._link.ask(*wish):
                return breaker.admit(me, ident, now)
            if is_stale and self._is_certain(now):  # the answer came at once, and nobody wanted the place meanwhile
                return self.admit(me, ident, now)
        raise breaker.refusal(max(0.0, self._pause_until - now))

    def _start_locked(self, lease: _Lease, me: Hashable, ident: int, now: float) -> StartProbe:
        version = self._record.version
        self._probes[me] = _Probe(lease.holder, version)
        self._lease = None
        self._breaker.admit_probe(me, ident, now)
        return StartProbe(self.key, version, lease.holder, _micros(self._breaker.delay or _PROBE))

    def _wish_locked(self, now: float) -> tuple[LeaseProbe, Tell] | None:
        """Ask for a place, or for the one that was kept too long, unless that is being asked, or is of no use yet."""
        asked, rarity = self._asked, now - self._wished_at
        self._wished_at = now
        if (asked is not None and now < asked.until) or now < self._pause_until:
            return None
        holder = self._new_holder() if self._lease is None else self._lease.holder
        # Else processes whose calls are rare would take the place from one another before any call could use it.
        return self._ask_locked(holder, min(2 * rarity, _LONGEST_LEASE) if rarity < inf else 0.0, now)

    def _ask_locked(self, holder: str, length: float, now: float) -> tuple[LeaseProbe, Tell]:
        length = max(length, _LEASE, 4 * self._link.patience)
        asked = self._asked = _Asked(holder, self._record.version, now, length, now + self._patience)
        question = LeaseProbe(self.key, self._record.version, holder, self._breaker.success_threshold, _micros(length))
        return question, lambda answer: self._leased(asked, answer)

    def _leased(self, asked: _Asked, answer: Leased | None) -> None:
        """Take the answer to a question for a place; one that is of no use any more goes back at once."""
        question: Question | None = None
        tell: Tell = _ignore
        with self._breaker.lock:
            is_awaited = self._asked is asked
            if is_awaited:
                self._asked = self._lease = None
            if answer is None:
                return
            version = answer.circuit.version
            if answer.is_granted:
                if is_awaited and version == self._record.version and self._is_half_open_locked(asked):
                    margin = min(2 * self._link.patience, asked.length / 2)  # what is sent takes so long at most
                    self._lease = _Lease(asked.holder, asked.at + asked.length - margin)
                    return
                question = self._end(_Probe(asked.holder, version), "none")
            elif not is_awaited:
                return
            elif asked.version < version == self._record.version and answer.circuit.state == HALF_OPEN:
                question, tell = self._ask_locked(asked.holder, asked.length, asked.at)  # others were faster; join them
            else:
                self._denials += 1
                pause = _PAUSE if self._denials >= _EAGER else 0.0
                self._pause_until = asked.at + max(answer.circuit.wait / 1e6, pause)
        if question is not None:
            self._link.ask(question, tell)

    def _is_half_open_locked(self, asked: _Asked) -> bool:
        era = self._breaker.state
        if era.name == OPEN and asked.at >= era.until:
            self._breaker.follow(HALF_OPEN, 0.0, self._record.reopened, "", asked.at)
        return self._breaker.state.name == HALF_OPEN

    def _is_certain(self, now: float) -> bool:
        lease = self._lease
        return lease is not None and now < lease.until

    def renewals(self, now: float) -> list[tuple[Question, Tell]]:
        """Give the question by which the place is kept that no probe uses yet, if it is due."""
        with self._breaker.lock:
            lease = self._lease
            if lease is None or self._asked is not None:
                return []
            if self._breaker.state.name != HALF_OPEN:  # it was reset, or forced
                self._lease = None
                return [(self._end(_Probe(lease.holder, self._record.version), "none"), _ignore)]
            if now < lease.until - 0.4:
                return []
            return [self._ask_locked(lease.holder, 0.0, now)]

    def settled(self, era: Era, me: Hashable, verdict: Verdict, now: float) -> None:
        """Tell the fleet how the attempt *me* ended that *era* let in, and where the breaker has opened by that."""
        breaker = self._breaker
        if not self._probes and (not era.is_closed or breaker.state is era):
            return
        question: Question | None = None
        with breaker.lock:
            probe, state = self._probes.get(me), breaker.state
            if probe is not None:
                delay = max(0.0, state.until - now) if state.name == OPEN and not state.is_forced else breaker.delay
                word = "success" if verdict is SUCCESS else "failure" if verdict is FAILURE else "none"
                question = self._end(probe, word, delay)
            elif era.is_closed and state is not era and self._is_joined and self._record.state == CLOSED:
                question = self._opening_locked(state, now)
        if question is not None:
            self._link.ask(question, self._opened if isinstance(question, OpenCircuit) else _ignore)
        self._probes.pop(me, None)  # and no sooner: who is interrupted here settles it once more

    def _end(self, probe: _Probe, verdict: str, delay: float = 0.0) -> EndProbe:
        places, reason = self._breaker.success_threshold, self._reason("a probe failed") if verdict == "failure" else ""
        return EndProbe(self.key, probe.version, probe.holder, verdict, places, _micros(delay), reason)  # type: ignore[arg-type]

    def _reason(self, what: str) -> str:
        last = self._breaker.last_failure
        return f"{what}, last {last}" if last else what

    def is_idle(self, now: float) -> bool:
        """Whether it holds nothing in the fleet, and asks for nothing."""
        return not self._probes and not any(one is not None and now < one.until for one in (self._lease, self._asked))

    @property
    def _patience(self) -> float:
        """The seconds after which no answer comes any more: whoever was to ask was interrupted before."""
        return max(_LEASE, 2 * self._link.patience)


class FleetGate(GateAround):
    """A circuit breaker whose probes are the fleet's. A closed and an open one ask nobody.

    Args:
        breaker: The breaker.
        circuit: What it shares.
    """

    __slots__ = ("__weakref__", "_circuit")

    _gate: CircuitBreaker

    def __init__(self, breaker: CircuitBreaker, circuit: SharedCircuit) -> None:
        super().__init__(breaker)  # pyright: ignore[reportArgumentType]  # both are called by position
        self._circuit = circuit
        circuit.users.add(self)

    @property
    def state(self) -> Era:
        """That of the breaker."""
        return self._gate.state

    def admit(self, permit: Hashable, ident: int, now: float) -> Era:
        """Let the attempt in if the breaker does; as a probe if the fleet has lent it a place."""
        return self._circuit.admit(permit, ident, now)

    def settle(self, era: Era, permit: Hashable, verdict: Verdict, now: float, failure: str = "") -> None:
        """Tell the breaker how an attempt ended, and the fleet where that moves the circuit."""
        self._gate.settle(era, permit, verdict, now, failure)
        self._circuit.settled(era, permit, verdict, now)


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _ignore(_: object) -> None:
    """Be told what nobody waits for: what it says of the circuit is followed."""
