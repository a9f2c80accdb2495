"""The state of each key: the keys that have their own, and the partitions to remove when there are too many (N2, N3).

A key is identified by the hash that it had at its first call, and by being the same object or an equal object. Its hash
is never requested again: a key may change its hash, and then no call looks it up any more. A key that can no longer be
compared equals no other key.

A call that finds its partition needs no lock. Its frame refers to the pin of the partition as long as the call runs,
for any outcome, and the interpreter counts references anyway. No call uses a removed partition, for this reason: a call
takes the pin, then checks whether the partition is gone; the code that removes a partition marks it, then checks for
references to the pin. One of the two sees the other.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from itertools import islice
from sys import getrefcount
from typing import Any
from weakref import ref

from ..._strategy.condition import Condition

_FEW, _MANY = 8, 1024
"""The number of partitions that a call without a place checks each time, and from time to time."""
_PATIENCE = 0.1
_TRIES = 10


class Partition:
    """The state of one key."""

    __slots__ = ("hash", "is_gone", "key", "pin", "strategies")

    def __init__(self, strategies: Any, key: Hashable = None, hashed: int = 0) -> None:
        self.strategies = strategies
        """A tuple of strategies; replaced as a whole if a policy needs a further one."""
        self.key = key
        self.hash = hashed
        self.pin = object()
        """The object to which each call in the partition refers, which keeps the partition in its place."""
        self.is_gone = False

    def references(self) -> int:
        """Return the number of references to the pin: ``_UNUSED`` if no call runs in the partition."""
        return getrefcount(self.pin)

    def loss(self, now: float) -> list[Any] | None:
        """Return the strategies that would lose something if the partition were removed; ``None`` if a call runs."""
        if self.references() > _UNUSED:
            return None
        return [strategy for strategy in self.strategies if strategy is not None and not strategy.is_idle(now)]


_NONE = Partition(())
_NONE.is_gone = True
_UNUSED = _NONE.references()


class Partitions:
    """The partitions of one guarded function, by key.

    A call of a known key::

        partition = partitions.use(key)
        pin = partition.pin
        if partition.is_gone:
            ...  # it has to be placed

    Args:
        limit: The maximum number of keys with a partition.
    """

    __slots__ = ("_by_hash", "_looked", "_order", "limit", "lock", "shared", "users")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.shared = 0
        """The number of calls that found no place."""
        self._by_hash: dict[int, tuple[Partition, ...]] = {}
        # Every partition, by identity: the least recently used first.
        self._order: OrderedDict[Partition, None] = OrderedDict()
        self._looked = float("-inf")  # guarded by lock: the last moment at which many were checked
        # Reentrant: a signal handler or a finalizer may call the guarded function while its thread is in here.
        self.lock = threading.RLock()
        """Held while a partition is placed, or receives a further strategy."""
        self.users: tuple[ref[Any], ...] = ()
        """Objects with a value for each partition that must ``forget`` removed partitions; replaced under lock."""

    def __len__(self) -> int:
        return len(self._order)

    @property
    def is_full(self) -> bool:
        """Whether a further key finds no place."""
        return len(self._order) >= self.limit

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._first(None))

    def find(self, key: Hashable) -> Partition | None:
        """Return the partition of *key*, or ``None``."""
        return self._find(key, hash(key))

    def use(self, key: Hashable) -> Partition:
        """Return the partition of *key*, now the most recently used; a partition that is gone if the key has none.

        It raises nothing: ``place`` repeats the errors of a key.
        """
        try:
            for partition in self._by_hash[hash(key)]:
                if partition.key is key or partition.key == key:
                    self._order.move_to_end(partition)
                    return partition
        except Exception:  # noqa: BLE001
            pass
        return _NONE

    def place(
        self, key: Hashable, make: Callable[[], Any], now: float
    ) -> tuple[tuple[Partition, object] | None, list[Partition]]:
        """Return the partition of *key*, which may be new, with its pin, and the partitions that were removed for it.

        *make* creates its strategies. The partition is ``None`` if there are too many, and none of them may be removed:
        then calls share the state that belongs to no key.

        Raises:
            TypeError: If the key has no hash.
        """
        gone: list[Partition] = []
        hashed = hash(key)
        with self.lock:
            while (partition := self._find(key, hashed)) is None and len(self._order) >= self.limit:
                leaving = self._leaving_locked(now)
                if leaving is None:
                    self.shared += 1
                    return None, gone
                if self._forget_locked(leaving):
                    gone.append(leaving)
            if partition is not None:
                partition.is_gone = False  # if a signal handler raised during its removal
                self._order.move_to_end(partition)
                return (partition, partition.pin), gone
            partition = Partition(make(), key, hashed)
            pin = partition.pin  # from the start: a finalizer that runs here may need a place
            # Indexed last: an interruption before leaves a partition that no call finds, and that is removed like
            # others.
            self._order[partition] = None
            self._by_hash[hashed] = (partition, *self._by_hash[hashed]) if hashed in self._by_hash else (partition,)
            return (partition, pin), gone

    def join(self, user: Any) -> None:
        """Notify *user* of removed partitions, as long as it lives."""
        with self.lock:
            self.users = (*(one for one in self.users if one() is not None), ref(user))

    def condition(self, now: float) -> Condition:
        """Return the number of partitions."""
        return Condition(f"{len(self)} of {self.limit} partitions")

    def reset_after_fork(self, ident: int) -> None:
        """Release the resources of all threads except *ident*, in the child of a fork, where these do not exist."""
        self.lock = threading.RLock()
        self.shared = 0
        for partition in self:
            partition.pin = object()  # frames of other threads stay for ever; the forking call has its own references
            for strategy in partition.strategies.by_policy().values():
                strategy.reset_after_fork(ident)

    def _find(self, key: Hashable, hashed: int) -> Partition | None:
        for partition in self._by_hash.get(hashed, ()):
            with suppress(Exception):  # of an older key, whose error must not fail calls of other keys
                if partition.key is key or partition.key == key:
                    return partition
        return None

    def _first(self, number: int | None) -> list[Partition]:
        """Return the first *number* of partitions, or all; the least recently used first."""
        for _ in range(_TRIES):
            try:
                # One call of C: between two calls, other threads use keys and change the order.
                return next(map(list, map(islice, (self._order,), (number,))))
            except RuntimeError:  # still possible: the collector ran a finalizer, or there is no GIL
                pass
        return []

    def _leaving_locked(self, now: float) -> Partition | None:
        """Return the least recently used idle partition; if there is none, the least recently used unused partition.

        Of many partitions, only a few are checked each time: calls of a flood of keys must not pay for a check of all.
        From time to time, the number is as large as can be checked in a millisecond. A check counts as a use, so that
        others are checked next.
        """
        unused = None
        is_long_ago = abs(now - self._looked) >= _PATIENCE
        for partition in self._first(_MANY if is_long_ago else _FEW):
            loss = partition.loss(now)
            if loss == []:
                return partition
            if loss and unused is None and all(hasattr(one, "is_at_rest") and one.is_at_rest(now) for one in loss):
                unused = partition
            if len(self._order) > _FEW:
                with suppress(KeyError):  # the handler of a signal removed it
                    self._order.move_to_end(partition)
        if is_long_ago:
            self._looked = now
        return unused

    def _forget_locked(self, partition: Partition) -> bool:
        """Remove *partition*, and return whether it was removed: a call may have come meanwhile."""
        partition.is_gone = True
        if partition.references() > _UNUSED:
            partition.is_gone = False
            return False
        while partition in (same := self._by_hash.get(partition.hash, ())):
            others = tuple(other for other in same if other is not partition)
            # No call stands between a look and its change: the handler of a signal may remove partitions, too.
            if partition.hash in self._by_hash and self._by_hash[partition.hash] is same:
                if others:
                    self._by_hash[partition.hash] = others
                else:
                    del self._by_hash[partition.hash]
        for user in self.users:
            if (one := user()) is not None:
                one.forget(partition)
        self._order.pop(partition, None)
        return True
