"""The keys of one source, and the parsing of switches."""

# No ``from __future__ import annotations``: every import would compile the annotations of a named tuple.

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from .._record import Record
from .._shown import shown
from ..exceptions import definition_error
from .key import ORDINAL, PREFIX


class Entry(NamedTuple):
    """One key in one source; *place* describes where, in the words of messages."""

    name: str
    value: object
    place: str


class Source(Record):
    """The entries of one source, read completely.

    Args:
        name: The name in words, as in ``file conf/faulttolerance.toml``.
        ordinal: The rank; the highest wins.
        entries: The entries in the order of the source.
        is_environment: Whether names are spelled by the environment mapping.
        is_shared: Whether other programs keep keys there, which are no mistakes.
    """

    name: str
    ordinal: int
    entries: tuple[Entry, ...]
    is_environment: bool = False
    is_shared: bool = False


def source_of(
    name: str, ordinal: int, entries: Iterable[Entry], *, is_environment: bool = False, is_shared: bool = False
) -> Source:
    """Return a source of *entries*; an entry may set another *ordinal*.

    Raises:
        FaultToleranceDefinitionException: If the ordinal is no integer.
    """
    by_name = {entry.name: entry for entry in entries}
    for key in (ORDINAL, PREFIX + ORDINAL.upper()) if is_environment else (ORDINAL,):
        if entry := by_name.pop(key, None):
            ordinal = parsed(ORDINAL, entry)
    return Source(name, ordinal, tuple(by_name.values()), is_environment, is_shared)


def entries_of(place: str, data: Mapping[Any, Any], above: str = "") -> Iterator[Entry]:
    """Yield the entries of *data* at *place*; nested keys are joined by slashes, behind *above*."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from entries_of(place, value, f"{above}{key}/")
        else:
            yield Entry(f"{above}{key}", value, place)


FLAG = {"true": True, "false": False}
OBSERVED = {"observe": True, "enforce": False}


def parsed(key: str, entry: Entry, words: Mapping[str, bool] | None = None) -> Any:
    """Return the meaning of the value of *entry*, found for *key*: of one of *words* in any case, or as an integer.

    Raises:
        FaultToleranceDefinitionException: If the value is something else.
    """
    text = str(entry.value).strip().lower() if isinstance(entry.value, (str, int)) else ""
    try:
        return int(text) if words is None else words[text]
    except (KeyError, ValueError):
        allowed = "an integer" if words is None else " or ".join(words)
        raise definition_error(key, f"is {shown(entry.value)}", entry.value, allowed, entry.place) from None
