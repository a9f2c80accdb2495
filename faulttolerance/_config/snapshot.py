"""All keys that are set anywhere, at one moment: the arguments of ``configure``, the environment, and the look-up.

The environment is read without pydantic-settings, which would be imported only to find no key there.
"""

# No ``from __future__ import annotations``: every import would compile the annotations of a named tuple.

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from .._policy import parameters
from .._record import Record
from .._shown import one_or_several, shown
from ..exceptions import Fault
from .key import (
    CONFIG_VARIABLE,
    CONFIGURABLE,
    ENABLED,
    FLEET_VARIABLES,
    MODE,
    ORDINAL,
    PERMISSIONS,
    PREFIX,
    TRACING_VARIABLE,
    Key,
    folded,
    looks_like_a_switch,
)
from .source import Entry, Source, source_of

PROPERTIES = "configure(properties=...)"
_ENVIRONMENT = "environment"
_ORDINAL_OF_THE_ENVIRONMENT = 300


class File(NamedTuple):
    """A file: its name for messages, as it was passed, and its absolute path, independent of the working directory."""

    name: str
    path: str


class Inputs(Record):
    """All inputs of a snapshot beside the environment.

    Args:
        properties: A mapping of keys to values, nested or not, if any; the strongest source.
        files: Files to read beside those that ``FAULTTOLERANCE_CONFIG`` names; of equal ordinals the last wins.
        sources: Settings sources of pydantic-settings, or other callables that return a mapping.
        blocks: The mappings of blocks of tests, the latest first; they win over *properties*.
    """

    properties: tuple[Mapping[str, Any], ...] = ()
    files: tuple[File, ...] = ()
    sources: tuple[Any, ...] = ()
    blocks: tuple[Mapping[str, Any], ...] = ()


def inputs_of(
    properties: object = None, files: object = None, sources: object = None
) -> tuple[dict[str, Any], list[Fault]]:
    """Return the arguments that are not ``None``, in the form of ``Inputs``, and their faults.

    Iterators are exhausted.
    """
    inputs, faults = dict[str, Any](), list[Fault]()

    def refuse(name: str, value: object, allowed: str) -> None:
        faults.append(Fault(f"configure({name})", f"is {shown(value)}", value, allowed))

    if isinstance(properties, Mapping):
        inputs["properties"] = (dict(properties),)
    elif properties is not None:
        refuse("properties", properties, "a mapping of keys to values")
    if files is not None:
        try:
            inputs["files"] = tuple(map(_file, one_or_several(files)))
        except TypeError:
            refuse("files", files, "a path, or several")
    if sources is not None:
        functions = one_or_several(sources)
        if all(map(callable, functions)):
            inputs["sources"] = functions
        else:
            refuse("sources", sources, "functions that return mappings")
    return inputs, faults


def files_of_environment(places: dict[str, str]) -> list[File]:
    """Return the files of the environment, in the *places* where they were first found."""
    files = []
    for name in filter(None, os.environ.get(CONFIG_VARIABLE, "").split(os.pathsep)):
        file = File(name, places[name]) if name in places else _file(name)
        if os.path.exists(file.path):
            places[name] = file.path
        files.append(file)
    return files


def name_file(file: os.PathLike[str] | None) -> None:
    """Add *file*, if any, to the files that the environment of this process names, after the application's own."""
    if file is not None:
        named = os.environ.get(CONFIG_VARIABLE, "")
        os.environ[CONFIG_VARIABLE] = os.pathsep.join(filter(None, (named, os.fspath(file))))


def _file(file: str | os.PathLike[str]) -> File:
    name = os.fspath(file)
    if not isinstance(name, str):
        raise TypeError
    return File(name, os.path.abspath(os.path.expanduser(name)))


_PARAMETERS = {
    folded(f"{annotation}/{name}"): (annotation, name)
    for annotation, policy in CONFIGURABLE.items()
    for name in (*parameters(policy), ENABLED, *([MODE] if policy.is_observable else ()))
}
"""Annotation and parameter by the end of a folded key."""


