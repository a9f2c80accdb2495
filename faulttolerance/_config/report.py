"""Reports over all declarations of an application: possible keys, unused keys, ambiguous variables, changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from .._policy import parameters
from .._shown import brief, escaped, nearest
from ..exceptions import Fault
from .formatting import formatted
from .key import (
    CONFIGURABLE,
    ENABLED,
    MODE,
    PREFIX,
    SWITCHES,
    Declared,
    Key,
    ignore_keys,
    looks_like_a_switch,
    parameter_keys,
    switch_key,
)
from .resolution import Effective
from .snapshot import Snapshot
from .source import Entry, Source


class Unused(NamedTuple):
    """A key that matches no declaration, or the name of a circuit breaker that no guard has.

    Args:
        key: The key as its source spells it.
        source: The place of the key.
        nearest: The most similar key that would be used; empty if no key is similar.
    """

    key: str
    source: str
    nearest: str = ""

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest}?" if self.nearest else ""
        return escaped(f"{brief(self.key)} is not used{hint} ({self.source})")


class Change(NamedTuple):
    """A value that has changed.

    Args:
        where: The guarded function and the parameter, as in ``acme.Client.charge @Retry(max_retries)``.
        before: The old value.
        after: The new value.
        source: The source of the new value.
    """

    where: str
    before: Any
    after: Any
    source: str

    def __str__(self) -> str:
        before, after = (brief(formatted(value)) or "none" for value in (self.before, self.after))
        return escaped(f"{self.where}: {before} -> {after} ({self.source})")


def keys(declared: Iterable[Declared], mentions: Callable[[str, str], bool] = lambda *_: True) -> dict[str, Key]:
    """Return every key of *declared*, by its preferred name; only of parameters that *mentions* accepts.

    The filter saves time: creating a key takes longer than all its further use.
    """
    return {
        key.name: key
        for one in declared
        for annotation in (one.policy.annotation,)
        for name in (*parameters(one.policy), ENABLED, MODE)
        if mentions(annotation, name)
        for key in parameter_keys(one, name)
    }


def unused(snapshot: Snapshot, declared: Iterable[Declared]) -> list[Unused]:
    """Return every key that has no effect, with the most similar known key.

    In files and variables that other programs share, only keys that look like keys of this library are reported.
    """
    declared = list(declared)
    ignoring = (key for one in declared for key in ignore_keys(one))
    used = {
        (entry.name, entry.place)
        for key in (*keys(declared, snapshot.mentions).values(), *ignoring, *map(switch_key, SWITCHES))
        for entry in snapshot.find_all(key)
    }
    left = [
        (source, entry)
        for source in snapshot.sources
        for entry in source.entries
        if (entry.name, entry.place) not in used
    ]
    known = [*keys(declared).values(), *map(switch_key, SWITCHES)] if left else []
    names, variables = [key.name for key in known], [key.variable for key in known]
    return [
        Unused(entry.name, entry.place, _nearest(source, entry, names, variables))
        for source, entry in left
        if _is_like_ours(source, entry, variables)
    ]


def _is_like_ours(source: Source, entry: Entry, variables: list[str]) -> bool:
    """Return whether an unused key is likely meant for this library."""
    if not source.is_shared or looks_like_a_switch(entry.name):
        return True
    if "/" in entry.name:
        return bool(nearest(entry.name.split("/")[-2], CONFIGURABLE, 0.8))
    if not source.is_environment:
        return False
    name = entry.name.upper()
    # Modules have switches alone: SHOP_TIMEOUT_SECONDS beside a function of shop is the application's.
    owners = {variable.rsplit("_", 2)[0] for variable in variables if not variable.endswith(("_ENABLED", "_MODE"))}
    is_of_an_owner = any(name.rpartition(f"_{annotation.upper()}_")[0] in owners for annotation in CONFIGURABLE)
    return is_of_an_owner or name.startswith(PREFIX) or bool(nearest(name, variables, 0.9))


def _nearest(source: Source, entry: Entry, names: list[str], variables: list[str]) -> str:
    """Return the most similar key that would be used; empty if no key is similar."""
    if source.is_environment and "/" not in entry.name:
        return nearest(entry.name.upper(), variables, 0.8)
    leaf, leaves = _leaf(entry.name), dict.fromkeys(map(_leaf, names))
    leaf = leaf if leaf in leaves else nearest(leaf, leaves)  # far fewer than names
    return nearest(entry.name, [name for name in names if _leaf(name) == leaf])


def _leaf(name: str) -> str:
    """Return the annotation and the parameter of a key."""
    return "/".join(name.split("/")[-2:])


def collisions(snapshot: Snapshot, declared: Iterable[Declared]) -> list[Fault]:
    """Return a fault for every variable that the environment mapping assigns to more than one key."""
    variables = [entry for source in snapshot.sources if source.is_environment for entry in source.entries]
    known: dict[str, list[Key]] = {}
    for key in keys(declared, snapshot.mentions).values() if variables else ():
        for name in key.variables:
            known.setdefault(name, []).append(key)
    faults = []
    for entry in variables:
        meanings = [key.name for key in known.get(entry.name, ())]
        if len(meanings) > 1:
            problem = f"stands for {' and for '.join(meanings)}"
            allowed = "a variable that stands for only one key; set these keys in a file"
            faults.append(Fault(entry.name, problem, entry.value, allowed, entry.place))
    return faults


def changes(where: str, before: Sequence[Effective], after: Sequence[Effective]) -> list[Change]:
    """Return the differences between two resolutions of the same guard."""
    differences = []
    was, becomes = ({type(one.policy): one for one in values} for values in (before, after))
    for kind in {**was, **becomes}:
        # Chaos may appear and disappear with its keys.
        old, new = (values.get(kind) or Effective(kind(), False) for values in (was, becomes))
        pairs = {ENABLED: (old.enabled, new.enabled), MODE: (old.mode, new.mode)}
        pairs |= {name: (getattr(old.policy, name), getattr(new.policy, name)) for name in parameters(kind)}
        differences += [
            Change(f"{where} @{kind.annotation}({name})", former, present, new.sources.get(name, "default"))
            for name, (former, present) in pairs.items()
            if former != present
        ]
    return differences
