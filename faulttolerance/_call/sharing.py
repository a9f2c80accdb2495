"""What ``@fleet_wide`` brings to a call: the circuit of the fleet before the breaker, and names of what is shared."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from uuid import uuid4

from .._runtime.lane import lane
from .._strategy.circuit_breaker import CircuitBreaker
from .._strategy.condition import Condition
from .._strategy.fleet_circuit import FleetGate, SharedCircuit
from .._strategy.fleet_part import Part

__all__ = ["Member"]


class Member:
    """What is the fleet's of one function, or of one key of it, in this process.

    Args:
        key: Names it in the fleet.
    """

    __slots__ = ("_circuit", "key", "part")

    def __init__(self, key: str) -> None:
        self.key = key
        self.part = Part()
        self._circuit: SharedCircuit | None = None

    def gate(self, breaker: CircuitBreaker, deliver: Callable[[CircuitBreaker], object]) -> FleetGate:
        """Put what asks the fleet in front of *breaker*, of whose moves *deliver* tells."""
        circuit = self._circuit
        if circuit is None:
            circuit = SharedCircuit(self.key, breaker, lane, _new_holder, lambda one: lane.aside(partial(deliver, one)))
        gate = FleetGate(breaker, circuit)
        if self._circuit is None:
            self._circuit = circuit
            lane.enroll(circuit)
        return gate

    def condition(self, now: float) -> Condition:
        """Say whether it is shared; what is wrong with the fleet is no matter of one function."""
        return Condition(lane.words)

    def is_idle(self, now: float) -> bool:
        """Whether nothing is lost if it is forgotten."""
        return self._circuit is None or self._circuit.is_idle(now)

    def keep_only(self, ident: int) -> None:
        """Drop what is not of this process, in the child of a fork."""
        if self._circuit is not None:
            self._circuit.keep_only()


def _new_holder() -> str:
    return uuid4().hex
