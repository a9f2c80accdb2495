"""The single link from guards to the configured fleet, or to none (rule F1); and a fleet that answers at once."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from ..._deadline.clock import clock
from ..._platform.fork import at_fork
from ..._shown import error_text
from .protocol import CircuitFollower, Fleet, Link, OnResponse, Request, TurnRequest
from .server_link import Circuits, ServerLink, ThreadedLink


class DirectLink(ServerLink):
    """A fleet in this process for tests of applications, asked on the thread of the call; it reports its changes."""

    def __init__(self, fleet: Fleet, circuits: Circuits) -> None:
        super().__init__(fleet, circuits, lambda: clock.monotonic(), "")  # the clock of each moment
        self._connect = partial(fleet.connect, self.start)

    def start(self) -> None:
        """Read the circuits, or check whether a lost fleet answers again."""
        response = None if self._is_closed else self._exchange_one(self._poll)
        if response is not None:
            self._read(response)

    def send(self, request: Request, on_response: OnResponse) -> bool:
        """Send *request* now, and pass the answer to *on_response*; return false if the fleet is lost."""
        response = self._exchange_one(request) if self.health.is_up else None
        if response is None:
            return False
        on_response(response)
        if not isinstance(request, TurnRequest):
            self.start()
        return True

    def initialize(self, circuit: CircuitFollower) -> None:
        """Pass the state of the fleet to the new *circuit*."""
        if self.health.is_up:
            self.start()

    def shut_down(self) -> None:
        """Stop answering."""
        super().shut_down()
        self._close()

    def _exchange_one(self, request: Request) -> Any:
        """Return the answer to *request*; ``None`` if the fleet is lost."""
        was_up = self.health.is_up
        try:
            (response,) = self._exchange([request])
        except Exception as error:  # any error means that there is no answer
            self._lose(error_text(error))
            return None
        if not was_up:
            self._regain()
        return response


class FleetLink:
    """The choice of the fleet, and the circuits that follow any fleet."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.current = Link()
        """The link to the configured fleet, or to none."""
        # By identity: several circuits may have one key.
        self._circuits: WeakValueDictionary[int, CircuitFollower] = WeakValueDictionary()
        self.is_chosen = False
        """Whether the program or the environment has set the fleet, even to none."""
        self.is_absence_logged = False
        """Whether the log has reported that no fleet is set."""

    def register(self, circuit: CircuitFollower) -> None:
        """Pass the fleet's records of its key to *circuit*, for as long as the circuit lives."""
        self._circuits[id(circuit)] = circuit
        self.current.initialize(circuit)

    def _living_circuits(self) -> list[CircuitFollower]:
        # The copy of the references needs no lock: finalizers add and remove circuits, too.
        return [circuit for reference in self._circuits.valuerefs() if (circuit := reference()) is not None]

    def use(self, fleet: Fleet | None, *, is_default: bool = False) -> None:
        """Use *fleet* from now on, or none; calls that wait for the previous fleet are notified that it is lost.

        With *is_default*, an earlier choice stays.
        """
        link = self._link_to(fleet)
        with self._lock:  # no calls in here: the handler of a signal, which may choose too, runs before or after
            before = self.current
            if before.fleet is fleet or (is_default and self.is_chosen):
                link = before
            self.current, self.is_chosen = link, True
        if link is not before:
            before.shut_down()
            link.start()

    def _link_to(self, fleet: Fleet | None) -> Link:
        if fleet is None:
            return Link()
        return (DirectLink if fleet.is_immediate else ThreadedLink)(fleet, self._living_circuits)

    def reset(self) -> None:
        """Stop using a fleet, and remove every circuit: an uncollected circuit must not write to another fleet."""
        self.use(None)
        self._circuits.clear()
        self.is_chosen = self.is_absence_logged = False

    def restart_in_child(self) -> None:
        """Start again, in the child of a fork, without anything of the parent."""
        self._lock = threading.RLock()
        before = self.current
        before.abandon()
        self.current = link = self._link_to(before.fleet)
        link.start()


fleet_link = FleetLink()
"""The link of the process."""

at_fork(lambda: fleet_link.current.stop(), lambda: fleet_link.current.start(), fleet_link.restart_in_child)
