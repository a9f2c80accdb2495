"""The circuits that are told what the fleet has, by key; each for as long as it lives."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Protocol
from weakref import ref

from .._strategy.fleet import CircuitRecord


class SharedCircuit(Protocol):
    """A circuit of this process that stands for one of the fleet."""

    @property
    def key(self) -> str:
        """Its name in the fleet."""
        ...

    def follow(self, record: CircuitRecord | None, now: float) -> object:
        """Take what the fleet has; ``None``: the fleet is lost."""
        ...


class Enrolled:
    """Circuits by key; several may have the same one. No lock: they come and go in finalizers, too."""

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: dict[str, dict[ref[SharedCircuit], None]] = {}

    def add(self, circuit: SharedCircuit) -> None:
        """Remember *circuit* for as long as it lives."""
        key = circuit.key
        self._add(key, ref(circuit, partial(self._forget, key)))

    def clear(self) -> None:
        """Forget them all."""
        self._by_key.clear()

    def of(self, key: str) -> Iterator[SharedCircuit]:
        """Give those of *key*."""
        for reference in list(self._by_key.get(key, ())):
            circuit = reference()
            if circuit is not None:
                yield circuit

    def __iter__(self) -> Iterator[SharedCircuit]:
        for key in list(self._by_key):
            yield from self.of(key)

    def _add(self, key: str, reference: ref[SharedCircuit]) -> None:
        while True:
            references = self._by_key.setdefault(key, {})
            references[reference] = None
            if self._by_key.get(key) is references:
                return  # else the last one of before went at the same time, and its place with it

    def _forget(self, key: str, reference: ref[SharedCircuit]) -> None:
        references = self._by_key.get(key, {})
        references.pop(reference, None)
        if not references and self._by_key.get(key) is references:
            for late in self._by_key.pop(key, ()):
                self._add(key, late)
