"""A fleet that answers at once, in this process: for the tests of applications."""

from __future__ import annotations

from collections.abc import Callable

from .._strategy.contact import Contact
from .._strategy.fleet import Fleet, Poll, Question, Session, Tell
from .clock import clock
from .enrolled import Enrolled, SharedCircuit
from .line import CLOSED, Line, reason_of

_POLL = Poll("", 1)


class DirectLine(Line):
    """A fleet in this process, asked on the thread of the call; it says when it has changed."""

    is_asking = False

    def __init__(self, fleet: Fleet, circuits: Enrolled) -> None:
        super().__init__(fleet, circuits)
        self.contact = Contact(fleet.poll, clock.monotonic())

    def begin(self) -> None:
        """Tell the circuits how they stand."""
        self._read()

    def ask(self, question: Question, tell: Tell) -> bool:
        """Ask *question* now."""
        if not self.contact.is_up:
            return False
        try:
            (answer,) = self._exchange([question])
        except Exception as error:  # whatever it is, there is no answer
            self._lose(reason_of(error))
            return False
        self._hear(question, answer)
        tell(answer)
        return True

    def welcome(self, circuit: SharedCircuit) -> None:
        """Tell *circuit*, which has just come, what there is."""
        if self.contact.is_up:
            self._read()

    def stop(self) -> bool:
        """Do nothing: there is no thread."""
        return True

    def end(self) -> None:
        """Answer nobody any more."""
        self._is_over = True
        self._lose(CLOSED)
        self._close()

    def aside(self, function: Callable[[], object]) -> None:
        """Call *function* here: nobody waits behind this thread."""
        function()

    def _connect(self) -> Session:
        return self.fleet.connect(self._read)

    def _now(self) -> float:
        return clock.monotonic()

    def _lose(self, reason: str) -> None:
        super()._lose(reason)
        self._tell_circuits_of_loss()

    def _read(self) -> None:
        """Read all circuits, or find out whether the lost fleet is there again."""
        if self._is_over:
            return
        was_up = self.contact.is_up
        try:
            (answer,) = self._exchange([_POLL])
        except Exception as error:  # as above
            if was_up:
                self._lose(reason_of(error))
            return
        if not was_up:
            self._regain()
        self._hear(_POLL, answer)
