"""The keys of one source, and the parsing of switches."""

# No ``from __future__ import annotations``: every import would compile the annotations of a named tuple.

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from .._record import Record
from .._shown import shown
from ..exceptions import definition_error
from .key import ORDINAL, PREFIX

T = TypeVar("T")


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
            ordinal = parsed(ORDINAL, entry, integer)
    return Source(name, ordinal, tuple(by_name.values()), is_environment, is_shared)


def entries_of(place: str, data: Mapping[Any, Any], above: str = "") -> Iterator[Entry]:
    """Yield the entries of *data* at *place*; nested keys are joined by slashes, behind *above*."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from entries_of(place, value, f"{above}{key}/")
        else:
            yield Entry(f"{above}{key}", value, place)


def flag(value: object) -> bool:
    """Parse ``true`` or ``false``, in any case of letters; raise ``ValueError`` for everything else."""
    return value if isinstance(value, bool) else _is_first(value, "true", "false")


def _is_first(value: object, *words: str) -> bool:
    word = value.strip().lower() if isinstance(value, str) else ""
    if word not in words:
        raise ValueError
    return word == words[0]


def integer(value: object) -> int:
    """Parse an integer; raise ``ValueError`` for everything else."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError
    return int(value)


def observes(value: object) -> bool:
    """Parse ``observe`` or ``enforce``, in any case of letters; raise ``ValueError`` for everything else."""
    return _is_first(value, "observe", "enforce")


ALLOWED: Mapping[Callable[[object], Any], str] = {
    flag: "true or false",
    integer: "an integer",
    observes: "observe or enforce",
}
"""The words for the allowed values."""


def parsed(key: str, entry: Entry, parse: Callable[[object], T]) -> T:
    """Parse the value of *entry*, found for *key*, by ``flag``, ``integer`` or ``observes``.

    Raises:
        FaultToleranceDefinitionException: If *parse* rejects the value.
    """
    try:
        return parse(entry.value)
    except ValueError:
        problem = f"is {shown(entry.value)}"
        raise definition_error(key, problem, entry.value, ALLOWED[parse], entry.place) from None
