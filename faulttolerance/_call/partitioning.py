"""The layer of ``@partition_by``: a call goes the way of its key, which has a breaker, permits and a rate window."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from .._policy import CircuitBreaker, FleetWide, PartitionBy
from .._runtime.blocking import Arguments, GuardedCall
from .._runtime.clock import clock
from .._signature.call_key import refuse_unhashable
from .._strategy.partitions import Partition, Partitions
from .order import MEMORIES, Strategies
from .state import State


class Partitioning:
    """Finds the way of a call by its key, for one function.

    Args:
        state: What the function remembers: its partitions, and what calls share that find no place among them.
        partitions: The former.
        key_of: Gives the key of a call from its arguments.
        shared: The way of the latter.
        make: Makes the way of the calls with one key, from the strategies for it.
    """

    __slots__ = ("__weakref__", "_calls", "_key_of", "_make", "_partitions", "_shared", "_state")

    def __init__(
        self,
        state: State,
        partitions: Partitions,
        key_of: Callable[..., Hashable],
        shared: GuardedCall,
        make: Callable[[Strategies], GuardedCall],
    ) -> None:
        self._state = state
        self._partitions = partitions
        self._key_of = key_of
        self._shared = shared
        self._make = make
        self._calls: dict[Partition, GuardedCall] = {}
        partitions.users.add(self)

    def call(self, asynchronous: bool) -> GuardedCall:
        """Give the way of all calls: a coroutine function where they are *asynchronous*."""
        find = self._find

        def partitioned(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
            return find(args, kwargs)(args, kwargs)

        async def partitioned_async(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
            return await find(args, kwargs)(args, kwargs)

        return partitioned_async if asynchronous else partitioned

    def forget(self, partition: Partition) -> None:
        """Keep nothing for a *partition* that went."""
        self._calls.pop(partition, None)

    def _find(self, args: Arguments, kwargs: Mapping[str, Any]) -> GuardedCall:
        key, by_key = self._key_of(*args, **kwargs), self._partitions.by_key
        try:
            call = self._calls[by_key[key]]
            by_key.move_to_end(key)
        except KeyError:
            pass
        except TypeError:
            refuse_unhashable(self._state.name, key)
            raise
        else:
            return call
        return self._enter(key)

    def _enter(self, key: Hashable) -> GuardedCall:
        """Find the way of a call whose key has none yet."""
        partitions, now = self._partitions, clock.monotonic()
        with partitions.lock:
            partition, gone = partitions.place(key, lambda: Partition(Strategies()), now)
            self._take_over(gone, now)
            if partition is None:
                return self._shared
            self._complete(partition, key, now)
        call = self._calls[partition] = self._make(partition.strategies)
        if partitions.by_key.get(key) is not partition:
            self.forget(partition)  # it went meanwhile
        return call

    def _complete(self, partition: Partition, key: Hashable, now: float) -> None:
        """Give *partition* every strategy that the policies in force ask for, with their values."""
        policies: Any = None
        while policies is not self._state.policies:  # another thread may change these meanwhile
            policies = self._state.policies
            in_force = {type(policy): policy for policy in policies}
            made = partition.strategies.by_policy()
            for kind, memory in MEMORIES.items():
                if kind is PartitionBy or kind not in in_force or self._state.strategies.get(kind) is None:
                    continue
                if kind in made:
                    memory.renew(made[kind], in_force[kind])
                else:
                    name = self._state.name if kind is not FleetWide else _fleet_key(self._state.name, key)
                    made[kind] = memory.make(name, in_force[kind], Strategies.of(made))
            partition.strategies = Strategies.of(made)
        breaker, shared = partition.strategies.get(CircuitBreaker), self._state.circuit_breaker
        if breaker is not None and shared is not None:
            breaker.be_forced_as(shared, now)

    def _take_over(self, gone: list[Partition], now: float) -> None:
        """Let what partitions counted that went be counted on."""
        shared = self._state.circuit_breaker
        for partition in gone:
            breaker = partition.strategies.get(CircuitBreaker)
            if shared is not None and breaker is not None:
                shared.count_on(breaker, now)


def _fleet_key(name: str, key: Hashable) -> str:
    """Name the state of *key* for the whole fleet: the text of a key says nothing to others, and may be of any length.

    What does not look the same in every process has a state of its own in each.
    """
    from hashlib import sha256  # brings in OpenSSL

    return f"{name}#{sha256(repr(key).encode(errors='backslashreplace')).hexdigest()[:16]}"
