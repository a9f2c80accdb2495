"""The one way from guards to the fleet: what is configured now, or nothing (rule F1)."""

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
    """Where guards ask, and circuits are enrolled, whichever fleet there is; ``Link`` of ``protocol.py``."""

    def __init__(self) -> None:
        self._circuits = Enrolled()
        self._line: ThreadLine | DirectLine | None = None
        self.is_chosen = False
        """Whether somebody has said which fleet there is, be it none."""
        self.is_missed = False
        """Whether people were told that nobody has."""

    # What guards do

    @property
    def patience(self) -> float:
        """The most seconds that a call waits for an answer."""
        line = self._line
        return line.patience if line is not None else 0.0

    @property
    def is_up(self) -> bool:
        """Whether a fleet is there, and answers as far as is known."""
        line = self._line
        return line is not None and line.contact.is_up

    @property
    def is_prompt(self) -> bool:
        """Whether a fleet is there, and answers within the patience, as far as is known."""
        line = self._line
        return line is not None and line.is_prompt

    @property
    def processes(self) -> int:
        """How many processes there were when it was read last; 0: there is no fleet."""
        line = self._line
        return 0 if line is None else line.processes

    @property
    def is_asking(self) -> bool:
        """Whether somebody waits for an answer."""
        line = self._line
        return line is not None and line.is_asking

    def ask(self, question: Question, tell: Tell) -> bool:
        """Send *question* soon, and *tell* the answer; false, and nothing is told: decide alone.

        *tell* may be called before this returns, and is called on any thread.
        """
        line = self._line
        return line is not None and line.ask(question, tell)

    def ask_about(self, circuit: SharedCircuit, question: Question, tell: Tell) -> bool:
        """Send *question* soon, and *tell* the answer, which *circuit* follows first."""

        def answered(record: CircuitRecord | None) -> None:
            if record is not None:
                circuit.follow(record, clock.monotonic())
            tell(record)

        return self.ask(question, answered)

    def ask_here(self, question: TakeTurn, tell: Tell) -> bool:
        """Ask *question* on the running thread, and *tell* the answer; false, and nothing is told: it cannot."""
        line = self._line
        return line is not None and line.ask_here(question, tell)

    def enroll(self, circuit: SharedCircuit) -> None:
        """Tell *circuit* what the fleet has of its key, for as long as it lives."""
        self._circuits.add(circuit)
        line = self._line
        if line is not None:
            line.welcome(circuit)

    def strangers(self) -> list[str]:
        """Give the keys of circuits that are not closed in the fleet, and of which nobody here has heard."""
        line = self._line
        return [] if line is None else line.strangers()

    def aside(self, function: Callable[[], object]) -> None:
        """Call *function*, which may take its time and must not raise, where no answer has to wait for it."""
        line = self._line
        (aside if line is None else line.aside)(function)

    # What is told of it

    @property
    def fleet(self) -> Fleet | None:
        """The fleet that is configured."""
        line = self._line
        return None if line is None else line.fleet

    @property
    def words(self) -> str:
        """How what is fleet-wide stands now."""
        line = self._line
        if line is None:
            return "local: no fleet is configured"
        if line.contact.is_up:
            return f"shared in {line.namespace!r}"
        return f"local: {self.complaint}"

    @property
    def complaint(self) -> str:
        """What is wrong with the fleet; empty where nothing is."""
        line = self._line
        if line is None or line.contact.is_up:
            return ""
        seconds = max(0.0, line.now() - line.contact.since)
        return f"the fleet {line.namespace!r} is lost since {seconds:.1f} s, because of {line.contact.reason}"

    def read(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """Give what the gauge ``ft.fleet.up`` shows."""
        line = self._line
        if line is not None:
            yield (line.namespace,), float(line.contact.is_up)

    # What is configured

    def use(self, fleet: Fleet | None) -> None:
        """Ask *fleet* from now on, or nobody; whoever waits for another one is told that it is lost."""
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
        """Ask nobody, and forget every circuit: those that were not collected yet tell another fleet nothing."""
        self.use(None)
        self._circuits.clear()

    # Forking

    def before_fork(self) -> None:
        """End the thread and its session, so that the two processes never share one."""
        line = self._line
        if line is not None:
            line.stop()

    def go_on(self) -> None:
        """Begin again, in the parent of a fork."""
        line = self._line
        if line is not None:
            line.begin()

    def begin_anew(self) -> None:
        """Begin again, in the child of a fork: nothing of the parent's is used."""
        line = self._line
        if line is not None:
            line.leave()
            self._line = line = type(line)(line.fleet, self._circuits)
            line.begin()


lane = Lane()
"""The one of the process."""

at_fork(lane.before_fork, lane.go_on, lane.begin_anew)
