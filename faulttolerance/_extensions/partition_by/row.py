"""The row of ``@partition_by``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..._call.row import Binding, Layer, Row, StrategyFactory, key_of
from ..._metrics.catalogue import Metric, PolicyMetrics
from .policy import PartitionBy

if TYPE_CHECKING:
    from .strategy import Partitions


def _partitions(name: str, policy: PartitionBy, _: object) -> Partitions:
    from .strategy import Partitions

    return Partitions(policy.max_partitions)


def _limit(partitions: Partitions, policy: PartitionBy) -> None:
    partitions.limit = policy.max_partitions


def _of_keys(partitions: Partitions) -> Iterable[Any]:
    return (partition.strategies for partition in partitions)


def _layer(policy: PartitionBy, binding: Binding) -> Layer:
    from .layer import Partitioning

    partitions = binding.strategies.get(PartitionBy)
    return Partitioning(binding.state, partitions, key_of(policy.key, binding), binding.build_inner)


_SERIES = PolicyMetrics(
    PartitionBy,
    metrics=(
        Metric(
            "ft.partitions",
            "gauge",
            "The number of keys with their own state",
            readings={(): lambda partitions, _: len(partitions)},
        ),
        Metric(
            "ft.partitions.shared.total",
            "counter",
            "The number of calls that share one state, because their key has none of its own",
            readings={(): lambda partitions, _: partitions.shared},
        ),
    ),
)

PARTITION_BY = Row(
    PartitionBy,
    strategy_factory=StrategyFactory(_partitions, _limit, nested=_of_keys, is_per_key=False),
    layer=_layer,
    series=_SERIES,
    needs_arguments=True,
)
