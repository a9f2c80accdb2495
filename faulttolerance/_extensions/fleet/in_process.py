"""A fleet in this process that answers at once, for the tests of applications."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..._deadline.clock import clock
from .followers import Enrolled, SharedCircuit
from .protocol import Fleet, Question, Session, TakeTurn, Tell
from .remote import Line, reason_of


class DirectLine(Line):
    """A fleet in this process, asked on the thread of the call; it reports its changes."""

    def __init__(self, fleet: Fleet, circuits: Enrolled) -> None:
        super().__init__(fleet, circuits, clock.monotonic, "")

    def begin(self) -> None:
        """Read the circuits, or check whether a lost fleet answers again."""
        answer = None if self._is_over else self._answer(self._poll)
        if answer is not None:
            self._read(answer)

    def ask(self, question: Question, tell: Tell) -> bool:
        """Send *question* now, and pass the answer to *tell*; return false if the fleet is lost."""
        answer = self._answer(question) if self.contact.is_up else None
        if answer is None:
            return False
        tell(answer)
        if not isinstance(question, TakeTurn):
            self.begin()
        return True

    def welcome(self, circuit: SharedCircuit) -> None:
        """Pass the state of the fleet to the new *circuit*."""
        if self.contact.is_up:
            self.begin()

    def stop(self) -> bool:
        """Do nothing: there is no thread."""
        return True

    def end(self) -> None:
        """Stop answering."""
        super().end()
        self._close()

    def aside(self, function: Callable[[], object]) -> None:
        """Call *function* here: no other call waits for this thread."""
        function()

    def _connect(self) -> Session:
        return self.fleet.connect(self.begin)

    def _lose(self, reason: str) -> None:
        super()._lose(reason)
        self._follow(self._circuits, lambda _: None)

    def _answer(self, question: Question) -> Any:
        """Return the answer to *question*; ``None`` if the fleet is lost."""
        was_up = self.contact.is_up
        try:
            (answer,) = self._exchange([question])
        except Exception as error:  # any error means that there is no answer
            if was_up:
                self._lose(reason_of(error))
            return None
        if not was_up:
            self._regain()
        return answer
