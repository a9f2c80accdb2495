"""What lets attempts in or refuses them, and hears how they end: the circuit breaker, or what stands in its place.

The caller keeps the era that admitted an attempt and settles the attempt against it. A healthy one costs two reads::

    era = gate.state
    if not era.is_closed:
        era = gate.admit(permit, ident, now)  # raises a RefusedException
    ...
    if not era.is_clean:  # after a success
        gate.settle(era, permit, SUCCESS, now)
    gate.settle(era, permit, FAILURE, now, "ConnectionError")  # after a failure
    if not era.is_closed:  # after control flow
        gate.settle(era, permit, NEUTRAL, now)
    if gate.transitions:  # after admit, also where it raised, and after settle
        ...  # they are delivered

*permit* identifies one attempt and is never used twice at a time. Where the caller was interrupted before it got the
answer of ``admit``, ``settle(gate.state, permit, NEUTRAL, now)`` gives back what the attempt may have got.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Final, Protocol, TypeAlias

from ..exceptions import RefusedException
from .verdict import Verdict

__all__ = ["NOT_ADMITTED", "Era", "Gate", "GateAround", "Tell"]

Tell: TypeAlias = Callable[[], object]
"""Called for each attempt that an observed policy would have refused."""


class Era:
    """One stay of a gate in one state."""

    __slots__ = ("is_clean", "is_closed", "until")

    is_closed: bool
    """Whether attempts are let in without asking, as a closed circuit does."""
    is_clean: bool
    """Whether one more success would change nothing."""
    until: float
    """Until when every attempt is refused; minus infinity where some may pass."""


NOT_ADMITTED: Final = Era()
"""Stands for the era of an attempt that no era has let in."""


class Gate(Protocol):
    """Lets attempts in or refuses them, and hears how they end."""

    @property
    def state(self) -> Era:
        """The era that admits attempts now."""
        ...

    @property
    def transitions(self) -> Collection[object]:
        """The transitions that were not delivered yet; always empty where there is nothing to tell."""
        ...

    @property
    def judges_refusals(self) -> bool:
        """Whether an attempt that a policy further inside refused has a verdict; else it is neutral."""
        ...

    def admit(self, permit: Hashable, ident: int, now: float) -> Era:
        """Let the attempt *permit* of thread *ident* in; return the era that did.

        Raises:
            RefusedException: It is not let in.
        """
        ...

    def settle(self, era: Era, permit: Hashable, verdict: Verdict, now: float, failure: str = "") -> None:
        """Take the *verdict* on the attempt *permit* that *era* admitted; *failure* names the class of a failure."""

    def refusal(self, wait: float) -> RefusedException:
        """Make the exception for a caller that is refused for *wait* seconds."""
        ...


class GateAround:
    """What stands in front of a gate has in common with it."""

    __slots__ = ("_gate",)

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    @property
    def transitions(self) -> Collection[object]:
        """Those of the gate."""
        return self._gate.transitions

    @property
    def judges_refusals(self) -> bool:
        """As the gate does."""
        return self._gate.judges_refusals

    def refusal(self, wait: float) -> RefusedException:
        """As the gate makes it."""
        return self._gate.refusal(wait)
