"""The requests of a process to a fleet, and the responses: the vocabulary of guards, the link and a server.

Durations are whole microseconds of the server's clock. A moment of one machine means nothing on another machine. So
only durations are transferred, each counted from the moment at which the server answers.
"""

# No ``from __future__ import annotations``: every import would compile the annotations of a named tuple.

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from ..._strategy.rate_limit import WindowKind


class CircuitRecord(NamedTuple):
    """One circuit in the fleet."""

    version: int
    """A version that is new after each transition, and never reused; 0: the fleet has no record of the circuit."""
    state: Literal["closed", "open"]
    """An open circuit without a *wait* is half-open: it grants places to probes."""
    wait: int = 0
    """The time until an open circuit grants places."""
    reopened: int = 0
    """The number of times in a row that a probe has opened it."""
    reason: str = ""
    """The reason why it opened, for people."""
    is_granted: bool = False
    """Whether the place that ``ProbeRequest`` requested is granted."""


ABSENT = CircuitRecord(0, "closed")
"""The record of a circuit that the fleet does not know."""


class TurnRequest(NamedTuple):
    """A request for a turn under a rate limit. The answer: 0 if it is taken, else the time until there may be room."""

    key: str
    kind: WindowKind
    limit: int
    window: int
    burst: int
    """The number of turns that a smooth window grants at once after a rest."""
    spacing: int = 0
    """The shortest time between two turns."""


class PollRequest(NamedTuple):
    """A sign of life of *process* for *length*, and a request for a ``PollResponse``."""

    process: str
    """A unique name of the process."""
    length: int


class PollResponse(NamedTuple):
    """The state of a namespace."""

    processes: int
    """The number of processes, including the caller's."""
    circuits: Mapping[str, CircuitRecord]
    """The circuits, by key."""


class OpenRequest(NamedTuple):
    """A request to open a circuit for *delay*, if *seen* is still its version. The answer: ``CircuitRecord``.

    The circuit is opened too if the server has no record of it any more: the server was emptied.
    """

    key: str
    seen: int
    delay: int
    reopened: int
    reason: str


class ProbeRequest(NamedTuple):
    """One *step* with the place of a probe. The answer: ``CircuitRecord``.

    The step affects only an open circuit of this *version*, after its delay. There are as many places as probes have to
    succeed, less the probes that did.

    - ``"wish"``: request a place, or keep a place unused. A refused process that needs it for less time has precedence.
    - ``"start"``: use the place from now on. A late holder keeps it unless another holder has it.
    - ``"end"``: release the place.
    - ``"success"``: release the place and count a success, even if the place was lost.
    """

    key: str
    version: int
    holder: str
    """The name of this place, unique over all processes."""
    places: int
    """The number of probes that must succeed to close the circuit."""
    length: int
    """The time for which the place is kept from now on."""
    step: Literal["wish", "start", "end", "success"] = "wish"


Request: TypeAlias = TurnRequest | PollRequest | OpenRequest | ProbeRequest
Response: TypeAlias = int | PollResponse | CircuitRecord
OnResponse: TypeAlias = Callable[[Any], object]
"""Receives the answer to a request, on any thread and without a lock; ``None`` means that the fleet is lost."""


_NO_PLACE = ProbeRequest("", 0, "", 1, 0, "end")


def trial_of(request: Request) -> Request:
    """Return a request without any effect that a server answers only if it would answer *request*."""
    return request._replace(key="") if isinstance(request, TurnRequest) else _NO_PLACE


class Session(Protocol):
    """A connection of one process, used by one thread at a time."""

    def exchange(self, requests: Sequence[Request]) -> Sequence[Response]:
        """Send all requests at once; return the answers in their order. Any exception means that the fleet is lost."""
        ...

    def close(self) -> None:
        """Close the connection; it may be broken. A later exchange may connect again."""


@runtime_checkable
class CallSession(Session, Protocol):
    """A session in which a call can ask by itself, and stop waiting before the answer comes."""

    def ask(self, request: TurnRequest, seconds: float) -> int | None:
        """Return the answer to *request*, or ``None`` if it has not come within *seconds*: then close the session.

        The session has exchanged requests before.

        Raises:
            Exception: If there will be no answer.
        """
        ...


class CircuitFollower(Protocol):
    """A circuit of this process that represents a circuit of the fleet."""

    key: str
    """The name of the circuit in the fleet."""

    def follow(self, record: CircuitRecord | None, now: float) -> object:
        """Apply the fleet's *record*; ``None`` means that the fleet is lost."""
        ...


class Fleet(Protocol):
    """The meeting point of the processes of a namespace."""

    namespace: str
    """The name of the fleet."""
    poll: float
    """The seconds after which the circuits are read again."""
    patience: float
    """The maximum number of seconds that a call waits for an answer."""
    is_immediate: bool
    """Whether the fleet answers at once, in this process: then it is asked on the thread of the call."""

    def connect(self, changed: Callable[[], object] | None = None) -> Session:
        """Return a session; it connects at its first use, and again after it was broken.

        A fleet that answers at once calls *changed* on any thread when something moved without a request, until the
        session is closed. Other fleets are polled, and never call it.
        """
        ...


class Link:
    """The way from guards to a fleet; this one leads to none, so that the process decides alone."""

    fleet: Fleet | None = None
    """The configured fleet."""
    patience = 0.0
    """The maximum number of seconds that a call waits for an answer."""
    processes = 0
    """The number of processes at the last read; 0 without a fleet."""

    @property
    def is_prompt(self) -> bool:
        """Whether there is a fleet, and it answers within the patience, as far as is known."""
        return False

    @property
    def has_pending_requests(self) -> bool:
        """Whether a caller waits for an answer."""
        return False

    def send(self, request: Request, on_response: OnResponse) -> bool:
        """Send *request* soon, and pass the answer to *on_response*; return false to decide alone.

        *on_response* may be called before this method returns, and on any thread.
        """
        return False

    def send_for(self, circuit: CircuitFollower, request: Request, on_response: OnResponse) -> bool:
        """Send *request* soon; its answer is passed to *circuit*, then to *on_response*; false: decide alone."""
        return False

    def send_here(self, request: TurnRequest, on_response: OnResponse) -> bool:
        """Send *request* on this thread and pass the answer to *on_response*; return false if impossible.

        Returns when the answer has come, or when the patience or a deadline of the call has passed; then *on_response*
        is called later.
        """
        return False

    def initialize(self, circuit: CircuitFollower) -> None:
        """Pass the fleet's record of its key to the new *circuit*."""

    # Inspection

    @property
    def description(self) -> str:
        """The condition of fleet-wide state, in words."""
        return "local: no fleet is configured"

    @property
    def problem(self) -> str:
        """The trouble with the fleet; empty without trouble."""
        return ""

    def open_elsewhere(self) -> list[str]:
        """Return the keys of circuits that are open in the fleet and do not exist in this process."""
        return []

    def read(self) -> Iterable[tuple[tuple[str, ...], float]]:
        """Return the values of the gauge ``ft.fleet.up``."""
        return ()

    # The life of the link

    def start(self) -> None:
        """Start to ask, also again after ``stop``."""

    def stop(self) -> None:
        """End the thread and its session before a fork, so that the two processes never share a session."""

    def abandon(self) -> None:
        """Stop, in the child of a fork, without touching what belongs to the parent."""

    def shut_down(self) -> None:
        """Stop answering: another fleet follows, or none."""


class Links(Protocol):
    """The link of the process, which changes when another fleet is configured."""

    @property
    def current(self) -> Link:
        """The link to ask now."""
        ...
