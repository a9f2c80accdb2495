"""The circuits that are told what the fleet has; each for as long as it lives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol
from weakref import ref

from .protocol import CircuitRecord


class SharedCircuit(Protocol):
    """A circuit of this process that stands for one of the fleet."""

    @property
    def key(self) -> str:
        """Its name in the fleet."""
        ...

    def follow(self, record: CircuitRecord | None, now: float) -> object:
        """Move as the fleet has; ``None``: the fleet is lost."""
        ...


class Enrolled:
    """Circuits, of which several may have one key. No lock: they come and go in finalizers, too."""

    __slots__ = ("_circuits",)

    def __init__(self) -> None:
        self._circuits: dict[ref[SharedCircuit], None] = {}

    def add(self, circuit: SharedCircuit) -> None:
        """Remember *circuit* for as long as it lives."""
        circuits = self._circuits
        circuits[ref(circuit, lambda reference: circuits.pop(reference, None))] = None

    def clear(self) -> None:
        """Forget them all."""
        self._circuits.clear()

    def __iter__(self) -> Iterator[SharedCircuit]:
        return (circuit for reference in list(self._circuits) if (circuit := reference()) is not None)
