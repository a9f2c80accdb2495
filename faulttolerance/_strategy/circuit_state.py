"""The public view of a circuit: its state, its transitions, and its values at a moment."""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

from types import FrameType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

StateName: TypeAlias = Literal["closed", "open", "half-open"]

CLOSED: Final = "closed"
OPEN: Final = "open"
HALF_OPEN: Final = "half-open"


class CircuitValues(NamedTuple):
    """The values of a circuit, which configuration may replace. All durations are in seconds."""

    delay: float
    """How long the circuit stays open; also how long a probe keeps its place where another attempt needs it.

    With 0, a probe keeps its place as long as it runs.
    """
    request_volume_threshold: int
    """The length of the rolling window; the least number of results in a window of time."""
    failure_ratio: float
    """The circuit opens when this part of a full window failed.

    With 0 it opens at the first failure in a full window: no failure at all is no reason to open.
    """
    success_threshold: int
    """Probes that must succeed to close the circuit."""
    window: float = 0.0
    """How long a result counts; 0: as long as it is among the last ``request_volume_threshold``."""
    max_delay: float = 0.0
    """Each opening by a probe doubles the delay up to this length; 0: never."""


class Transition(NamedTuple):
    """A move of the circuit from one state to another."""

    old: StateName
    new: StateName
    reason: str
    """The reason and the length of an opening; empty for the other moves."""


class Transitions(list[Transition]):
    """The transitions that wait to be delivered, oldest first."""

    __slots__ = ("_deliverer",)

    def __init__(self) -> None:
        super().__init__()
        self._deliverer: dict[None, FrameType] = {}

    def claim(self, frame: FrameType) -> bool:
        """Return whether *frame* is to deliver the transitions: no other frame does that still runs."""
        while (deliverer := self._deliverer.setdefault(None, frame)) is not frame:
            try:
                deliverer.clear()
            except RuntimeError:  # it runs
                return False
            self.release()  # a signal's handler raised before the deliverer could release
        return True

    def release(self) -> None:
        """Release the claim, so that another frame may deliver."""
        self._deliverer.pop(None, None)


NONE_YET = Transitions()
"""Stands for the transitions of every circuit that has never moved; nothing is ever added to it."""


class CircuitSnapshot(NamedTuple):
    """One circuit at one moment. Moments are seconds of the shared clock.

    That is ``time.monotonic()``, on Windows ``time.perf_counter()``.
    """

    name: str
    state: StateName
    forced: bool
    """Whether the circuit stays in its state until it is reset."""
    since: float
    """The moment at which the circuit entered its state."""
    results: int
    """The results in the window; 0 unless the circuit is closed."""
    failures: int
    """The failures among the results."""
    opened: int
    """How often the circuit moved from closed to open."""
    half_open_at: float | None
    """The moment at which an open circuit admits a probe; ``None`` where it is not open, or is forced."""
    last_failure: str
    """The class of the last failure, ``slow call``, or ``bad result``; empty where none was since the last reset."""

    def as_dict(self) -> dict[str, Any]:
        """Return the values by name, as an administrative endpoint shows them."""
        return self._asdict()
