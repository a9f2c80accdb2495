"""One circuit of the fleet, and its transitions by requests: the twin of ``circuit.lua``.

All moments and lengths are whole microseconds. If the server's clock was set back, all moments move back with it.
"""

# No ``from __future__ import annotations``: every import would compile the annotations of a named tuple.

from collections.abc import Mapping
from typing import Final, NamedTuple

from ..protocol import ABSENT, CircuitRecord, OpenRequest, ProbeRequest

_IS_KEPT: Final = 3_600_000_000
"""The time after which an unused circuit is removed, from the moment when it grants places, or was closed."""


class Circuit(NamedTuple):
    """The record that a server keeps of one circuit."""

    version: int
    at: int
    """The moment of the last write."""
    until: int
    """The moment from which places are granted; for a closed circuit, the moment of its closing."""
    is_open: bool = False
    reopened: int = 0
    reason: str = ""
    successes: int = 0
    wanted: int = 0
    """The shortest time of a refused request for a place since the last grant; 0 without such a request."""
    places: Mapping[str, int] = {}  # never changed
    """The ends of the places, by holder."""


def current_circuit(circuit: Circuit | None, now: int) -> Circuit | None:
    """Return the state of *circuit* at *now*; ``None`` if it has expired."""
    if circuit is None:
        return None
    if (ahead := circuit.at - now) > 0:
        places = {holder: until - ahead for holder, until in circuit.places.items()}
        circuit = circuit._replace(at=now, until=circuit.until - ahead, places=places)
    return circuit if now < max(circuit.at, circuit.until) + _IS_KEPT else None


def record_of(circuit: Circuit | None, now: int, is_granted: bool = False) -> CircuitRecord:
    """Return the answer to a process about a *circuit* that ``current_circuit`` returned."""
    if circuit is None:
        return ABSENT
    version, _, until, is_open, reopened, reason, *_ = circuit
    return CircuitRecord(version, "open" if is_open else "closed", max(0, until - now), reopened, reason, is_granted)


def transitioned(before: int, now: int, delay: int | None = None, reopened: int = 0, reason: str = "") -> Circuit:
    """Return a circuit that just opened for *delay*, or closed for ``None``; *before* is its previous version."""
    version = max(now, before + 1)
    return Circuit(version, now, now) if delay is None else Circuit(version, now, now + delay, True, reopened, reason)


def answer_circuit(
    circuit: Circuit | None, request: OpenRequest | ProbeRequest, now: int
) -> tuple[Circuit | None, CircuitRecord]:
    """Return the new record of *circuit*, and the answer."""
    circuit, is_granted = current_circuit(circuit, now), False
    if isinstance(request, OpenRequest):
        if circuit is None or circuit.version == request.seen:
            circuit = transitioned(request.seen, now, request.delay, request.reopened, request.reason)
    elif circuit is not None and circuit.version == request.version and circuit.is_open and circuit.until <= now:
        successes, wanted = circuit.successes + (request.step == "success"), circuit.wanted
        places = {one: until for one, until in circuit.places.items() if until > now}
        is_held = places.pop(request.holder, None) is not None
        if request.step == "wish" and is_held and 0 < wanted < request.length:
            wanted = 0
        elif request.step in ("wish", "start"):
            is_granted = successes + len(places) < request.places
            if is_granted:
                places[request.holder] = now + request.length
                wanted = wanted if is_held else 0
            else:
                wanted = min(wanted or request.length, request.length)
        circuit = circuit._replace(at=now, successes=successes, wanted=wanted, places=places)
        if successes >= request.places:
            circuit, is_granted = transitioned(circuit.version, now), False
    return circuit, record_of(circuit, now, is_granted)
