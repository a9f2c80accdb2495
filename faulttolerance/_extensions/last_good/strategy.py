"""The last good results of a function, by key, for ``last_good`` (rule Y1)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from contextlib import suppress
from typing import Any


class LastResults:
    """Stores results, and removes the least recently used first; *now* is in seconds of one monotonic clock.

    There is no lock: each step is one operation of the dictionary, and the keys, whose comparison runs code of the
    application, may call the guarded function again. An entry that another thread removes meanwhile is gone.

    Args:
        max_age: The seconds after which a result is too old.
        max_entries: The maximum number of results.
    """

    __slots__ = ("_entries", "max_age", "max_entries")

    def __init__(self, max_age: float, max_entries: int) -> None:
        self.max_age = max_age
        self.max_entries = max_entries
        self._entries: OrderedDict[Hashable, tuple[Any, float]] = OrderedDict()

    def remember(self, key: Hashable, result: object, now: float) -> None:
        """Store a *result* in place of an older result."""
        entries = self._entries
        try:
            entries[key] = result, now
            entries.move_to_end(key)
            while len(entries) > self.max_entries:
                entries.popitem(last=False)
        except KeyError:
            pass  # another thread needed the room

    def recall(self, key: Hashable, now: float) -> tuple[Any] | None:
        """Return the result for *key* in a tuple, or ``None`` if there is none that is young enough."""
        entry = self._entries.get(key)
        if entry is None or now - entry[1] >= self.max_age:
            return None
        with suppress(KeyError):  # another thread needed the room
            self._entries.move_to_end(key)
        return (entry[0],)

    def reconfigure(self, max_age: float, max_entries: int) -> None:
        """Apply new values; the next result that is stored removes those for which there is no room."""
        self.max_age = max_age
        self.max_entries = max_entries

    def is_idle(self, now: float) -> bool:
        """Return true: everything may be removed, as the least recently used result may be at any time."""
        return True

    def reset_after_fork(self, ident: int) -> None:
        """Keep everything in the child of a fork: no result belongs to a thread."""
