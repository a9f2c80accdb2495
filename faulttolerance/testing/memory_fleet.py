"""A fleet in this process, for the tests of applications."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import WeakSet

from .._deadline.clock import clock
from .._extensions.fleet.protocol import Request, Response
from .._extensions.fleet.server.memory import MemoryServer
from .._policy import ChronoUnit, CircuitBreaker, seconds
from ..typing import Duration


class MemoryFleet:
    """A fleet without a server: the test acts for another replica, or for the server.

    It answers at once and on the shared clock, so virtual time works with it, and it ends with the process.

        fleet = MemoryFleet()
        configure(fleet=fleet)
        fleet.open("shop.Client.charge", delay=5_000)  # another replica saw it fail

    Args:
        namespace: The name of the fleet, for events, metrics and messages.
    """

    is_immediate: bool = True
    poll: float = 1.0
    patience: float = 0.05

    def __init__(self, namespace: str = "memory") -> None:
        self.namespace: str = namespace
        self._server = MemoryServer()
        self._lost = ""
        self._sessions: WeakSet[MemorySession] = WeakSet()

    def __repr__(self) -> str:
        return f"MemoryFleet({self.namespace!r})"

    def connect(self, changed: Callable[[], object] | None = None) -> MemorySession:
        """Return the session of one process; *changed* is called after a change that no request caused."""
        session = MemorySession(self, changed)
        self._sessions.add(session)
        return session

    def lose(self, reason: str = "lose() was called") -> None:
        """Stop answering from now on, like a lost server: every guard decides alone."""
        self._lost = reason or "lost"
        self._notify()

    def regain(self) -> None:
        """Start answering again, with everything that was known."""
        self._lost = ""
        self._notify()

    def forget(self) -> None:
        """Remove everything that is known, as a restart of a server does: no circuit, no turn."""
        self._server.clear()
        self._notify()

    def open(self, name: str, delay: Duration) -> None:
        """Open the circuit of the guard *name* for *delay*, as another replica would.

        Args:
            name: The name, as ``guards()`` spells it.
            delay: In milliseconds or as a ``timedelta``.

        Raises:
            FaultToleranceDefinitionException: If *delay* is no duration.
        """
        wait = seconds(CircuitBreaker(delay=delay).delay, ChronoUnit.MILLIS)
        self._server.set_circuit(name, _now(), round(wait * 1e6), "opened by another replica")
        self._notify()

    def close(self, name: str) -> None:
        """Close the circuit of the guard *name*, as the probes of another replica would."""
        self._server.set_circuit(name, _now(), None)
        self._notify()

    def _notify(self) -> None:
        for session in [*self._sessions]:
            if (changed := session._changed) is not None:
                changed()


class MemorySession:
    """The session that ``MemoryFleet.connect`` returns."""

    def __init__(self, fleet: MemoryFleet, changed: Callable[[], object] | None) -> None:
        self._fleet = fleet
        self._changed = changed

    def exchange(self, requests: Sequence[Request]) -> Sequence[Response]:
        """Answer *requests* at once.

        Raises:
            ConnectionError: The fleet is lost.
        """
        if self._fleet._lost:
            raise ConnectionError(self._fleet._lost)
        return self._fleet._server.exchange(requests, _now())

    def close(self) -> None:
        """Stop notifications of further changes."""
        self._changed = None


def _now() -> int:
    return round(clock.monotonic() * 1e6)
