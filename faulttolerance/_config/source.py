"""The keys of one source, and the values that are read without pydantic."""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from .._record import Record
from .._shown import shown
from ..exceptions import Fault, FaultToleranceDefinitionException
from .key import ORDINAL, PREFIX

T = TypeVar("T")

MOST_ENTRIES = 100_000
"""The most that a source may hold."""
LONGEST_KEY = 1_000
"""The most characters that a nested key may have."""


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


def source_of(
    name: str, ordinal: int, entries: Iterable[Entry], *, is_environment: bool = False, is_shared: bool = False
) -> Source:
    """Make a source of *entries*; one of them may say another *ordinal*.

    Raises:
        FaultToleranceDefinitionException: The ordinal is no integer.
    """
    by_name = {entry.name: entry for entry in entries}
    for key in (ORDINAL, PREFIX + ORDINAL.upper()) if is_environment else (ORDINAL,):
        if entry := by_name.pop(key, None):
            ordinal = parsed(ORDINAL, entry, integer)
    return Source(name, ordinal, tuple(by_name.values()), is_environment, is_shared)


def entries_of(name: str, data: Mapping[str, Any], lines: Mapping[str, int] | None = None) -> Iterator[Entry]:
    """Give the entries of *data*, nested or not, whose keys stand in *lines* where these are known."""
    for key, value in flat(data):
        yield Entry(key, value, place(name, (lines or {}).get(key)))


def place(name: str, line: int | None) -> str:
    """Say where a key stands."""
    return name if line is None else f"{name} line {line}"


def flat(data: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Join nested keys by slashes.

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
        if count > MOST_ENTRIES or len(path) > LONGEST_KEY:
            limits = f"more than {MOST_ENTRIES} entries, or keys of more than {LONGEST_KEY} characters"
            raise ValueError(f"it holds {limits}")
        waiting += [(f"{path}/{key}", nested) for key, nested in list(value.items())[::-1]]


def flag(value: object) -> bool:
    """Read ``true`` or ``false``, in any case of letters; raise ``ValueError`` for everything else."""
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word not in ("true", "false"):
        raise ValueError
    return word == "true"


def integer(value: object) -> int:
    """Read an integer; raise ``ValueError`` for everything else."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError
    return int(value)


def observes(value: object) -> bool:
    """Read ``observe`` or ``enforce``, in any case of letters; raise ``ValueError`` for everything else."""
    word = value.strip().lower() if isinstance(value, str) else ""
    if word not in ("observe", "enforce"):
        raise ValueError
    return word == "observe"


ALLOWED: Mapping[Callable[[object], Any], str] = {
    flag: "true or false",
    integer: "an integer",
    observes: "observe or enforce",
}
"""The words for what is allowed."""


def parsed(key: str, entry: Entry, parse: Callable[[object], T]) -> T:
    """Read the value of *entry*, which was found for *key*, by ``flag``, ``integer`` or ``observes``.

    Raises:
        FaultToleranceDefinitionException: It is another value.
    """
    try:
        return parse(entry.value)
    except ValueError:
        fault = Fault(key, f"is {shown(entry.value)}", entry.value, ALLOWED[parse], entry.place)
        raise FaultToleranceDefinitionException(fault) from None
