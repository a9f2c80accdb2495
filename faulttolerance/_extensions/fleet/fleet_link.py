"""The single link from guards to the configured fleet, or to none (rule F1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from weakref import WeakValueDictionary

from ..._deadline.clock import clock
from ..._platform.background import aside
from ..._platform.fork import at_fork
from .direct_link import DirectLink
from .protocol import CircuitFollower, CircuitRecord, Fleet, OnResponse, Request, TurnRequest
from .server_link import ThreadedLink


class FleetLink:
    """The address for requests and for the enrolment of circuits, with any fleet; see ``Link`` in ``protocol.py``."""

    def __init__(self) -> None:
        # By identity: several circuits may have one key.
        self._circuits: WeakValueDictionary[int, CircuitFollower] = WeakValueDictionary()
        self._link: ThreadedLink | DirectLink | None = None
        self.is_chosen = False
        """Whether the program or the environment has set the fleet, even to none."""
        self.is_absence_logged = False
        """Whether the log has reported that no fleet is set."""

    # Operations for guards

    @property
    def patience(self) -> float:
        """The maximum number of seconds that a call waits for an answer."""
        link = self._link
        return link.patience if link is not None else 0.0

    @property
    def is_up(self) -> bool:
        """Whether there is a fleet, and it answers as far as is known."""
        link = self._link
        return link is not None and link.health.is_up

    @property
    def is_prompt(self) -> bool:
        """Whether there is a fleet, and it answers within the patience, as far as is known."""
        link = self._link
        return link is not None and link.is_prompt

    @property
    def processes(self) -> int:
        """The number of processes at the last read; 0 without a fleet."""
        link = self._link
        return 0 if link is None else link.processes

    @property
    def has_pending_requests(self) -> bool:
        """Whether a caller waits for an answer."""
        link = self._link
        return link is not None and link.has_pending_requests

    def send(self, request: Request, on_response: OnResponse) -> bool:
        """Send *request* soon, and pass the answer to *on_response*; return false to decide alone.

        *on_response* may be called before this method returns, and on any thread.
        """
        link = self._link
        return link is not None and link.send(request, on_response)

    def send_for(self, circuit: CircuitFollower, request: Request, on_response: OnResponse) -> bool:
        """Send *request* soon; its answer is passed to *circuit*, and then to *on_response*."""

        def answered(record: CircuitRecord | None) -> None:
            if record is not None:
                circuit.follow(record, clock.monotonic())
            on_response(record)

        return self.send(request, answered)

    def send_here(self, request: TurnRequest, on_response: OnResponse) -> bool:
        """Send *request* on this thread and pass the answer to *on_response*; return false if impossible."""
        link = self._link
        return link is not None and link.send_here(request, on_response)

    def register(self, circuit: CircuitFollower) -> None:
        """Pass the fleet's records of its key to *circuit*, for as long as the circuit lives."""
        self._circuits[id(circuit)] = circuit
        link = self._link
        if link is not None:
            link.initialize(circuit)

    def _living_circuits(self) -> list[CircuitFollower]:
        # The copy of the references needs no lock: finalizers add and remove circuits, too.
        return [circuit for reference in self._circuits.valuerefs() if (circuit := reference()) is not None]

    def open_elsewhere(self) -> list[str]:
        """Return the keys of circuits that are open in the fleet and do not exist in this process."""
        link = self._link
        return [] if link is None else link.open_elsewhere()

    def aside(self, function: Callable[[], object]) -> None:
        """Call *function*, which may take its time and must not raise, where no answer has to wait for it."""
        link = self._link
        (aside if link is None else link.aside)(function)

    # Inspection

    @property
    def fleet(self) -> Fleet | None:
        """The configured fleet."""
        link = self._link
        return None if link is None else link.fleet

    @property
    def description(self) -> str:
        """The condition of fleet-wide state, in words."""
        link = self._link
        if link is None:
            return "local: no fleet is configured"
        if link.health.is_up:
            return f"shared in {link.namespace!r}"
        return f"local: {self.problem}"

    @property
    def problem(self) -> str:
        """The trouble with the fleet; empty without trouble."""
        link = self._link
        if link is None or link.health.is_up:
            return ""
        seconds = max(0.0, link.now() - link.health.since)
        return f"the fleet {link.namespace!r} has been lost for {seconds:.1f} s, because of {link.health.reason}"

    def read(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """Yield the values of the gauge ``ft.fleet.up``."""
        link = self._link
        if link is not None:
            yield (link.namespace,), float(link.health.is_up)

    # Configuration

    def use(self, fleet: Fleet | None) -> None:
        """Use *fleet* from now on, or none; calls that wait for the previous fleet are notified that it is lost."""
        self.is_chosen = True
        before = self._link
        if before is not None and before.fleet is fleet:
            return
        link = None
        if fleet is not None:
            link = (DirectLink if fleet.is_immediate else ThreadedLink)(fleet, self._living_circuits)
        self._link = link
        if before is not None:
            before.shut_down()
        if link is not None:
            link.start()

    def reset(self) -> None:
        """Stop using a fleet, and remove every circuit: an uncollected circuit must not write to another fleet."""
        self.use(None)
        self._circuits.clear()

    # Forking

    def before_fork(self) -> None:
        """End the thread and its session, so that the two processes never share a session."""
        link = self._link
        if link is not None:
            link.stop()

    def restart_in_parent(self) -> None:
        """Start again, in the parent of a fork."""
        link = self._link
        if link is not None:
            link.start()

    def restart_in_child(self) -> None:
        """Start again, in the child of a fork, without anything of the parent."""
        link = self._link
        if link is not None:
            link.abandon()
            self._link = link = type(link)(link.fleet, self._living_circuits)
            link.start()


fleet_link = FleetLink()
"""The link of the process."""

at_fork(fleet_link.before_fork, fleet_link.restart_in_parent, fleet_link.restart_in_child)
