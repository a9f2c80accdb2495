"""A server in this process: the circuits and windows of one namespace, in dictionaries."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ...._strategy.rate_limit import LimitValues, RateLimit
from ..protocol import PollRequest, PollResponse, Request, Response, TurnRequest
from .circuits import Circuit, answer_circuit, current_circuit, record_of, transitioned


class MemoryServer:
    """The data of one namespace. Any thread may ask it, with the time in whole microseconds."""

    def __init__(self) -> None:
        # Reentrant: a signal handler or a finalizer may call a guarded function while its thread is in here.
        self._lock = threading.RLock()
        self._circuits: dict[str, Circuit] = {}
        self._limits: dict[tuple[str, str], tuple[TurnRequest, RateLimit]] = {}
        self._processes: dict[str, int] = {}

    def exchange(self, requests: Sequence[Request], now: int) -> list[Response]:
        """Answer all requests in their order, as one step."""
        with self._lock:
            return [self._respond_locked(request, now) for request in requests]

    def set_circuit(self, key: str, now: int, delay: int | None, reason: str = "") -> None:
        """Open a circuit for *delay*, or close it for ``None``, in any state."""
        with self._lock:
            before = self._circuits.get(key)
            self._circuits[key] = transitioned(0 if before is None else before.version, now, delay, reason=reason)

    def clear(self) -> None:
        """Remove all data."""
        with self._lock:
            self._circuits.clear()
            self._limits.clear()
            self._processes.clear()

    def _respond_locked(self, request: Request, now: int) -> Response:
        if isinstance(request, TurnRequest):
            return self._take_turn_locked(request, now)
        if isinstance(request, PollRequest):
            processes = {**self._processes, request.process: now}
            self._processes = {one: at for one, at in processes.items() if now - request.length < at <= now}
            circuits = {key: current_circuit(circuit, now) for key, circuit in self._circuits.items()}
            self._circuits = {key: circuit for key, circuit in circuits.items() if circuit is not None}
            return PollResponse(len(self._processes), {key: record_of(one, now) for key, one in self._circuits.items()})
        circuit, response = answer_circuit(self._circuits.get(request.key), request, now)
        if circuit is not None:
            self._circuits[request.key] = circuit
        else:
            self._circuits.pop(request.key, None)
        return response

    def _take_turn_locked(self, request: TurnRequest, now: int) -> int:
        key, kind, value, window, burst, spacing = request
        values = LimitValues(value, window / 1e6, spacing / 1e6, kind, burst=burst)
        known, limit = self._limits.get((kind, key)) or (request, RateLimit(key, values))
        if known != request:
            limit.reconfigure(values, now / 1e6)
        self._limits[kind, key] = request, limit
        wait = -((now * 1000 - limit.due_locked(now * 1000)) // 1000)
        if wait <= 0:
            limit.count(now / 1e6)
        return max(0, wait)
