"""The renewal of call paths, one guard after the other, each at its next call.

Calls read their path from an attribute of a resolver. Until a renewal, the attribute is a slot, and nothing is asked. A
renewal replaces it in the class by a property, at the same cost for any number of guards. The property drops the paths
of the resolver that a call enters, and makes the resolver an instance of a subclass in which the attribute is the slot.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

T = TypeVar("T", bound=type)


class Renewable(Protocol):
    """A resolver whose call paths can be renewed."""

    def renew_paths(self, kind: type) -> None: ...


_entrances: list[tuple[type, dict[str, Any]]] = []
"""The classes of resolvers, and the slots that calls read, by the names under which they do so."""


def entered_by(**slots: str) -> Callable[[T], T]:
    """Provide each of *slots* of a class of resolvers under a further name, which only calls read."""

    def add_names(kind: T) -> T:
        found = {name: vars(kind)[slot] for name, slot in slots.items()}
        for name, slot in found.items():
            setattr(kind, name, slot)
        _entrances.append((kind, found))
        return kind

    return add_names


def renew_at_next_calls() -> None:
    """Renew the call paths of each guard at its next call; no guard is touched now."""
    for kind, slots in _entrances:
        renewed = type(kind.__name__, (kind,), {"__slots__": (), "__module__": kind.__module__, **slots})
        for name, slot in slots.items():
            setattr(kind, name, property(partial(_enter, renewed, slot)))


def _enter(renewed: type, slot: Any, resolver: Renewable) -> Any:
    resolver.renew_paths(renewed)
    return slot.__get__(resolver)
