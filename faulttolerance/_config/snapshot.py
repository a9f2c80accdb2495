"""All keys that were set anywhere, at one moment."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .key import ANNOTATIONS, ORDINAL, PREFIX, SWITCHES, Key, folded

__all__ = ["CONFIG_VARIABLE", "Entry", "Inputs", "Snapshot", "Source", "environment", "ordinal"]

CONFIG_VARIABLE = "FAULTTOLERANCE_CONFIG"
"""Names files to read, separated as in ``PATH``."""

_ANNOTATION = "|".join([*ANNOTATIONS, *(name.upper() for name in ANNOTATIONS)])
_RELEVANT = re.compile(rf"(?:^|[_/])(?:{_ANNOTATION})[_/]\w+$|^{PREFIX}|^{ORDINAL}$", re.ASCII)
_SWITCHES = frozenset(folded(name) for name in SWITCHES)


@dataclass(frozen=True)
class Inputs:
    """What a snapshot is built from, beside the environment."""

    properties: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    sources: tuple[Any, ...] = ()


class Entry(NamedTuple):
    """One key as it stands in one source; *place* says where, in the words of messages."""

    name: str
    value: object
    place: str


@dataclass(frozen=True)
class Source:
    """The entries of one source, read to the end.

    Args:
        name: In words, as in ``file conf/faulttolerance.toml``.
        ordinal: The highest wins.
        entries: In the order in which they stand.
        is_environment: Whether names are spelled by the environment mapping.
        is_shared: Whether others keep keys of their own there; these are no mistakes.
    """

    name: str
    ordinal: int
    entries: tuple[Entry, ...]
    is_environment: bool = False
    is_shared: bool = False


class Snapshot:
    """An immutable look-up; *sources* come strongest first where ordinals are equal."""

    def __init__(self, sources: Iterable[Source], inputs: Inputs) -> None:
        self.sources: Sequence[Source] = sorted(sources, key=lambda source: -source.ordinal)
        self.inputs = inputs
        self._index: dict[str, list[tuple[Source, Entry]]] = {}
        for source in self.sources:
            for entry in source.entries:
                self._index.setdefault(folded(entry.name), []).append((source, entry))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to be found."""
        return not self._index

    def find(self, key: Key) -> Entry | None:
        """The strongest entry for *key*; within one source its first spelling."""
        return next(iter(self.find_all(key)), None)

    def find_all(self, key: Key) -> list[Entry]:
        """Every entry for *key*, the strongest first."""
        found: list[tuple[int, int, Entry]] = []
        for fold in key.folds:
            for source, entry in self._index.get(fold, ()):
                names = key.variables if source.is_environment else key.names
                if entry.name in names:
                    found.append((self.sources.index(source), names.index(entry.name), entry))
        return [entry for _, _, entry in sorted(found, key=lambda one: one[:2])]


def environment() -> Source | None:
    """The environment variables that could be keys; ``None`` where there are none.

    Read here and not by pydantic-settings, which would have to be imported to find that there is nothing.
    """
    found = {
        name: value
        for name, value in os.environ.items()
        if name != CONFIG_VARIABLE and (_RELEVANT.search(name) or folded(name) in _SWITCHES)
    }
    if not found:
        return None
    rank = 300
    for name in (ORDINAL, PREFIX + ORDINAL.upper()):
        if name in found:
            rank = ordinal(found.pop(name), f"environment variable {name}")
    entries = tuple(Entry(name, value, f"environment variable {name}") for name, value in found.items())
    return Source("environment", rank, entries, is_environment=True, is_shared=True)


def ordinal(value: object, place: str) -> int:
    """The rank that a source gives itself."""
    from ..exceptions import Fault, FaultToleranceDefinitionException

    try:
        if isinstance(value, bool):
            raise ValueError
        return int(str(value))
    except ValueError:
        raise FaultToleranceDefinitionException(Fault(ORDINAL, f"is {value!r}", value, "an integer", place)) from None
