"""State for each key: who gets one of its own, and which goes where there are too many (rules N2, N3).

A key is known by the hash that it had when it came, and by being the same object or an equal one. Nothing asks it for
its hash again: keys may change theirs, and then they are keys that nobody looks up any more. One that can no longer be
compared equals none.

A call that finds its own needs no lock. Its frame refers to the pin of its partition for as long as it runs, however
it ends, and references are what the interpreter counts anyway. Why nobody uses a partition that went: a call takes the
pin, then looks whether the partition is gone; who lets one go marks it, then looks who has the pin. One of the two sees
the other.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from enum import Enum
from itertools import islice
from sys import getrefcount
from typing import Any, cast
from weakref import ref

from ..._strategy.condition import Condition

__all__ = ["Partition", "Partitions", "Pin"]

_FEW, _MANY = 8, 1024
"""How many partitions a key that finds no place looks at each time, and now and then."""
_PATIENCE = 0.1
_TRIES = 10


class Pin:
    """Keeps a partition where it is as long as something beside the partition refers to it."""

    __slots__ = ()


class Rest(Enum):
    """How much is lost if a partition is forgotten."""

    IDLE = "nothing: no call runs in it, nothing is held, no failure counts"
    UNUSED = "what nobody used for long: its circuit is closed"
    NONE = "something"


class Partition:
    """What is remembered for one key."""

    __slots__ = ("hash", "is_gone", "key", "pin", "same", "strategies")

    def __init__(self, strategies: Any, key: Hashable = None, hashed: int = 0) -> None:
        self.strategies = strategies
        """A tuple of strategies; replaced as a whole where a policy asks for a further one."""
        self.key = key
        self.hash = hashed
        self.same: Partition | None = None
        """The next one whose key has the same hash."""
        self.pin = Pin()
        """What each call that runs in it refers to."""
        self.is_gone = False

    def references(self) -> int:
        """Count those to the pin: ``_UNUSED`` of them where no call runs in it."""
        return getrefcount(self.pin)

    def rest(self, now: float) -> Rest:
        """Return whether it may be forgotten."""
        if self.references() > _UNUSED:
            return Rest.NONE
        rest = Rest.IDLE
        for strategy in self.strategies:
            if strategy is not None and not strategy.is_idle(now):
                if not hasattr(strategy, "is_at_rest") or not strategy.is_at_rest(now):
                    return Rest.NONE
                rest = Rest.UNUSED
        return rest


_NONE = Partition(())
_NONE.is_gone = True
_UNUSED = _NONE.references()


class Partitions:
    """The partitions of one guarded function, by key.

    A call of a key that is known::

        partition = partitions.use(key)
        pin = partition.pin
        if partition.is_gone:
            ...  # it has to be placed

    Args:
        limit: How many keys have one at most.
    """

    __slots__ = ("_by_hash", "_looked", "_order", "_ring", "limit", "lock", "shared", "users")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.shared = 0
        """How many calls found no place."""
        self._by_hash: dict[int, Partition] = {}
        # Both hold every partition, which is told apart by identity: the one used least recently first, and in turns.
        self._order: OrderedDict[Partition, None] = OrderedDict()
        self._ring: OrderedDict[Partition, None] = OrderedDict()
        self._looked = float("-inf")  # guarded by lock: when many were looked at
        # Reentrant: a signal handler or a finalizer may call the guarded function while its thread is in here.
        self.lock = threading.RLock()
        """Held while a partition is placed, or gets a further strategy."""
        self.users: tuple[ref[Any], ...] = ()
        """What keeps something for each partition, and has to ``forget`` those that go; replaced under the lock."""

    def __len__(self) -> int:
        return len(self._order)

    @property
    def is_full(self) -> bool:
        """Whether a further key finds no place."""
        return len(self._order) >= self.limit

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._some(0, None))

    def find(self, key: Hashable) -> Partition | None:
        """Return the partition of *key*, if there is one."""
        return self._find(key, hash(key))

    def use(self, key: Hashable) -> Partition:
        """Return the partition of *key*, from now on the one used most recently; one that is gone where it has none.

        Nothing comes out of here: what a key raises, ``place`` finds again.
        """
        try:
            partition = self._by_hash[hash(key)]
            if not (partition.key is key or partition.key == key):
                partition = cast("Partition", self.find(key))  # ``None`` is in no order, either
            self._order.move_to_end(partition)
        except Exception:  # noqa: BLE001
            return _NONE
        return partition

    def place(
        self, key: Hashable, make: Callable[[], Any], now: float
    ) -> tuple[tuple[Partition, Pin] | None, list[Partition]]:
        """Find the partition of *key*, or make one, and give it with its pin; also return those that went for it.

        *make* makes its strategies. ``None`` where there are too many, and none of them may go: then calls share what
        belongs to no key.

        Raises:
            TypeError: The key has no hash.
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
                partition.is_gone = False  # where a signal's handler raised while it was about to go
                self._order.move_to_end(partition)
                return (partition, partition.pin), gone
            partition = Partition(make(), key, hashed)
            pin = partition.pin  # from the beginning: a finalizer that runs here may need a place
            # Found last: who is interrupted before leaves one that nobody finds, and that goes as others do.
            self._order[partition] = self._ring[partition] = None
            partition.same = self._by_hash.get(hashed)
            self._by_hash[hashed] = partition
            return (partition, pin), gone

    def join(self, user: Any) -> None:
        """Let *user* hear of those that go, for as long as it lives."""
        with self.lock:
            self.users = (*(one for one in self.users if one() is not None), ref(user))

    def is_idle(self, now: float) -> bool:
        """Whether nothing is remembered; asked by nobody, for partitions have no partitions."""
        return not self._order

    def condition(self, now: float) -> Condition:
        """How it stands."""
        return Condition(f"{len(self)} of {self.limit} partitions")

    def look_again(self) -> None:
        """Let the next call that needs a place look at many, whenever it comes."""
        self._looked = float("-inf")

    def reset_after_fork(self, ident: int) -> None:
        """Drop what other threads than *ident* held: they do not exist after a fork. Call it in the child only."""
        self.lock = threading.RLock()
        self.shared = 0
        for partition in self:
            partition.pin = Pin()  # frames of other threads stay for ever; the call that forks has what it holds
            for strategy in filter(None, partition.strategies):
                strategy.reset_after_fork(ident)

    def _find(self, key: Hashable, hashed: int) -> Partition | None:
        partition = self._by_hash.get(hashed)
        while partition is not None:
            try:
                if partition.key is key or partition.key == key:
                    return partition
            except Exception:  # noqa: BLE001  # a key that was known before: it must not fail the calls of another one
                pass
            partition = partition.same
        return None

    def _some(self, start: int, stop: int | None) -> list[Partition]:
        """Return those from *start* to *stop*, the one used least recently first."""
        for _ in range(_TRIES):
            try:
                # One call of C: between two others use keys, and the order is another one.
                return next(map(list, map(islice, (self._order,), (start,), (stop,))))
            except RuntimeError:  # all the same: the collector ran a finalizer, or there is no GIL
                pass
        return []

    def _leaving_locked(self, now: float) -> Partition | None:
        """Find the one used least recently of those that are idle; where none is, of those unused."""
        unused = None
        for partition in self._candidates_locked(now):
            rest = partition.rest(now)
            if rest is Rest.IDLE:
                return partition
            if rest is Rest.UNUSED and unused is None:
                unused = partition
        return unused

    def _candidates_locked(self, now: float) -> Iterator[Partition]:
        """Give those that may go, the one used least recently first.

        Of many partitions these are a few each time, which are further ones each time: a flood of keys is not to pay
        for looking at all. Now and then they are so many as are looked at in a millisecond.
        """
        yield from self._some(0, _FEW)
        if len(self._order) <= _FEW:
            return
        if abs(now - self._looked) >= _PATIENCE:
            self._looked = now
            yield from self._some(_FEW, _MANY)
        else:
            for _ in range(_FEW // 2):
                partition = next(iter(self._ring))
                self._ring.move_to_end(partition)
                yield partition

    def _forget_locked(self, partition: Partition) -> bool:
        """Let *partition* go, and return whether it went: a call may have come meanwhile."""
        partition.is_gone = True
        if partition.references() > _UNUSED:
            partition.is_gone = False
            return False
        before = self._by_hash.get(partition.hash)
        if before is partition:
            if partition.same is None:
                del self._by_hash[partition.hash]
            else:
                self._by_hash[partition.hash] = partition.same
        while before is not None:
            if before.same is partition:
                before.same = partition.same
            before = before.same
        for user in self.users:
            if (one := user()) is not None:
                one.forget(partition)
        self._ring.pop(partition, None)
        self._order.pop(partition, None)
        return True
