"""What is told of a circuit: its state, its moves from one to another, and how it is at a moment."""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

from types import FrameType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from .gate import Era

__all__ = [
    "CLOSED",
    "HALF_OPEN",
    "NONE_YET",
    "OPEN",
    "CircuitEra",
    "CircuitSnapshot",
    "StateName",
    "Transition",
    "Transitions",
]

StateName: TypeAlias = Literal["closed", "open", "half-open"]

CLOSED: Final = "closed"
OPEN: Final = "open"
HALF_OPEN: Final = "half-open"


class Transition(NamedTuple):
    """The circuit moved from one state to another."""

    old: StateName
    new: StateName
    reason: str
    """Why the circuit opened, and until when; empty for the other moves."""


class Transitions(list[Transition]):
    """Those that wait to be delivered, oldest first."""

    __slots__ = ("_deliverer",)

    def __init__(self) -> None:
        super().__init__()
        self._deliverer: dict[None, FrameType] = {}

    def claim(self, frame: FrameType) -> bool:
        """Return whether *frame* is to deliver them: no other one does that still runs."""
        while (deliverer := self._deliverer.setdefault(None, frame)) is not frame:
            try:
                deliverer.clear()
            except RuntimeError:  # it runs
                return False
            self.release()  # a signal's handler raised before it could do so itself
        return True

    def release(self) -> None:
        """Let another frame deliver."""
        self._deliverer.pop(None, None)


NONE_YET = Transitions()
"""Stands for those of every circuit that has never moved; nothing is ever added to it."""


class CircuitSnapshot(NamedTuple):
    """One circuit at one moment. Moments are seconds of the shared clock, which is ``time.monotonic()``."""

    name: str
    state: StateName
    forced: bool
    """Whether it stays in its state until it is reset."""
    since: float
    """When it entered its state."""
    results: int
    """Results in the window; 0 unless the circuit is closed."""
    failures: int
    """Failures among these."""
    opened: int
    """How often it moved from closed to open."""
    half_open_at: float | None
    """When an open circuit lets a probe through; ``None`` where it is not open, or is forced."""
    last_failure: str
    """The class of the last failure, ``slow call``, or ``bad result``; empty where none was since the last reset."""

    def as_dict(self) -> dict[str, Any]:
        """Give the same by name, as an administrative endpoint shows it."""
        return self._asdict()


class CircuitEra(Era):
    """One stay in one state; a closed circuit is clean with a window full of successes."""

    __slots__ = ("is_forced", "name", "since")

    name: StateName
    is_forced: bool
    """Whether nothing but a reset ends it."""
    since: float
