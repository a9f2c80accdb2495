"""The layer of ``@partition_by``: a call goes the way of its key, which has a breaker, permits and a rate window."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from ..._call.order import MEMORIES, Strategies
from ..._call.state import State
from ..._deadline.clock import clock
from ..._execution.caller_thread import Arguments, GuardedCall
from ..._log import WARNING, log
from ..._policy import CircuitBreaker, FleetWide, PartitionBy
from ..._signature.call_key import refuse_unhashable
from .strategy import Partition, Partitions, Pin

_FULL = (
    "%s: each of the %d keys is in use, or its circuit is open: calls with other keys share one circuit, its permits "
    "and its rate window; raise max_partitions of @partition_by, or choose keys that are fewer"
)


class Partitioning:
    """Finds the way of a call by its key, for one function.

    Args:
        state: What the function remembers: its partitions, and what calls share that find no place among them.
        partitions: The former.
        key_of: Gives the key of a call from its arguments.
        shared: The way of the latter.
        make: Makes the way of the calls with one key, from the strategies for it.
    """

    __slots__ = ("__weakref__", "_key_of", "_make", "_partitions", "_shared", "_state", "_ways")

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
        self._shared = Partition(state.strategies)
        self._make = make
        self._ways: dict[Partition, GuardedCall] = {self._shared: shared}
        partitions.join(self)

    def call(self, asynchronous: bool) -> GuardedCall:
        """Give the way of all calls: a coroutine function where they are *asynchronous*."""
        key_of, use, place, ways = self._key_of, self._partitions.use, self._place, self._ways

        def partitioned(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
            pin = None
            try:
                key = key_of(*args, **kwargs)
                partition = use(key)
                pin = partition.pin
                if partition.is_gone:
                    partition, pin = place(key)
                return (ways.get(partition) or self._way(partition))(args, kwargs)
            finally:
                del pin  # the traceback of a failure keeps this frame

        async def partitioned_async(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
            pin = None
            try:
                key = key_of(*args, **kwargs)
                partition = use(key)
                pin = partition.pin
                if partition.is_gone:
                    partition, pin = place(key)
                return await (ways.get(partition) or self._way(partition))(args, kwargs)
            finally:
                del pin  # the traceback of a failure keeps this frame

        return partitioned_async if asynchronous else partitioned

    def forget(self, partition: Partition) -> None:
        """Keep nothing for a *partition* that went."""
        self._ways.pop(partition, None)

    def _place(self, key: Hashable) -> tuple[Partition, Pin]:
        """Find the partition of a call whose *key* has none yet, and its pin; what all share who find none."""
        partitions, now = self._partitions, clock.monotonic()
        with partitions.lock:
            try:
                placed, gone = partitions.place(key, Strategies, now)
            except TypeError:
                refuse_unhashable(self._state.name, key)
                raise
            self._take_over(gone, now)
            if placed is not None:
                self._complete(placed[0], key, now)
                return placed
            is_first = partitions.shared == 1
        if is_first:
            log(WARNING, _FULL, self._state.name, len(partitions))
        return self._shared, self._shared.pin

    def _way(self, partition: Partition) -> GuardedCall:
        """Make the way of calls in *partition*."""
        with self._partitions.lock:
            self._complete(partition, partition.key, clock.monotonic())
        way = self._ways[partition] = self._make(partition.strategies)
        return way

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
