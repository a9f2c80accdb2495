"""The protocol of gates: the circuit breaker, or the strategy in its place, that admits or refuses attempts.

A gate is notified how the attempts end. The caller keeps the state that admitted an attempt, and settles the attempt
against it. A healthy attempt costs two reads::

    state = gate.state
    if not state.is_closed:
        state = gate.admit(permit, ident, now)  # raises a RefusedException
    ...
    if not state.is_clean:  # after a success
        gate.settle(state, permit, SUCCESS, now)
    gate.settle(state, permit, FAILURE, now, "ConnectionError")  # after a failure
    if not state.is_closed:  # after control flow
        gate.settle(state, permit, NEUTRAL, now)
    if gate.transitions:  # after admit, also where it raised, and after settle
        ...  # they are delivered

*permit* identifies one attempt and is never used twice at a time. Where the caller was interrupted before ``admit``
returned, ``settle(gate.state, permit, NEUTRAL, now)`` releases what the attempt may have got.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from math import inf
from operator import attrgetter
from typing import Any, Final, Protocol, TypeAlias

from ..exceptions import RefusedException
from .verdict import Verdict

OnRefusal: TypeAlias = Callable[[], object]
"""Called for each attempt that an observed policy would have refused."""


class GateState:
    """One stay of a gate in one state."""

    __slots__ = ("is_clean", "is_closed", "until")

    is_closed: bool
    """Whether attempts pass without a call of ``admit``, as in a closed circuit."""
    is_clean: bool
    """Whether one more success would change nothing."""
    until: float
    """The moment up to which every attempt is refused; minus infinity where attempts may pass."""


def lasting_state(is_closed: bool) -> GateState:
    """Return a state that no time ends, and in which each success counts."""
    state = GateState()
    state.is_closed, state.is_clean, state.until = is_closed, False, -inf
    return state


NOT_ADMITTED: Final = GateState()
"""Stands for the state of an attempt that no state has admitted."""


class Gate(Protocol):
    """A strategy that admits or refuses attempts, and is notified how they end."""

    @property
    def state(self) -> GateState:
        """The state that admits attempts now."""
        ...

    @property
    def transitions(self) -> Collection[object]:
        """The transitions that were not delivered yet; always empty for a gate without transitions."""
        ...

    @property
    def judges_refusals(self) -> bool:
        """Whether an attempt that a policy further inside refused has a verdict; else it is neutral."""
        ...

    def admit(self, permit: Hashable, ident: int, now: float) -> GateState:
        """Admit the attempt *permit* of thread *ident*; return the state that admitted it.

        Raises:
            RefusedException: The attempt is not admitted.
        """
        ...

    def settle(self, state: GateState, permit: Hashable, verdict: Verdict, now: float, failure: str = "") -> None:
        """Record the *verdict* on the attempt *permit* that *state* admitted; *failure*: the class of a failure."""

    def refusal(self, wait: float) -> RefusedException:
        """Return the exception for a caller that is refused for *wait* seconds."""
        ...


class GateWrapper:
    """The common part of the gates that stand in front of another gate."""

    __slots__ = ("_gate",)

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    state: Any = property(attrgetter("_gate.state"))
    transitions: Any = property(attrgetter("_gate.transitions"))
    judges_refusals: Any = property(attrgetter("_gate.judges_refusals"))
    admit: Any = property(attrgetter("_gate.admit"))
    refusal: Any = property(attrgetter("_gate.refusal"))
