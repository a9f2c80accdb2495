"""The arguments of ``configure`` that are to be read, kept so that they can be read again."""

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
    """All that a snapshot is built from, beside the environment."""

    properties: Mapping[str, Any] = MappingProxyType({})
    files: tuple[File, ...] = ()
    sources: tuple[Any, ...] = ()


def inputs_of(**values: Any) -> dict[str, Any]:
    """Bring what is given of ``properties``, ``files`` and ``sources`` into the form of ``Inputs``, and read iterators.

    Raises:
        FaultToleranceDefinitionException: With everything that is not of the right kind.
    """
    inputs, faults = {}, list[Fault]()
    for name, value in values.items():
        if value is not None:
            keep, allowed = _KINDS[name]
            try:
                inputs[name] = keep(value)
            except (TypeError, ValueError):
                faults.append(Fault(f"configure({name})", f"is {shown(value)}", value, allowed))
    if faults:
        raise FaultToleranceDefinitionException(*faults)
    return inputs


def files_of_environment(places: dict[str, str]) -> list[File]:
    """Name the files of the environment, in the *places* where they stood when they were first there."""
    files = []
    for name in filter(None, os.environ.get(CONFIG_VARIABLE, "").split(os.pathsep)):
        path = _file(name).path
        if os.path.exists(path):
            places.setdefault(name, path)
        files.append(File(name, places.get(name, path)))
    return files


def _file(file: str | os.PathLike[str] | File) -> File:
    if isinstance(file, File):
        return file
    name = os.fspath(file)
    if not isinstance(name, str):
        raise TypeError
    return File(name, os.path.abspath(os.path.expanduser(name)))


def _files(files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> tuple[File, ...]:
    return tuple(
        map(_file, [files] if isinstance(files, (str, os.PathLike)) else files)
    )  # a path is no list of letters


def _mapping(properties: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(properties, Mapping):
        raise TypeError
    return dict(properties)


def _callables(sources: Iterable[Any]) -> tuple[Any, ...]:
    callables = tuple(sources)
    if not all(map(callable, callables)):
        raise TypeError
    return callables


_KINDS: Mapping[str, tuple[Callable[[Any], Any], str]] = {
    "properties": (_mapping, "a mapping of keys to values"),
    "files": (_files, "a path, or several"),
    "sources": (_callables, "a list of functions that return mappings"),
}
"""For each argument the function that normalises it, and the words for what is allowed."""
