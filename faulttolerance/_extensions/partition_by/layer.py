"""The layer of ``@partition_by``: calls with one key share a circuit breaker, permits and a rate window."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from ..._call.order import STRATEGY_FACTORIES, Strategies
from ..._call.state import State
from ..._deadline.clock import clock
from ..._execution.caller_thread import Arguments, GuardedCall
from ..._execution.environment import Environment
from ..._log import WARNING, log
from ..._policy import CircuitBreaker
from ..._signature.call_key import refuse_unhashable
from .strategy import Partition, Partitions

_FULL = (
    "%s: each of the %d keys is in use, or its circuit is open: calls with other keys share one circuit, its permits "
    "and its rate window; raise max_partitions of @partition_by, or use fewer keys"
)


class Partitioning:
    """Finds the call path of a call by its key, for one function.

    Args:
        state: The state of the function: its partitions, and the strategies that calls without a place share.
        partitions: The partitions.
        key_of: Computes the key of a call from its arguments.
        inside: Builds the call path of the calls with one key, from its ``strategies``.
    """

    __slots__ = ("__weakref__", "_inside", "_key_of", "_partitions", "_paths", "_shared", "_state")

    def __init__(
        self,
        state: State,
        partitions: Partitions,
        key_of: Callable[..., Hashable],
        inside: Callable[..., GuardedCall],
    ) -> None:
        self._state = state
        self._partitions = partitions
        self._key_of = key_of
        self._inside = inside
        self._shared = Partition(state.strategies)
        self._paths: dict[Partition, GuardedCall] = {}

    def __call__(self, call: GuardedCall, environment: Environment | None) -> GuardedCall:
        """Return the call path of all calls; *call* is the path of calls whose keys have no place."""
        self._paths[self._shared] = call
        self._partitions.join(self)
        key_of, use, place, paths = self._key_of, self._partitions.use, self._place, self._paths

        def partitioned(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
            key = key_of(*args, **kwargs)
            partition = use(key)
            pin = partition.pin
            try:
                if partition.is_gone:
                    partition, pin = place(key)
                return (paths.get(partition) or self._path(partition))(args, kwargs)
            finally:
                del pin  # the traceback of a failure keeps this frame

        async def partitioned_async(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
            key = key_of(*args, **kwargs)
            partition = use(key)
            pin = partition.pin
            try:
                if partition.is_gone:
                    partition, pin = place(key)
                return await (paths.get(partition) or self._path(partition))(args, kwargs)
            finally:
                del pin  # the traceback of a failure keeps this frame

        return partitioned if environment is None else partitioned_async

    def forget(self, partition: Partition) -> None:
        """Remove the call path of a removed *partition*."""
        self._paths.pop(partition, None)

    def _place(self, key: Hashable) -> tuple[Partition, object]:
        """Return the partition for a *key* without one, and its pin; if there is no place, the shared partition."""
        refuse_unhashable(self._state.name, key)
        partitions, now = self._partitions, clock.monotonic()
        with partitions.lock:
            placed, gone = partitions.place(key, Strategies, now)
            shared = self._state.circuit_breaker
            for breaker in (partition.strategies.get(CircuitBreaker) for partition in gone):
                if shared is not None and breaker is not None:
                    shared.continue_counts(breaker, now)
            if placed is not None:
                return placed
            is_first = partitions.shared == 1
        if is_first:
            log(WARNING, _FULL, self._state.name, len(partitions))
        return self._shared, self._shared.pin

    def _path(self, partition: Partition) -> GuardedCall:
        """Build the call path of calls in *partition*, with every strategy that the policies in force need."""
        state, policies = self._state, None
        with self._partitions.lock:
            while policies is not state.policies:  # another thread may change these meanwhile
                policies = state.policies
                in_force: dict[Any, Any] = {type(policy): policy for policy in policies}
                made = partition.strategies.by_policy()
                for kind, factory in STRATEGY_FACTORIES.items():
                    if not factory.is_per_key or kind not in in_force or state.strategies.get(kind) is None:
                        continue
                    if kind in made:
                        factory.renew(made[kind], in_force[kind])
                    else:
                        name = factory.name_of_key(state.name, partition.key) if factory.name_of_key else state.name
                        made[kind] = factory.make(name, in_force[kind], Strategies.of(made))
                partition.strategies = Strategies.of(made)
            breaker, shared = partition.strategies.get(CircuitBreaker), state.circuit_breaker
            if breaker is not None and shared is not None:
                breaker.copy_force(shared, clock.monotonic())
        path = self._paths[partition] = self._inside(strategies=partition.strategies)
        return path