class Snapshot:
    """An immutable look-up.

    Args:
        sources: The sources; of equal ordinals the first is the strongest.
        inputs: The inputs that were read, so that they can be read again.
        version: The number of the settings when reading started.
    """

    def __init__(self, sources: Iterable[Source], inputs: Inputs, version: int = 0) -> None:
        self.sources: Sequence[Source] = sorted(sources, key=lambda source: -source.ordinal)
        self.inputs = inputs
        self.version = version
        self._index: dict[tuple[bool, str], list[tuple[int, Entry]]] = {}
        for rank, source in enumerate(self.sources):
            for entry in source.entries:
                self._index.setdefault((source.is_environment, entry.name), []).append((rank, entry))
        folds = {folded(name) for _, name in self._index}
        named = (parameter for fold in folds for end, parameter in _PARAMETERS.items() if fold.endswith(end))
        self._mentioned = frozenset(named)
        self._concerned = frozenset(annotation for annotation, _ in self._mentioned)

    def concerns(self, annotation: str) -> bool:
        """Return whether a look-up for the policy can find anything, for any method."""
        return annotation in self._concerned

    def mentions(self, annotation: str, name: str) -> bool:
        """Return whether a look-up of a parameter, ``enabled`` or ``mode`` can find anything, for any method."""
        return (annotation, name) in self._mentioned

    def find(self, keys: Iterable[Key]) -> tuple[str, Entry] | None:
        """Return the first of *keys* that is set, with its strongest entry; within a source the first spelling wins."""
        return next(((key.name, entry) for key in keys for entry in self.find_all(key)), None)

    def find_all(self, key: Key) -> list[Entry]:
        """Return every entry for *key*, the strongest first."""
        return [entry for *_, entry in self._ranked(key)]

    def is_variable_effective(self, key: Key) -> bool:
        """Return whether ``key.variable`` would decide: neither the environment nor a stronger source sets *key*."""
        sources = self.sources
        own = next((one.ordinal for one in sources if one.name == _ENVIRONMENT), _ORDINAL_OF_THE_ENVIRONMENT)
        found = (sources[rank] for rank, *_ in self._ranked(key))
        # Of equal ordinals, the properties are stronger.
        return all((one.ordinal, one.name == PROPERTIES) <= (own, False) and one.name != _ENVIRONMENT for one in found)

    def _ranked(self, key: Key) -> list[tuple[int, int, Entry]]:
        spellings = [(False, name) for name in key.names] + [(True, name) for name in key.variables]
        found = [(rank, at, entry) for at, name in enumerate(spellings) for rank, entry in self._index.get(name, ())]
        return sorted(found, key=lambda ranked: ranked[:2])


def environment() -> Source | None:
    """Return the source of the variables that could be keys; ``None`` if there are none."""
    # An empty variable counts as absent, as in MicroProfile Config. Another thread may delete a variable meanwhile:
    # os.environ.items() would raise KeyError.
    values = {name: os.environ.get(name) for name in list(os.environ) if _could_be_a_key(name)}
    entries = [Entry(name, value, f"environment variable {name}") for name, value in values.items() if value]
    if not entries:
        return None
    return source_of(_ENVIRONMENT, _ORDINAL_OF_THE_ENVIRONMENT, entries, is_environment=True, is_shared=True)


_PARTS = [annotation.upper() + sign for annotation in CONFIGURABLE for sign in "_/"]


@lru_cache(maxsize=512)  # each change of the configuration reads the variables again
def _could_be_a_key(name: str) -> bool:
    upper = name.upper()
    if "FAULT" in upper:  # a name of this library, or a switch
        if name in (CONFIG_VARIABLE, TRACING_VARIABLE, *PERMISSIONS) or name.startswith(FLEET_VARIABLES):
            return False
        if name.startswith(PREFIX) or looks_like_a_switch(name):
            return True
    return name == ORDINAL or any(map(upper.__contains__, _PARTS))
