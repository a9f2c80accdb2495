"""All keys that were set anywhere, at one moment."""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .._policy import parameters
from .._record import Record
from .._shown import shown
from ..exceptions import Fault, FaultToleranceDefinitionException
from .inputs import Inputs
from .key import ANNOTATIONS, CONFIG_VARIABLE, ENABLED, ORDINAL, PREFIX, TRACING_VARIABLE, Key, folded

_ANNOTATION = "|".join([*ANNOTATIONS, *(name.upper() for name in ANNOTATIONS)])
_OWNED = re.compile(rf"(?<![^_/])(?:{_ANNOTATION})[_/](?=\w)", re.ASCII)
_WORD = re.compile(r"\W", re.ASCII)
_SWITCH = "MPFAULT"
"""What the global switches begin with, folded; no more of it, for TOLERENCE is a likely mistake."""
_TAILS = {
    folded(f"{annotation}/{name}"): (annotation, name)
    for annotation, policy in ANNOTATIONS.items()
    for name in (*parameters(policy), ENABLED)
}


MOST = 100_000
"""So many entries a source may hold."""
DEEPEST = 1_000
"""So many characters a key may have, where it is nested."""


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
        self._mentioned = _mentioned(self._index)

    @property
    def is_empty(self) -> bool:
        """Whether nothing that can be found concerns a policy."""
        return not self._mentioned

    @property
    def has_values(self) -> bool:
        """Whether a parameter may be set, which takes more than switching policies on and off."""
        return any(name != ENABLED for _, name in self._mentioned)

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
    found = variables()
    if not found:
        return None
    rank = 300
    for name in (ORDINAL, PREFIX + ORDINAL.upper()):
        if name in found:
            rank = ordinal(found.pop(name), f"environment variable {name}")
    entries = tuple(Entry(name, value, f"environment variable {name}") for name, value in found.items())
    return Source("environment", rank, entries, is_environment=True, is_shared=True)


def variables() -> dict[str, str]:
    """The environment variables that could be keys; an empty one counts as absent, as MicroProfile Config has it."""
    # Another thread may delete a variable meanwhile: os.environ.items() would raise KeyError.
    found = {name: os.environ.get(name) for name in list(os.environ) if _is_relevant(name)}
    return {name: value for name, value in found.items() if value}


def sets_values(names: Iterable[str]) -> bool:
    """Whether one of the variables *names* most likely sets a parameter of something that is declared.

    ``APP_RETRY_DELAY`` may well be somebody else's, unless there is a module ``app``.
    """
    modules = tuple(f"{_variable(name)}_" for name in list(sys.modules) if "." not in name)
    likely = [one for one in names if one.startswith(PREFIX) or "/" in one or _variable(one).startswith(modules)]
    return any(what[1] != ENABLED for what in _mentioned(map(folded, likely)))


def _variable(name: str) -> str:
    return _WORD.sub("_", name).upper()


def _is_relevant(name: str) -> bool:
    if name in (CONFIG_VARIABLE, TRACING_VARIABLE):
        return False
    if name.startswith(PREFIX) or name == ORDINAL or looks_like_a_switch(name):
        return True
    # An annotation, behind which only letters, digits and underscores follow. Written so that it takes linear time.
    end = max((one.end() for one in _OWNED.finditer(name)), default=0)
    return end > 0 and not _WORD.search(name, end)


def looks_like_a_switch(name: str) -> bool:
    """Whether *name* is meant for a global switch, rightly spelled or not."""
    return folded(name).startswith(_SWITCH)


def _mentioned(folds: Iterable[str]) -> set[tuple[str, str]]:
    """The annotations and parameters that the *folds* of some keys end with."""
    return {what for name in folds for tail, what in _TAILS.items() if name.endswith(tail)}


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


def flat(data: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Nested keys joined by slashes, with their values.

    Raises:
        ValueError: There is no end of them: aliases of YAML may repeat a mapping in itself, or in many places.
    """
    waiting = [(f"{key}", value) for key, value in list(data.items())[::-1]]
    count = len(waiting)
    while waiting:
        path, value = waiting.pop()
        if not isinstance(value, Mapping):
            yield path, value
            continue
        count += len(value)
        if count > MOST or len(path) > DEEPEST:
            raise ValueError(f"it holds more than {MOST} entries, or keys of more than {DEEPEST} characters")
        waiting += [(f"{path}/{key}", one) for key, one in list(value.items())[::-1]]


def ordinal(value: object, place: str) -> int:
    """The rank that a source gives itself."""
    try:
        return int(value) if isinstance(value, str) else _integer(value)
    except ValueError:
        raise FaultToleranceDefinitionException(
            Fault(ORDINAL, f"is {shown(value)}", value, "an integer", place)
        ) from None


def _integer(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError
