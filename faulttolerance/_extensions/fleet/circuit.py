"""The circuit that the processes of a fleet share, in the view of one process (rules F3, F4 and F6).

The local breaker remains the only place of state: it judges while it is closed, and refuses while it is open. A
transition of the fleet's circuit moves the local breaker too, and an opening of the local breaker is written to the
fleet. Only a probe needs the permission of the fleet.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import inf
from typing import Any, Final, NamedTuple

from ..._strategy.circuit_breaker import CLOSED, HALF_OPEN, OPEN, CircuitBreaker, CircuitState
from ..._strategy.gate import GateState, GateWrapper
from ..._strategy.verdict import FAILURE, SUCCESS, Verdict
from .protocol import ABSENT, CircuitRecord, Links, OnResponse, OpenRequest, ProbeRequest, Request

_LEASE_SECONDS: Final = 1.0
_LONGEST_LEASE_SECONDS: Final = 30.0
"""The seconds for which an unused place is requested; the rarer the calls here, the longer."""
_PROBE_SECONDS: Final = 60.0
"""The seconds for which a probe keeps its place if the circuit has no delay."""
_RETRY_SECONDS: Final = 0.02
"""The seconds after which a refused place is requested again."""


class _Lease(NamedTuple):
    """A place for the next call."""

    holder: str
    until: float
    """The moment until which certainly no other process has the place."""
    ends: float
    """The moment until which this process keeps the place."""


_NO_LEASE: Final = _Lease("", -inf, 0.0)


class FleetCircuit(GateWrapper):
    """A circuit breaker that follows the fleet's circuit, which admits its probes. A closed circuit sends no requests.

    The thread that receives an answer first passes it to ``follow``, and then to the request's own callback. No
    request is sent while a lock is held.

    Args:
        key: The name of the circuit in the fleet.
        breaker: The circuit in this process; its lock is held while anything is changed here.
        links: The way to the fleet.
        new_holder: Returns a name for a place, unique over all processes.
        deliver: Reports the transitions of the breaker that other processes caused.
    """

    _gate: CircuitBreaker

    def __init__(
        self,
        key: str,
        breaker: CircuitBreaker,
        links: Links,
        new_holder: Callable[[], str],
        deliver: Callable[[CircuitBreaker], object],
    ) -> None:
        super().__init__(breaker)  # pyright: ignore[reportArgumentType]  # both are called by position
        self.key = key
        self._links = links
        self._new_holder = new_holder
        self._deliver = deliver
        # The breaker's lock guards all attributes below.
        self._record = ABSENT  # the last record that was followed
        self._is_joined = self._is_reset = False
        self._written_state: CircuitState | None = None  # the stay in the open state that the fleet knows
        self._lease = _NO_LEASE
        self._probes: dict[Hashable, str] = {}  # the holders of their places
        self._refused_at = self._pause_until = self._pending_until = -inf

    # The state of the fleet's circuit

    def follow(self, record: CircuitRecord | None, now: float) -> None:
        """Apply the fleet's *record* to the breaker; ``None`` means that the fleet is lost, so the breaker decides."""
        with self._gate.lock:
            request, on_response = self._follow_locked(record, now)
        if self._gate.transitions:
            self._deliver(self._gate)
        if request is not None:
            self._links.current.send_for(self, request, on_response)

    def _follow_locked(self, record: CircuitRecord | None, now: float) -> tuple[Request | None, OnResponse]:
        if record is None:
            self._detach_locked()
            return None, _ignore
        known, is_back = self._record, not self._is_joined
        self._is_joined = True
        is_new = record.version != known.version
        if not record.version or (record.state == CLOSED and (not is_new or (is_back and not known.version))):
            self._record = record if record.version else known
            return self._open_request_locked(now), _ignore
        state = HALF_OPEN if record.state == OPEN and not record.wait else record.state
        is_reset, is_alike = self._is_reset, self._gate.state.name == state == HALF_OPEN
        if is_new or (is_back and not is_reset and not is_alike):
            self._gate.follow(state, record.wait / 1e6, record.reopened, record.reason, now)
        if is_new:  # only now: after an interruption above, the record is followed next time
            self._clear_places_locked()
            if not is_alike:  # else it stays half-open: the server had only forgotten it
                self._refused_at = -inf
            self._record = record
        holder, until, ends = self._lease
        if now < until < min(now, ends - _LONGEST_LEASE_SECONDS) + _LONGEST_LEASE_SECONDS / 2:
            return self._request_place_locked(holder, ends, now)
        return None, _ignore

    def _detach_locked(self) -> None:
        if self._is_joined:
            # A reset holds until the fleet's circuit moves, even if the fleet is lost in between.
            self._is_reset = self._record.state != CLOSED and self._gate.state.is_closed
        self._is_joined = False
        self._lease, self._pending_until = _NO_LEASE, -inf

    def _clear_places_locked(self) -> None:
        """Remove the places of another version of the circuit."""
        self._lease = _NO_LEASE
        self._probes.clear()
        self._pause_until = -inf

    def reset_after_fork(self) -> None:
        """Remove places and answers of the parent process, in the child of a fork."""
        self._detach_locked()
        self._clear_places_locked()

    def _open_request_locked(self, now: float) -> OpenRequest | None:
        """Return the request that writes the open circuit to the fleet; ``None`` if it is not open, or forced."""
        state: Any = self._gate.state
        if state.is_closed or state.is_forced:
            return None
        self._written_state = state
        last, left = self._gate.last_failure, _microseconds(max(0.0, state.until - now))
        reason = f"{'a probe' if state.reopened else 'calls'} failed{f', last {last}' if last else ''}"
        return OpenRequest(self.key, self._record.version, left, state.reopened, reason)

    # Calls

    def admit(self, permit: Hashable, ident: int, now: float) -> GateState:
        """Admit the attempt *permit* if there is a place in the fleet; else request a place, for the next attempt.

        Raises:
            CircuitBreakerOpenException: If there is no place.
        """
        breaker = self._gate
        probe: GateState | None = None
        request: ProbeRequest | None = None
        on_response: OnResponse = _ignore
        with breaker.lock:
            state = breaker.state
            if not self._is_joined or state.is_closed or state.is_forced or now < state.until:
                return breaker.admit(permit, ident, now)
            holder, until, _ = self._lease
            if now < until:
                self._lease = _NO_LEASE
                self._probes[permit] = holder
                probe = breaker.admit_probe(permit, ident, now)
                request = self._probe_request(holder, "start", breaker.values.delay or _PROBE_SECONDS)
            elif now >= max(self._pause_until, self._pending_until):
                # Without this, processes with rare calls would take the place from each other before a call could use
                # it.
                rarity = 2 * (now - self._refused_at) if self._refused_at > -inf else 0.0
                request, on_response = self._request_place_locked(self._new_holder(), now + rarity, now)
            self._refused_at = now
        is_sent = request is None or self._links.current.send_for(self, request, on_response)
        if probe is not None:
            return probe
        if not is_sent:
            return breaker.admit(permit, ident, now)
        if holder and now < self._lease.until:  # the lease ran out, and the answer came at once
            return self.admit(permit, ident, now)
        raise breaker.refusal(max(0.0, self._pause_until - now))

    def _request_place_locked(self, holder: str, ends: float, now: float) -> tuple[ProbeRequest, OnResponse]:
        """Return the request for a new place, or to keep the held place, and the callback for its answer."""
        patience, self._lease = self._links.current.patience, _NO_LEASE  # unused until the answer arrives
        length = max(min(ends - now, _LONGEST_LEASE_SECONDS), _LEASE_SECONDS, 4 * patience)
        self._pending_until = now + max(_LEASE_SECONDS, 2 * patience)  # a signal may have kept it from being sent
        until = now + length - min(2 * patience, length / 2)  # allows for the time of the transfer

        def on_response(response: CircuitRecord | None) -> None:
            with self._gate.lock:
                self._pending_until = -inf
                if response is None or response.version != self._record.version:
                    return
                if response.is_granted:
                    self._lease = _Lease(holder, until, ends)
                else:
                    self._pause_until = now + max(response.wait / 1e6, _RETRY_SECONDS)

        return self._probe_request(holder, "wish", length), on_response

    def _probe_request(self, holder: str, step: Any, length: float = 0.0) -> ProbeRequest:
        places, version = self._gate.values.success_threshold, self._record.version
        return ProbeRequest(self.key, version, holder, places, _microseconds(length), step)

    def settle(self, state: GateState, attempt_id: Hashable, verdict: Verdict, now: float, failure: str = "") -> None:
        """Settle the attempt *attempt_id* that *state* admitted, and write to the fleet if the circuit moves."""
        breaker = self._gate
        breaker.settle(state, attempt_id, verdict, now, failure)
        if not self._probes and (not state.is_closed or breaker.state is state):
            return
        request: Request | None = None
        with breaker.lock:
            holder = self._probes.get(attempt_id)
            if holder is not None:
                if verdict == FAILURE and breaker.state.name == OPEN:
                    self._lease = _NO_LEASE
                    request = self._open_request_locked(now)
                request = request or self._probe_request(holder, "success" if verdict == SUCCESS else "end")
            elif state.is_closed and breaker.state not in (state, self._written_state) and self._record.state == CLOSED:
                request = self._open_request_locked(now)
        if request is not None:
            self._links.current.send_for(self, request, _ignore)
        self._probes.pop(attempt_id, None)  # only now: an interruption above lets it be settled again

    def is_idle(self, now: float) -> bool:
        """Return whether the circuit holds no place in the fleet and requests none."""
        return not self._probes and now >= max(self._lease.until, self._pending_until)


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _ignore(_: object) -> None:
    """Do nothing: ``follow`` has already processed the answer."""
