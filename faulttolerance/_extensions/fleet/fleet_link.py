"""The single link from guards to the configured fleet, or to none (rule F1)."""

from __future__ import annotations

import threading
from weakref import WeakValueDictionary

from ..._platform.fork import at_fork
from .direct_link import DirectLink
from .protocol import CircuitFollower, Fleet, Link
from .server_link import ThreadedLink


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
