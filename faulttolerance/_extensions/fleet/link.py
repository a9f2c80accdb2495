"""The single link from guards to the configured fleet, or to none (rule F1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..._deadline.clock import clock
from ..._platform.background import aside
from ..._platform.fork import at_fork
from .followers import Enrolled, SharedCircuit
from .in_process import DirectLine
from .protocol import CircuitRecord, Fleet, Question, TakeTurn, Tell
from .remote import ThreadLine


class Lane:
    """The address for questions and for the enrolment of circuits, with any fleet; see ``Link`` in ``protocol.py``."""

    def __init__(self) -> None:
        self._circuits = Enrolled()
        self._line: ThreadLine | DirectLine | None = None
        self.is_chosen = False
        """Whether the program or the environment has set the fleet, even to none."""
        self.is_missed = False
        """Whether the log has reported that no fleet is set."""

    # Operations for guards

    @property
    def patience(self) -> float:
        """The maximum number of seconds that a call waits for an answer."""
        line = self._line
        return line.patience if line is not None else 0.0

    @property
    def is_up(self) -> bool:
        """Whether there is a fleet, and it answers as far as is known."""
        line = self._line
        return line is not None and line.contact.is_up

    @property
    def is_prompt(self) -> bool:
        """Whether there is a fleet, and it answers within the patience, as far as is known."""
        line = self._line
        return line is not None and line.is_prompt

    @property
    def processes(self) -> int:
        """The number of processes at the last read; 0 without a fleet."""
        line = self._line
        return 0 if line is None else line.processes

    @property
    def is_asking(self) -> bool:
        """Whether a caller waits for an answer."""
        line = self._line
        return line is not None and line.is_asking

    def ask(self, question: Question, tell: Tell) -> bool:
        """Send *question* soon, and pass the answer to *tell*; return false, without a call of *tell*, to decide alone.

        *tell* may be called before this method returns, and on any thread.
        """
        line = self._line
        return line is not None and line.ask(question, tell)

    def ask_about(self, circuit: SharedCircuit, question: Question, tell: Tell) -> bool:
        """Send *question* soon; its answer is passed to *circuit*, and then to *tell*."""

        def answered(record: CircuitRecord | None) -> None:
            if record is not None:
                circuit.follow(record, clock.monotonic())
            tell(record)

        return self.ask(question, answered)

    def ask_here(self, question: TakeTurn, tell: Tell) -> bool:
        """Send *question* on this thread and pass the answer to *tell*; return false, without a call, if impossible."""
        line = self._line
        return line is not None and line.ask_here(question, tell)

    def enroll(self, circuit: SharedCircuit) -> None:
        """Pass the fleet's records of its key to *circuit*, for as long as the circuit lives."""
        self._circuits.add(circuit)
        line = self._line
        if line is not None:
            line.welcome(circuit)

    def strangers(self) -> list[str]:
        """Return the keys of circuits that are open in the fleet and do not exist in this process."""
        line = self._line
        return [] if line is None else line.strangers()

    def aside(self, function: Callable[[], object]) -> None:
        """Call *function*, which may take its time and must not raise, where no answer has to wait for it."""
        line = self._line
        (aside if line is None else line.aside)(function)

    # Inspection

    @property
    def fleet(self) -> Fleet | None:
        """The configured fleet."""
        line = self._line
        return None if line is None else line.fleet

    @property
    def words(self) -> str:
        """The condition of fleet-wide state, in words."""
        line = self._line
        if line is None:
            return "local: no fleet is configured"
        if line.contact.is_up:
            return f"shared in {line.namespace!r}"
        return f"local: {self.complaint}"

    @property
    def complaint(self) -> str:
        """The trouble with the fleet; empty without trouble."""
        line = self._line
        if line is None or line.contact.is_up:
            return ""
        seconds = max(0.0, line.now() - line.contact.since)
        return f"the fleet {line.namespace!r} has been lost for {seconds:.1f} s, because of {line.contact.reason}"

    def read(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """Yield the values of the gauge ``ft.fleet.up``."""
        line = self._line
        if line is not None:
            yield (line.namespace,), float(line.contact.is_up)

    # Configuration

    def use(self, fleet: Fleet | None) -> None:
        """Use *fleet* from now on, or none; calls that wait for the previous fleet are notified that it is lost."""
        self.is_chosen = True
        before = self._line
        if before is not None and before.fleet is fleet:
            return
        line = None
        if fleet is not None:
            line = (DirectLine if fleet.is_immediate else ThreadLine)(fleet, self._circuits)
        self._line = line
        if before is not None:
            before.end()
        if line is not None:
            line.begin()

    def forget(self) -> None:
        """Stop using a fleet, and remove every circuit: an uncollected circuit must not write to another fleet."""
        self.use(None)
        self._circuits.clear()

    # Forking

    def before_fork(self) -> None:
        """End the thread and its session, so that the two processes never share a session."""
        line = self._line
        if line is not None:
            line.stop()

    def go_on(self) -> None:
        """Start again, in the parent of a fork."""
        line = self._line
        if line is not None:
            line.begin()

    def begin_anew(self) -> None:
        """Start again, in the child of a fork, without anything of the parent."""
        line = self._line
        if line is not None:
            line.leave()
            self._line = line = type(line)(line.fleet, self._circuits)
            line.begin()


lane = Lane()
"""The lane of the process."""

at_fork(lane.before_fork, lane.go_on, lane.begin_anew)
