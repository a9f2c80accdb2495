"""All keys that were set anywhere, at one moment."""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from .._policy import parameters
from .._record import Record
from ..exceptions import Fault, FaultToleranceDefinitionException
from .key import ANNOTATIONS, ENABLED, ORDINAL, PREFIX, SWITCHES, Key, folded
from .tracing import TRACING_VARIABLE

__all__ = [
    "CONFIG_VARIABLE",
    "Entry",
    "Inputs",
    "Snapshot",
    "Source",
    "environment",
    "flat",
    "ordinal",
    "place",
    "source_of",
]

CONFIG_VARIABLE = "FAULTTOLERANCE_CONFIG"
"""Names files to read, separated as in ``PATH``."""

_ANNOTATION = "|".join([*ANNOTATIONS, *(name.upper() for name in ANNOTATIONS)])
_RELEVANT = re.compile(rf"(?:^|[_/])(?:{_ANNOTATION})[_/]\w+$|^{PREFIX}|^{ORDINAL}$", re.ASCII)
_SWITCHES = frozenset(map(folded, SWITCHES))
_TAILS = {
    folded(f"{annotation}/{name}"): (annotation, name)
    for annotation, policy in ANNOTATIONS.items()
    for name in (*parameters(policy), ENABLED)
}


class Inputs(Record):
    """What a snapshot is built from, beside the environment."""

    properties: Mapping[str, Any] = MappingProxyType({})
    files: tuple[str, ...] = ()
    sources: tuple[Any, ...] = ()


class Entry(NamedTuple):
    """One key as it stands in one source; *place* says where, in the words of messages."""

    name: str
    value: object
    place: str


class Source(Record):
    """The entries of one source, read to the end.

    Args:
        name: In words, as in ``file conf/faulttolerance.toml``.
        ordinal: The highest wins.
        entries: In the order in which they stand.
        is_environment: Whether names are spelled by the environment mapping.
        is_shared: Whether others keep keys of their own there, which are no mistakes.
    """

    name: str
    ordinal: int
    entries: tuple[Entry, ...]
    is_environment: bool = False
    is_shared: bool = False


class Snapshot:
    """An immutable look-up.

    Args:
        sources: Of equal ordinals the first is the strongest.
        inputs: What was read, so that it can be read again.
        version: Of the settings when reading began.
    """

    def __init__(self, sources: Iterable[Source], inputs: Inputs, version: int = 0) -> None:
        self.sources: Sequence[Source] = sorted(sources, key=lambda source: -source.ordinal)
        self.inputs = inputs
        self.version = version
        self._index: dict[str, list[tuple[int, Entry]]] = {}
        for rank, source in enumerate(self.sources):
            for entry in source.entries:
                self._index.setdefault(folded(entry.name), []).append((rank, entry))
        self._mentioned = {what for name in self._index for tail, what in _TAILS.items() if name.endswith(tail)}

    @property
    def is_empty(self) -> bool:
        """Whether nothing that can be found concerns a policy."""
        return not self._mentioned

    def mentions(self, annotation: str, name: str) -> bool:
        """Whether a look-up of this parameter (or ``enabled``) can find anything, whatever the class and method."""
        return (annotation, name) in self._mentioned

    def find(self, key: Key) -> Entry | None:
        """The strongest entry for *key*; within one source its first spelling."""
        return next(iter(self.find_all(key)), None)

    def find_all(self, key: Key) -> list[Entry]:
        """Every entry for *key*, the strongest first."""
        found: list[tuple[int, int, Entry]] = []
        for fold in key.folds:
            for rank, entry in self._index.get(fold, ()):
                names = key.variables if self.sources[rank].is_environment else key.names
                if entry.name in names:
                    found.append((rank, names.index(entry.name), entry))
        return [entry for *_, entry in sorted(found, key=lambda one: one[:2])]


def environment() -> Source | None:
    """The environment variables that could be keys; ``None`` where there are none.

    Read here and not by pydantic-settings, which would have to be imported to find that there is nothing.
    """
    found = {
        name: value
        for name, value in os.environ.items()
        if name not in (CONFIG_VARIABLE, TRACING_VARIABLE) and (_RELEVANT.search(name) or folded(name) in _SWITCHES)
    }
    if not found:
        return None
    rank = 300
    for name in (ORDINAL, PREFIX + ORDINAL.upper()):
        if name in found:
            rank = ordinal(found.pop(name), f"environment variable {name}")
    entries = tuple(Entry(name, value, f"environment variable {name}") for name, value in found.items())
    return Source("environment", rank, entries, is_environment=True, is_shared=True)


def source_of(
    name: str, rank: int, data: Mapping[str, Any], lines: Mapping[str, int] | None = None, *, is_shared: bool = False
) -> Source:
    """The source of *data*, nested or not, whose keys stand in *lines* where these are known."""
    entries = {key: Entry(key, value, place(name, (lines or {}).get(key))) for key, value in flat(data)}
    if own := entries.pop(ORDINAL, None):
        rank = ordinal(own.value, own.place)
    return Source(name, rank, tuple(entries.values()), is_shared=is_shared)


def place(name: str, line: int | None) -> str:
    """Where a key stands, in words."""
    return name if line is None else f"{name} line {line}"


def flat(data: Mapping[Any, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Nested keys joined by slashes, with their values."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{path}{key}/")
        else:
            yield f"{path}{key}", value


def ordinal(value: object, place: str) -> int:
    """The rank that a source gives itself."""
    try:
        return int(value) if isinstance(value, str) else _integer(value)
    except ValueError:
        raise FaultToleranceDefinitionException(Fault(ORDINAL, f"is {value!r}", value, "an integer", place)) from None


def _integer(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError
