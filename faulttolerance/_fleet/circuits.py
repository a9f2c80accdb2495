"""One circuit of the fleet, and how questions move it: the twin of ``circuit.lua``.

All moments and lengths are whole microseconds. Where the server's clock was set back, nothing lasts longer from then
on than it would have from its beginning.
"""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from .._strategy.circuit_state import CLOSED, HALF_OPEN, OPEN, StateName
from .._strategy.fleet import ABSENT, CircuitRecord, EndProbe, Leased, LeaseProbe, OpenCircuit, StartProbe

__all__ = ["Asked", "Circuit", "ask_circuit", "current", "record_of", "stamped"]

_CLOSED_IS_KEPT: Final = 3_600_000_000
_OPEN_IS_KEPT: Final = 86_400_000_000
"""So long after its delay an open circuit is forgotten of which nobody asks; a half-open one after its last move."""

Asked: TypeAlias = OpenCircuit | LeaseProbe | StartProbe | EndProbe


class Place(NamedTuple):
    """A probe, or the right to one."""

    until: int
    length: int
    is_used: bool

    def cut(self, now: int) -> "Place":
        """Give it as it is if the clock never said more than *now*."""
        return self if self.until <= now + self.length else self._replace(until=now + self.length)


class Circuit(NamedTuple):
    """What a server keeps of one circuit."""

    version: int
    state: StateName
    kept: int
    """Until when, unless it moves."""
    until: int = 0
    """When an open one lets a probe through."""
    delay: int = 0
    """How long that was from its opening."""
    reopened: int = 0
    reason: str = ""
    successes: int = 0
    is_wanted: bool = False
    """Whether somebody was refused a place since one was given."""
    places: Mapping[str, Place] = {}  # never changed
    """By holder."""


def current(circuit: Circuit | None, now: int) -> Circuit | None:
    """Give what *circuit* is by *now*, with nothing that lies too far ahead; ``None``: it is forgotten."""
    if circuit is None or circuit.kept <= now:
        return None
    if circuit.state == OPEN and circuit.until > now + circuit.delay:
        return circuit._replace(until=now + circuit.delay)
    if circuit.places:
        return circuit._replace(places={holder: place.cut(now) for holder, place in circuit.places.items()})
    return circuit


def record_of(circuit: Circuit | None, now: int) -> CircuitRecord:
    """Give what a process hears of a *circuit* that is ``current``."""
    if circuit is None:
        return ABSENT
    wait = max(0, circuit.until - now) if circuit.state == OPEN else 0
    return CircuitRecord(circuit.version, circuit.state, wait, circuit.reopened, circuit.reason)


def stamped(before: int, now: int, state: StateName, delay: int = 0, reopened: int = 0, reason: str = "") -> Circuit:
    """Give a circuit that just became *state*; *before* is the version that was."""
    version = max(now, before + 1)
    if state == CLOSED:
        return Circuit(version, state, now + _CLOSED_IS_KEPT)
    until = now + delay
    return Circuit(version, state, until + _OPEN_IS_KEPT, until, delay, reopened, reason)


def ask_circuit(circuit: Circuit | None, asked: Asked, now: int) -> tuple[Circuit | None, CircuitRecord | Leased]:
    """Give what is to be kept instead of *circuit*, and the answer."""
    circuit = current(circuit, now)
    if isinstance(asked, OpenCircuit):
        if circuit is None:
            circuit = stamped(asked.seen, now, OPEN, asked.delay, reason=asked.reason)
        elif circuit.version == asked.seen and circuit.state == CLOSED:
            circuit = stamped(circuit.version, now, OPEN, asked.delay, reason=asked.reason)
        return circuit, record_of(circuit, now)
    if isinstance(asked, LeaseProbe):
        circuit, is_granted = _lease(circuit, asked, now)
        return circuit, Leased(is_granted, record_of(circuit, now))
    if circuit is not None and circuit.version == asked.version and circuit.state == HALF_OPEN:
        circuit = _start(circuit, asked, now) if isinstance(asked, StartProbe) else _end(circuit, asked, now)
    return circuit, record_of(circuit, now)


def _lease(circuit: Circuit | None, asked: LeaseProbe, now: int) -> tuple[Circuit | None, bool]:
    if circuit is None or circuit.version != asked.version or circuit.state == CLOSED:
        return circuit, False
    if circuit.state == OPEN:
        if circuit.until > now:
            return circuit, False
        circuit = stamped(circuit.version, now, HALF_OPEN, 0, circuit.reopened, circuit.reason)
    # Places that are over stay until another process needs one: a probe may have begun in time, and be told of late.
    live = {holder: place for holder, place in circuit.places.items() if place.until > now}
    held = live.pop(asked.holder, None)
    if held is None and circuit.successes + len(live) >= asked.places:
        return circuit._replace(is_wanted=True), False
    if held is not None and circuit.is_wanted and not held.is_used:
        return circuit._replace(is_wanted=False, places=live), False
    until, is_used = now + asked.length, False
    if held is not None:
        until, is_used = max(until, held.until), held.is_used
    live[asked.holder] = Place(until, until - now, is_used)
    is_wanted = circuit.is_wanted and held is not None
    return circuit._replace(is_wanted=is_wanted, places=live, kept=now + _OPEN_IS_KEPT), True


def _start(circuit: Circuit, asked: StartProbe, now: int) -> Circuit:
    if asked.holder not in circuit.places:
        return circuit
    place = Place(now + asked.length, asked.length, is_used=True)
    return circuit._replace(places={**circuit.places, asked.holder: place})


def _end(circuit: Circuit, asked: EndProbe, now: int) -> Circuit:
    if asked.verdict == "failure":
        return stamped(circuit.version, now, OPEN, asked.delay, circuit.reopened + 1, asked.reason)
    successes = circuit.successes + (asked.verdict == "success")
    if successes >= asked.places:
        return stamped(circuit.version, now, CLOSED)
    places = {holder: place for holder, place in circuit.places.items() if holder != asked.holder}
    return circuit._replace(successes=successes, places=places)
