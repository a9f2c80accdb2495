"""What a process asks a fleet, and what it hears: the words between guards, the lane and a server.

Durations are whole microseconds, as the server's clock counts them. A moment of one machine means nothing on another;
so nothing but durations goes either way, each counted from the moment at which the server answers.
"""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from ..._strategy.rate_limit import WindowKind

__all__ = [
    "ABSENT",
    "FOREIGN",
    "Answer",
    "CallSession",
    "CircuitRecord",
    "Fleet",
    "Link",
    "OpenCircuit",
    "Poll",
    "Polled",
    "Question",
    "Session",
    "TakePlace",
    "TakeTurn",
    "Tell",
    "trial_of",
]


class CircuitRecord(NamedTuple):
    """One circuit as the fleet has it."""

    version: int
    """Another one after each transition, and never one that was there before; 0: nothing is written of it."""
    state: Literal["closed", "open"]
    """An open one without a *wait* is half-open: places of probes are given."""
    wait: int = 0
    """Until an open circuit gives places."""
    reopened: int = 0
    """How many times in a row a probe has opened it."""
    reason: str = ""
    """Why it opened, for people."""
    is_granted: bool = False
    """Whether the place was given that ``TakePlace`` asked for."""


ABSENT = CircuitRecord(0, "closed")
"""Stands for a circuit of which nothing is written."""


class TakeTurn(NamedTuple):
    """Ask for a turn under a rate limit. The answer: 0, it is taken; else how long until there may be room."""

    key: str
    kind: WindowKind
    limit: int
    window: int
    burst: int
    """Turns that a smooth window gives at once after a rest."""
    spacing: int = 0
    """The shortest time between two turns."""


class Poll(NamedTuple):
    """Write down that *process* is there, for *length*, and ask for what there is. The answer: ``Polled``."""

    process: str
    """Names it, and no other one."""
    length: int


class Polled(NamedTuple):
    """What there is in a namespace."""

    processes: int
    """How many are there, with the one that asks."""
    circuits: Mapping[str, CircuitRecord]
    """By key."""


class OpenCircuit(NamedTuple):
    """Open a circuit for *delay*, unless another version than *seen* is in force. The answer: ``CircuitRecord``.

    Where nothing is written any more of what was *seen*, it is opened, too: the server was emptied.
    """

    key: str
    seen: int
    delay: int
    reopened: int
    reason: str


class TakePlace(NamedTuple):
    """Take one *step* with the place of a probe. The answer: ``CircuitRecord``.

    It has an effect on an open circuit of this *version* alone, once the delay is over. There are as many places as
    probes have to succeed, less those that did.

    - ``"wish"``: ask for a place, or to keep it unused; it goes to whoever was refused it and needs it for less time.
    - ``"start"``: use it from now on. Who comes late keeps it unless somebody else has it.
    - ``"end"``: give it back.
    - ``"success"``: give it back; that counts although it was lost.
    """

    key: str
    version: int
    holder: str
    """Names this place, and no other one of any process."""
    places: int
    """Probes that have to succeed: as many successes close the circuit."""
    length: int
    """How long the place is kept from now on."""
    step: Literal["wish", "start", "end", "success"] = "wish"


Question: TypeAlias = TakeTurn | Poll | OpenCircuit | TakePlace
Answer: TypeAlias = int | Polled | CircuitRecord
Tell: TypeAlias = Callable[[Any], object]
"""Is told the answer to a question, from any thread and without a lock; ``None``: the fleet is lost."""


FOREIGN = -1
"""Stands for the answer to ``TakeTurn`` where the server has something else under its key: nobody can share it."""
_NO_PLACE = TakePlace("", 0, "", 1, 0, "end")


def trial_of(question: Question) -> Question:
    """Return a question that a server answers only if it would answer *question*, and that nobody notices."""
    return question._replace(key="") if isinstance(question, TakeTurn) else _NO_PLACE


class Session(Protocol):
    """A connection of one process, used by one thread at a time."""

    def exchange(self, questions: Sequence[Question]) -> Sequence[Answer]:
        """Ask all at once; give the answers in their order. Whatever is raised means that the fleet is lost."""
        ...

    def close(self) -> None:
        """Let go of it; it may be broken, or used for the first time again afterwards."""


@runtime_checkable
class CallSession(Session, Protocol):
    """A session in which a call may ask by itself, and stop waiting before the answer comes."""

    def send(self, question: TakeTurn) -> None:
        """Ask *question* alone; the session has exchanged questions before."""
        ...

    def receive(self, seconds: float | None) -> int | None:
        """Return the answer to what was sent, or ``None`` if it has not come within *seconds*.

        Without *seconds* it is waited for as long as in an exchange.

        Raises:
            Exception: There is going to be no answer.
        """
        ...


class Fleet(Protocol):
    """Where the processes of a namespace meet."""

    @property
    def namespace(self) -> str:
        """Which fleet it is."""
        ...

    @property
    def poll(self) -> float:
        """Seconds after which the circuits are read again."""
        ...

    @property
    def patience(self) -> float:
        """The most seconds that a call waits for an answer."""
        ...

    @property
    def is_immediate(self) -> bool:
        """Whether it answers at once, in this process: then it is asked on the thread of the call."""
        ...

    def connect(self, changed: Callable[[], object] | None = None) -> Session:
        """Give a session; it connects when it is first used, and anew after it was broken.

        A fleet that answers at once calls *changed* on any thread when something moved that no question did, until the
        session is closed. Others are asked from time to time, and do not.
        """
        ...


class Link(Protocol):
    """How guards reach the fleet; the lane, for them."""

    @property
    def patience(self) -> float:
        """The most seconds that a call waits for an answer."""
        ...

    @property
    def is_prompt(self) -> bool:
        """Whether a fleet is there, and answers within the patience, as far as is known."""
        ...

    @property
    def processes(self) -> int:
        """How many processes there were when it was read last; 0: there is no fleet."""
        ...

    def ask(self, question: Question, tell: Tell) -> bool:
        """Send *question* soon, and *tell* the answer; false, and nothing is told: decide alone."""
        ...

    def ask_about(self, circuit: Any, question: Question, tell: Tell) -> bool:
        """Send *question* soon, and *tell* the answer, which *circuit* follows first; false: decide alone."""
        ...

    def ask_here(self, question: TakeTurn, tell: Tell) -> bool:
        """Ask *question* on the running thread, and *tell* the answer; false, and nothing is told: it cannot.

        Returns when the answer has come, or when the patience or a deadline of the call is over; then it is told later.
        """
        ...
