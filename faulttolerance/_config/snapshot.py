"""All keys that were set anywhere, at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .._policy import parameters
from .inputs import Inputs
from .key import ANNOTATIONS, ENABLED, Key, folded
from .source import Entry, Source

_PARAMETERS = {
    folded(f"{annotation}/{name}"): (annotation, name)
    for annotation, policy in ANNOTATIONS.items()
    for name in (*parameters(policy), ENABLED)
}
"""Annotation and parameter by what a folded key ends with."""


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
        self._mentioned = parameters_named(self._index)

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

    def find(self, keys: Iterable[Key]) -> tuple[str, Entry] | None:
        """Find the first of *keys* that is set, with its strongest entry; within one source its first spelling."""
        return next(((key.name, entry) for key in keys for entry in self.find_all(key)), None)

    def find_all(self, key: Key) -> list[Entry]:
        """Find every entry for *key*, the strongest first."""
        entries: list[tuple[int, int, Entry]] = []
        for fold in key.folds:
            for rank, entry in self._index.get(fold, ()):
                names = key.variables if self.sources[rank].is_environment else key.names
                if entry.name in names:
                    entries.append((rank, names.index(entry.name), entry))
        return [entry for *_, entry in sorted(entries, key=lambda ranked: ranked[:2])]


def parameters_named(folds: Iterable[str]) -> set[tuple[str, str]]:
    """Tell annotations and parameters from the ends of folded keys."""
    return {parameter for fold in folds for end, parameter in _PARAMETERS.items() if fold.endswith(end)}
