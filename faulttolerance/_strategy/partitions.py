"""State for each key: who gets one of its own, and which goes where there are too many (rules N2, N3)."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any
from weakref import WeakSet

from .condition import Condition

__all__ = ["Partition", "Partitions", "in_use"]

_FEW = 64
_PATIENCE = 0.001


class Partition:
    """What is remembered for one key."""

    __slots__ = ("strategies",)

    def __init__(self, strategies: Any) -> None:
        self.strategies = strategies
        """A tuple of strategies; replaced as a whole where a policy asks for a further one."""

    def is_idle(self, now: float) -> bool:
        """Whether nothing is lost if it is forgotten: nothing held, no failure and no call that still counts."""
        return all(strategy is None or strategy.is_idle(now) for strategy in self.strategies)


class Partitions:
    """The partitions of one guarded function, by key, the one that was used least recently first.

    A call that finds its own needs no lock::

        partition = partitions.by_key[key]
        partitions.by_key.move_to_end(key)

    Args:
        limit: How many keys have one at most.
    """

    __slots__ = ("_looks_again", "by_key", "limit", "lock", "users")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.by_key: OrderedDict[Hashable, Partition] = OrderedDict()
        self._looks_again = float("-inf")  # guarded by _lock: when it makes sense to look for an idle one once more
        # Reentrant: a signal handler or a finalizer may call the guarded function while its thread is in here.
        self.lock = threading.RLock()
        """Held while a partition is placed, or gets a further strategy."""
        self.users: WeakSet[Any] = WeakSet()
        """What keeps something for each partition, and has to ``forget`` those that go."""

    def __len__(self) -> int:
        return len(self.by_key)

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self.by_key.values()))

    def place(
        self, key: Hashable, make: Callable[[], Partition], now: float
    ) -> tuple[Partition | None, list[Partition]]:
        """Find the partition of *key*, or make one; also give those that went for it.

        ``None`` where there are too many, and none of them is idle: then calls share what belongs to no key.
        """
        gone: list[Partition] = []
        with self.lock:
            partition = self.by_key.get(key)
            while partition is None and len(self.by_key) >= self.limit:
                idle = self._idle_locked(now)
                if idle is None:
                    return None, gone
                gone.append(self.by_key.pop(idle))
                for user in self.users:
                    user.forget(gone[-1])
            if partition is None:
                partition = self.by_key[key] = make()
        return partition, gone

    def is_idle(self, now: float) -> bool:
        """Whether nothing is remembered; asked by nobody, for partitions have no partitions."""
        return not self.by_key

    def condition(self, now: float) -> Condition:
        """How it stands."""
        return Condition(f"{len(self)} of {self.limit} partitions")

    def look_again(self) -> None:
        """Let the next call that needs a place look for one, whenever it comes."""
        self._looks_again = float("-inf")

    def keep_only(self, ident: int) -> None:
        """Drop what other threads than *ident* held: they do not exist after a fork. Call it in the child only."""
        self.lock = threading.RLock()
        for partition in self:
            for strategy in filter(None, partition.strategies):
                strategy.keep_only(ident)

    def _idle_locked(self, now: float) -> Hashable | None:
        """Find the key that was used least recently, of those that are idle."""
        # Looking at many in vain costs as much as many calls: a flood of keys is not to pay that for each of them.
        if now < self._looks_again:
            return None
        for key, partition in list(self.by_key.items()):
            if partition.is_idle(now):
                return key
        if self.limit > _FEW:
            self._looks_again = now + _PATIENCE
        return None


def in_use(strategies: Iterable[tuple[Any, Any]], now: float) -> list[tuple[Any, Any]]:
    """Give the *strategies* of a function, each with its policy, without what no call uses.

    That is what the keys share that find no place, which comes first of its kind, while every key has found one.
    """
    found = list(strategies)
    if any(isinstance(one, Partitions) and len(one) >= one.limit for _, one in found):
        return found
    occurrences, of_keys, kept = Counter(policy for policy, _ in found), set(), []
    for policy, strategy in found:
        if policy in of_keys or occurrences[policy] == 1 or not strategy.is_idle(now):
            kept.append((policy, strategy))
        of_keys.add(policy)
    return kept
