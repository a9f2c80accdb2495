"""The circuits that follow the fleet, each for as long as it lives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol
from weakref import ref

from .protocol import CircuitRecord


class CircuitFollower(Protocol):
    """A circuit of this process that represents a circuit of the fleet."""

    @property
    def key(self) -> str:
        """The name of the circuit in the fleet."""
        ...

    def follow(self, record: CircuitRecord | None, now: float) -> object:
        """Apply the fleet's *record*; ``None`` means that the fleet is lost."""
        ...


class CircuitRegistry:
    """A set of circuits; several may have one key. Without a lock, because finalizers add and remove circuits too."""

    __slots__ = ("_circuits",)

    def __init__(self) -> None:
        self._circuits: dict[ref[CircuitFollower], None] = {}

    def add(self, circuit: CircuitFollower) -> None:
        """Add *circuit* for as long as it lives."""
        circuits = self._circuits
        circuits[ref(circuit, lambda reference: circuits.pop(reference, None))] = None

    def clear(self) -> None:
        """Remove all circuits."""
        self._circuits.clear()

    def __iter__(self) -> Iterator[CircuitFollower]:
        return (circuit for reference in list(self._circuits) if (circuit := reference()) is not None)
