"""What ``configure`` is given to read, kept so that it can be read again."""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

import os
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from .._record import Record
from .._shown import shown
from ..exceptions import Fault, FaultToleranceDefinitionException
from .key import CONFIG_VARIABLE


class File(NamedTuple):
    """A file: its name as it was given, for messages, and its path, whatever directory the process works in."""

    name: str
    path: str


class Inputs(Record):
    """What a snapshot is built from, beside the environment."""

    properties: Mapping[str, Any] = MappingProxyType({})
    files: tuple[File, ...] = ()
    sources: tuple[Any, ...] = ()


def kept(values: Mapping[str, Any]) -> dict[str, Any]:
    """The *values* of ``properties``, ``files`` and ``sources`` in the form of ``Inputs``; iterators are read here.

    Raises:
        FaultToleranceDefinitionException: With everything that is not of the right kind.
    """
    found, faults = {}, list[Fault]()
    for name, value in values.items():
        keep, allowed = _KINDS[name]
        try:
            found[name] = keep(value)
        except (TypeError, ValueError):
            faults.append(Fault(f"configure({name})", f"is {shown(value)}", value, allowed))
    if faults:
        raise FaultToleranceDefinitionException(*faults)
    return found


def named_files() -> list[str]:
    """The files that the environment names."""
    return [name for name in os.environ.get(CONFIG_VARIABLE, "").split(os.pathsep) if name]


def file(given: str | os.PathLike[str] | File, places: dict[str, str] | None = None) -> File:
    """The file *given*, where it is now, or where *places* says that it was when it was first there."""
    if isinstance(given, File):
        return given
    name = os.fspath(given)
    if not isinstance(name, str):
        raise TypeError
    path = os.path.abspath(os.path.expanduser(name))
    if places is None:
        return File(name, path)
    if os.path.exists(path):
        places.setdefault(name, path)
    return File(name, places.get(name, path))


def _mapping(properties: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(properties, Mapping):
        raise TypeError
    return dict(properties)


def _files(files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> tuple[File, ...]:
    """One path is meant as a list of one, not as its letters."""
    return tuple(map(file, [files] if isinstance(files, (str, os.PathLike)) else files))


def _callables(sources: Iterable[Any]) -> tuple[Any, ...]:
    found = tuple(sources)
    if not all(map(callable, found)):
        raise TypeError
    return found


_KINDS: Mapping[str, tuple[Callable[[Any], Any], str]] = {
    "properties": (_mapping, "a mapping of keys to values"),
    "files": (_files, "a path, or several"),
    "sources": (_callables, "a list of functions that return mappings"),
}
"""How each is kept, and what is allowed."""
