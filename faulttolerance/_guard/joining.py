"""The guards that a change of everything concerns; a first call that comes meanwhile joins them (rule C3).

So a change ends, however many first calls there are. One that waited for a moment without them would never end beside
threads that make more of them than it can follow, and one that kept them out would wait for code of the application.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self
from weakref import ref

from .._config import settings
from .._swap import Swap
from . import registry

if TYPE_CHECKING:
    from .registry import AnyResolver

_open: dict[ref[Any], None] = {}


def join(resolver: AnyResolver, cls: type | None, swap: Swap) -> None:
    """Let each change under way find out that *swap* changes the guard for *cls*, together with the stores of *swap*.

    Where the change cannot follow any more, it drops the call path: the next call finds what holds then.
    """
    for reference in list(_open):
        roll: Roll | None = reference()
        if roll is not None:
            entry = Entry(resolver, cls, origin=swap)
            resolver.drop(cls, entry.swap)
            swap.item(roll.entries, entry.key, entry)
            swap.item(roll.stores, entry.key, entry.stores)


class Entry:
    """What a change does to the guard of one resolver for one class. A later entry replaces it as a whole."""

    __slots__ = ("cls", "is_drafted", "origin", "resolver", "stores", "swap")

    def __init__(self, resolver: AnyResolver, cls: type | None, *, origin: Swap | None = None) -> None:
        self.resolver = resolver
        self.cls = cls
        self.swap = Swap()
        self.stores = iter(self.swap.steps)
        self.is_drafted = False
        # What a first call stored goes with the entry, not amidst the change that drops it.
        self.origin = origin

    @property
    def key(self) -> tuple[AnyResolver, int]:
        """By which it is found; comparing classes could run code of the application."""
        return self.resolver, id(self.cls)


class Roll:
    """The guards in use, from ``with`` on with those that come into use meanwhile."""

    __slots__ = ("__weakref__", "_reference", "entries", "stores")

    def __init__(self) -> None:
        self.entries: dict[tuple[AnyResolver, int], Entry] = {}
        self.stores: dict[tuple[AnyResolver, int] | None, Iterator[tuple[Any, ...]]] = {None: iter(())}
        """The stores of each entry, as ``Version.force`` makes them, behind those of the change itself."""
        self._reference = ref(self, _close)

    def __enter__(self) -> Self:
        swap = Swap()
        swap.item(_open, self._reference, None)
        settings.version.force(swap)  # a first call that did not see it begins again
        for resolver in registry.resolvers():
            for cls in resolver.resolved():
                entry = Entry(resolver, cls)
                self.entries.setdefault(entry.key, entry)
        return self

    def __exit__(self, *_: object) -> None:
        _close(self._reference)

    def due(self) -> list[Entry]:
        """Give the entries whose guards are yet to be drafted, or anew."""
        return [entry for entry in list(self.entries.values()) if not entry.is_drafted]

    def renewed(self, former: Entry) -> Entry:
        """Replace an entry by one to which a draft is put that is made after this."""
        entry = Entry(former.resolver, former.cls)
        entry.is_drafted = True
        self.entries[entry.key] = entry
        self.stores[entry.key] = entry.stores
        return entry


def _close(reference: ref[Any]) -> None:
    _open.pop(reference, None)
